//! Names to tables, for one query: the catalog `forebay` with its schemas `public` (the tables of agents) and `system`.
//!
//! All of it hangs on one [`Moment`], so whichever names a query uses, it sees one instant. Nothing can be registered.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, CatalogProviderList, SchemaProvider, TableProvider};
use datafusion::common::TableReference;
use datafusion::error::Result as PlanResult;

use crate::archive;
use crate::error::{Cause, nearest};
use crate::system::{self, Moment};
use crate::table::AgentTable;

/// The one catalog.
pub(crate) const CATALOG: &str = "forebay";
/// The schema of the tables of agents; the default one.
pub(crate) const PUBLIC: &str = "public";
/// The schema of what the engine knows of itself.
pub(crate) const SYSTEM: &str = "system";

/// The catalogs that one query sees.
#[derive(Clone, Debug)]
pub(crate) struct Catalogs(Arc<Moment>);

impl Catalogs {
    pub(crate) fn new(moment: Moment) -> Self {
        Catalogs(Arc::new(moment))
    }

    /// What the query sees.
    pub(crate) fn moment(&self) -> &Moment {
        &self.0
    }

    /// The names of the agents' tables that are seen, those that are in the archive alone last.
    pub(crate) fn agent_tables(&self) -> Vec<String> {
        AgentTables(self.0.clone()).table_names()
    }

    /// The table of an agent, with its versions that have left the store.
    pub(crate) fn agent_table(&self, name: &str) -> PlanResult<Option<Arc<dyn TableProvider>>> {
        if !self.0.sees(name) {
            return Ok(None);
        }
        let live = self.0.table(name).map(|table| (table, Arc::new(AgentTable::new(table.clone())) as _));
        archive::table(&self.0.archived, name, live)
    }

    /// A table that is not there or not seen, with the nearest name.
    pub(crate) fn missing(&self, name: &str) -> Cause {
        let shown = name.strip_prefix("forebay.public.").or(name.strip_prefix("forebay.")).unwrap_or(name);
        let is_narrow = !self.0.seen.is_everything();
        if is_narrow && shown.strip_prefix("system.").is_some_and(system::is_named) {
            return Cause::WholeStore { name: shown.to_owned(), seen: self.0.seen.to_string() };
        }
        let tables = self.agent_tables();
        let system: Vec<String> = system::shown(&self.0).map(|table| format!("{SYSTEM}.{table}")).collect();
        let close = nearest(shown, tables.iter().chain(&system).map(String::as_str));
        let close = close.map(|close| match system.iter().any(|table| table == close) {
            true => close.to_owned(),
            false => TableReference::bare(close).to_quoted_string(),
        });
        Cause::UnknownTable { name: shown.to_owned(), is_narrow, close }
    }
}

impl CatalogProviderList for Catalogs {
    fn register_catalog(
        &self,
        _name: String,
        _catalog: Arc<dyn CatalogProvider>,
    ) -> Option<Arc<dyn CatalogProvider>> {
        None
    }

    fn catalog_names(&self) -> Vec<String> {
        vec![CATALOG.to_owned()]
    }

    fn catalog(&self, name: &str) -> Option<Arc<dyn CatalogProvider>> {
        (name == CATALOG).then(|| Arc::new(self.clone()) as _)
    }
}

impl CatalogProvider for Catalogs {
    fn schema_names(&self) -> Vec<String> {
        vec![PUBLIC.to_owned(), SYSTEM.to_owned()]
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        match name {
            PUBLIC => Some(Arc::new(AgentTables(self.0.clone()))),
            SYSTEM => Some(Arc::new(SystemTables(self.0.clone()))),
            _ => None,
        }
    }
}

/// `forebay.public`
#[derive(Debug)]
struct AgentTables(Arc<Moment>);

#[async_trait]
impl SchemaProvider for AgentTables {
    fn table_names(&self) -> Vec<String> {
        let live = || self.0.tables().map(forebay_store::TableSnapshot::name);
        let archived = self.0.archived.tables().filter(|name| self.0.sees(name));
        let archived = archived.filter(|name| !live().any(|live| live == *name));
        live().chain(archived).map(str::to_owned).collect()
    }

    async fn table(&self, name: &str) -> PlanResult<Option<Arc<dyn TableProvider>>> {
        Catalogs(self.0.clone()).agent_table(name)
    }

    fn table_exist(&self, name: &str) -> bool {
        self.0.sees(name) && (self.0.table(name).is_some() || self.0.archived.has_table(name))
    }
}

/// `forebay.system`
#[derive(Debug)]
struct SystemTables(Arc<Moment>);

#[async_trait]
impl SchemaProvider for SystemTables {
    fn table_names(&self) -> Vec<String> {
        system::shown(&self.0).map(str::to_owned).collect()
    }

    async fn table(&self, name: &str) -> PlanResult<Option<Arc<dyn TableProvider>>> {
        system::table(name, &Catalogs(self.0.clone()))
    }

    fn table_exist(&self, name: &str) -> bool {
        system::shown(&self.0).any(|table| table == name)
    }
}
