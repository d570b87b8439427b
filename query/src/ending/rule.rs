//! Joins that can be ended.

use std::sync::Arc;

use datafusion::common::JoinType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result as PlanResult;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, NestedLoopJoinExecBuilder, SortMergeJoinExec,
};
use datafusion::physical_plan::{
    ChildrenPropertiesMode, ExecutionPlan, ExecutionPlanProperties, ReplaceChildrenOptions,
};

use super::Ending;
use super::condition::Condition;
use super::turns::Turns;

type Plan = Arc<dyn ExecutionPlan>;

/// The rule of the planner.
#[derive(Debug)]
pub(crate) struct EndableJoins;

impl PhysicalOptimizerRule for EndableJoins {
    fn optimize(&self, plan: Plan, config: &ConfigOptions) -> PlanResult<Plan> {
        let Some(ending) = config.extensions.get::<Ending>() else { return Ok(plan) };
        let endable =
            |plan: Plan| Ok(endable(&plan, ending)?.map_or_else(|| Transformed::no(plan), Transformed::yes));
        plan.transform_up(endable).data()
    }

    fn name(&self) -> &'static str {
        "EndableJoins"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// A join that remembers which rows of its left side have matched does so for each stream of its right side once it spills, and
/// would give a row of the left side for each of them. So the right side comes in one.
fn in_one_stream(join: NestedLoopJoinExec) -> PlanResult<Plan> {
    use JoinType as J;
    let remembers = matches!(join.join_type(), J::Left | J::LeftSemi | J::LeftAnti | J::LeftMark | J::Full);
    if !remembers || join.right().output_partitioning().partition_count() == 1 {
        return Ok(Arc::new(join));
    }
    let (left, right) = (join.left().clone(), join.right().clone());
    let children: Vec<Plan> = vec![left, Arc::new(CoalescePartitionsExec::new(right))];
    Arc::new(join).replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
}

/// A join that looks at the end as it tries its condition, and gives other work a turn; `None` for what is no join.
fn endable(plan: &Plan, ending: &Ending) -> PlanResult<Option<Plan>> {
    let looking = |filter: &JoinFilter| {
        let condition = Arc::new(Condition::new(filter.expression().clone(), ending.clone()));
        JoinFilter::new(condition, filter.column_indices().to_vec(), filter.schema().clone())
    };
    let join: Plan = if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        match join.filter().map(looking) {
            Some(filter) => join.builder().with_filter(Some(filter)).build_exec()?,
            None => plan.clone(),
        }
    } else if let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>() {
        let filter = join.filter().map(looking);
        in_one_stream(NestedLoopJoinExecBuilder::from(join).with_filter(filter).build()?)?
    } else if let Some(join) = plan.downcast_ref::<SortMergeJoinExec>() {
        match join.filter().as_ref().map(looking) {
            Some(filter) => Arc::new(SortMergeJoinExec::try_new(
                join.left().clone(),
                join.right().clone(),
                join.on().to_vec(),
                Some(filter),
                join.join_type(),
                join.sort_options().to_vec(),
                join.null_equality(),
            )?),
            None => plan.clone(),
        }
    } else if plan.is::<CrossJoinExec>() {
        plan.clone()
    } else {
        return Ok(None);
    };
    Ok(Some(Arc::new(Turns::new(join))))
}
