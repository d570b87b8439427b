//! A system table that is made at once: its columns are known without it, its rows are made by the plan that reads them.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{MemTable, Session, TableProvider};
use datafusion::common::internal_datafusion_err;
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use forebay_store::{HostFolder, ObjectOptions, Options, SimulatedDisk, Store};

use super::{Make, Moment, TABLES};
use crate::catalog::Catalogs;
use crate::seen::Seen;

/// Makes the rows of a table.
pub(super) type MakeRows = fn(&Moment) -> Result<RecordBatch, ArrowError>;

/// The columns of every such table, which are those that it has in a store without anything in it.
static SCHEMAS: LazyLock<Result<BTreeMap<&str, SchemaRef>, String>> = LazyLock::new(|| {
    let objects = ObjectOptions::default().host_folder(HostFolder::Anonymous);
    let options = Options::default().disk(Arc::new(SimulatedDisk::seeded(0))).objects(objects);
    let nothing = Store::open("/nowhere", options).map_err(|error| error.to_string())?;
    let moment = Moment::of(&nothing, &Seen::default());
    let mut schemas = BTreeMap::new();
    for (name, _, make) in TABLES {
        if let Make::Rows(make) = make {
            schemas.insert(name, make(&moment).map_err(|error| error.to_string())?.schema());
        }
    }
    Ok(schemas)
});

/// The columns of the table of that name.
pub(super) fn schema(name: &str) -> PlanResult<SchemaRef> {
    let schemas = SCHEMAS.as_ref().map_err(|reason| internal_datafusion_err!("{reason}"))?;
    schemas.get(name).cloned().ok_or_else(|| internal_datafusion_err!("{name} has no columns"))
}

/// A table of one moment.
pub(super) struct RowsOf {
    pub(super) catalogs: Catalogs,
    pub(super) make: MakeRows,
    pub(super) schema: SchemaRef,
}

impl std::fmt::Debug for RowsOf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowsOf").field("schema", &self.schema).finish_non_exhaustive()
    }
}

#[async_trait]
impl TableProvider for RowsOf {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let rows = (self.make)(self.catalogs.moment())?;
        let table = MemTable::try_new(self.schema.clone(), vec![vec![rows]])?;
        table.scan(session, projection, filters, limit).await
    }
}
