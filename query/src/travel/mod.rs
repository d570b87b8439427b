//! The past and the ancestry of samples, as functions that stand where tables stand.
//!
//! - `as_of('solver', step => 12)`, `as_of('solver', version => 3)`: a table as it was then.
//! - `lineage('solver/q1_0_0')`: the row, those that it continues and those that continue it, over all tables; of one version
//!   with `version => 3`.
//!
//! They are made for each query, over the query's moment. Arguments with names become pairs of a name and a value before
//! the engine plans the statement, for it knows none.

mod as_of;
mod family;
mod lineage;
mod links;
mod member;
mod trajectory;

pub(crate) use self::as_of::NOT_KEPT;

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::execution::SessionState;
use datafusion::logical_expr::Expr;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr as SqlExpr, FunctionArg, FunctionArgExpr, TableFactor, Value, VisitMut, VisitorMut, visit_relations,
};

use self::as_of::AsOf;
use self::lineage::LineageOf;
use crate::catalog::Catalogs;

/// Makes the functions known to the planning of one query.
pub(crate) fn register(state: &mut SessionState, catalogs: &Catalogs) {
    state.register_udtf("as_of", Arc::new(AsOf(catalogs.clone())));
    state.register_udtf("lineage", Arc::new(LineageOf(catalogs.clone())));
}

/// Turns arguments with names into pairs of a name and a value, for these functions alone.
pub(crate) fn spell_out_names(statement: &mut Statement) {
    match statement {
        Statement::Statement(sql) => _ = VisitMut::visit(&mut **sql, &mut Pairs),
        Statement::Explain(explain) => spell_out_names(&mut explain.statement),
        _ => {}
    }
}

/// Whether a statement names a table as it was.
pub(crate) fn looks_back(statement: &Statement) -> bool {
    match statement {
        Statement::Statement(sql) => {
            visit_relations(&**sql, |name| match name.to_string().eq_ignore_ascii_case("as_of") {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            })
            .is_break()
        }
        Statement::Explain(explain) => looks_back(&explain.statement),
        _ => false,
    }
}

struct Pairs;

impl VisitorMut for Pairs {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name, args: Some(arguments), .. } = factor
            && ["as_of", "lineage"].iter().any(|ours| name.to_string().eq_ignore_ascii_case(ours))
        {
            arguments.args = std::mem::take(&mut arguments.args).into_iter().flat_map(pair).collect();
        }
        ControlFlow::Continue(())
    }
}

fn pair(argument: FunctionArg) -> Vec<FunctionArg> {
    match argument {
        FunctionArg::Named { name, arg, .. } => {
            let name = Value::SingleQuotedString(name.value.to_lowercase());
            let name = FunctionArgExpr::Expr(SqlExpr::Value(name.into()));
            vec![FunctionArg::Unnamed(name), FunctionArg::Unnamed(arg)]
        }
        other => vec![other],
    }
}

/// The text of an argument.
fn text(argument: &Expr) -> Option<&str> {
    match argument {
        Expr::Literal(value, _) => value.try_as_str().flatten(),
        _ => None,
    }
}

/// The whole number of an argument.
fn number(argument: &Expr) -> Option<u64> {
    match argument {
        Expr::Literal(value, _) => value.to_string().parse().ok(),
        _ => None,
    }
}
