//! `as_of(table, step => n)` and `as_of(table, version => n)`: a table as it was.
//!
//! As of a step: right after it was committed. As of a version: at the last moment at which that version of the table's
//! policy was current, which is now for the current one.
//!
//! What a row was at a moment follows from what it is: it was inserted by then or not, each cell was final by then or not,
//! and its step was committed by then or not. What was under way (claims, readiness) is not kept, so those columns are not
//! there, nor is what has no time: the reason of an exclusion, and the versions that made a row, which become more. Rows that were deleted since are gone, unless an archive
//! has them. Times of cells are exact for four seconds and to one part in 4,096 beyond.

use std::sync::Arc;

use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{Column, ScalarValue, plan_err};
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, lit, when};
use forebay_store::Timestamp;

use super::{number, text};
use crate::catalog::Catalogs;
use crate::history::{CommittedStep, History};
use crate::system;

/// What is not known of the past.
pub(crate) const NOT_KEPT: [&str; 5] =
    ["is_processing", "state", "claim", "excluded_reason", "version_spans"];

/// The function `as_of`.
#[derive(Debug)]
pub(super) struct AsOf(pub(super) Catalogs);

/// A moment of the past: what was committed by then.
#[derive(Clone, Copy, Debug)]
struct Then {
    time: Timestamp,
    /// The last step.
    step: u64,
}

impl TableFunctionImpl for AsOf {
    fn call_with_args(&self, arguments: TableFunctionArgs<'_, '_>) -> PlanResult<Arc<dyn TableProvider>> {
        let [table, kind, value] = arguments.exprs() else {
            return plan_err!(
                "as_of takes a table and a moment: as_of('solver', step => 12) or version => 3"
            );
        };
        let (Some(table), Some(kind), Some(value)) = (text(table), text(kind), number(value)) else {
            return plan_err!("as_of takes a table's name and a whole number: as_of('solver', step => 12)");
        };
        let table = table.strip_prefix("forebay.").unwrap_or(table);
        if table.strip_prefix("system.").is_some_and(system::is_named) {
            return plan_err!(
                "{table} has no past; as_of takes the table of an agent: as_of('solver', step => 12)"
            );
        }
        let table = table.strip_prefix("public.").unwrap_or(table);
        let Some(provider) = self.0.agent_table(table)? else {
            return plan_err!("table '{table}' not found");
        };
        let then = match kind.to_lowercase().as_str() {
            "step" => self.after_step(table, value)?,
            "version" => self.last_of_version(table, value)?,
            other => return plan_err!("as_of takes step => n or version => n, not {other}"),
        };
        view(table, provider, then)
    }
}

impl AsOf {
    fn after_step(&self, table: &str, wanted: u64) -> PlanResult<Then> {
        let Some((policy, _)) = self.live(table) else {
            return self.0.moment().archived.step(table, wanted).map(Then::after);
        };
        let history = self.of_policy(&policy);
        match (history.step(wanted), history.last()) {
            (Some(step), _) => Ok(Then::after(step)),
            (None, Some(last)) => {
                plan_err!("step {wanted} is not committed; the last one that is is {}", last.step)
            }
            (None, None) => plan_err!("step {wanted} is not committed; no step is yet"),
        }
    }

    fn last_of_version(&self, table: &str, wanted: u64) -> PlanResult<Then> {
        let Some((policy, current)) = self.live(table) else {
            return self.0.moment().archived.end_of_version(table, wanted).map(Then::before);
        };
        if wanted > current {
            return plan_err!(
                "version {wanted} of policy {policy:?} is not there yet; the current one is {current}"
            );
        }
        let end = self.of_policy(&policy).end_of(wanted);
        Ok(end.map_or(Then { time: Timestamp(i64::MAX), step: u64::MAX }, Then::before))
    }

    /// The policy of a table that the store has, and its current version.
    fn live(&self, table: &str) -> Option<(String, u64)> {
        let shown = self.0.moment().table(table)?;
        Some((shown.policy().to_owned(), shown.current_version()))
    }

    fn of_policy(&self, policy: &str) -> History {
        History::of_policy(&self.0.moment().store, policy)
    }
}

impl Then {
    /// Right after a step was committed.
    fn after(step: CommittedStep) -> Self {
        Then { time: step.ended_at(), step: step.step }
    }

    /// Right before a step was committed; all before it are by then.
    fn before(step: CommittedStep) -> Self {
        Then { time: Timestamp(step.ended_at().0 - 1), step: step.step - 1 }
    }
}

/// A SELECT over the table that shows it at a moment; filters and projections go through it to the table.
fn view(table_name: &str, table: Arc<dyn TableProvider>, then: Then) -> PlanResult<Arc<dyn TableProvider>> {
    let schema = table.schema();
    let time = ScalarValue::TimestampMicrosecond(Some(then.time.0), Some("+00:00".into()));
    let column = |name: &str| Expr::Column(Column::from_name(name));
    let by_then = |name: &str| column(name).lt_eq(Expr::Literal(time.clone(), None));
    let consumed = || column("step").lt_eq(lit(then.step));
    let mut shown = Vec::new();
    for field in schema.fields() {
        let name = field.name().as_str();
        let class = field.metadata().get("class").map_or("meta", String::as_str);
        let is_final = |data: &str| by_then(&format!("{data}_at")).or(consumed()).is_true();
        let value = match (class, name) {
            _ if NOT_KEPT.contains(&name) => continue,
            ("meta", "step") => when(consumed(), column(name)).end()?,
            ("meta", _) => {
                shown.push(column(name));
                continue;
            }
            ("status", _) => match name.strip_suffix("_status") {
                Some(data) => column(name).and(is_final(data)),
                None => when(is_final(name.strip_suffix("_at").unwrap_or(name)), column(name)).end()?,
            },
            _ => when(is_final(name), column(name)).end()?,
        };
        // Of the table as the others are, or the engine finds columns of one name with and without a table.
        shown.push(value.alias_qualified(Some(table_name), name));
    }
    let source = LogicalPlanBuilder::scan(table_name, provider_as_source(table), None)?;
    let plan = source.filter(by_then("created_at"))?.project(shown)?.build()?;
    Ok(Arc::new(ViewTable::new(plan, None)))
}
