//! What rows go through before they are read.

use std::sync::Arc;

use datafusion::error::Result as PlanResult;
use datafusion::physical_expr::{DynamicFilterTracking, PhysicalExpr};
use forebay_store::TableSnapshot;

use super::advice::Advice;
use super::columns::{is_heavy, looked_at};
use super::stage::Stage;

/// All filters of a scan, in the order in which they are tried: those of the query that read no values, what the plan
/// above advises as it runs, and those of the query that read values.
#[derive(Debug)]
pub(super) struct Sieve {
    light: Option<Stage>,
    advice: Vec<Advice>,
    heavy: Option<Stage>,
    reads_values: bool,
}

impl Sieve {
    /// Filters over the wide schema.
    pub(super) fn of(filters: &[Arc<dyn PhysicalExpr>], table: &TableSnapshot) -> PlanResult<Self> {
        let schema = table.arrow_schema();
        let (mut light, mut advice, mut heavy) = (Vec::new(), Vec::new(), Vec::new());
        let mut reads_values = false;
        for one in filters {
            let columns = looked_at(std::slice::from_ref(one), &schema)?;
            let is_heavy = columns.iter().any(|column| is_heavy(*column, table));
            reads_values |= is_heavy;
            match DynamicFilterTracking::classify(one).contains_dynamic_filter() {
                true => advice.push(Advice::new(one.clone(), &schema)),
                false if is_heavy => heavy.push(one.clone()),
                false => light.push(one.clone()),
            }
        }
        let stage = |filters: Vec<_>| (!filters.is_empty()).then(|| Stage::over(&filters, &schema));
        Ok(Sieve { light: stage(light).transpose()?, advice, heavy: stage(heavy).transpose()?, reads_values })
    }

    /// Whether what it lets through may depend on what was read before.
    pub(super) fn is_advised(&self) -> bool {
        !self.advice.is_empty()
    }

    /// Whether it may read values in extents, on advice or for the query.
    pub(super) fn reads_values(&self) -> bool {
        self.reads_values
    }

    /// The rows that are let through, in their order.
    pub(super) fn let_through(&mut self, table: &TableSnapshot, mut rows: Vec<u32>) -> PlanResult<Vec<u32>> {
        if let Some(light) = &self.light {
            rows = light.let_through(table, rows)?;
        }
        for advice in &mut self.advice {
            rows = advice.let_through(table, rows)?;
        }
        match &self.heavy {
            Some(heavy) => heavy.let_through(table, rows),
            None => Ok(rows),
        }
    }
}
