//! A statement that was read, refused if it would write, and planned against one moment.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use datafusion::common::ParamValues;
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder};
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::SQLOptions;
use datafusion::sql::parser::Statement;
use futures_util::{StreamExt, TryStreamExt, stream};

use crate::catalog::Catalogs;
use crate::ending::Ending;
use crate::error::Result;
use crate::memory::Announced;
use crate::merged;
use crate::missing;
use crate::placeholder::{Parameters, refused};
use crate::room::Roomy;
use crate::statement;
use crate::stream::Batches;
use crate::travel;

/// How deep a statement may be that runs and is dropped without room of its own, as most are.
const DEPTH_ANYWHERE: usize = 50;

/// A plan and what it runs in.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    state: Arc<SessionState>,
    plan: LogicalPlan,
    rows_max: Option<usize>,
    depth: usize,
}

impl Planned {
    /// Plans a statement over the catalogs of its moment.
    pub(crate) async fn new(
        statement: Statement,
        state: SessionState,
        catalogs: &Catalogs,
        rows_max: Option<usize>,
        depth: usize,
    ) -> Result<Self> {
        let looks_back = travel::looks_back(&statement);
        let planned = state.statement_to_plan(statement).await;
        let plan = planned.map_err(|error| missing::told(error, &state, catalogs, looks_back))?;
        let reads_only =
            SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
        reads_only.verify_plan(&plan).map_err(|_| statement::refused("this statement"))?;
        Ok(Planned { state: Arc::new(state), plan, rows_max, depth })
    }

    /// The values that it waits for.
    pub(crate) fn parameters(&self) -> Result<Parameters> {
        Parameters::of(&self.plan)
    }

    /// The same, or a refusal where values are missing.
    pub(crate) fn without_parameters(self) -> Result<Self> {
        match self.parameters()?.schema.fields().len() {
            0 => Ok(self),
            count => {
                let reason = "prepare it and give values with `Session::prepare`, or write them into it";
                Err(refused(format!("the statement has {count} parameters; {reason}")))
            }
        }
    }

    /// The same with its parameters filled in.
    pub(crate) fn with_values(&self, values: &ParamValues) -> Result<Self> {
        let plan = self.plan.clone().replace_params_with_values(values)?;
        Ok(Planned { plan, ..self.clone() })
    }

    /// The columns of the answer, as far as they are known before it runs.
    pub(crate) fn schema(&self) -> SchemaRef {
        let plan = self.state.optimize(&self.plan);
        let schema = plan.as_ref().map_or(self.plan.schema(), LogicalPlan::schema);
        schema.inner().clone()
    }

    /// Makes it ready to be polled; nothing is read before it is.
    pub(crate) async fn start(mut self) -> Result<(SchemaRef, Batches)> {
        let limited = self.limited()?;
        let plan = match self.state.create_physical_plan(&limited).await {
            Err(error) => self.as_it_stands(&limited).await.map_err(|_| error)?,
            Ok(plan) => plan,
        };
        Ending::of(self.state.config_options()).check()?; // an EXPLAIN takes a rule that failed for an answer
        let (schema, depth) = (plan.schema(), self.depth);
        let run = match merged::may_help(&plan) {
            true => run_again_merged(plan, limited, self.state),
            false => run(plan, &self.state),
        };
        Ok((schema, if depth > DEPTH_ANYWHERE { Box::pin(Roomy::new(run)) } else { run }))
    }

    /// The plan with lengths of lists computed where the statement has them. The engine moves them towards the tables, under names of
    /// its own or the one that the statement gives them; in some joins and views another column has that name, and it fails.
    async fn as_it_stands(&mut self, plan: &LogicalPlan) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        let mut state = (*self.state).clone();
        state.config_mut().options_mut().optimizer.enable_leaf_expression_pushdown = false;
        self.state = Arc::new(state);
        self.state.create_physical_plan(plan).await
    }

    /// The row limit is planned with the query, and one row more, which tells that there are more. So a sort keeps that
    /// many rows only.
    fn limited(&self) -> Result<LogicalPlan> {
        use LogicalPlan as P;
        let plan = self.plan.clone();
        match self.rows_max {
            Some(rows) if !matches!(plan, P::Explain(_) | P::Analyze(_) | P::DescribeTable(_)) => {
                Ok(LogicalPlanBuilder::from(plan).limit(0, Some(rows.saturating_add(1)))?.build()?)
            }
            _ => Ok(plan),
        }
    }
}

/// The rows of a plan. Some parts of it work from the moment that it is run, so that is done by whoever polls, on the threads for
/// it.
fn run(plan: Arc<dyn ExecutionPlan>, state: &SessionState) -> Batches {
    let context = TaskContext::from(state);
    let rows = async move {
        let announced = Announced::of(&plan, &context);
        let context = announced.sized(context);
        let rows = execute_stream(plan, Arc::new(context))?;
        Ok::<_, DataFusionError>(rows.inspect(move |_| _ = &announced)) // until the last of them
    };
    Box::pin(stream::once(rows).try_flatten())
}

/// The same; where memory does not suffice for the first row, with joins that can spill.
fn run_again_merged(plan: Arc<dyn ExecutionPlan>, planned: LogicalPlan, state: Arc<SessionState>) -> Batches {
    let schema = plan.schema();
    let again = async move {
        let mut rows = run(plan, &state);
        let first = match rows.next().await {
            Some(Err(error)) if merged::is_wanted_by(&error) => error,
            first => return Ok(stream::iter(first).chain(rows).boxed()),
        };
        drop(rows); // and with it what it holds of the memory
        let state = merged::session((*state).clone());
        let plan = Roomy::new(state.create_physical_plan(&planned)).await?;
        match plan.schema() == schema {
            true => Ok(run(plan, &state)),
            false => Err(first),
        }
    };
    Box::pin(stream::once(again).try_flatten())
}
