//! What the engine knows of itself, as tables: `forebay.system.*`.
//!
//! A file a table; each turns a [`Moment`] into columns, or the tables of agents into a view. To add one, write its file
//! and name it in `TABLES`. Rows are made when a plan reads them: whoever only asks what tables and columns there are (the prompt,
//! drivers) costs no look at the store.
//!
//! `tables`, `columns` and `episodes` come from the query's snapshot, so they and the tables of agents show one instant.
//! `consumers`, `claims`, `gradients`, `instances`, `steps`, `policies` and `objects` are read right after it, never before: a claim or step that
//! a row names is there.
//!
//! A session that sees some tables of agents only has those system tables that tell table by table, with the rows of these.

mod claims;
mod columns;
mod consumers;
mod episodes;
mod extents;
mod fields;
mod gradients;
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
use forebay_store::{Snapshot, Store, TableSnapshot};

use self::rows::{MakeRows, RowsOf};
use crate::archive::Contents;
use crate::catalog::Catalogs;
use crate::seen::Seen;

/// What one query sees of a store.
#[derive(Debug)]
pub(crate) struct Moment {
    /// All tables at one instant, those that are not seen among them.
    snapshot: Snapshot,
    /// For what snapshots do not hold.
    pub(crate) store: Store,
    /// What had left the store by then.
    pub(crate) archived: Contents,
    /// Whose tables they are to be.
    pub(crate) seen: Seen,
}

impl Moment {
    /// This moment, for who sees those tables.
    pub(crate) fn of(store: &Store, seen: &Seen) -> Self {
        let (snapshot, store) = (store.snapshot(), store.clone());
        Moment { snapshot, store, archived: Contents::default(), seen: seen.clone() }
    }

    /// The commit up to which it sees.
    pub(crate) fn commit(&self) -> u64 {
        self.snapshot.commit()
    }

    /// The tables of the store that are seen.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &TableSnapshot> {
        self.snapshot.tables().iter().filter(|table| self.sees(table.name()))
    }

    /// The table of that name, if the store has it and it is seen.
    pub(crate) fn table(&self, name: &str) -> Option<&TableSnapshot> {
        self.tables().find(|table| table.name() == name)
    }

    /// Whether a table of that name may be seen, of the store or of the archive.
    pub(crate) fn sees(&self, name: &str) -> bool {
        self.seen.table(name)
    }

    /// The names of all tables of the store in the order in which they were made, also of those that are not seen: agents are
    /// numbered by it. Not to be told.
    pub(crate) fn numbered_tables(&self) -> impl Iterator<Item = &str> {
        self.snapshot.tables().iter().map(TableSnapshot::name)
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

/// What a system table tells of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    /// Tables of agents, so that who sees some of them has it of these.
    Tables,
    /// The store as one.
    Store,
}

const TABLES: [(&str, Of, Make); 14] = [
    ("tables", Of::Tables, Make::Rows(tables::make)),
    ("columns", Of::Tables, Make::Rows(columns::make)),
    ("consumers", Of::Tables, Make::Rows(consumers::make)),
    ("claims", Of::Tables, Make::Rows(claims::make)),
    ("gradients", Of::Tables, Make::Rows(gradients::make)),
    ("episodes", Of::Tables, Make::View(episodes::view)),
    ("instances", Of::Store, Make::Rows(instances::make)),
    ("steps", Of::Store, Make::Rows(steps::make)),
    ("policies", Of::Store, Make::Rows(policies::make)),
    ("objects", Of::Store, Make::Rows(objects::make)),
    ("extents", Of::Store, Make::Rows(extents::make)),
    ("pins", Of::Store, Make::Rows(pins::make)),
    ("settings", Of::Store, Make::Rows(settings::make)),
    ("stats", Of::Store, Make::Rows(stats::make)),
];

/// Whether a system table is called so, shown or not.
pub(crate) fn is_named(name: &str) -> bool {
    TABLES.iter().any(|(table, ..)| *table == name)
}

/// The system tables that a moment shows.
fn shown_tables(moment: &Moment) -> impl Iterator<Item = (&'static str, Make)> {
    let is_everything = moment.seen.is_everything();
    let shown = TABLES.into_iter().filter(move |(_, of, _)| is_everything || *of == Of::Tables);
    shown.map(|(name, _, make)| (name, make))
}

/// Their names.
pub(crate) fn shown(moment: &Moment) -> impl Iterator<Item = &'static str> {
    shown_tables(moment).map(|(name, _)| name)
}

/// The system table of that name, if it is shown.
pub(crate) fn table(name: &str, catalogs: &Catalogs) -> PlanResult<Option<Arc<dyn TableProvider>>> {
    let found = shown_tables(catalogs.moment()).find(|(table, _)| *table == name);
    let Some((name, make)) = found else { return Ok(None) };
    match make {
        Make::View(make) => make(catalogs).map(Some),
        Make::Rows(make) => {
            let schema = rows::schema(name)?;
            Ok(Some(Arc::new(RowsOf { catalogs: catalogs.clone(), make, schema })))
        }
    }
}
