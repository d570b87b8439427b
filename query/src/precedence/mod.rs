//! Which operator binds tighter, where the parser has it otherwise than DuckDB and PostgreSQL.
//!
//! Brackets are kept in what the parser gives, so the tree can be put right, from its leaves up.

mod distinct;
mod joined;

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{Expr, Value, VisitMut, VisitorMut};

/// Puts a statement right.
pub(crate) fn mend(statement: &mut Statement) {
    match statement {
        Statement::Statement(sql) => _ = VisitMut::visit(&mut **sql, &mut Mending),
        Statement::Explain(explain) => mend(&mut explain.statement),
        _ => {}
    }
}

struct Mending;

impl VisitorMut for Mending {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        distinct::mend(expr);
        joined::mend(expr);
        ControlFlow::Continue(())
    }
}

/// What stands where an expression was taken from, until another is there.
fn nothing() -> Expr {
    Expr::Value(Value::Null.into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot parse its own input should stop there")]

    use super::*;
    use crate::statement;

    /// Takes brackets away once they have done their work.
    struct Unnested;

    impl VisitorMut for Unnested {
        type Break = ();

        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            if let Expr::Nested(inner) = expr {
                *expr = std::mem::replace(inner, nothing());
            }
            ControlFlow::Continue(())
        }
    }

    /// What is selected, as it is read, without its brackets.
    pub(super) fn tree(selected: &str) -> Statement {
        let mut statement = statement::parse(&format!("SELECT {selected}")).unwrap();
        if let Statement::Statement(sql) = &mut statement {
            _ = VisitMut::visit(&mut **sql, &mut Unnested);
        }
        statement
    }

    #[test]
    fn brackets_say_what_is_meant() {
        for written in [
            "a IS DISTINCT FROM (b AND c)",
            "p AND (a OR b)",
            "p AND (q AND r)",
            "NOT (a OR b)",
            "(a || b) % c",
            "a + (b || c)",
        ] {
            let read = statement::parse(&format!("SELECT {written}")).unwrap().to_string();
            assert_eq!(read, format!("SELECT {written}"));
        }
    }
}
