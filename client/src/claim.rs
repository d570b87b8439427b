//! A leased micro-batch of a store, wherever that is.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use arrow_array::RecordBatch;
use forebay_store::{GradientId, Lists, Row, SampleId, Timestamp, Wait};

use crate::cell::CellValue;
use crate::changes::Changes;
use crate::client::Client;
use crate::connection::{Ask, Epoch, Granted, Waited};
use crate::error::Result;

/// A leased micro-batch: rows of one table, in sample-id order, that nobody else of its consumer can have. Dropping it gives
/// the rows back. Calls are as those of [`forebay_store::Claim`], where their errors are said.
#[derive(Debug)]
#[must_use = "a claim that is dropped gives its rows back"]
pub struct Claim {
    client: Client,
    granted: Granted,
    settled: bool,
}

/// A claim to come, on any async runtime. Where it is dropped no row is taken, or what was taken goes back.
pub type ClaimFuture = Pin<Box<dyn Future<Output = Result<Waited<Claim>>> + Send>>;

#[allow(clippy::missing_errors_doc, reason = "said once, for all calls")]
impl Claim {
    pub(crate) fn ask(client: &Client, ask: &Ask<'_>, wait: Wait) -> Result<Option<Self>> {
        let granted = client.connection.claim(ask, wait)?;
        Ok(granted.map(|granted| Claim::granted(client, granted)))
    }

    /// Rows that were granted otherwise.
    pub(crate) fn granted(client: &Client, granted: Granted) -> Self {
        Claim { client: client.clone(), granted, settled: false }
    }

    /// The same without blocking: see [`Connection::claim_async`](crate::Connection::claim_async).
    pub(crate) fn ask_async(client: &Client, ask: &Ask<'_>, wait: Wait) -> Result<ClaimFuture> {
        let (granting, client) = (client.connection.claim_async(ask, wait)?, client.clone());
        Ok(Box::pin(async move {
            Ok(match granting.await? {
                Waited::Claimed(granted) => Waited::Claimed(Claim { client, granted, settled: false }),
                Waited::Complete => Waited::Complete,
                Waited::TimedOut => Waited::TimedOut,
            })
        }))
    }

    /// What the claim is called: incarnation of the store, number in it, and the place in a gang that it was claimed from.
    pub fn epoch(&self) -> Epoch {
        self.granted.epoch
    }

    /// The table of the rows.
    pub fn table(&self) -> &str {
        &self.granted.table
    }

    /// The step that the claim belongs to, for a trainer's.
    pub fn step(&self) -> Option<u64> {
        self.granted.step
    }

    /// The claim's place among its step's claims of the same consumer, from 0.
    pub fn sequence_in_step(&self) -> u32 {
        self.granted.sequence_in_step
    }

    /// The name of the gradient of these rows, for a trainer's claim.
    pub fn gradient_id(&self) -> Option<&GradientId> {
        self.granted.gradient.as_ref()
    }

    /// The rows, in sample-id order.
    pub fn rows(&self) -> &[Row] {
        &self.granted.rows
    }

    /// The rows' sample ids, in the same order.
    pub fn sample_ids(&self) -> &[SampleId] {
        &self.granted.samples
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.granted.rows.len()
    }

    /// Whether there are none: so may be a rank's part.
    pub fn is_empty(&self) -> bool {
        self.granted.rows.is_empty()
    }

    /// How many rows the micro-batch has over all ranks of its gang.
    pub fn rows_in_gang(&self) -> u64 {
        self.granted.rows_in_gang
    }

    /// How many counted elements the micro-batch has over all ranks of its gang; 0 where there is no gang or nothing is counted.
    pub fn tokens_in_gang(&self) -> u64 {
        self.granted.tokens_in_gang
    }

    /// Columns of the rows as Arrow arrays. Cells that are not final are null.
    pub fn columns<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Result<RecordBatch> {
        let names: Vec<&str> = names.into_iter().collect();
        self.client.connection.columns(self.epoch(), &names, Lists::Together)
    }

    /// As [`columns`](Claim::columns), with lists and tensors as list views, which are not copied where the store is in this
    /// process or its files can be read here: see [`forebay_store::Claim::columns_in_place`]. What was sent is a list view of
    /// what came.
    pub fn columns_in_place<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Result<RecordBatch> {
        let names: Vec<&str> = names.into_iter().collect();
        self.client.connection.columns(self.epoch(), &names, Lists::InPlace)
    }

    /// What the cells of data columns hold, a list a column with a value a row. Bytes of a store in this process are where
    /// they lie, not copied, and outlive the claim and the client. Cells that are not final are [`CellValue::Empty`].
    pub fn cells<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Result<Vec<Vec<CellValue>>> {
        let names: Vec<&str> = names.into_iter().collect();
        self.client.connection.cells(self.epoch(), &names)
    }

    /// Completes a task: the changes and the end of the claim are one record. After an error the rows go back.
    pub fn finish(mut self, changes: &Changes<'_>) -> Result<Vec<Row>> {
        let rows = self.client.connection.finish(self.epoch(), changes)?;
        self.settled = true;
        Ok(rows)
    }

    /// Says that the gradient of these rows is in their policy's cache.
    pub fn accumulated(mut self) -> Result<()> {
        self.client.connection.accumulated(self.epoch())?;
        self.settled = true;
        Ok(())
    }

    /// Gives the rows back, to be claimed again.
    pub fn release(mut self) -> Result<()> {
        self.settled = true;
        self.client.connection.release(self.epoch())
    }

    /// Holds the rows for `time` from now on, and no shorter than they are held already. Gives the new deadline.
    pub fn extend(&self, time: Duration) -> Result<Timestamp> {
        self.client.connection.extend(self.epoch(), time)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.settled
            && let Err(error) = self.client.connection.release(self.epoch())
        {
            tracing::debug!(epoch = ?self.epoch(), %error, "a dropped claim was not given back; its lease or the session ends it");
        }
    }
}
