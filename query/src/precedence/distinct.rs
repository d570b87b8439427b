//! `IS DISTINCT FROM` binds tighter than `AND`, `OR` and `NOT`.
//!
//! The parser takes all that follows `a IS DISTINCT FROM` for its right side, up to the next bracket: `b AND c` where `b` is meant, as
//! everywhere else. What was taken too much goes above, step by step, until it stands where it belongs.

use std::mem;

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, UnaryOperator};

use super::nothing;

/// Puts one expression right whose parts are.
pub(super) fn mend(expr: &mut Expr) {
    let loosest = loosest(expr);
    if last(expr).is_some_and(|last| is_looser(last, loosest)) {
        turn(expr, loosest);
    }
}

/// What binds less than anything that may be in the last operand of this without brackets: `OR` for an `OR`, which follow one
/// another, and `AND` for all others.
fn loosest(expr: &Expr) -> bool {
    matches!(expr, Expr::BinaryOp { op: BinaryOperator::Or, .. })
}

/// The last operand, where it has no brackets of its own.
fn last(expr: &mut Expr) -> Option<&mut Expr> {
    match expr {
        Expr::IsDistinctFrom(_, last) | Expr::IsNotDistinctFrom(_, last) => Some(last),
        Expr::BinaryOp { right, .. } => Some(right),
        Expr::UnaryOp { op: UnaryOperator::Not, expr } => Some(expr),
        _ => None,
    }
}

/// Whether this stands above what it is the last operand of.
fn is_looser(expr: &Expr, only_or: bool) -> bool {
    match expr {
        Expr::BinaryOp { op: BinaryOperator::Or, .. } => true,
        Expr::BinaryOp { op: BinaryOperator::And, .. } => !only_or,
        _ => false,
    }
}

/// `x IS DISTINCT FROM (y AND z)` to `(x IS DISTINCT FROM y) AND z`: the first operand of the last one becomes the last one.
fn turn(expr: &mut Expr, only_or: bool) {
    let Some(mut above) = last(expr).map(|last| mem::replace(last, nothing())) else { return };
    let mut place = &mut above;
    while is_looser(place, only_or)
        && let Expr::BinaryOp { left, .. } = place
    {
        place = left;
    }
    if let Some(last) = last(expr) {
        *last = mem::replace(place, nothing());
    }
    *place = mem::replace(expr, nothing());
    *expr = above;
}

#[cfg(test)]
mod tests {
    use super::super::tests::tree;

    #[test]
    fn it_binds_tighter_than_what_joins_conditions() {
        for (written, meant) in [
            ("a IS DISTINCT FROM b AND c", "(a IS DISTINCT FROM b) AND c"),
            ("a IS NOT DISTINCT FROM b OR c AND d", "(a IS NOT DISTINCT FROM b) OR (c AND d)"),
            ("a IS NOT DISTINCT FROM b AND c OR d", "((a IS NOT DISTINCT FROM b) AND c) OR d"),
            ("p AND a IS DISTINCT FROM b OR c", "(p AND (a IS DISTINCT FROM b)) OR c"),
            ("p AND a IS DISTINCT FROM b AND c", "(p AND (a IS DISTINCT FROM b)) AND c"),
            ("p OR a IS DISTINCT FROM b AND c", "p OR ((a IS DISTINCT FROM b) AND c)"),
            ("p OR a IS DISTINCT FROM b AND c OR d", "(p OR ((a IS DISTINCT FROM b) AND c)) OR d"),
            ("NOT a IS DISTINCT FROM b AND c", "(NOT (a IS DISTINCT FROM b)) AND c"),
            ("p AND NOT a IS DISTINCT FROM b OR c", "(p AND (NOT (a IS DISTINCT FROM b))) OR c"),
            (
                "a IS DISTINCT FROM b AND c IS DISTINCT FROM d OR e",
                "((a IS DISTINCT FROM b) AND (c IS DISTINCT FROM d)) OR e",
            ),
            ("a IS DISTINCT FROM b = c AND d", "(a IS DISTINCT FROM (b = c)) AND d"),
            ("a = b IS DISTINCT FROM c + 1 AND d", "((a = b) IS DISTINCT FROM (c + 1)) AND d"),
            ("f(a IS DISTINCT FROM b AND c)", "f((a IS DISTINCT FROM b) AND c)"),
            (
                "CASE WHEN a IS DISTINCT FROM b AND c THEN 1 END",
                "CASE WHEN (a IS DISTINCT FROM b) AND c THEN 1 END",
            ),
            (
                "1 WHERE EXISTS (SELECT 1 WHERE a IS DISTINCT FROM b AND c)",
                "1 WHERE EXISTS (SELECT 1 WHERE (a IS DISTINCT FROM b) AND c)",
            ),
        ] {
            assert_eq!(tree(written), tree(meant), "{written}");
        }
    }
}
