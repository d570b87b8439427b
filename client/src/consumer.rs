//! A consumer of a store, wherever that is.

use std::sync::Arc;

use forebay_store::{ConsumerKind, MicroBatch, Wait};

use crate::claim::{Claim, ClaimFuture};
use crate::client::Client;
use crate::connection::{Ask, Role};
use crate::error::Result;
use crate::subscription::{SubscribeOptions, Subscription};

/// A declared consumer. Calls are as those of [`forebay_store::ConsumerHandle`], where their errors are said.
#[derive(Clone, Debug)]
pub struct ConsumerHandle {
    client: Client,
    name: Arc<str>,
    kind: ConsumerKind,
}

#[allow(clippy::missing_errors_doc, reason = "said once, for all calls")]
impl ConsumerHandle {
    pub(crate) fn new(client: Client, name: &str, kind: ConsumerKind) -> Self {
        ConsumerHandle { client, name: name.into(), kind }
    }

    /// The consumer's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it does with its claims.
    pub fn kind(&self) -> ConsumerKind {
        self.kind
    }

    /// Claims rows for a task. `None` when nothing became ready in time.
    pub fn claim(&self, rule: MicroBatch, wait: Wait) -> Result<Option<Claim>> {
        self.claim_with(rule, wait, &[])
    }

    /// The same, with columns that are read along with it where that saves a round trip; [`Claim::columns`] for the same
    /// columns has them at hand then.
    pub fn claim_with(&self, rule: MicroBatch, wait: Wait, columns: &[&str]) -> Result<Option<Claim>> {
        let ask = Ask { columns, ..self.asking(rule) };
        Claim::ask(&self.client, &ask, wait)
    }

    /// The same without blocking a thread, on any async runtime. A store in this process has no clock for `wait`: race it
    /// against a timer.
    pub fn claim_async(&self, rule: MicroBatch, wait: Wait) -> Result<ClaimFuture> {
        Claim::ask_async(&self.client, &self.asking(rule), wait)
    }

    /// Subscribes to the micro-batches of a task: they come as they become ready, for as long as fewer than
    /// [`outstanding`](SubscribeOptions::outstanding) of them are unsettled. A step's are claimed, by
    /// [`Step::next`](crate::Step::next): what it takes is planned, and its claims end with it.
    ///
    /// ```
    /// # use forebay_client::{Changes, Client, SubscribeOptions};
    /// # use forebay_store::{Consumer, DataType, MicroBatch, NewRow, Options, Schema, Store, Wait};
    /// # let dir = tempfile::tempdir()?;
    /// # let client = Client::embedded(Store::open(dir.path().join("store"), Options::default())?);
    /// # let solver = client.create_table("solver", Schema::new().data("prompt", DataType::Utf8))?;
    /// # let judge = client.create_consumer("judge", Consumer::task(["solver"]).ready(["prompt"]))?;
    /// let claims = judge.subscribe(MicroBatch::up_to(16), &SubscribeOptions::default().outstanding(4))?;
    /// solver.insert(NewRow::new(0, "q17_0_0")?, [("prompt", "2 + 2 =".into())])?;
    /// if let Some(claim) = claims.next(Wait::Forever)? {
    ///     claim.finish(&Changes::new())?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `state` for a trainer; `input` for `outstanding` of 0, or a micro-batch of 0 rows; `capacity` for too many subscriptions.
    pub fn subscribe(&self, rule: MicroBatch, options: &SubscribeOptions) -> Result<Subscription> {
        Subscription::begin(&self.client, &self.name, self.kind, rule, options)
    }

    fn asking(&self, rule: MicroBatch) -> Ask<'_> {
        Ask { consumer: &self.name, rule, role: Role::Task, owner: None, columns: &[] }
    }

    /// The keys of the groups that there are and that have not been handed out.
    pub fn open_groups(&self) -> Result<Vec<String>> {
        self.client.connection.open_groups(&self.name)
    }
}
