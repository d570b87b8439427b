//! An open step of a store, wherever that is.

use forebay_store::{CommittedStep, Durability, Gang, MicroBatch, ObjectRef, Wait};

use crate::claim::{Claim, ClaimFuture};
use crate::client::Client;
use crate::connection::{Ask, Commit, Epoch, Role};
use crate::consumer::ConsumerHandle;
use crate::error::Result;

/// An open step: takes micro-batches until its plan is complete, then commits them all at once. Dropping it gives the step up.
/// Calls are as those of [`forebay_store::Step`], where their errors are said.
#[derive(Debug)]
#[must_use = "a step that is dropped is given up"]
pub struct Step {
    client: Client,
    number: u64,
    durability: Option<Durability>,
    /// Committed, or not this one's to end.
    settled: bool,
}

#[allow(clippy::missing_errors_doc, reason = "said once, for all calls")]
impl Step {
    pub(crate) fn new(client: Client, number: u64) -> Self {
        Step { client, number, durability: None, settled: false }
    }

    pub(crate) fn of_another(client: Client, number: u64) -> Self {
        Step { client, number, durability: None, settled: true }
    }

    /// The step's number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The level at which the commit is acknowledged. Default: the store's.
    pub fn durability(mut self, level: Durability) -> Self {
        self.durability = Some(level);
        self
    }

    /// The next micro-batch of a trainer's planned rows. `None` when all that was planned has been handed out, or the wait is
    /// over ([`is_complete`](Step::is_complete) tells which).
    pub fn next(&self, consumer: &ConsumerHandle, rule: MicroBatch, wait: Wait) -> Result<Option<Claim>> {
        self.next_with(consumer, rule, wait, &[])
    }

    /// The same, with columns that are read along with it where that saves a round trip.
    pub fn next_with(
        &self,
        consumer: &ConsumerHandle,
        rule: MicroBatch,
        wait: Wait,
        columns: &[&str],
    ) -> Result<Option<Claim>> {
        let role = Role::Step(self.number);
        let ask = Ask { consumer: consumer.name(), rule, role, owner: None, columns };
        Claim::ask(&self.client, &ask, wait)
    }

    /// [`next`](Step::next) without blocking a thread, on any async runtime. A store in this process has no clock for `wait`:
    /// race it against a timer.
    pub fn next_async(&self, consumer: &ConsumerHandle, rule: MicroBatch, wait: Wait) -> Result<ClaimFuture> {
        let ask =
            Ask { consumer: consumer.name(), rule, role: Role::Step(self.number), owner: None, columns: &[] };
        Claim::ask_async(&self.client, &ask, wait)
    }

    /// Takes a rank's place in its gang, also in a step that another process began.
    pub fn join(&self, consumer: &ConsumerHandle, gang: &Gang) -> Result<GangMember> {
        let member = self.client.connection.join_step(self.number, consumer.name(), gang)?;
        Ok(GangMember { client: self.client.clone(), consumer: consumer.clone(), member })
    }

    /// Whether everything planned for a consumer has been handed out or left out.
    pub fn is_complete(&self, consumer: &ConsumerHandle) -> Result<bool> {
        self.client.connection.is_complete(self.number, consumer.name())
    }

    /// Gives back what has been accumulated for one table: its gradient cache was lost or dropped.
    pub fn drop_cache(&self, table: &str) -> Result<()> {
        self.client.connection.drop_cache(self.number, table)
    }

    /// Gives back the rows of some of the step's micro-batches, named by [`Claim::epoch`], whose gradients were lost, and of no
    /// others. Gives how many rows come again.
    pub fn return_lost(&self, claims: &[Epoch]) -> Result<u64> {
        self.client.connection.return_lost(self.number, claims)
    }

    /// Refuses a commit that could not be made now, before its objects are put: nobody brings them in vain.
    pub fn check_commit<'a>(
        &self,
        updates: impl IntoIterator<Item = (&'a str, Vec<ObjectRef>)>,
    ) -> Result<()> {
        let updates = updates.into_iter().map(|(policy, objects)| (policy.to_owned(), objects)).collect();
        let commit = Commit { updates, durability: self.durability };
        self.client.connection.check_commit(self.number, &commit)
    }

    /// Commits: rows consumed, policies raised, objects named, at once. After an error the step is open as before, if it was.
    pub fn commit<'a>(
        &mut self,
        updates: impl IntoIterator<Item = (&'a str, Vec<ObjectRef>)>,
    ) -> Result<CommittedStep> {
        let updates = updates.into_iter().map(|(policy, objects)| (policy.to_owned(), objects)).collect();
        let commit = Commit { updates, durability: self.durability };
        let committed = self.client.connection.commit_step(self.number, &commit)?;
        self.settled = true;
        Ok(committed)
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if !self.settled
            && let Err(error) = self.client.connection.abandon_step(self.number)
        {
            tracing::debug!(step = self.number, %error, "a dropped step was not given up; the end of the session does it");
        }
    }
}

/// A rank's place in its gang, for one trainer in one step.
#[derive(Debug)]
pub struct GangMember {
    client: Client,
    consumer: ConsumerHandle,
    member: u64,
}

impl GangMember {
    /// The next micro-batch of the gang that this rank has not had. The claim is this rank's part.
    ///
    /// # Errors
    /// As [`forebay_store::GangMember::next`].
    pub fn next(&self, rule: MicroBatch, wait: Wait) -> Result<Option<Claim>> {
        Claim::ask(&self.client, &self.asking(rule), wait)
    }

    /// The same without blocking a thread, on any async runtime. A store in this process has no clock for `wait`: race it
    /// against a timer.
    ///
    /// # Errors
    /// As for [`next`](GangMember::next).
    pub fn next_async(&self, rule: MicroBatch, wait: Wait) -> Result<ClaimFuture> {
        Claim::ask_async(&self.client, &self.asking(rule), wait)
    }

    /// In which role this rank asks for rows.
    pub fn role(&self) -> Role {
        Role::Member(self.member)
    }

    fn asking(&self, rule: MicroBatch) -> Ask<'_> {
        Ask { consumer: self.consumer.name(), rule, role: self.role(), owner: None, columns: &[] }
    }
}
