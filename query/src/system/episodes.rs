//! `system.episodes`: a row an episode, live and archived ones alike. A view over the tables of agents, so that what a
//! query does not ask for is not computed, and its conditions reach the tables.
//!
//! An episode is what one trajectory of one input came to: the rows of one policy version that have both in common, over
//! all tables and turns. Where the policies of agents are not at one version, it shows once for each.
//!
//! A row of it is *over* once its reward is final (in a table without rewards: once every cell is), once its trainer may
//! take it or has taken it, or once it is left out. Attempts that a later one superseded are counted and not looked at.

use std::sync::Arc;

use arrow_schema::{DataType, Schema};
use datafusion::catalog::TableProvider;
use datafusion::common::{Column, ScalarValue};
use datafusion::datasource::empty::EmptyTable;
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::error::Result as PlanResult;
use datafusion::functions::core::expr_fn::greatest;
use datafusion::functions_aggregate::expr_fn::{
    array_agg, bool_and, bool_or, count, count_distinct, max, min, sum,
};
use datafusion::logical_expr::{
    Expr, ExprFunctionExt, LogicalPlan, LogicalPlanBuilder, Operator, binary_expr, cast, lit, not, when,
};
use forebay_store::{Role, TableSnapshot};

use crate::catalog::Catalogs;

/// What the rows of an episode have in common.
const KEYS: [&str; 6] =
    ["policy_version", "input_id", "trajectory_id", "purpose", "origin_peer", "origin_round"];
/// The column of rewards where none has that role.
const REWARD: &str = "reward";
/// Why an attempt is left out that was made again.
const SUPERSEDED: &str = "superseded";
/// Where a row stands once it has what its trainer needs.
const HANDED_ON: [&str; 4] = ["ready", "leased", "accumulated", "consumed"];

/// The view over all tables of agents.
pub(super) fn view(catalogs: &Catalogs) -> PlanResult<Arc<dyn TableProvider>> {
    let mut rows: Option<LogicalPlanBuilder> = None;
    for name in catalogs.agent_tables() {
        let Some(provider) = catalogs.agent_table(&name)? else { continue };
        let live = catalogs.moment().table(&name);
        let of_table = rows_of(&name, provider, live)?;
        rows = Some(match rows {
            None => LogicalPlanBuilder::from(of_table),
            Some(rows) => rows.union(of_table)?,
        });
    }
    let rows = match rows {
        Some(rows) => rows.build()?,
        None => {
            rows_of("none", Arc::new(EmptyTable::new(forebay_store::Schema::new().arrow_schema())), None)?
        }
    };
    Ok(Arc::new(ViewTable::new(episodes(rows)?, None)))
}

fn column(name: &str) -> Expr {
    Expr::Column(Column::from_name(name))
}

/// What episodes need of the rows of one table.
fn rows_of(
    name: &str,
    provider: Arc<dyn TableProvider>,
    live: Option<&TableSnapshot>,
) -> PlanResult<LogicalPlan> {
    let schema = provider.schema();
    let reward = reward_of(&schema, live);
    let number = match &reward {
        Some(reward) => cast(column(reward), DataType::Float64),
        None => Expr::Literal(ScalarValue::Float64(None), None),
    };
    let written = std::iter::once(column("created_at")).chain(status_columns(&schema, "_at"));
    let mut shown: Vec<Expr> = KEYS.map(column).to_vec();
    shown.extend(["turn", "attempt", "step", "created_at"].map(column));
    shown.extend([
        lit(name).alias("table_name"),
        cast(column("agent"), DataType::Utf8).alias("agent"),
        greatest(written.collect()).alias("written_at"),
        number.alias("reward"),
        is_over(&schema, reward.as_deref()).alias("is_over"),
        column("excluded_reason").is_not_null().alias("is_excluded"),
    ]);
    let stands = binary_expr(column("excluded_reason"), Operator::IsDistinctFrom, lit(SUPERSEDED));
    LogicalPlanBuilder::scan(name, provider_as_source(provider), None)?
        .filter(stands)?
        .project(shown)?
        .build()
}

/// The column that holds the rewards of a table as numbers, if there is one.
fn reward_of(schema: &Schema, live: Option<&TableSnapshot>) -> Option<String> {
    let declared = live.and_then(|table| {
        let mut columns = table.schema().data_columns().iter();
        columns.find(|column| column.role == Some(Role::Reward) && !column.retired)
    });
    let name = declared.map_or(REWARD, |column| &column.name);
    let is_number = schema.field_with_name(name).is_ok_and(|field| field.data_type().is_numeric());
    is_number.then(|| name.to_owned())
}

/// The status columns whose names end so: `_status` or `_at`.
fn status_columns(schema: &Schema, end: &str) -> impl Iterator<Item = Expr> {
    let is_status = |class: Option<&String>| class.is_some_and(|class| class == "status");
    let fields = schema.fields().iter();
    fields
        .filter(move |field| is_status(field.metadata().get("class")) && field.name().ends_with(end))
        .map(|field| column(field.name()))
}

/// Whether nothing more is waited for, as the head of this file says.
fn is_over(schema: &Schema, reward: Option<&str>) -> Expr {
    let is_final = match reward {
        Some(reward) => column(&format!("{reward}_status")),
        None => status_columns(schema, "_status").reduce(Expr::and).unwrap_or(lit(true)),
    };
    let handed_on = column("state").in_list(HANDED_ON.map(lit).to_vec(), false);
    is_final.or(handed_on).or(column("excluded_reason").is_not_null())
}

/// Rows to episodes.
fn episodes(rows: LogicalPlan) -> PlanResult<LogicalPlan> {
    let every = |name: &str| {
        let names = array_agg(column(name)).distinct();
        names
            .order_by(vec![column(name).sort(true, false)])
            .build()
            .map(|names| names.alias(format!("{name}s")))
    };
    let found = vec![
        every("table_name")?,
        every("agent")?,
        count_distinct(column("turn")).alias("turns"),
        count(lit(1)).alias("rows"),
        count(column("reward")).alias("rewarded"),
        count(column("step")).alias("trained"),
        sum(column("attempt")).alias("retries"),
        bool_and(column("is_over")).alias("is_over"),
        bool_or(column("is_excluded")).alias("is_excluded"),
        sum(column("reward")).alias("reward"),
        min(column("created_at")).alias("started_at"),
        max(column("written_at")).alias("written_at"),
        max(column("step")).alias("step"),
    ];
    LogicalPlanBuilder::from(rows).aggregate(KEYS.map(column), found)?.project(shown()?)?.build()
}

/// The columns of the view, in their order.
fn shown() -> PlanResult<Vec<Expr>> {
    let state = when(not(column("is_over")), lit("running"))
        .when(column("is_excluded"), lit("excluded"))
        .when(column("trained").eq(column("rows")), lit("trained"))
        .otherwise(lit("completed"))?;
    let ended_at = when(column("is_over"), column("written_at")).end()?;
    let own = |name: &str, shown: &str| column(name).alias(shown);
    let mut columns: Vec<Expr> = KEYS.map(column).to_vec();
    columns.extend([own("table_names", "tables"), own("agents", "agents")]);
    columns.extend(["turns", "rows", "rewarded", "retries"].map(column));
    columns.extend([
        state.alias("state"),
        column("reward"),
        column("started_at"),
        ended_at.alias("ended_at"),
    ]);
    columns.extend([own("written_at", "last_write_at"), column("step")]);
    Ok(columns)
}
