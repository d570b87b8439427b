//! Joins whose smaller side does not fit into memory.
//!
//! A join by hash keeps one side in memory, and cannot spill it. So a statement that runs out of memory before its first row is
//! planned once more, with joins that sort both sides, which spills, and merge them. Joins without an equality, `NOT IN`
//! with NULLs, and keys that merging does not compare as SQL does have no such plan; the first kind spills by itself, or fails.

use std::sync::Arc;

use arrow::compute::SortOptions;
use arrow_schema::DataType as Type;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::execution::session_state::SessionState;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::{HashJoinExec, SortMergeJoinExec};

type Plan = Arc<dyn ExecutionPlan>;

/// The rule of the planner. It goes before sides of joins are chosen, and what they give.
#[derive(Debug)]
pub(crate) struct MergedJoins;

impl PhysicalOptimizerRule for MergedJoins {
    fn optimize(&self, plan: Plan, config: &ConfigOptions) -> PlanResult<Plan> {
        if config.optimizer.prefer_hash_join {
            return Ok(plan);
        }
        let merge = |plan: Plan| {
            let merged = plan.downcast_ref::<HashJoinExec>().map(merged).transpose()?.flatten();
            Ok(merged
                .map_or_else(|| Transformed::no(plan), |merged| Transformed::yes(Arc::new(merged) as Plan)))
        };
        plan.transform_up(merge).data()
    }

    fn name(&self) -> &'static str {
        "MergedJoins"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The same join by sorting; `None` where there is none.
fn merged(join: &HashJoinExec) -> PlanResult<Option<SortMergeJoinExec>> {
    let keys = join.left().schema();
    let types = join.on().iter().map(|(left, _)| left.data_type(&keys)).collect::<PlanResult<Vec<_>>>()?;
    if join.null_aware || join.contains_projection() || !types.iter().all(can_merge_by) {
        return Ok(None);
    }
    let (left, right, on) = (join.left().clone(), join.right().clone(), join.on().to_vec());
    let options = vec![SortOptions::default(); on.len()];
    let filter = join.filter().cloned();
    SortMergeJoinExec::try_new(left, right, on, filter, *join.join_type(), options, join.null_equality())
        .map(Some)
}

/// Whether rows that are sorted by values of a type are merged by them as SQL compares them. Floats are not: the merge has no place for NaN
/// (it panics there), and takes -0 and 0, which the sort keeps apart, for one. It knows no types but these.
fn can_merge_by(key: &Type) -> bool {
    let is_text = matches!(key, Type::Utf8 | Type::LargeUtf8 | Type::Utf8View);
    let is_binary =
        matches!(key, Type::Binary | Type::LargeBinary | Type::BinaryView | Type::FixedSizeBinary(_));
    let is_time = matches!(key, Type::Timestamp(_, None) | Type::Date32 | Type::Date64);
    let is_exact = key.is_integer() || matches!(key, Type::Boolean | Type::Decimal128(..));
    is_text || is_binary || is_time || is_exact
}

/// The same session, which has joins sort.
pub(crate) fn session(mut state: SessionState) -> SessionState {
    state.config_mut().options_mut().optimizer.prefer_hash_join = false;
    state
}

/// Whether another plan may do with less memory.
pub(crate) fn may_help(plan: &Plan) -> bool {
    let mut found = false;
    let looked = plan.apply(|node| {
        found |= node.is::<HashJoinExec>();
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    looked.is_ok() && found
}

/// Whether a plan failed for want of memory.
pub(crate) fn is_wanted_by(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::ResourcesExhausted(_))
}
