//! Which tables and functions there are, for programs that ask before they query: completion, Flight SQL's metadata.

use std::collections::BTreeSet;

use arrow_schema::SchemaRef;
use datafusion::catalog::information_schema::INFORMATION_SCHEMA;
use datafusion::common::TableReference;
use datafusion::execution::session_state::SessionState;

use crate::catalog::{CATALOG, SYSTEM};
use crate::error::Result;

/// A table that can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableInfo {
    /// The catalog that it is in.
    pub catalog: String,
    /// The schema that it is in: `public` for the tables of agents.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// What kind of table it is.
    pub kind: TableKind,
    /// Its columns.
    pub columns: SchemaRef,
}

/// What kind of table it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TableKind {
    /// Rows that agents made.
    Table,
    /// What the engine knows of itself.
    System,
}

impl TableKind {
    /// Every kind.
    pub const ALL: [TableKind; 2] = [TableKind::System, TableKind::Table];

    /// The word for it in JDBC, ODBC and ADBC.
    pub fn as_str(self) -> &'static str {
        match self {
            TableKind::Table => "TABLE",
            TableKind::System => "SYSTEM TABLE",
        }
    }
}

/// All tables that a statement in this state could name, by schema and name.
pub(crate) async fn tables(state: &SessionState) -> Result<Vec<TableInfo>> {
    let mut tables = Vec::new();
    for catalog in state.catalog_list().catalog_names() {
        let Some(schemas) = state.catalog_list().catalog(&catalog) else { continue };
        for schema in schemas.schema_names() {
            tables.extend(of_schema(state, &catalog, &schema).await?);
        }
    }
    tables.extend(of_schema(state, CATALOG, INFORMATION_SCHEMA).await?);
    tables.sort_by(|a, b| (&a.catalog, &a.schema, &a.name).cmp(&(&b.catalog, &b.schema, &b.name)));
    Ok(tables)
}

/// The names of all functions that a statement in this state could use, sorted.
pub(crate) fn functions(state: &SessionState) -> Vec<String> {
    let rows = state.scalar_functions().keys();
    let names = rows.chain(state.aggregate_functions().keys()).chain(state.window_functions().keys());
    let names: BTreeSet<&String> = names.chain(state.table_functions().keys()).collect();
    names.into_iter().cloned().collect()
}

async fn of_schema(state: &SessionState, catalog: &str, schema: &str) -> Result<Vec<TableInfo>> {
    let provider = state.schema_for_ref(TableReference::full(catalog, schema, ""))?;
    let kind = match schema {
        SYSTEM | INFORMATION_SCHEMA => TableKind::System,
        _ => TableKind::Table,
    };
    let mut tables = Vec::new();
    for name in provider.table_names() {
        // One that is gone by now is none of the moment.
        let Some(table) = provider.table(&name).await? else { continue };
        let (catalog, schema) = (catalog.to_owned(), schema.to_owned());
        tables.push(TableInfo { catalog, schema, name, kind, columns: table.schema() });
    }
    Ok(tables)
}
