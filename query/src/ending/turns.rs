//! Joins that give other work of their thread a turn.
//!
//! The engine has a plan for it (`CooperativeExec`), which takes its share of a turn before it asks its input, and gives it back
//! where nothing came. So a chain of more joins than a turn has shares never gets to its end: each turn is spent on the way down.
//! Here a share is taken for what came.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use datafusion::common::config::ConfigOptions;
use datafusion::common::internal_err;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result as PlanResult;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::{CardinalityEffect, SchedulingType};
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterDescription, FilterPushdownPhase, FilterPushdownPropagation,
};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures_core::Stream;
use tokio::task::coop;

type Plan = Arc<dyn ExecutionPlan>;
type Filter = Arc<dyn PhysicalExpr>;

/// What a plan gives, counted. Filters go through it.
#[derive(Debug)]
pub(super) struct Turns {
    input: Plan,
    properties: Arc<PlanProperties>,
}

impl Turns {
    pub(super) fn new(input: Plan) -> Self {
        let properties = PlanProperties::clone(input.properties());
        let properties = Arc::new(properties.with_scheduling_type(SchedulingType::Cooperative));
        Turns { input, properties }
    }
}

impl DisplayAs for Turns {
    fn fmt_as(&self, _type: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Turns")
    }
}

impl ExecutionPlan for Turns {
    fn name(&self) -> &'static str {
        "Turns"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Plan> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn supports_limit_pushdown(&self) -> bool {
        true
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }

    fn apply_expressions(
        &self,
        _visit: &mut dyn FnMut(&Filter) -> PlanResult<TreeNodeRecursion>,
    ) -> PlanResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Plan>) -> PlanResult<Plan> {
        match children.pop() {
            Some(input) if children.is_empty() => Ok(Arc::new(Turns::new(input))),
            _ => internal_err!("turns are given to one plan"),
        }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> PlanResult<SendableRecordBatchStream> {
        Ok(Box::pin(Taking(self.input.execute(partition, context)?)))
    }

    fn gather_filters_for_pushdown(
        &self,
        _phase: FilterPushdownPhase,
        filters: Vec<Filter>,
        _config: &ConfigOptions,
    ) -> PlanResult<FilterDescription> {
        FilterDescription::from_children(filters, &self.children())
    }

    fn handle_child_pushdown_result(
        &self,
        _phase: FilterPushdownPhase,
        result: ChildPushdownResult,
        _config: &ConfigOptions,
    ) -> PlanResult<FilterPushdownPropagation<Plan>> {
        Ok(FilterPushdownPropagation::if_all(result))
    }
}

/// Takes a share of the turn for each batch.
struct Taking(SendableRecordBatchStream);

impl Stream for Taking {
    type Item = PlanResult<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if !coop::has_budget_remaining() {
            drop(ready!(coop::poll_proceed(context))); // it sees to it that this is asked again
        }
        let given = ready!(self.0.as_mut().poll_next(context));
        if let Poll::Ready(share) = coop::poll_proceed(context) {
            share.made_progress();
        }
        Poll::Ready(given)
    }
}

impl RecordBatchStream for Taking {
    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }
}
