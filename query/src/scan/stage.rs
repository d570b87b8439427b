//! Filters that are looked at together.

use std::sync::Arc;

use arrow::compute::{filter, prep_null_mask_filter};
use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use arrow_array::{Array, BooleanArray, UInt32Array};
use arrow_schema::SchemaRef;
use datafusion::common::internal_err;
use datafusion::error::Result as PlanResult;
use datafusion::physical_expr::{PhysicalExpr, conjunction};
use forebay_store::{ScanColumn, TableSnapshot};

use super::columns::{looked_at, narrowed};
use crate::error::from_store;
use crate::floats::canonical_batch;

/// Filters over some columns: rows that they refuse are not read any further.
#[derive(Debug)]
pub(super) struct Stage {
    columns: Vec<ScanColumn>,
    predicate: Arc<dyn PhysicalExpr>,
}

impl Stage {
    /// Filters over the wide schema of a table.
    pub(super) fn over(filters: &[Arc<dyn PhysicalExpr>], schema: &SchemaRef) -> PlanResult<Self> {
        let columns = looked_at(filters, schema)?;
        let narrow = |one: &Arc<dyn PhysicalExpr>| narrowed(one.clone(), &columns, schema);
        let filters = filters.iter().map(narrow).collect::<PlanResult<Vec<_>>>()?;
        Ok(Stage { columns, predicate: conjunction(filters) })
    }

    /// The rows that are let through, in their order.
    pub(super) fn let_through(&self, table: &TableSnapshot, rows: Vec<u32>) -> PlanResult<Vec<u32>> {
        let batch = table.read(&rows, &self.columns);
        let batch = canonical_batch(batch.map_err(from_store)?)?;
        let answer = self.predicate.evaluate(&batch)?.into_array(batch.num_rows())?;
        let Some(answer) = answer.as_boolean_opt() else {
            return internal_err!("a filter answered {}", answer.data_type());
        };
        let mask: BooleanArray =
            if answer.null_count() > 0 { prep_null_mask_filter(answer) } else { answer.clone() };
        if mask.true_count() == rows.len() {
            return Ok(rows);
        }
        let kept = filter(&UInt32Array::from(rows), &mask)?;
        Ok(kept.as_primitive::<UInt32Type>().values().to_vec())
    }
}
