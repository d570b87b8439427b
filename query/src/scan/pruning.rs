//! Which parts of a table a filter leaves out, before a row of them is looked at.
//!
//! What is known of a part: bounds of its policy versions, and whether a sample, an input or a group is in it. The last
//! three are looked up in the numbers that rows hold for their texts, with `=` and `IN` alike; rows of an input and of a
//! group come together, so a part costs few comparisons of texts, where reading its ids would make and compare one a row.
//! No other column leaves out parts: what is known of `step` or `state` changes with the rows, and would have to be kept
//! with every write.
//!
//! No order is promised to the planner ([`super::order`]). Parts are in the order of arrival, which no column has: versions overlap while a step
//! is under way, samples come as their rollouts end, and the clock of `created_at` may be set back.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, UInt64Array};
use arrow_schema::SchemaRef;
use datafusion::common::pruning::PruningStatistics;
use datafusion::common::{Column, ScalarValue};
use datafusion::physical_expr::{PhysicalExpr, conjunction};
use datafusion::physical_optimizer::pruning::PruningPredicateBuilder;
use forebay_store::{Part, SampleId, TableSnapshot};

use super::statistics::VERSION;

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
        (column.name() == VERSION)
            .then(|| Arc::new(UInt64Array::from_iter(self.parts.iter().map(bound))) as ArrayRef)
    }

    /// False for the parts that hold nothing of what is asked for; of the others it is not known whether all of their rows
    /// pass.
    fn without(&self, holds: impl Fn(&Part) -> bool) -> BooleanArray {
        self.parts.iter().map(|part| (!holds(part)).then_some(false)).collect()
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

    /// Every row has a version; a plan that sorts by it asks for rows without one all the same.
    fn null_counts(&self, column: &Column) -> Option<ArrayRef> {
        (column.name() == VERSION).then(|| Arc::new(UInt64Array::from(vec![0; self.parts.len()])) as ArrayRef)
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        Some(Arc::new(UInt64Array::from_iter_values(self.parts.iter().map(|part| part.row_count() as u64))))
    }

    fn contained(&self, column: &Column, values: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        let texts: Vec<&str> = values.iter().filter_map(|value| value.try_as_str().flatten()).collect();
        Some(match column.name() {
            "sample_id" => {
                // What is no sample id is no row's.
                let samples: Vec<SampleId> = texts.iter().filter_map(|text| text.parse().ok()).collect();
                self.without(|part| self.table.holds_any(part, &samples))
            }
            "input_id" => self.without(|part| self.table.holds_any_input(part, &texts)),
            "group_key" => self.without(|part| self.table.holds_any_group(part, &texts)),
            _ => return None,
        })
    }
}
