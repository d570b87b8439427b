//! A store in this process.

mod pushing;

use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use forebay_store::{
    CommittedStep, ConsumerInfo, ConsumerKind, Delete, Deleted, Gang, Kind, Lists, ObjectRef, PolicyInfo,
    Rewind, RewoundTo, Row, SampleId, Schema, Store, TableCounts, Timestamp, Value, Wait,
};

use crate::admin::AdminCalls;
use crate::cell::CellValue;
use crate::changes::Changes;
use crate::connection::{
    Answer, Answering, Ask, Commit, Connection, Declaration, Declared, Epoch, Granted, Granting, Plan,
    Pushing, Waited,
};
use crate::error::{Error, Result};
use crate::history::HistoryCalls;
use crate::holder::{CLOSED_BY_OWNER, Holder};
use crate::objects::{KeptObjects, ObjectCalls};
use crate::snapshots::{KeptSnapshots, SnapshotCalls};
use crate::writing::Writing;
use pushing::{Full, Taking};

/// Whoever answers SELECTs over a store of this process: the engine for it is another crate's.
pub trait Queries: std::fmt::Debug + Send + Sync {
    /// The answer to one SELECT.
    ///
    /// # Errors
    /// As the engine says them.
    fn query(&self, statement: &str) -> Result<Answer>;

    /// The same without blocking a thread, on any async runtime. Dropping it gives the question up.
    ///
    /// # Errors
    /// As the engine says them.
    fn query_async(&self, statement: &str) -> Result<Answering>;
}

/// A store in this process, behind the interface that a remote one has too. Nothing is copied for it.
#[derive(Debug)]
pub struct Embedded {
    holder: Arc<Holder>,
    /// Subscribers who may have no more claims.
    full: Arc<Full>,
    objects: KeptObjects,
    snapshots: KeptSnapshots,
    queries: Option<Arc<dyn Queries>>,
}

impl Embedded {
    /// That store; its claims are shown as this process's.
    pub fn new(store: Store) -> Self {
        let owner = format!("process {}", std::process::id());
        let objects = KeptObjects::new(store.clone());
        let snapshots = KeptSnapshots::new(store.clone(), &owner);
        Embedded {
            holder: Arc::new(Holder::new(store, &owner)),
            full: Arc::default(),
            objects,
            snapshots,
            queries: None,
        }
    }

    /// The same, with somebody who answers SELECTs.
    pub fn with_queries(self, queries: Arc<dyn Queries>) -> Self {
        Embedded { queries: Some(queries), ..self }
    }

    fn store(&self) -> &Store {
        self.holder.store()
    }

    fn queries(&self) -> Result<&Arc<dyn Queries>> {
        self.queries.as_ref().ok_or_else(|| {
            let message =
                "nobody here answers queries; give the client an engine with `Embedded::with_queries`";
            Error::new(Kind::Input, "Queries", message)
        })
    }
}

/// Every consumer of a store of this process.
pub fn consumers(store: &Store) -> Vec<Declared> {
    let mut all: Vec<Declared> = Vec::new();
    for ConsumerInfo { name, kind, table, .. } in store.consumers() {
        match all.last_mut().filter(|last| last.name == name) {
            Some(last) => last.tables.push(table),
            None => {
                let is_trainer = kind == ConsumerKind::Trainer.as_str();
                let kind = if is_trainer { ConsumerKind::Trainer } else { ConsumerKind::Task };
                all.push(Declared { name, kind, tables: vec![table] });
            }
        }
    }
    all
}

/// What the cells of a column hold, in a store of this process.
///
/// # Errors
/// As the store's own calls.
pub fn read(store: &Store, table: &str, rows: &[Row], column: &str) -> Result<Vec<CellValue>> {
    let table = store.table(table)?;
    table.schema().index_of(column)?;
    rows.iter().map(|row| Ok(table.cell(*row, column)?.into())).collect()
}

/// Declares something in a store of this process.
///
/// # Errors
/// As the store's own calls.
pub fn declare(store: &Store, name: &str, declaration: Declaration) -> Result<()> {
    match declaration {
        Declaration::Policy(policy) => store.declare_policy(name, policy)?,
        Declaration::Table(schema) => _ = store.create_table(name, schema)?,
        Declaration::Consumer(consumer) => _ = store.create_consumer(name, *consumer)?,
        Declaration::AddColumn(column) => store.table(name)?.add_column(column)?,
        Declaration::RenameColumn { column, name: new } => store.table(name)?.rename_column(&column, &new)?,
        Declaration::RetireColumn { column } => store.table(name)?.retire_column(&column)?,
    }
    Ok(())
}

/// Appends to a cell, or closes it.
///
/// # Errors
/// As the store's own calls.
pub fn grow(store: &Store, table: &str, row: Row, column: &str, value: Option<Value<'_>>) -> Result<()> {
    let table = store.table(table)?;
    match value {
        Some(value) => table.append(row, column, value)?,
        None => table.finalize(row, column)?,
    }
    Ok(())
}

impl Embedded {
    /// Tells subscribers that a claim was settled, however that went.
    fn settled<T>(&self, outcome: Result<T>) -> Result<T> {
        self.full.settled();
        outcome
    }

    /// Refuses changes of rows that are none, or are gone, as a server does.
    fn check_rows(&self, changes: &Changes<'_>) -> Result<()> {
        let rows: Vec<Row> = changes.rows().collect();
        Ok(self.store().check_rows(&rows)?)
    }
}

impl Connection for Embedded {
    fn declare(&self, name: &str, declaration: Declaration) -> Result<()> {
        declare(self.store(), name, declaration)
    }

    fn tables(&self) -> Result<Vec<String>> {
        Ok(self.store().tables())
    }

    fn table(&self, name: &str) -> Result<(Schema, TableCounts)> {
        let table = self.store().table(name)?;
        Ok((table.schema().clone(), table.counts()))
    }

    fn consumer(&self, name: &str) -> Result<ConsumerKind> {
        Ok(self.store().consumer(name)?.kind())
    }

    fn consumers(&self) -> Result<Vec<Declared>> {
        Ok(consumers(self.store()))
    }

    fn open_groups(&self, consumer: &str) -> Result<Vec<String>> {
        Ok(self.store().consumer(consumer)?.open_groups())
    }

    fn policy(&self, name: &str) -> Result<PolicyInfo> {
        Ok(self.store().policy(name)?)
    }

    fn write(&self, changes: &Changes<'_>) -> Result<Vec<Row>> {
        self.check_rows(changes)?;
        changes.apply(self.store())
    }

    fn write_async(&self, changes: &Changes<'_>) -> Result<Writing> {
        Ok(Writing::done(self.write(changes)))
    }

    fn grow(&self, table: &str, row: Row, column: &str, value: Option<Value<'_>>) -> Result<()> {
        self.store().check_rows(&[row])?;
        grow(self.store(), table, row, column, value)
    }

    fn delete(&self, table: &str, rule: &Delete) -> Result<Deleted> {
        self.store().check_rows(rule.rows.as_deref().unwrap_or_default())?;
        Ok(self.store().table(table)?.delete(rule)?)
    }

    fn find(&self, table: &str, identities: &[(u64, &SampleId)]) -> Result<Vec<Option<Row>>> {
        let table = self.store().table(table)?;
        Ok(identities.iter().map(|(policy_version, sample)| table.find(*policy_version, sample)).collect())
    }

    fn cell(&self, table: &str, row: Row, column: &str) -> Result<CellValue> {
        self.store().check_rows(&[row])?;
        Ok(self.store().table(table)?.cell(row, column)?.into())
    }

    fn read(&self, table: &str, rows: &[Row], column: &str) -> Result<Vec<CellValue>> {
        self.store().check_rows(rows)?;
        read(self.store(), table, rows, column)
    }

    fn query(&self, statement: &str) -> Result<Answer> {
        self.queries()?.query(statement)
    }

    fn query_async(&self, statement: &str) -> Result<Answering> {
        self.queries()?.query_async(statement)
    }

    fn claim(&self, ask: &Ask<'_>, wait: Wait) -> Result<Option<Granted>> {
        self.holder.claim(ask, wait)
    }

    fn claim_async(&self, ask: &Ask<'_>, _wait: Wait) -> Result<Granting> {
        let (rows, holder, role) = (self.holder.claim_async(ask)?, self.holder.clone(), ask.role);
        Ok(Box::pin(async move {
            let claim = rows.await.map_err(|error| holder.closed_or(error.into()))?;
            let Some(claim) = claim else { return Ok(Waited::Complete) };
            Ok(Waited::Claimed(holder.keep_unless_closed(claim, role)?))
        }))
    }

    fn subscribe(&self, ask: &Ask<'_>, outstanding: usize) -> Result<Box<dyn Pushing>> {
        Ok(Box::new(Taking::begin(&self.holder, &self.full, ask, outstanding)?))
    }

    fn columns(&self, claim: Epoch, names: &[&str], lists: Lists) -> Result<RecordBatch> {
        self.holder.columns(claim, names, lists)
    }

    fn cells(&self, claim: Epoch, names: &[&str]) -> Result<Vec<Vec<CellValue>>> {
        self.holder.cells(claim, names)
    }

    fn finish(&self, claim: Epoch, changes: &Changes<'_>) -> Result<Vec<Row>> {
        self.check_rows(changes)?;
        self.settled(self.holder.finish(claim, changes))
    }

    fn release(&self, claim: Epoch) -> Result<()> {
        self.settled(self.holder.release(claim))
    }

    fn accumulated(&self, claim: Epoch) -> Result<()> {
        self.settled(self.holder.accumulated(claim))
    }

    fn extend(&self, claim: Epoch, time: Duration) -> Result<Timestamp> {
        self.holder.extend(claim, time)
    }

    fn begin_step(&self, plan: &Plan) -> Result<u64> {
        self.holder.begin_step(plan)
    }

    fn join_step(&self, step: u64, consumer: &str, gang: &Gang) -> Result<u64> {
        self.holder.join_step(step, consumer, gang.clone())
    }

    fn is_complete(&self, step: u64, consumer: &str) -> Result<bool> {
        self.holder.is_complete(step, consumer)
    }

    fn drop_cache(&self, step: u64, table: &str) -> Result<()> {
        self.holder.drop_cache(step, table)
    }

    fn return_lost(&self, step: u64, claims: &[Epoch]) -> Result<u64> {
        self.holder.return_lost(step, claims)
    }

    fn check_commit(&self, step: u64, commit: &Commit) -> Result<()> {
        self.holder.check_commit(step, commit)
    }

    fn commit_step(&self, step: u64, commit: &Commit) -> Result<CommittedStep> {
        self.holder.commit_step(step, commit)
    }

    fn abandon_step(&self, step: u64) -> Result<()> {
        self.holder.abandon_step(step)
    }

    fn rewind(&self, step: u64, rows: Rewind) -> Result<RewoundTo> {
        Ok(self.store().rewind(step, rows)?)
    }

    fn history(&self) -> &dyn HistoryCalls {
        self.store()
    }

    fn admin(&self) -> &dyn AdminCalls {
        self.store()
    }

    fn objects(&self) -> &dyn ObjectCalls {
        &self.objects
    }

    fn snapshots(&self) -> &dyn SnapshotCalls {
        &self.snapshots
    }

    fn put_object(&self, key: &str, version: u64, payload: &[u8]) -> Result<ObjectRef> {
        Ok(self.store().put_object(key, version, payload)?)
    }

    fn object(&self, object: &ObjectRef) -> Result<Vec<u8>> {
        Ok(self.store().object(object)?)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.store().sync()?)
    }

    fn checkpoint(&self) -> Result<()> {
        Ok(self.store().checkpoint().map(drop)?)
    }

    fn close(&self) -> Result<()> {
        self.holder.close();
        self.objects.give_back();
        self.snapshots.give_back();
        let (store, is_over) = (self.store(), self.store().closed().is_some());
        let synced = if is_over || store.is_read_only() { Ok(()) } else { store.sync() };
        store.close(CLOSED_BY_OWNER);
        Ok(synced?)
    }
}
