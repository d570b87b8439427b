//! The table of an agent, as DataFusion sees it: one [`TableSnapshot`] of the query's moment.
//!
//! Projections, filters and limits are taken over by the [`Scan`].

use std::sync::Arc;

use arrow_schema::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{DFSchema, Statistics};
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use forebay_store::TableSnapshot;

use crate::scan::{Scan, table_statistics};

/// One agent's table.
#[derive(Debug)]
pub(crate) struct AgentTable(TableSnapshot);

impl AgentTable {
    pub(crate) fn new(snapshot: TableSnapshot) -> Self {
        AgentTable(snapshot)
    }
}

#[async_trait]
impl TableProvider for AgentTable {
    fn schema(&self) -> SchemaRef {
        self.0.arrow_schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn statistics(&self) -> Option<Statistics> {
        Some(table_statistics(&self.0))
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> PlanResult<Vec<TableProviderFilterPushDown>> {
        let taken = |filter: &&Expr| match filter.is_volatile() {
            true => TableProviderFilterPushDown::Unsupported,
            false => TableProviderFilterPushDown::Exact,
        };
        Ok(filters.iter().map(taken).collect())
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let schema = DFSchema::try_from(self.0.arrow_schema())?;
        let physical = |filter: &Expr| session.create_physical_expr(filter.clone(), &schema);
        let filters = filters.iter().map(physical).collect::<PlanResult<Vec<_>>>()?;
        let partitions = session.config().target_partitions();
        let scan = Scan::new(self.0.clone(), projection, partitions).with_filters(filters)?;
        Ok(Arc::new(scan.with_rows_max(limit)))
    }
}
