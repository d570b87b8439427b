//! What the engine knows of itself, as tables: `forebay.system.*`.
//!
//! A file a table; each turns a [`Moment`] into columns. To add one, write its file and name it in `TABLES`.
//!
//! `tables` and `columns` come from the query's snapshot, so they and the tables of agents show one instant. `consumers`,
//! `claims`, `steps` and `policies` are read right after it, never before: a claim or step that a row names is there.

mod claims;
mod columns;
mod consumers;
mod extents;
mod fields;
mod objects;
mod pins;
mod policies;
mod settings;
mod stats;
mod steps;
mod tables;

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use datafusion::catalog::{MemTable, TableProvider};
use datafusion::error::Result as PlanResult;
use forebay_store::{Snapshot, Store};

use crate::archive::Contents;

/// What one query sees of a store.
#[derive(Debug)]
pub(crate) struct Moment {
    /// All tables at one instant.
    pub(crate) snapshot: Snapshot,
    /// For what snapshots do not hold.
    pub(crate) store: Store,
    /// What had left the store by then.
    pub(crate) archived: Contents,
}

impl Moment {
    /// This moment.
    pub(crate) fn of(store: &Store) -> Self {
        Moment { snapshot: store.snapshot(), store: store.clone(), archived: Contents::default() }
    }
}

/// How a system table is made.
type Make = fn(&Moment) -> Result<RecordBatch, ArrowError>;

const TABLES: [(&str, Make); 11] = [
    ("tables", tables::make),
    ("columns", columns::make),
    ("consumers", consumers::make),
    ("claims", claims::make),
    ("steps", steps::make),
    ("policies", policies::make),
    ("objects", objects::make),
    ("extents", extents::make),
    ("pins", pins::make),
    ("settings", settings::make),
    ("stats", stats::make),
];

/// The names of the system tables.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    TABLES.into_iter().map(|(name, _)| name)
}

/// The system table of that name.
pub(crate) fn table(name: &str, moment: &Moment) -> PlanResult<Option<Arc<dyn TableProvider>>> {
    let Some((_, make)) = TABLES.into_iter().find(|(table, _)| *table == name) else { return Ok(None) };
    let batch = make(moment)?;
    Ok(Some(Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]])?)))
}
