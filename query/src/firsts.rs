//! Groups of which only the first are wanted: `GROUP BY input_id ORDER BY max(step) DESC LIMIT 10`.
//!
//! The engine has a way to keep no more than these. It panics where a group is NaN, and puts NaN anywhere in an order, so it is
//! taken where no group, and nothing that is looked for in groups, is a float.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result as PlanResult;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;

/// The engine's rule, where it is right.
#[derive(Debug)]
pub(crate) struct FirstGroups(pub(crate) Arc<dyn PhysicalOptimizerRule + Send + Sync>);

impl PhysicalOptimizerRule for FirstGroups {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let mut of_floats = false;
        plan.apply(|node| {
            of_floats |= node.is::<AggregateExec>()
                && node.schema().fields().iter().any(|field| field.data_type().is_floating());
            Ok(if of_floats { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        if of_floats { Ok(plan) } else { self.0.optimize(plan, config) }
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}
