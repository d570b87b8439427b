//! The parts that a scan has still to read.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use datafusion::error::Result as PlanResult;
use datafusion::physical_expr::{DynamicFilterTracking, PhysicalExpr};
use datafusion::physical_expr_common::physical_expr::snapshot_generation;
use forebay_store::{Part, ScanColumn, TableSnapshot};

use super::columns::{looked_at, wide_schema};
use super::pruning;
use super::statistics::VERSION;

/// Parts in the order in which they are read. Those that filters rule out are left out: at the beginning, and again when a plan
/// above has come to say more of versions.
pub(super) struct Remaining {
    parts: VecDeque<Part>,
    /// Over the wide schema.
    filters: Vec<Arc<dyn PhysicalExpr>>,
    schema: SchemaRef,
    /// What the filters said when parts were last left out; `None` where nothing that they say later can rule one out.
    generation: Option<u64>,
}

impl Remaining {
    /// Those of `parts` that the filters do not rule out.
    pub(super) fn of(
        table: &TableSnapshot,
        parts: Vec<Part>,
        filters: Vec<Arc<dyn PhysicalExpr>>,
    ) -> PlanResult<Self> {
        let narrow = table.arrow_schema();
        let mut generation = None;
        for filter in &filters {
            let is_advice = DynamicFilterTracking::classify(filter).contains_dynamic_filter();
            let columns = looked_at(std::slice::from_ref(filter), &narrow)?;
            let is_version = |column: &ScanColumn| matches!(column, ScanColumn::Value(at) if narrow.field(*at).name() == VERSION);
            if is_advice && columns.iter().any(is_version) {
                generation = Some(generation_of(&filters));
            }
        }
        let schema = wide_schema(&narrow);
        let parts = pruning::kept(table, parts, &filters, &schema).into();
        Ok(Remaining { parts, filters, schema, generation })
    }

    pub(super) fn len(&self) -> usize {
        self.parts.len()
    }

    /// The next part to read, and how many were found to need no look on the way to it.
    pub(super) fn next(&mut self, table: &TableSnapshot) -> (Option<Part>, usize) {
        let before = self.parts.len();
        if self.generation.is_some_and(|generation| generation != generation_of(&self.filters)) {
            self.generation = Some(generation_of(&self.filters));
            let parts = std::mem::take(&mut self.parts).into();
            self.parts = pruning::kept(table, parts, &self.filters, &self.schema).into();
        }
        let pruned = before - self.parts.len();
        (self.parts.pop_front(), pruned)
    }
}

fn generation_of(filters: &[Arc<dyn PhysicalExpr>]) -> u64 {
    filters.iter().map(snapshot_generation).fold(0, u64::wrapping_add)
}
