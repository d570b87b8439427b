//! Which parts of a table a filter leaves out, before a row of them is looked at.
//!
//! What is known of a part: bounds of its policy versions, and whether a sample is in it.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, UInt64Array};
use arrow_schema::SchemaRef;
use datafusion::common::pruning::PruningStatistics;
use datafusion::common::{Column, ScalarValue};
use datafusion::physical_expr::{PhysicalExpr, conjunction};
use datafusion::physical_optimizer::pruning::PruningPredicateBuilder;
use forebay_store::{Part, SampleId, TableSnapshot};

/// The parts that may have a row that all filters let through. What cannot be told keeps a part.
pub(super) fn kept(
    table: &TableSnapshot,
    parts: Vec<Part>,
    filters: &[Arc<dyn PhysicalExpr>],
    schema: &SchemaRef,
) -> Vec<Part> {
    if filters.is_empty() {
        return parts;
    }
    let all = conjunction(filters.iter().cloned());
    let Ok(predicate) = PruningPredicateBuilder::new().with_file_schema(schema.clone()).try_build(all) else {
        return parts;
    };
    if predicate.always_true() {
        return parts;
    }
    let known = Known { table, parts: &parts };
    let Ok(kept) = predicate.prune(&known) else { return parts };
    parts.into_iter().zip(kept).filter_map(|(part, keep)| keep.then_some(part)).collect()
}

struct Known<'a> {
    table: &'a TableSnapshot,
    parts: &'a [Part],
}

impl Known<'_> {
    fn versions(&self, column: &Column, bound: fn(&Part) -> Option<u64>) -> Option<ArrayRef> {
        (column.name() == "policy_version")
            .then(|| Arc::new(UInt64Array::from_iter(self.parts.iter().map(bound))) as ArrayRef)
    }
}

impl PruningStatistics for Known<'_> {
    fn min_values(&self, column: &Column) -> Option<ArrayRef> {
        self.versions(column, |part| part.versions().map(|versions| *versions.start()))
    }

    fn max_values(&self, column: &Column) -> Option<ArrayRef> {
        self.versions(column, |part| part.versions().map(|versions| *versions.end()))
    }

    fn num_containers(&self) -> usize {
        self.parts.len()
    }

    fn null_counts(&self, _column: &Column) -> Option<ArrayRef> {
        None
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        Some(Arc::new(UInt64Array::from_iter_values(self.parts.iter().map(|part| part.row_count() as u64))))
    }

    fn contained(&self, column: &Column, values: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        if column.name() != "sample_id" {
            return None;
        }
        let texts = values.iter().map(|value| value.try_as_str().flatten());
        // What is no sample id is no row's.
        let samples: Vec<SampleId> = texts.flatten().filter_map(|text| text.parse().ok()).collect();
        let holds = |part| (!self.table.holds_any(part, &samples)).then_some(false);
        Some(self.parts.iter().map(holds).collect())
    }
}
