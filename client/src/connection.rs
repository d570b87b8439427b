//! The seam between what callers hold and where the store is: plain calls, plain data.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::Schema as ArrowSchema;
use forebay_store::{
    Claim, CommittedStep, Consumer, ConsumerKind, DataColumn, Delete, Deleted, Durability, Gang, GradientId,
    Lists, MicroBatch, ObjectRef, Policy, PolicyInfo, Rewind, RewoundTo, Row, SampleId, Schema, TableCounts,
    Timestamp, Value, Wait,
};

use crate::admin::AdminCalls;
use crate::cell::CellValue;
use crate::changes::Changes;
use crate::error::Result;
use crate::history::HistoryCalls;
use crate::objects::ObjectCalls;
use crate::snapshots::SnapshotCalls;
use crate::writing::Writing;

/// What a claim is called by who holds it: incarnation of the store, number in it, and, for a rank's part of it, the place in
/// the gang that it was claimed from ([`Role::Member`]), else 0. Ranks that share a holder have claims of one number.
pub type Epoch = (u64, u64, u64);

/// The answer of a query: its schema, and its rows.
pub type Answer = (Arc<ArrowSchema>, Vec<RecordBatch>);

/// A wait for rows: see [`Connection::claim_async`].
pub type Granting = Pin<Box<dyn Future<Output = Result<Waited<Granted>>> + Send>>;

/// A wait for the answer of a query: see [`Connection::query_async`].
pub type Answering = Pin<Box<dyn Future<Output = Result<Answer>> + Send>>;

/// The next claim of a subscription: see [`Pushing::next_async`].
pub type NextGranted = Pin<Box<dyn Future<Output = Result<Granted>> + Send>>;

/// Claims of a subscription: see [`Connection::subscribe`]. Dropping it gives back what nobody has taken; what was taken stays.
pub trait Pushing: fmt::Debug + Send + Sync {
    /// The next claim; `None` when the wait is over.
    ///
    /// # Errors
    /// Why the subscription is over, each time.
    fn next(&self, wait: Wait) -> Result<Option<Granted>>;

    /// The same without blocking a thread, on any async runtime. Where it is dropped the claim is the next one's. There is no
    /// time-out in it; race it against a timer of the runtime.
    fn next_async(&self) -> NextGranted;
}

/// What a wait for rows came to.
#[derive(Clone, Debug, PartialEq)]
pub enum Waited<T> {
    /// Rows are claimed.
    Claimed(T),
    /// Nothing more can come: all that the step has planned was handed out.
    Complete,
    /// The wait is over, and there were not enough rows. Said by those ways to a store that have a clock for it.
    TimedOut,
}

/// A consumer, as it was declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// Its name.
    pub name: String,
    /// What it does with its claims.
    pub kind: ConsumerKind,
    /// Whose rows it takes.
    pub tables: Vec<String>,
}

/// What is declared by one call.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "each is named for what it declares")]
pub enum Declaration {
    Policy(Policy),
    Table(Schema),
    Consumer(Box<Consumer>),
    AddColumn(DataColumn),
    RenameColumn { column: String, name: String },
    RetireColumn { column: String },
}

/// What is asked for by a claim.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask<'a> {
    /// Whose rows.
    pub consumer: &'a str,
    /// How many of them.
    pub rule: MicroBatch,
    /// In which role.
    pub role: Role,
    /// Whom `system.claims` shows as the holder of a task's claim; none for this client.
    pub owner: Option<&'a str>,
    /// Columns that are read along with it, where that saves a round trip.
    pub columns: &'a [&'a str],
}

/// In which role rows are claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// For a task.
    Task,
    /// Of what a step has planned.
    Step(u64),
    /// As a rank of a gang, by the number that [`Connection::join_step`] gave.
    Member(u64),
}

impl Role {
    /// The place in a gang, or 0.
    pub(crate) fn member(self) -> u64 {
        match self {
            Role::Member(member) => member,
            Role::Task | Role::Step(_) => 0,
        }
    }
}

/// Rows that were granted to a holder.
#[derive(Clone, Debug, PartialEq)]
pub struct Granted {
    /// The claim's name.
    pub epoch: Epoch,
    /// The table of the rows.
    pub table: String,
    /// The step that the claim belongs to, for a trainer's.
    pub step: Option<u64>,
    /// Its place among its step's claims of the same consumer, from 0.
    pub sequence_in_step: u32,
    /// The rows, in sample-id order.
    pub rows: Vec<Row>,
    /// Their sample ids, in the same order.
    pub samples: Vec<SampleId>,
    /// How many rows the micro-batch has over all ranks.
    pub rows_in_gang: u64,
    /// How many counted elements it has over all ranks.
    pub tokens_in_gang: u64,
    /// The name of the gradient of these rows, for a trainer's.
    pub gradient: Option<GradientId>,
}

impl Granted {
    /// A claim in plain words; `member` is the place in a gang that it was claimed from, or 0.
    pub fn of(claim: &Claim, member: u64) -> Self {
        let (incarnation, number) = claim.epoch();
        Granted {
            epoch: (incarnation, number, member),
            table: claim.table().to_owned(),
            step: claim.step(),
            sequence_in_step: claim.sequence_in_step(),
            rows: claim.rows().to_vec(),
            samples: claim.sample_ids().to_vec(),
            rows_in_gang: claim.rows_in_gang(),
            tokens_in_gang: claim.tokens_in_gang(),
            gradient: claim.gradient_id(),
        }
    }
}

/// What a step is to take: for each trainer, groups by key or, where none are named, a number of rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub(crate) entries: Vec<(String, Vec<String>, u64)>,
}

impl Plan {
    /// An empty plan.
    pub fn new() -> Self {
        Self::default()
    }

    /// Plans whole groups, by key.
    pub fn groups<K: Into<String>>(mut self, consumer: &str, keys: impl IntoIterator<Item = K>) -> Self {
        self.entries.push((consumer.to_owned(), keys.into_iter().map(Into::into).collect(), 0));
        self
    }

    /// Plans a number of rows, whichever become ready first.
    pub fn rows(mut self, consumer: &str, rows: u64) -> Self {
        self.entries.push((consumer.to_owned(), Vec::new(), rows));
        self
    }

    /// What is planned: consumer, groups, and rows where there are no groups.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &[String], u64)> {
        self.entries.iter().map(|(consumer, groups, rows)| (consumer.as_str(), groups.as_slice(), *rows))
    }
}

/// How a step ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commit {
    /// By policy, the objects that hold its state at the new version.
    pub updates: Vec<(String, Vec<ObjectRef>)>,
    /// The level at which it is acknowledged; none for the store's.
    pub durability: Option<Durability>,
}

/// A way to a store. [`Embedded`](crate::Embedded) and [`Remote`](crate::Remote) are the two that there are; who wants to
/// see or disturb what goes by puts one of their own between.
///
/// Calls may be made from any thread. Every one is as its namesake of [`forebay_store`], where its errors are said; over a
/// wire come `retry` when the server cannot be reached, and `input` for what it does not allow.
#[allow(missing_docs, reason = "each call is as its namesake of the store, or says what it is")]
pub trait Connection: fmt::Debug + Send + Sync {
    fn declare(&self, name: &str, declaration: Declaration) -> Result<()>;
    fn tables(&self) -> Result<Vec<String>>;
    fn table(&self, name: &str) -> Result<(Schema, TableCounts)>;
    fn consumer(&self, name: &str) -> Result<ConsumerKind>;
    /// Every consumer, in the order of their declaration.
    fn consumers(&self) -> Result<Vec<Declared>>;
    fn open_groups(&self, consumer: &str) -> Result<Vec<String>>;
    fn policy(&self, name: &str) -> Result<PolicyInfo>;

    fn write(&self, changes: &Changes<'_>) -> Result<Vec<Row>>;
    /// The same, without waiting for the answer: see [`Client::write_async`](crate::Client::write_async).
    fn write_async(&self, changes: &Changes<'_>) -> Result<Writing>;
    /// Appends to a cell that grows; without a value, closes it.
    fn grow(&self, table: &str, row: Row, column: &str, value: Option<Value<'_>>) -> Result<()>;
    fn delete(&self, table: &str, rule: &Delete) -> Result<Deleted>;
    /// The live attempt of each, where there is one.
    fn find(&self, table: &str, identities: &[(u64, &SampleId)]) -> Result<Vec<Option<Row>>>;
    fn cell(&self, table: &str, row: Row, column: &str) -> Result<CellValue>;
    /// What the cells of a data column hold, a value a row, whoever holds the rows.
    fn read(&self, table: &str, rows: &[Row], column: &str) -> Result<Vec<CellValue>>;
    /// One SELECT over one snapshot.
    fn query(&self, statement: &str) -> Result<Answer>;
    /// The same without blocking a thread, on any async runtime. Dropping it gives the question up.
    fn query_async(&self, statement: &str) -> Result<Answering>;

    fn claim(&self, ask: &Ask<'_>, wait: Wait) -> Result<Option<Granted>>;
    /// The same without blocking a thread, on any async runtime. Where it is dropped no row is taken, or what was taken goes
    /// back. A store in this process has no clock for `wait`, and waits for ever: race it against a timer of the runtime.
    fn claim_async(&self, ask: &Ask<'_>, wait: Wait) -> Result<Granting>;
    /// Claims for a task that come by themselves, for as long as fewer than `outstanding` of them are unsettled.
    fn subscribe(&self, ask: &Ask<'_>, outstanding: usize) -> Result<Box<dyn Pushing>>;
    fn columns(&self, claim: Epoch, names: &[&str], lists: Lists) -> Result<RecordBatch>;
    /// What the cells of data columns hold, a list a column with a value a row: as [`forebay_store::Claim::cells`].
    fn cells(&self, claim: Epoch, names: &[&str]) -> Result<Vec<Vec<CellValue>>>;
    fn finish(&self, claim: Epoch, changes: &Changes<'_>) -> Result<Vec<Row>>;
    fn release(&self, claim: Epoch) -> Result<()>;
    fn accumulated(&self, claim: Epoch) -> Result<()>;
    fn extend(&self, claim: Epoch, time: Duration) -> Result<Timestamp>;

    fn begin_step(&self, plan: &Plan) -> Result<u64>;
    fn join_step(&self, step: u64, consumer: &str, gang: &Gang) -> Result<u64>;
    fn is_complete(&self, step: u64, consumer: &str) -> Result<bool>;
    fn drop_cache(&self, step: u64, table: &str) -> Result<()>;
    fn return_lost(&self, step: u64, claims: &[Epoch]) -> Result<u64>;
    /// Refuses a commit that could not be made now, whose objects are still to be put.
    fn check_commit(&self, step: u64, commit: &Commit) -> Result<()>;
    fn commit_step(&self, step: u64, commit: &Commit) -> Result<CommittedStep>;
    fn abandon_step(&self, step: u64) -> Result<()>;
    fn rewind(&self, step: u64, rows: Rewind) -> Result<RewoundTo>;

    /// What became of rows.
    fn history(&self) -> &dyn HistoryCalls;

    /// What an operator asks.
    fn admin(&self) -> &dyn AdminCalls;

    /// Objects in versions.
    fn objects(&self) -> &dyn ObjectCalls;

    /// Instants of tables.
    fn snapshots(&self) -> &dyn SnapshotCalls;

    fn put_object(&self, key: &str, version: u64, payload: &[u8]) -> Result<ObjectRef>;
    fn object(&self, object: &ObjectRef) -> Result<Vec<u8>>;

    /// Makes everything so far stable.
    fn sync(&self) -> Result<()>;
    fn checkpoint(&self) -> Result<()>;

    /// Gives everything back that is held, ends all waits, and accepts nothing more, whatever handles are left. A store in
    /// this process is stable then. A second call does nothing.
    fn close(&self) -> Result<()>;
}
