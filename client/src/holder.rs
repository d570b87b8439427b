//! What one holder has of a store of this process: claims, steps, places in gangs, by name.
//!
//! An embedded client is one holder; a server has one for each session, so that nobody can end what another holds. Dropping
//! it gives everything back.
//!
//! # Locks
//! `inner`, for a look-up, and for a look at which claims are live where there are many. A claim has no lock: who reads one has
//! a part in it, and who ends it takes it out and ends it for all who have, without waiting for any of them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arrow_array::RecordBatch;
use forebay_store::{
    Cause, Cell, Claim, ClaimFuture, CommittedStep, ConsumerHandle, Gang, GangMember, Kind, Lists, Places,
    Row, Step, StepPlan, Store, Timestamp, Wait,
};

use crate::cell::CellValue;
use crate::changes::Changes;
use crate::connection::{Ask, Commit, Epoch, Granted, Plan, Role};
use crate::error::{Error, Result};
use crate::wire::SentCell;

#[cfg(test)]
mod tests;

/// Why a store is closed that nothing else has closed.
pub(crate) const CLOSED_BY_OWNER: &str = "it was closed by its owner";

/// How many places in gangs one may have of a step: each is kept until the step is over.
const MEMBERS_MAX: usize = 4096;

/// How many claims may lie there before those that have ended by themselves are looked for.
const CLAIMS_BEFORE_SWEEP: usize = 256;

/// Everything that one holder has of a store.
#[derive(Debug)]
pub struct Holder {
    store: Store,
    owner: String,
    /// Nobody claims any more: what goes back is not for this holder's own waits.
    closed: AtomicBool,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Those that nobody has ended.
    claims: HashMap<Epoch, Arc<Claim>>,
    steps: HashMap<u64, Arc<Step>>,
    /// With the step that each is of. Those of the step that was joined last: no other is open.
    members: HashMap<u64, (u64, Arc<GangMember>)>,
    next_member: u64,
    sweep_at: usize,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner) // whoever panicked left whole entries
}

fn closed(step: u64) -> Error {
    forebay_store::Error::from(Cause::StepClosed { step }).into()
}

impl Inner {
    /// Takes out those claims that have ended by themselves, if it is time to look for them.
    fn sweep(&mut self) -> Vec<(Epoch, Arc<Claim>)> {
        if self.claims.len() < self.sweep_at {
            return Vec::new();
        }
        let over = self.claims.extract_if(|_, claim| !claim.is_live()).collect();
        self.sweep_at = CLAIMS_BEFORE_SWEEP.max(2 * self.claims.len());
        over
    }
}

/// Gives the rows of a claim back now, whoever still reads it, where nobody hears of a failure.
fn let_go(claim: &Claim) {
    if let Err(error) = claim.release_shared() {
        tracing::debug!(claim = claim.epoch().1, %error, "a claim was not given back; its lease or the store ends it");
    }
}

impl Holder {
    /// A holder of nothing yet. `owner` is what `system.claims` shows.
    pub fn new(store: Store, owner: &str) -> Self {
        let inner = Inner { sweep_at: CLAIMS_BEFORE_SWEEP, ..Inner::default() };
        Holder { store, owner: owner.to_owned(), closed: AtomicBool::new(false), inner: Mutex::new(inner) }
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// What it has, for a look-up. A forked child is refused before the lock is touched: nobody may be there to let it go.
    fn inner(&self) -> Result<MutexGuard<'_, Inner>> {
        self.store.check_process()?;
        Ok(lock(&self.inner))
    }

    /// How many claims it holds.
    pub fn claims(&self) -> usize {
        lock(&self.inner).claims.len()
    }

    /// Gives everything back at once: claims, steps, places in gangs. What comes later is kept as before.
    pub fn give_back(&self) {
        let all = {
            let Ok(mut inner) = self.inner() else { return }; // a child holds nothing
            let sweep_at = inner.sweep_at;
            std::mem::replace(&mut *inner, Inner { sweep_at, ..Inner::default() })
        };
        // With nothing locked: it waits for the store.
        all.claims.values().for_each(|claim| let_go(claim));
        drop(all);
    }

    /// A step that it began.
    fn step(&self, number: u64) -> Result<Arc<Step>> {
        self.inner()?.steps.get(&number).cloned().ok_or_else(|| closed(number))
    }

    fn member(&self, number: u64) -> Result<Arc<GangMember>> {
        let found = self.inner()?.members.get(&number).map(|(_, member)| member.clone());
        found.ok_or_else(|| {
            Error::input(
                "Unknown",
                format!("no place in a gang has the number {number}; join its step first"),
            )
        })
    }

    /// Claims rows, and keeps the claim. Blocks for as long as `wait` says.
    ///
    /// # Errors
    /// As the store's own claims; `state` for a step that is not this holder's.
    pub fn claim(&self, ask: &Ask<'_>, wait: Wait) -> Result<Option<Granted>> {
        let claim = self.ask(ask, wait).map_err(|error| self.closed_or(error))?;
        claim.map(|claim| self.keep_unless_closed(claim, ask.role)).transpose()
    }

    fn ask(&self, ask: &Ask<'_>, wait: Wait) -> Result<Option<Claim>> {
        Ok(match ask.role {
            Role::Task => {
                let owner = ask.owner.unwrap_or(&self.owner);
                self.store.consumer(ask.consumer)?.claim(ask.rule, owner, wait)?
            }
            Role::Step(step) => self.step(step)?.next(&self.store.consumer(ask.consumer)?, ask.rule, wait)?,
            Role::Member(member) => self.member(member)?.next(ask.rule, wait)?,
        })
    }

    /// The same without blocking; [`keep_unless_closed`](Holder::keep_unless_closed) what comes of
    /// it.
    ///
    /// # Errors
    /// As for [`claim`](Holder::claim).
    pub fn claim_async(&self, ask: &Ask<'_>) -> Result<ClaimFuture> {
        Ok(match ask.role {
            Role::Task => {
                let owner = ask.owner.unwrap_or(&self.owner);
                self.store.consumer(ask.consumer)?.claim_async(ask.rule, owner)?
            }
            Role::Step(step) => self.step(step)?.next_async(&self.store.consumer(ask.consumer)?, ask.rule)?,
            Role::Member(member) => self.member(member)?.next_async(ask.rule),
        })
    }

    /// Gives everything back at once, and refuses claims that come later.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.give_back();
    }

    /// That it is closed, if it is: a wait that ends then may end with its step, or with the store.
    pub(crate) fn closed_or(&self, error: Error) -> Error {
        if self.closed.load(Ordering::SeqCst) { closed_by_owner() } else { error }
    }

    /// Refuses whoever waits on after the end.
    ///
    /// # Errors
    /// `closed` after [`close`](Holder::close), and when the store is.
    pub(crate) fn check_open(&self) -> Result<()> {
        self.store.check_process()?;
        match self.store.closed() {
            _ if self.closed.load(Ordering::SeqCst) => Err(closed_by_owner()),
            Some(reason) => Err(forebay_store::Error::from(Cause::Closed { reason }).into()),
            None => Ok(()),
        }
    }

    /// Keeps a claim that was made in a role, until it is ended. Says what it is. Of who is closed its rows go back.
    ///
    /// # Errors
    /// `closed` after [`close`](Holder::close).
    pub fn keep_unless_closed(&self, claim: Claim, role: Role) -> Result<Granted> {
        let granted = Granted::of(&claim, role.member());
        let mut inner = lock(&self.inner);
        // With the lock: who closes this gives back what was kept before, and what comes after is refused.
        if self.closed.load(Ordering::SeqCst) {
            drop(inner);
            return Err(closed_by_owner());
        }
        let over = inner.sweep();
        inner.claims.insert(granted.epoch, Arc::new(claim));
        drop(inner);
        drop(over); // with nothing locked
        Ok(granted)
    }

    fn held(&self, epoch: Epoch) -> Result<Arc<Claim>> {
        self.inner()?.claims.get(&epoch).cloned().ok_or_else(|| ended(epoch))
    }

    /// Looks at a claim, for as long as that takes: nobody waits for it.
    ///
    /// # Errors
    /// `state` when the claim is not this holder's.
    pub fn look<T>(&self, epoch: Epoch, look: impl FnOnce(&Claim) -> T) -> Result<T> {
        Ok(look(&*self.held(epoch)?))
    }

    fn with<T>(&self, epoch: Epoch, look: impl FnOnce(&Claim) -> forebay_store::Result<T>) -> Result<T> {
        Ok(self.look(epoch, look)??)
    }

    /// Takes a claim out, to be ended.
    fn take(&self, epoch: Epoch) -> Result<Arc<Claim>> {
        self.inner()?.claims.remove(&epoch).ok_or_else(|| ended(epoch))
    }

    /// Columns of a claim's rows.
    ///
    /// # Errors
    /// `state` when the claim is not this holder's; `input` when a column is unknown.
    pub fn columns(&self, epoch: Epoch, names: &[&str], lists: Lists) -> Result<RecordBatch> {
        let names = names.iter().copied();
        self.with(epoch, |claim| match lists {
            Lists::Together => claim.columns(names),
            Lists::InPlace => claim.columns_in_place(names),
        })
    }

    /// What the cells of data columns of a claim's rows hold, a list a column. Bytes are where they lie.
    ///
    /// # Errors
    /// `state` when the claim is not this holder's; `input` when there is no data column of a name.
    pub fn cells(&self, epoch: Epoch, names: &[&str]) -> Result<Vec<Vec<CellValue>>> {
        self.each_cell(epoch, names, CellValue::from)
    }

    /// Columns of a claim's rows, for a neighbour.
    ///
    /// # Errors
    /// As for [`columns`](Holder::columns).
    pub fn places(&self, epoch: Epoch, names: &[&str]) -> Result<Places> {
        self.with(epoch, |claim| claim.places(names.iter().copied()))
    }

    /// Cells of a claim's rows as they are sent, to a neighbour where it is one.
    ///
    /// # Errors
    /// As for [`cells`](Holder::cells).
    pub fn sent_cells(&self, epoch: Epoch, names: &[&str], neighbour: bool) -> Result<Vec<Vec<SentCell>>> {
        let sent = |cell| match neighbour {
            true => SentCell::for_neighbour(cell),
            false => SentCell::Held(CellValue::from(cell)),
        };
        self.each_cell(epoch, names, sent)
    }

    fn each_cell<T>(&self, epoch: Epoch, names: &[&str], of: impl Fn(Cell) -> T) -> Result<Vec<Vec<T>>> {
        self.with(epoch, |claim| {
            names.iter().map(|name| Ok(claim.cells(name)?.into_iter().map(&of).collect())).collect()
        })
    }

    /// Completes a task's claim with what it wrote. After an error the rows go back.
    ///
    /// # Errors
    /// As [`Claim::finish`]; `state` when the claim is not this holder's.
    pub fn finish(&self, epoch: Epoch, changes: &Changes<'_>) -> Result<Vec<Row>> {
        let claim = self.take(epoch)?;
        let mut batch = self.store.batch();
        changes.fill(&self.store, &mut batch).inspect_err(|_| let_go(&claim))?;
        Ok(claim.finish_shared(batch)?)
    }

    /// Gives the rows of a claim back.
    ///
    /// # Errors
    /// `state` when the claim is not this holder's.
    pub fn release(&self, epoch: Epoch) -> Result<()> {
        Ok(self.take(epoch)?.release_shared()?)
    }

    /// Says that the gradient of a claim's rows is in its policy's cache.
    ///
    /// # Errors
    /// As [`Claim::accumulated`]; `state` when the claim is not this holder's.
    pub fn accumulated(&self, epoch: Epoch) -> Result<()> {
        Ok(self.take(epoch)?.accumulated_shared()?)
    }

    /// Holds a claim for longer.
    ///
    /// # Errors
    /// As [`Claim::extend`]; `state` when the claim is not this holder's.
    pub fn extend(&self, epoch: Epoch, time: Duration) -> Result<Timestamp> {
        self.with(epoch, |claim| claim.extend(time))
    }

    /// Begins a step, and keeps it.
    ///
    /// # Errors
    /// As [`Store::begin_step`].
    pub fn begin_step(&self, plan: &Plan) -> Result<u64> {
        let consumers: Vec<ConsumerHandle> =
            plan.entries().map(|(name, ..)| Ok(self.store.consumer(name)?)).collect::<Result<_>>()?;
        let planned =
            plan.entries().zip(&consumers).fold(StepPlan::new(), |planned, ((_, groups, rows), consumer)| {
                match groups {
                    [] => planned.rows(consumer, rows),
                    groups => planned.groups(consumer, groups.iter().map(String::as_str)),
                }
            });
        let step = Arc::new(self.store.begin_step(planned)?);
        lock(&self.inner).steps.insert(step.number(), step.clone());
        Ok(step.number())
    }

    /// Takes a rank's place in a gang of an open step, whoever began it.
    ///
    /// # Errors
    /// As [`Step::join`]; `state` when no such step is open; `capacity` where this holder has too many places of it.
    pub fn join_step(&self, step: u64, consumer: &str, gang: Gang) -> Result<u64> {
        let member = Arc::new(self.store.step(step)?.join(&self.store.consumer(consumer)?, gang)?);
        let mut inner = lock(&self.inner);
        let is_full = inner.members.len() >= MEMBERS_MAX;
        // Those of a step of that number that was given up say so, for as long as there is room for them.
        let is_over = |of: u64, kept: &GangMember| of != step || is_full && !kept.shares_step(&member);
        let over: Vec<_> = inner.members.extract_if(|_, (of, kept)| is_over(*of, kept)).collect();
        let number = inner.keep_member(step, &member);
        drop(inner);
        drop(over); // with nothing locked
        number
    }

    /// Whether all that a step had planned for a consumer was handed out.
    ///
    /// # Errors
    /// `state` when no such step is open.
    pub fn is_complete(&self, step: u64, consumer: &str) -> Result<bool> {
        let step = self.store.step(step)?;
        Ok(step.is_complete(&self.store.consumer(consumer)?))
    }

    /// Gives back what was accumulated for a table.
    ///
    /// # Errors
    /// As [`Step::drop_cache`]; `state` when no such step is open.
    pub fn drop_cache(&self, step: u64, table: &str) -> Result<()> {
        let open = self.store.step(step)?;
        let own = self.step(step).ok().filter(|own| own.shares_step(&open)); // it knows what its claims rely on
        Ok(own.as_deref().unwrap_or(&open).drop_cache(table)?)
    }

    /// Gives back the rows of claims of a step whose gradients were lost; all ranks' parts of each. Says how many come again.
    ///
    /// # Errors
    /// As [`Step::return_lost`]; `state` when no such step is open.
    pub fn return_lost(&self, step: u64, claims: &[Epoch]) -> Result<u64> {
        let lost: Vec<(u64, u64)> =
            claims.iter().map(|(incarnation, number, _)| (*incarnation, *number)).collect();
        Ok(self.store.step(step)?.return_lost(&lost)?)
    }

    /// Looks whether a step that it began could be committed so.
    ///
    /// # Errors
    /// As [`Step::check_commit`]; `state` when the step is not this holder's.
    pub fn check_commit(&self, number: u64, commit: &Commit) -> Result<()> {
        let updates = commit.updates.iter().map(|(policy, objects)| (policy.as_str(), objects.clone()));
        Ok(self.step(number)?.check_commit(updates)?)
    }

    /// Commits a step that it began.
    ///
    /// # Errors
    /// As [`Step::commit`]; `state` when the step is not this holder's. It is open as before then.
    pub fn commit_step(&self, number: u64, commit: &Commit) -> Result<CommittedStep> {
        let step = self.step(number)?;
        let updates = commit.updates.iter().map(|(policy, objects)| (policy.as_str(), objects.clone()));
        let committed = match commit.durability {
            None => step.commit(updates)?,
            Some(level) => step.commit_at(level, updates)?,
        };
        self.forget(number);
        Ok(committed)
    }

    /// Gives a step up that it began: its claims go back.
    ///
    /// # Errors
    /// `state` when the step is not this holder's.
    pub fn abandon_step(&self, number: u64) -> Result<()> {
        let step = self.step(number)?;
        step.abandon()?;
        self.forget(number);
        Ok(())
    }

    fn forget(&self, step: u64) {
        lock(&self.inner).steps.remove(&step);
    }
}

impl Inner {
    /// Keeps a place in a gang, under a number.
    fn keep_member(&mut self, step: u64, member: &Arc<GangMember>) -> Result<u64> {
        if self.members.len() >= MEMBERS_MAX {
            let message = format!(
                "this client has {MEMBERS_MAX} places in gangs of step {step} already; ask with those, or begin another step"
            );
            return Err(Error::new(Kind::Capacity, "Members", message));
        }
        self.next_member += 1;
        self.members.insert(self.next_member, (step, member.clone()));
        Ok(self.next_member)
    }
}

fn closed_by_owner() -> Error {
    forebay_store::Error::from(Cause::Closed { reason: CLOSED_BY_OWNER.to_owned() }).into()
}

fn ended((_, claim, _): Epoch) -> Error {
    forebay_store::Error::from(Cause::ClaimFenced { claim, found: "ended or another's", expected: "leased" })
        .into()
}
