//! A consumer of a store, wherever that is.

use std::sync::Arc;

use forebay_store::{ConsumerKind, MicroBatch, Wait};

use crate::claim::{Claim, ClaimFuture};
use crate::client::Client;
use crate::connection::{Ask, Role};
use crate::error::Result;

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

    fn asking(&self, rule: MicroBatch) -> Ask<'_> {
        Ask { consumer: &self.name, rule, role: Role::Task, owner: None, columns: &[] }
    }

    /// The keys of the groups that there are and that have not been handed out.
    pub fn open_groups(&self) -> Result<Vec<String>> {
        self.client.connection.open_groups(&self.name)
    }
}
