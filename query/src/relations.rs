//! The tables of a statement, as the planner comes to them.
//!
//! The time that planning takes grows with the third power of the columns that joins put beside one another. So these are counted,
//! and between two tables there is a look at the end of the statement.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::sql::sqlparser::ast::TableFactor;

use crate::ending::Ending;
use crate::error::{Cause, Error};

/// The most columns that all tables of a statement have together, each as often as it is named.
pub(crate) const COLUMNS_MAX: usize = 5_000;

/// Those of one statement.
#[derive(Debug)]
pub(crate) struct Relations {
    ending: Ending,
    columns: AtomicUsize,
    /// The planner comes with a table that it was given here.
    is_known: AtomicBool,
}

impl Relations {
    pub(crate) fn new(ending: Ending) -> Self {
        Relations { ending, columns: AtomicUsize::new(0), is_known: AtomicBool::new(false) }
    }
}

impl RelationPlanner for Relations {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> PlanResult<RelationPlanning> {
        if self.is_known.swap(false, Ordering::Relaxed) {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        }
        self.ending.check()?;
        self.is_known.store(true, Ordering::Relaxed);
        let plan = context.plan(relation)?;
        let here = plan.schema().fields().len();
        let columns = here + self.columns.fetch_add(here, Ordering::Relaxed);
        if columns > COLUMNS_MAX {
            return Err(Error::from(Cause::TooWide { columns, limit: COLUMNS_MAX }).into());
        }
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, None))))
    }
}
