//! What a trainer holds of a step.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Begun, ReliedCaches};
use crate::claim::{Claim, ClaimProgress, ClaimState};
use crate::consumer::{ClaimFuture, ConsumerHandle, MicroBatch, Wait};
use crate::durability::Durability;
use crate::error::{Cause, Result};
use crate::log::record::{Event, ReturnReason, UpdateRecord};
use crate::object::ObjectRef;
use crate::state::{Ask, State, unknown};
use crate::store::{Store, exists};
use crate::sync::atomic::{AtomicBool, Ordering};

/// An open step: takes micro-batches until its plan is complete, then commits them all at once.
///
/// Dropping it gives the step up: its claims are returned, and the same step number can be begun again.
#[derive(Debug)]
#[must_use = "a step that is dropped is given up"]
pub struct Step {
    store: Store,
    begun: Begun,
    durability: Durability,
    caches: Arc<ReliedCaches>,
    ended: AtomicBool,
}

/// How a commit moves one policy: its name, and the objects that hold its state at the new version.
pub type PolicyUpdate<'a> = (&'a str, Vec<ObjectRef>);

/// What a committed step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommittedStep {
    /// The step's number.
    pub step: u64,
    /// Rows that it consumed.
    pub rows: u64,
}

impl Step {
    pub(crate) fn new(store: Store, begun: Begun) -> Self {
        let durability = store.0.options.durability;
        Step { store, begun, durability, caches: Arc::default(), ended: AtomicBool::new(false) }
    }

    /// A step that somebody else holds.
    pub(crate) fn of_another(store: Store, begun: Begun) -> Self {
        let step = Step::new(store, begun);
        step.ended.store(true, Ordering::Relaxed);
        step
    }

    /// The step's number: how many steps were committed before it, plus one.
    pub fn number(&self) -> u64 {
        self.begun.number
    }

    pub(super) fn begun(&self) -> Begun {
        self.begun
    }

    /// Whether both are handles of one step, whose number may be that of one that was given up before.
    pub fn shares_step(&self, other: &Step) -> bool {
        self.begun == other.begun
    }

    /// The level at which the commit is acknowledged. Default: the store's.
    pub fn durability(mut self, level: Durability) -> Self {
        self.durability = level;
        self
    }

    /// The next micro-batch of a trainer's planned rows, as soon as enough is ready. `None` when everything planned for
    /// the consumer has been handed out, or the wait is over ([`is_complete`](Step::is_complete) tells which). The last
    /// micro-batch may be smaller than asked for.
    ///
    /// # Errors
    /// `state` when the step is no longer open, also where another of its number is; `input` when the consumer is of another store; `closed` when the store is.
    pub fn next(&self, consumer: &ConsumerHandle, rule: MicroBatch, wait: Wait) -> Result<Option<Claim>> {
        consumer.check_store(&self.store)?;
        let owner = self.owner();
        let ask = Ask { rule, step: Some(self.begun) };
        consumer.claim_when_ready(ask, wait, || Ok(consumer.attempt(ask, &owner)?.relying_on(&self.caches)))
    }

    /// The same without blocking a thread.
    ///
    /// # Errors
    /// `input` when the consumer is of another store. The future's errors are those of [`next`](Step::next).
    pub fn next_async(&self, consumer: &ConsumerHandle, rule: MicroBatch) -> Result<ClaimFuture> {
        consumer.check_store(&self.store)?;
        let ask = Ask { rule, step: Some(self.begun) };
        Ok(ClaimFuture::of_step(consumer.clone(), ask, self.owner(), self.caches.clone()))
    }

    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    /// Whether it is open: it, and not another of the same number that was begun after it was given up.
    fn is_open(&self, state: &State) -> bool {
        state.open_begun() == Some(self.begun)
    }

    pub(super) fn owner(&self) -> String {
        format!("step {} of process {}", self.number(), self.store.0.directory.disk.process())
    }

    /// Whether everything planned for a consumer has been handed out or left out.
    pub fn is_complete(&self, consumer: &ConsumerHandle) -> bool {
        let state = self.store.0.state.lock();
        if state.open_begun().is_some_and(|open| open.number == self.number() && open != self.begun) {
            return false; // it was given up
        }
        state.is_handed_out(self.number(), consumer.index())
    }

    /// Gives back what has been accumulated for one table: its gradient cache was lost or dropped. Who was told that others have dropped it
    /// (`CacheDropped`) says so that his part is gone, too, and goes on.
    ///
    /// # Errors
    /// `input` when there is no table of that name.
    pub fn drop_cache(&self, table: &str) -> Result<()> {
        self.store.table(table)?;
        self.store.0.submit_if(|state| {
            if !self.is_open(state) {
                return Ok((None, ()));
            }
            // A cache is a policy's: that of another table that carries its version goes with it.
            let policy = state.table_named(table).map(|table| state.tables[table].policy);
            policy.into_iter().for_each(|policy| self.caches.forget(policy));
            let in_cache = |claim: &ClaimState| {
                let of_policy = Some(state.tables[claim.table as usize].policy) == policy;
                of_policy && (claim.progress == ClaimProgress::Accumulated || claim.is_partly_done())
            };
            Ok((self.returned(state, in_cache), ()))
        })
    }

    /// The record by which those of the step's claims go back.
    fn returned(&self, state: &State, which: impl Fn(&ClaimState) -> bool) -> Option<Event> {
        let claims = state.membership(self.number()).claims.iter().copied();
        let claims: Vec<u64> =
            claims.filter(|number| state.claims.get(*number).is_some_and(&which)).collect();
        (!claims.is_empty()).then_some(Event::Returned { claims, why: ReturnReason::CacheDropped })
    }

    /// Gives back the rows of some of the step's micro-batches, named by [`Claim::epoch`], whose gradients were lost, and no others: what
    /// else is accumulated stays so. Claims that have ended, or are of another step or process, are left as they are. Gives how many
    /// rows come again.
    ///
    /// For a trainer that knows of each micro-batch what became of its gradient; one that has lost all of them calls
    /// [`drop_cache`](Step::drop_cache).
    ///
    /// # Errors
    /// `closed` when the store is.
    pub fn return_lost(&self, claims: &[(u64, u64)]) -> Result<u64> {
        self.store.0.submit_if(|state| {
            if !self.is_open(state) {
                return Ok((None, 0));
            }
            let of_step = &state.membership(self.number()).claims;
            let own = claims.iter().filter(|(incarnation, _)| *incarnation == state.incarnation);
            let mut lost: Vec<u64> = own.map(|(_, number)| *number).collect();
            lost.retain(|number| {
                let is_live = state.claims.get(*number).is_some_and(|claim| claim.progress.is_live());
                is_live && of_step.contains(number)
            });
            lost.sort_unstable();
            lost.dedup();
            let rows = lost.iter().filter_map(|number| state.claims.get(*number));
            let rows: u64 = rows.map(|claim| claim.rows.len() as u64).sum();
            let event = (!lost.is_empty()).then(|| state.returning(lost, ReturnReason::Released));
            Ok((event, rows))
        })
    }

    /// The policies as the commit's record names them, once every object is known to be there.
    fn updates(&self, updates: &[PolicyUpdate<'_>]) -> Result<Vec<UpdateRecord>> {
        check_keys(updates)?;
        for object in updates.iter().flat_map(|(_, objects)| objects) {
            self.store.0.puts.check(&self.store.0.directory, object)?;
        }
        records(&self.store.0.state.lock(), updates)
    }

    /// Whether a commit could be made now, of objects that are still to be put: for whoever has to bring them first, which is in
    /// vain where it cannot. What happens from here on may still change that.
    ///
    /// # Errors
    /// As for [`commit`](Step::commit), but for objects that are not there; `input` for one whose version was committed with other bytes.
    pub fn check_commit<'a>(&self, updates: impl IntoIterator<Item = PolicyUpdate<'a>>) -> Result<()> {
        self.store.0.check_writable("commit steps")?;
        let updates: Vec<PolicyUpdate<'a>> = updates.into_iter().collect();
        check_keys(&updates)?;
        let state = self.store.0.state.lock();
        state.check_begun(self.begun)?;
        self.caches.check(&state, self.number())?;
        state.decide_commit(self.number(), &records(&state, &updates)?)?;
        for object in updates.iter().flat_map(|(_, objects)| objects) {
            let ObjectRef { key, version, .. } = object;
            if state.committed_object(key, *version).is_some_and(|there| there != object) {
                return Err(exists(key, *version));
            }
        }
        Ok(())
    }

    /// Commits: marks the accumulated rows as consumed, raises the version of every policy named and records the objects
    /// that hold its state, all at once. Rows of the versions left behind that no step took are excluded as `stale`.
    ///
    /// # Errors
    /// `state` when a claim of the step is still leased, a policy is named that has no accumulated rows, or one that has
    /// is not named, a durable policy's update lacks an object, somebody else has put an object's version since, or others have dropped the cache of
    /// what was accumulated by this handle ([`drop_cache`](Step::drop_cache) says that its part is gone); `input` for a policy that is unknown or named twice,
    /// or an object that is not there. Nothing has changed then: the step is open as before, for a better commit.
    pub fn commit<'a>(&self, updates: impl IntoIterator<Item = PolicyUpdate<'a>>) -> Result<CommittedStep> {
        self.commit_at(self.durability, updates)
    }

    /// As [`commit`](Step::commit), acknowledged at a level of its own.
    ///
    /// # Errors
    /// As for [`commit`](Step::commit).
    pub fn commit_at<'a>(
        &self,
        level: Durability,
        updates: impl IntoIterator<Item = PolicyUpdate<'a>>,
    ) -> Result<CommittedStep> {
        let updates: Vec<PolicyUpdate<'a>> = updates.into_iter().collect();
        let number = self.number();
        let records = self.updates(&updates)?;
        self.store.0.submit_at(level, |state| {
            state.check_begun(self.begun)?;
            self.caches.check(state, number)?;
            state.decide_commit(number, &records)?;
            let mut objects = updates.iter().flat_map(|(_, objects)| objects);
            let puts = &self.store.0.puts;
            objects.try_for_each(|object| puts.check_still(&self.store.0.directory, object))?;
            let kept = self.store.0.options.object_versions_kept;
            let rewind_floor = state.oldest_rewind_after(number, &records, kept);
            Ok((Event::StepCommitted { step: number, updates: records, rewind_floor }, ()))
        })?;
        self.ended.store(true, Ordering::Relaxed);
        let newest: Vec<ObjectRef> = updates.into_iter().flat_map(|(_, objects)| objects).collect();
        self.store.0.puts.committed(&newest);
        self.store.retire_objects(&newest);
        let rows = self.store.0.state.lock().steps.get(&number).map_or(0, |step| step.rows);
        Ok(CommittedStep { step: number, rows })
    }

    /// Gives the step up: its claims are returned, and the same step number can be begun again. What dropping it does too,
    /// but for the error.
    ///
    /// # Errors
    /// `closed` when the store is.
    pub fn abandon(&self) -> Result<()> {
        while !self.give_up()? {}
        self.ended.store(true, Ordering::Relaxed); // or the drop would give up who begins the number again
        Ok(())
    }

    /// Ends it if none of its claims is held, else takes those back first: somebody may be granted one meanwhile, so it is looked again.
    /// Whether it has ended.
    fn give_up(&self) -> Result<bool> {
        self.store.0.submit_if(|state| {
            if !self.is_open(state) {
                return Ok((None, true));
            }
            let returned = self.returned(state, |claim| claim.progress.is_live());
            let is_last = returned.is_none();
            Ok((Some(returned.unwrap_or(Event::StepAbandoned { step: self.number() })), is_last))
        })
    }
}

/// The policies as a record names them.
fn records(state: &State, updates: &[PolicyUpdate<'_>]) -> Result<Vec<UpdateRecord>> {
    let named = |(name, objects): &PolicyUpdate<'_>| {
        let names = || state.policies.iter().map(|policy| &*policy.name);
        let policy = state.policy_named(name).ok_or_else(|| unknown("policy", name, names()))?;
        Ok(UpdateRecord { policy: policy as u32, objects: objects.iter().map(ObjectRef::record).collect() })
    };
    updates.iter().map(named).collect()
}

/// Keys are of the whole store: two policies can name the same object, but not each its own by the same key and version.
fn check_keys(updates: &[PolicyUpdate<'_>]) -> Result<()> {
    let mut named: HashMap<(&str, u64), (&str, &ObjectRef)> = HashMap::new();
    for (policy, object) in
        updates.iter().flat_map(|(policy, objects)| objects.iter().map(move |o| (*policy, o)))
    {
        let (other, first) = *named.entry((&object.key, object.version)).or_insert((policy, object));
        if first != object {
            let ObjectRef { key, version, .. } = object;
            let reason = format!(
                "policies {other:?} and {policy:?} name different objects by the key {key:?} and version {version}; keys are of the \
                 whole store, so give each policy its own"
            );
            return Err(Cause::Argument { what: "object", reason }.into());
        }
    }
    Ok(())
}

impl Drop for Step {
    fn drop(&mut self) {
        if !*self.ended.get_mut()
            && let Err(error) = self.abandon()
        {
            tracing::debug!(step = self.number(), %error, "a dropped step was not given up; reopening the store does it");
        }
    }
}
