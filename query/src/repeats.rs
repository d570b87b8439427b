//! How often a statement names what it defines, known before it is planned.
//!
//! The planner spells out a `WITH` wherever it is named. Forty definitions that each name the one before twice are a short text, and
//! a million million steps. So each definition is weighed: one, and what all it names weighs. `CUBE` doubles with each column, and is
//! spelled out before the planner counts what came of it.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{Expr, Query, Visit, Visitor, visit_relations};

use crate::error::{Cause, Error, Result};

/// The most steps that a statement may come to when it is spelled out.
const STEPS_MAX: u64 = 10_000;
/// The most columns of a `CUBE`: what comes of them is as much as the planner takes.
const CUBE_MAX: usize = 12;

/// Refuses a statement that would take all memory to be spelled out.
pub(crate) fn check(statement: &Statement) -> Result<()> {
    match statement {
        Statement::Explain(explain) => check(&explain.statement),
        Statement::Statement(sql) => match sql.visit(&mut Weights::default()) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(error) => Err(error),
        },
        _ => Ok(()), // refused, for it does not read
    }
}

/// What definitions weigh, by their names. Those of one name count as the heaviest of them.
#[derive(Default)]
struct Weights(HashMap<String, u64>);

impl Weights {
    /// What all tables and definitions weigh together that are named in it.
    fn of(&self, query: &Query) -> u64 {
        let mut weight = 1_u64;
        let _whole = visit_relations(query, |name| {
            let last = name.0.last().map(|part| part.to_string().to_lowercase());
            let named = last.and_then(|name| self.0.get(&name)).copied().unwrap_or(1);
            weight = weight.saturating_add(named);
            ControlFlow::<()>::Continue(())
        });
        weight
    }
}

fn bounded(weight: u64) -> ControlFlow<Error, u64> {
    match weight > STEPS_MAX {
        true => ControlFlow::Break(Cause::TooLarge { limit: STEPS_MAX }.into()),
        false => ControlFlow::Continue(weight),
    }
}

impl Visitor for Weights {
    type Break = Error;

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Error> {
        match expr {
            Expr::Cube(columns) if columns.len() > CUBE_MAX => {
                ControlFlow::Break(Cause::TooManyGroupings { columns: columns.len(), limit: CUBE_MAX }.into())
            }
            _ => ControlFlow::Continue(()),
        }
    }

    /// The definitions within it are known by then.
    fn post_visit_query(&mut self, query: &Query) -> ControlFlow<Error> {
        let Some(with) = &query.with else { return ControlFlow::Continue(()) };
        let mut defined_weigh = 0;
        for defined in &with.cte_tables {
            let weight = bounded(self.of(&defined.query))?;
            defined_weigh += weight;
            let known = self.0.entry(defined.alias.name.to_string().to_lowercase()).or_default();
            *known = weight.max(*known);
        }
        // Definitions are spelled out where they are named, and not where they stand.
        bounded(self.of(query).saturating_sub(defined_weigh)).map_continue(drop)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot read its own input should stop there")]

    use super::*;
    use crate::statement;

    fn is_refused(sql: &str) -> bool {
        check(&statement::parse(sql).unwrap()).is_err()
    }

    /// Definitions that each name the one before so many times.
    fn built(count: usize, times: usize) -> String {
        let from = |at: usize| vec![format!("a{at}"); times].join(", ");
        let each = (1..count).map(|at| format!(", A{at} AS (SELECT 1 FROM {})", from(at - 1)));
        format!("WITH a0 AS (SELECT 1){} SELECT * FROM a{}", each.collect::<String>(), count - 1)
    }

    #[test]
    fn what_doubles_is_refused_and_what_follows_one_another_is_not() {
        assert!(
            !is_refused(&built(200, 1)) && !is_refused(&built(10, 2)) && !is_refused("SELECT 1 FROM a, b")
        );
        assert!(is_refused(&built(40, 2)) && is_refused(&built(1000, 9)));
        assert!(is_refused(&format!("EXPLAIN {}", built(40, 2))));
        assert!(is_refused(&format!("SELECT * FROM ({}) x", built(40, 2))), "within a query");
        assert!(is_refused(&format!("WITH b AS ({}) SELECT 1 FROM b", built(40, 2))), "within a definition");
        assert!(is_refused(&format!("SELECT 1 WHERE EXISTS ({})", built(40, 2))));
        assert!(!is_refused(
            "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t) SELECT * FROM t, t, t"
        ));
    }
}
