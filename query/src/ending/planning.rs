//! Planning that looks at the end of its statement.
//!
//! Rules of the planner compute for as long as a statement is large, and nobody can end them from outside. So each looks before it
//! begins, and those that the planner takes from node to node look at each node.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::{AnalyzerRule, ApplyOrder, OptimizerConfig, OptimizerRule};
use datafusion::physical_optimizer::{PhysicalOptimizerContext, PhysicalOptimizerRule};
use datafusion::physical_plan::ExecutionPlan;

use super::Ending;

/// A rule that looks at the end first.
#[derive(Debug)]
pub(crate) struct Looking<R: ?Sized>(Arc<R>);

/// The same of each of these.
pub(crate) fn looking<R: ?Sized, D: ?Sized>(
    rules: Vec<Arc<R>>,
    as_rule: fn(Looking<R>) -> Arc<D>,
) -> Vec<Arc<D>> {
    rules.into_iter().map(|rule| as_rule(Looking(rule))).collect()
}

/// An error once the statement with these options is over.
fn look(options: &ConfigOptions) -> PlanResult<()> {
    match options.extensions.get::<Ending>() {
        Some(ending) => Ok(ending.check()?),
        None => Ok(()),
    }
}

impl AnalyzerRule for Looking<dyn AnalyzerRule + Send + Sync> {
    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> PlanResult<LogicalPlan> {
        look(config)?;
        self.0.analyze(plan, config)
    }

    fn name(&self) -> &str {
        self.0.name()
    }
}

impl OptimizerRule for Looking<dyn OptimizerRule + Send + Sync> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> PlanResult<Transformed<LogicalPlan>> {
        look(&config.options())?;
        self.0.rewrite(plan, config)
    }
}

impl PhysicalOptimizerRule for Looking<dyn PhysicalOptimizerRule + Send + Sync> {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        look(config)?;
        self.0.optimize(plan, config)
    }

    fn optimize_with_context(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        context: &dyn PhysicalOptimizerContext,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        look(context.config_options())?;
        self.0.optimize_with_context(plan, context)
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}
