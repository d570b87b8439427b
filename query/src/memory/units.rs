//! The units of the memory that plans come to, known before they run.

use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use super::SharedMemory;
use crate::runtime;

/// The units of a plan that is under way; dropped with it.
pub(crate) struct Announced {
    memory: Arc<dyn MemoryPool>,
    units: usize,
}

impl Announced {
    /// Those of a plan that is about to run.
    pub(crate) fn of(plan: &Arc<dyn ExecutionPlan>, context: &TaskContext) -> Self {
        let (memory, units) = (context.memory_pool().clone(), units(plan));
        if let Some(shared) = memory.downcast_ref::<SharedMemory>() {
            shared.state().announced += units;
        }
        Announced { memory, units }
    }

    /// The context with batches that fit into the parts.
    pub(crate) fn sized(&self, mut context: TaskContext) -> TaskContext {
        if let Some(shared) = self.memory.downcast_ref::<SharedMemory>() {
            let config = context.session_config().clone();
            let rows = config.batch_size().min(runtime::rows(shared.bytes, self.units));
            context = context.with_session_config(config.with_batch_size(rows));
        }
        context
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        if let Some(shared) = self.memory.downcast_ref::<SharedMemory>() {
            shared.state().announced -= self.units;
        }
    }
}

/// How many units a plan comes to, over all of its partitions.
fn units(plan: &Arc<dyn ExecutionPlan>) -> usize {
    let mut units = 0;
    let counted = plan.apply(|node| {
        let is_sort = node.downcast_ref::<SortExec>().is_some_and(|sort| sort.fetch().is_none());
        let groups = node.downcast_ref::<AggregateExec>().is_some_and(|node| !node.group_expr().is_empty());
        if is_sort || groups || node.is::<SortPreservingMergeExec>() {
            units += node.output_partitioning().partition_count();
        }
        Ok(TreeNodeRecursion::Continue)
    });
    counted.map_or(0, |_| units)
}
