//! Many agents on few devices: each agent's thread runs its group while it is its turn.
//!
//! There is no thread of the fleet's own. Whoever tells the scheduler of an event hands out the decisions that follow, and wakes the
//! agents that they concern; an agent's own thread starts, suspends and resumes its group. One lock guards scheduler and
//! decisions, and is never held while a process is started, ended or asked.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::error::GroupError;
use super::group::ProcessGroup;
use super::life::Life;
use crate::scheduler::{
    Decision, Demand, Event, Placement, Scheduler, SchedulerCounts, SchedulerError, Turn,
};

/// Whether an agent has more to do at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// It has: it goes on, or is suspended and waits if others need its room.
    More,
    /// It has not: it is suspended.
    Idle,
}

/// Agents that share device slots. A handle: cheap to clone.
#[derive(Debug, Clone)]
pub struct Fleet {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    began: Instant,
    decided: Mutex<Decided>,
    changed: Condvar,
}

#[derive(Debug)]
struct Decided {
    scheduler: Scheduler,
    /// What each agent has been told and has not done yet.
    orders: BTreeMap<String, Order>,
}

#[derive(Debug, Clone)]
enum Order {
    Start(Turn, Placement),
    Suspend,
    Unplaceable,
}

impl Fleet {
    /// A fleet on the nodes of this scheduler.
    pub fn new(scheduler: Scheduler) -> Self {
        let decided = Mutex::new(Decided { scheduler, orders: BTreeMap::new() });
        Self { shared: Arc::new(Shared { began: Instant::now(), decided, changed: Condvar::new() }) }
    }

    /// Adds an agent; its group needs `bytes_per_rank` on the device of each of its ranks. It costs nothing until it is run.
    ///
    /// # Errors
    /// [`GroupError::Scheduler`] if no node could hold it, or its name is taken.
    pub fn join(&self, group: ProcessGroup, bytes_per_rank: u64) -> Result<FleetMember, GroupError> {
        let demand = Demand { ranks: group.world(), bytes_per_rank };
        self.lock().scheduler.add(group.agent(), demand)?;
        Ok(FleetMember { fleet: self.clone(), demand, group })
    }

    /// Tells of something that happened to the nodes.
    ///
    /// # Errors
    /// [`GroupError::Scheduler`].
    pub fn tell(&self, event: Event) -> Result<(), GroupError> {
        self.handle(&mut self.lock(), event)?;
        Ok(())
    }

    /// What the scheduler has decided so far.
    pub fn counts(&self) -> SchedulerCounts {
        self.lock().scheduler.counts()
    }

    fn lock(&self) -> MutexGuard<'_, Decided> {
        // A panic of another agent's thread leaves decisions as they were.
        self.shared.decided.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the scheduler, and hands out what it decides.
    fn handle(&self, decided: &mut Decided, event: Event) -> Result<(), SchedulerError> {
        let decisions = decided.scheduler.handle(event, self.now_ms())?;
        self.hand_out(decided, decisions);
        Ok(())
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.shared.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn hand_out(&self, decided: &mut Decided, decisions: Vec<Decision>) {
        for decision in decisions {
            let (agent, order) = match decision {
                Decision::Start { agent, turn, placement, .. } => (agent, Order::Start(turn, placement)),
                Decision::Suspend { agent, .. } => (agent, Order::Suspend),
                Decision::Unplaceable { agent } => (agent, Order::Unplaceable),
            };
            decided.orders.insert(agent, order);
        }
        self.shared.changed.notify_all();
    }

    /// Nobody carries out what is decided of this agent any more.
    fn withdraw(&self, agent: &str) {
        let mut decided = self.lock();
        decided.orders.remove(agent);
        // The agent is one of the fleet's, so the scheduler knows it.
        if let Ok(decisions) = decided.scheduler.withdraw(agent, self.now_ms()) {
            self.hand_out(&mut decided, decisions);
        }
    }

    /// Says that the agent has work, and waits for its turn.
    fn wait_for_turn(&self, agent: &str, demand: Demand) -> Result<(Turn, Placement), GroupError> {
        let mut decided = self.lock();
        // Whose turn it is again already has told of its work before: to tell once more would be more work than there is.
        if !matches!(decided.orders.get(agent), Some(Order::Start(..))) {
            // What was said of a turn that is over, or of nodes that may have joined since.
            decided.orders.remove(agent);
            self.handle(&mut decided, Event::Work { agent: agent.to_owned() })?;
        }
        loop {
            match decided.orders.remove(agent) {
                Some(Order::Start(turn, placement)) => return Ok((turn, placement)),
                Some(Order::Unplaceable) => {
                    return Err(SchedulerError::Unplaceable { agent: agent.to_owned(), demand }.into());
                }
                // Of a turn that ended with its node.
                Some(Order::Suspend) => {}
                None => {
                    let woken = self.shared.changed.wait(decided);
                    decided = woken.unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    /// Says that a micro-batch is done; true if the agent has to leave.
    fn has_to_leave(&self, agent: &str, turn: Turn, next: Next) -> Result<bool, GroupError> {
        let mut decided = self.lock();
        let (agent, more) = (agent.to_owned(), next == Next::More);
        self.handle(&mut decided, Event::Done { agent: agent.clone(), turn, more })?;
        // An order to start is for the next turn: this one ended with its node.
        let order = decided.orders.get(&agent);
        let is_ordered = matches!(order, Some(Order::Start(..))) || decided.orders.remove(&agent).is_some();
        Ok(is_ordered || next == Next::Idle) // who has nothing to do leaves, also a turn that is over
    }
}

/// An agent of a fleet.
#[derive(Debug)]
pub struct FleetMember {
    fleet: Fleet,
    demand: Demand,
    group: ProcessGroup,
}

impl FleetMember {
    /// The group; without processes unless [`Self::run`] is running.
    pub fn group(&self) -> &ProcessGroup {
        &self.group
    }

    /// Calls `work` with the active group until it says [`Next::Idle`]. Between two calls the group may be suspended and
    /// resumed, elsewhere too, as the scheduler says. One call is a micro-batch, or an update.
    ///
    /// When this returns, the group has no processes, and with `Ok` nothing is lost.
    ///
    /// # Errors
    /// What `work` fails with, and what [`ProcessGroup::resume`] and [`ProcessGroup::suspend`] do: [`GroupError::lost`] says which
    /// claims are to be returned, and the call can be made again. [`GroupError::Unknown`] where nobody can say yet which: it is told
    /// also where `work` has failed before. [`GroupError::NotStaged`] that `work` fails with is told though the suspension after it has kept
    /// everything, for `work` alone knows what it has left undone: nothing is to be saved again, and the call can be made again.
    /// [`GroupError::Scheduler`] where no node is left that could hold the agent: call again once one has joined.
    pub fn run(
        &mut self,
        mut work: impl FnMut(&mut ProcessGroup) -> Result<Next, GroupError>,
    ) -> Result<(), GroupError> {
        let agent = self.group.agent().to_owned();
        let _running = Running { fleet: &self.fleet, agent: &agent };
        loop {
            let (turn, placement) = self.fleet.wait_for_turn(&agent, self.demand)?;
            let mut turn = InTurn { fleet: &self.fleet, group: &mut self.group, turn, is_told: false };
            let next = turn.work(&placement, &mut work);
            turn.end(next.is_ok())?;
            if next? == Next::Idle {
                return Ok(());
            }
        }
    }

    /// Leaves the fleet with its group.
    pub fn leave(self) -> ProcessGroup {
        let Self { fleet, group, .. } = self;
        fleet.withdraw(group.agent());
        // Withdrawn, it has no turn; and it is one of the fleet's.
        let _ = fleet.lock().scheduler.remove(group.agent());
        group
    }
}

/// An agent whose thread does what is decided of it. However it ends, nothing is decided any more that nobody would do.
struct Running<'a> {
    fleet: &'a Fleet,
    agent: &'a str,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.fleet.withdraw(self.agent);
    }
}

/// A turn that an agent has. However it is left, the scheduler is told once the processes have ended.
struct InTurn<'a> {
    fleet: &'a Fleet,
    group: &'a mut ProcessGroup,
    turn: Turn,
    is_told: bool,
}

/// Whether the work has ended because a rank had no room for its part of the state.
fn was_not_staged(worked: &Result<Next, GroupError>) -> bool {
    matches!(worked, Err(GroupError::NotStaged { .. }))
}

impl InTurn<'_> {
    /// From the start up to where the agent has to leave and has left.
    fn work(
        &mut self,
        placement: &Placement,
        work: &mut impl FnMut(&mut ProcessGroup) -> Result<Next, GroupError>,
    ) -> Result<Next, GroupError> {
        if self.group.life() == Life::Absent {
            self.group.activate(placement)?;
        } else {
            self.group.resume(placement)?;
        }
        let worked = loop {
            match work(self.group) {
                Ok(next) if !self.fleet.has_to_leave(self.group.agent(), self.turn, next)? => {}
                worked => break worked,
            }
        };
        if self.group.life() == Life::Active {
            match self.group.suspend() {
                // Of two errors the one is to be told that says what to return, or that nothing may be returned yet; and after a state that
                // was not set, that it was not set again.
                Err(error) if error.is_about_claims() || was_not_staged(&worked) => Err(error),
                // Else the first.
                suspended => worked.and_then(|next| suspended.map(|_| next)),
            }
        } else {
            worked
        }
    }

    fn end(&mut self, is_set: bool) -> Result<(), GroupError> {
        self.group.abandon();
        self.is_told = true;
        let (agent, turn) = (self.group.agent().to_owned(), self.turn);
        let event = if is_set { Event::Suspended { agent, turn } } else { Event::Failed { agent, turn } };
        self.fleet.tell(event)
    }
}

impl Drop for InTurn<'_> {
    /// The work has panicked: the room is free all the same.
    fn drop(&mut self) {
        if !self.is_told {
            // The agent is one of the fleet's, so this is an event that it knows.
            let _ = self.end(false);
        }
    }
}
