//! What the engine knows of itself, as tables: `forebay.system.*`.
//!
//! A file a table; each turns a [`Moment`] into columns, or the tables of agents into a view. To add one, write its file
//! and name it in `TABLES`. Rows are made when a plan reads them: whoever only asks what tables and columns there are (the prompt,
//! drivers) costs no look at the store.
//!
//! `tables`, `columns` and `episodes` come from the query's snapshot, so they and the tables of agents show one instant.
//! `consumers`, `claims`, `instances`, `steps`, `policies` and `objects` are read right after it, never before: a claim or step that
//! a row names is there.

mod claims;
mod columns;
mod consumers;
mod episodes;
mod extents;
mod fields;
mod instances;
mod objects;
mod pins;
mod policies;
mod rows;
mod settings;
mod stats;
mod steps;
mod tables;

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::error::Result as PlanResult;
use forebay_store::{Snapshot, Store};

use self::rows::{MakeRows, RowsOf};
use crate::archive::Contents;
use crate::catalog::Catalogs;

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
#[derive(Clone, Copy)]
enum Make {
    /// At once, when a query reads it.
    Rows(MakeRows),
    /// As a SELECT over the tables of agents.
    View(fn(&Catalogs) -> PlanResult<Arc<dyn TableProvider>>),
}

const TABLES: [(&str, Make); 13] = [
    ("tables", Make::Rows(tables::make)),
    ("columns", Make::Rows(columns::make)),
    ("consumers", Make::Rows(consumers::make)),
    ("claims", Make::Rows(claims::make)),
    ("episodes", Make::View(episodes::view)),
    ("instances", Make::Rows(instances::make)),
    ("steps", Make::Rows(steps::make)),
    ("policies", Make::Rows(policies::make)),
    ("objects", Make::Rows(objects::make)),
    ("extents", Make::Rows(extents::make)),
    ("pins", Make::Rows(pins::make)),
    ("settings", Make::Rows(settings::make)),
    ("stats", Make::Rows(stats::make)),
];

/// The names of the system tables.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    TABLES.into_iter().map(|(name, _)| name)
}

/// The system table of that name.
pub(crate) fn table(name: &str, catalogs: &Catalogs) -> PlanResult<Option<Arc<dyn TableProvider>>> {
    let Some((name, make)) = TABLES.into_iter().find(|(table, _)| *table == name) else { return Ok(None) };
    match make {
        Make::View(make) => make(catalogs).map(Some),
        Make::Rows(make) => {
            let schema = rows::schema(name)?;
            Ok(Some(Arc::new(RowsOf { catalogs: catalogs.clone(), make, schema })))
        }
    }
}
