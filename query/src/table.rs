//! The table of an agent, as DataFusion sees it: one [`TableSnapshot`] of the query's moment.
//!
//! Projections and limits are taken over. Filters stay with DataFusion for now: pushed down they would spare reading
//! values of rows that a condition on meta or status columns leaves out.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Statistics;
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use forebay_store::TableSnapshot;

use crate::scan::{Scan, statistics};

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
        Some(statistics(self.0.row_count(), &self.0.arrow_schema()))
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> PlanResult<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Unsupported; filters.len()])
    }

    async fn scan(
        &self,
        _session: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Scan::new(self.0.clone(), projection.cloned(), limit)?))
    }
}
