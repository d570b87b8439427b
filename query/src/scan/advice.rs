//! Filters that the plan above makes while it runs: the worst of the best twenty so far, the keys that a join has seen.
//!
//! They are advice, for the plan that gives one is right without it. So they are tried where that pays:
//! - What asks for texts is first tried with numbers and truth values alone, the rest of it taken for true. A row that this
//!   refuses the whole would refuse as well, and texts are read of few rows then.
//! - What lets nearly all rows through rests for a while, or until the plan says something new.

use std::sync::Arc;

use arrow_schema::{DataType, SchemaRef};
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, lit};
use datafusion::physical_expr_common::physical_expr::{snapshot_generation, snapshot_physical_expr};
use forebay_store::TableSnapshot;

use super::columns::{looked_at, type_of};
use super::stage::Stage;

/// A filter is judged by this many rows,
const TRIAL_ROWS: usize = 4_096;
/// rests when it lets more than this share of them through, in tenths,
const TENTHS_MAX: usize = 9;
/// and is tried again after this many.
const REST_ROWS: usize = 16 * TRIAL_ROWS;

/// One filter over the wide schema, with what it says at the moment.
#[derive(Debug)]
pub(super) struct Advice {
    filter: Arc<dyn PhysicalExpr>,
    schema: SchemaRef,
    /// What the stages were made of; `None` before the first look.
    generation: Option<u64>,
    stages: Vec<Tried>,
}

impl Advice {
    pub(super) fn new(filter: Arc<dyn PhysicalExpr>, schema: &SchemaRef) -> Self {
        Advice { filter, schema: schema.clone(), generation: None, stages: Vec::new() }
    }

    /// The rows that are let through, in their order.
    pub(super) fn let_through(&mut self, table: &TableSnapshot, mut rows: Vec<u32>) -> PlanResult<Vec<u32>> {
        self.refresh()?;
        for stage in &mut self.stages {
            rows = stage.let_through(table, rows)?;
        }
        Ok(rows)
    }

    fn refresh(&mut self) -> PlanResult<()> {
        let generation = snapshot_generation(&self.filter);
        if self.generation == Some(generation) {
            return Ok(());
        }
        let now = snapshot_physical_expr(self.filter.clone())?;
        let numbers = self.relaxed(&now)?;
        // The whole after the relaxed one, unless there is nothing more in it.
        let whole = numbers.as_ref() != Some(&now);
        let stages = numbers.into_iter().chain(whole.then_some(now));
        let made = stages.map(|filter| Ok(Tried::new(Stage::over(&[filter], &self.schema)?)));
        self.stages = made.collect::<PlanResult<_>>()?;
        self.generation = Some(generation);
        Ok(())
    }

    /// The filter with everything that reads texts or values taken for true; `None` when nothing is left of it.
    ///
    /// Right because it goes down through AND and OR alone: where either is true, it is still true with a part of it taken
    /// for true.
    fn relaxed(&self, filter: &Arc<dyn PhysicalExpr>) -> PlanResult<Option<Arc<dyn PhysicalExpr>>> {
        if let Some(binary) = filter.downcast_ref::<BinaryExpr>()
            && let operator @ (Operator::And | Operator::Or) = *binary.op()
        {
            let join =
                |left, right| Arc::new(BinaryExpr::new(left, operator, right)) as Arc<dyn PhysicalExpr>;
            return Ok(match (self.relaxed(binary.left())?, self.relaxed(binary.right())?) {
                (Some(left), Some(right)) => Some(join(left, right)),
                (left, right) if operator == Operator::And => left.or(right),
                _ => None,
            });
        }
        let columns = looked_at(std::slice::from_ref(filter), &self.schema)?;
        let cheap = |data_type: DataType| data_type.is_primitive() || data_type == DataType::Boolean;
        let keeps = columns.iter().all(|column| cheap(type_of(*column, &self.schema)));
        Ok((keeps && *filter != lit(true)).then(|| filter.clone()))
    }
}

/// A stage, and how it does.
#[derive(Debug)]
struct Tried {
    stage: Stage,
    seen: usize,
    passed: usize,
    /// Rows that still go by untried.
    rest: usize,
}

impl Tried {
    fn new(stage: Stage) -> Self {
        Tried { stage, seen: 0, passed: 0, rest: 0 }
    }

    fn let_through(&mut self, table: &TableSnapshot, rows: Vec<u32>) -> PlanResult<Vec<u32>> {
        if self.rest > 0 {
            self.rest = self.rest.saturating_sub(rows.len());
            return Ok(rows);
        }
        self.seen += rows.len();
        let kept = self.stage.let_through(table, rows)?;
        self.passed += kept.len();
        if self.seen >= TRIAL_ROWS {
            self.rest = if self.passed * 10 > self.seen * TENTHS_MAX { REST_ROWS } else { 0 };
            (self.seen, self.passed) = (0, 0);
        }
        Ok(kept)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop where it stands")]

    use arrow_schema::{Field, Schema};
    use datafusion::physical_expr::expressions::{binary, col};

    use super::*;

    #[test]
    fn what_reads_texts_is_taken_for_true_and_what_is_left_refuses_no_more() {
        let fields = [("n", DataType::Int32), ("b", DataType::Boolean), ("t", DataType::Utf8View)];
        let fields = fields.map(|(name, data_type)| Field::new(name, data_type, true));
        let schema: SchemaRef = Arc::new(Schema::new(fields.to_vec()));
        let advice = Advice::new(lit(true), &schema);
        let join = |left, operator, right| binary(left, operator, right, &schema).unwrap();
        let less =
            |name: &str, than: Arc<dyn PhysicalExpr>| join(col(name, &schema).unwrap(), Operator::Lt, than);
        let (n, t) = (less("n", lit(3_i32)), less("t", lit("x")));
        let and = |left: &Arc<dyn PhysicalExpr>, right: &Arc<dyn PhysicalExpr>| {
            join(left.clone(), Operator::And, right.clone())
        };
        let or = |left: &Arc<dyn PhysicalExpr>, right: &Arc<dyn PhysicalExpr>| {
            join(left.clone(), Operator::Or, right.clone())
        };
        for (filter, wanted) in [
            (n.clone(), Some("n@0 < 3")),
            (t.clone(), None),
            (lit(true), None),
            (and(&n, &t), Some("n@0 < 3")),
            (and(&t, &n), Some("n@0 < 3")),
            (or(&n, &t), None),
            (or(&n, &and(&n, &t)), Some("n@0 < 3 OR n@0 < 3")),
            (and(&or(&n, &t), &t), None),
        ] {
            let relaxed = advice.relaxed(&filter).unwrap().map(|left| left.to_string());
            assert_eq!(relaxed.as_deref(), wanted, "{filter}");
        }
    }
}
