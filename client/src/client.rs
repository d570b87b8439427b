//! What a program has of a store, wherever that is.

use std::sync::Arc;

use forebay_store::{Consumer, ObjectRef, Policy, PolicyInfo, Rewind, RewoundTo, Row, Schema, Store, Wait};

use crate::admin::Admin;
use crate::changes::Changes;
use crate::claim::{Claim, ClaimFuture};
use crate::connection::{Answer, Answering, Ask, Connection, Declaration, Declared, Plan};
use crate::consumer::ConsumerHandle;
use crate::embedded::Embedded;
use crate::error::Result;
use crate::history::TrainedBatch;
use crate::objects::Objects;
use crate::remote::{ConnectOptions, Remote};
use crate::snapshots::{Snapshot, TakeSnapshot};
use crate::step::Step;
use crate::table::Table;
use crate::writing::Writing;

/// A store, in this process or behind a server. Cheap to clone; may be used from any thread.
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) connection: Arc<dyn Connection>,
}

impl Client {
    /// A store that this process has opened.
    pub fn embedded(store: Store) -> Self {
        Self::over(Arc::new(Embedded::new(store)))
    }

    /// A store behind a server: `unix:///run/forebay.sock`, `grpc://HOST:PORT`, or `grpcs://HOST:PORT` with TLS.
    ///
    /// # Errors
    /// `input` for an address that is none, or a token that is not let in; `retry` when nobody answers in time.
    pub fn connect(address: &str, options: &ConnectOptions) -> Result<Self> {
        Ok(Self::over(Arc::new(Remote::connect(address, options)?)))
    }

    /// Any other way to a store.
    pub fn over(connection: Arc<dyn Connection>) -> Self {
        Client { connection }
    }

    /// The seam under it.
    pub fn connection(&self) -> &Arc<dyn Connection> {
        &self.connection
    }

    /// Declares a policy: see [`Store::declare_policy`].
    ///
    /// # Errors
    /// As there.
    pub fn declare_policy(&self, name: &str, policy: Policy) -> Result<()> {
        self.connection.declare(name, Declaration::Policy(policy))
    }

    /// Where a policy stands.
    ///
    /// # Errors
    /// `input` when there is none of that name.
    pub fn policy(&self, name: &str) -> Result<PolicyInfo> {
        self.connection.policy(name)
    }

    /// Makes a table: see [`Store::create_table`].
    ///
    /// # Errors
    /// As there.
    pub fn create_table(&self, name: &str, schema: Schema) -> Result<Table> {
        self.connection.declare(name, Declaration::Table(schema))?;
        Ok(Table::new(self.clone(), name))
    }

    /// The table of that name.
    ///
    /// # Errors
    /// `input` when there is none.
    pub fn table(&self, name: &str) -> Result<Table> {
        self.connection.table(name)?;
        Ok(Table::new(self.clone(), name))
    }

    /// The same without a look whether there is one: the table's calls say so then.
    pub fn table_named(&self, name: &str) -> Table {
        Table::new(self.clone(), name)
    }

    /// The names of all tables, in the order of their creation.
    ///
    /// # Errors
    /// `retry` when the server cannot be reached.
    pub fn tables(&self) -> Result<Vec<String>> {
        self.connection.tables()
    }

    /// Declares a consumer: see [`Store::create_consumer`].
    ///
    /// # Errors
    /// As there.
    pub fn create_consumer(&self, name: &str, consumer: Consumer) -> Result<ConsumerHandle> {
        let kind = consumer.kind;
        self.connection.declare(name, Declaration::Consumer(Box::new(consumer)))?;
        Ok(ConsumerHandle::new(self.clone(), name, kind))
    }

    /// The consumer of that name.
    ///
    /// # Errors
    /// `input` when there is none.
    pub fn consumer(&self, name: &str) -> Result<ConsumerHandle> {
        Ok(ConsumerHandle::new(self.clone(), name, self.connection.consumer(name)?))
    }

    /// Every consumer, in the order of their declaration.
    ///
    /// # Errors
    /// `retry` when the server cannot be reached.
    pub fn consumers(&self) -> Result<Vec<Declared>> {
        self.connection.consumers()
    }

    /// Claims rows in any role: what [`ConsumerHandle::claim_async`] and its like are made of.
    ///
    /// # Errors
    /// As theirs.
    pub fn claim_async(&self, ask: &Ask<'_>, wait: Wait) -> Result<ClaimFuture> {
        Claim::ask_async(self, ask, wait)
    }

    /// Makes changes over any tables, all or none. Gives the rows that were inserted, in the order of their insertion.
    ///
    /// # Errors
    /// The first change that cannot be made; then none was. As [`forebay_store::WriteBatch::commit`].
    pub fn write(&self, changes: &Changes<'_>) -> Result<Vec<Row>> {
        self.connection.write(changes)
    }

    /// The same, without waiting for the answer, so that the next batch is made while this one is on its way. What the changes
    /// say is taken over before this returns; several writes that are under way may be made in any order.
    ///
    /// A store in this process makes the write before this returns. Over a connection at most 64 writes and 64 MiB are under
    /// way; who brings more waits here until there is room.
    ///
    /// ```
    /// # use forebay_client::{Changes, Client};
    /// # use forebay_store::{DataType, NewRow, Options, Schema, Store};
    /// # let dir = tempfile::tempdir()?;
    /// # let client = Client::embedded(Store::open(dir.path().join("store"), Options::default())?);
    /// # client.create_table("solver", Schema::new().data("reward", DataType::Float32))?;
    /// let mut under_way = Vec::new();
    /// for batch in 0..3 {
    ///     let mut changes = Changes::new();
    ///     changes.insert("solver", NewRow::new(0, &format!("q{batch}_0_0"))?, [("reward", 1.0.into())]);
    ///     under_way.push(client.write_async(&changes)?);
    /// }
    /// let rows = under_way.into_iter().map(|write| write.wait()).collect::<Result<Vec<_>, _>>()?;
    /// assert_eq!(rows.concat().len(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `input` for what no server takes; all others are said by the answer.
    pub fn write_async(&self, changes: &Changes<'_>) -> Result<Writing> {
        self.connection.write_async(changes)
    }

    /// Begins a step, which takes what the plan says and commits it at once.
    ///
    /// # Errors
    /// As [`Store::begin_step`].
    pub fn begin_step(&self, plan: &Plan) -> Result<Step> {
        Ok(Step::new(self.clone(), self.connection.begin_step(plan)?))
    }

    /// A step that another process began, to take part in it as a rank of a gang. It is not ended from here.
    pub fn open_step(&self, number: u64) -> Step {
        Step::of_another(self.clone(), number)
    }

    /// Undoes every step after `step`: see [`Store::rewind`].
    ///
    /// # Errors
    /// As there.
    pub fn rewind(&self, step: u64, rows: Rewind) -> Result<RewoundTo> {
        self.connection.rewind(step, rows)
    }

    /// Takes a snapshot: one instant of all tables, or of some, which is read again and again while others write.
    ///
    /// ```
    /// # use forebay_client::{Client, ReadRows, TakeSnapshot};
    /// # use forebay_store::{DataType, NewRow, Options, Schema, Store};
    /// # let dir = tempfile::tempdir()?;
    /// # let client = Client::embedded(Store::open(dir.path().join("store"), Options::default())?);
    /// let solver = client.create_table("solver", Schema::new().data("reward", DataType::Float32))?;
    /// solver.insert(NewRow::new(0, "q17_0_0")?, [("reward", 1.0.into())])?;
    /// let snapshot = client.snapshot(&TakeSnapshot::default().tables(["solver"]))?;
    /// solver.insert(NewRow::new(0, "q18_0_0")?, [])?; // comes too late to be seen
    /// for batch in snapshot.table("solver")?.read(ReadRows::default().columns(["sample_id", "reward"])) {
    ///     assert_eq!(batch?.num_rows(), 1);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `input` for a table that is not there, or not for this client's token; `capacity` when the client has 16 already.
    pub fn snapshot(&self, take: &TakeSnapshot) -> Result<Snapshot> {
        Snapshot::take(self, take)
    }

    /// The micro-batches that a committed step was made of, in the order in which they were handed out: which samples made each
    /// of its gradients. The other way, [`Table::show`] says which step used a row. A server tells of tables alone that the
    /// client's token is for.
    ///
    /// # Errors
    /// As [`Store::replay`].
    pub fn replay(&self, step: u64) -> Result<Vec<TrainedBatch>> {
        self.connection.history().replay(step)
    }

    /// Its objects: large state under keys, in versions.
    pub fn objects(&self) -> Objects {
        Objects::new(self.clone())
    }

    /// Writes one version of an object, whole: see [`Store::put_object`].
    ///
    /// # Errors
    /// As there.
    pub fn put_object(&self, key: &str, version: u64, payload: &[u8]) -> Result<ObjectRef> {
        self.connection.put_object(key, version, payload)
    }

    /// The payload of an object, checked against its checksum.
    ///
    /// # Errors
    /// As [`Store::object`].
    pub fn object(&self, object: &ObjectRef) -> Result<Vec<u8>> {
        self.connection.object(object)
    }

    /// One SELECT over one snapshot of all tables, those that this client may see.
    ///
    /// # Errors
    /// `input` for what is no SELECT or names what is not there, or where nobody answers queries.
    pub fn query(&self, statement: &str) -> Result<Answer> {
        self.connection.query(statement)
    }

    /// The same without blocking a thread, on any async runtime. Dropping it gives the question up.
    ///
    /// # Errors
    /// As for [`query`](Client::query).
    pub fn query_async(&self, statement: &str) -> Result<Answering> {
        self.connection.query_async(statement)
    }

    /// Makes everything so far stable: a power failure takes nothing of it.
    ///
    /// # Errors
    /// `closed` when the disk failed.
    pub fn sync(&self) -> Result<()> {
        self.connection.sync()
    }

    /// Takes a checkpoint: see [`Store::checkpoint`].
    ///
    /// # Errors
    /// As there.
    pub fn checkpoint(&self) -> Result<()> {
        self.connection.checkpoint()
    }

    /// What an operator does with it.
    pub fn admin(&self) -> Admin {
        Admin(self.clone())
    }

    /// Gives everything back that came of this client, ends all waits, and accepts nothing more, whatever handles are
    /// left: a session at a server is over at once, a store in this process is stable and closed. A second call does nothing.
    ///
    /// # Errors
    /// `closed` when the disk failed before everything was stable. It is closed all the same.
    pub fn close(&self) -> Result<()> {
        self.connection.close()
    }
}
