//! `||` binds less than arithmetic: `'v' || version % 10` is a text with a number behind it.
//!
//! The parser has it beside `*` and `%`, above `+` and `-`. What it took too early comes out of the arithmetic again.

use std::mem;

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr};

use super::nothing;

/// Puts one expression right whose parts are.
pub(super) fn mend(expr: &mut Expr) {
    let Expr::BinaryOp { left, op, right } = expr else { return };
    if !is_arithmetic(op) {
        return;
    }
    let turned = if is_joined(right) {
        // `a + (b || c)` to `(a + b) || c`
        let mut above = mem::replace(&mut **right, nothing());
        let place = first(&mut above);
        **right = mem::replace(place, nothing());
        *place = mem::replace(expr, nothing());
        mend(place);
        above
    } else if is_joined(left) {
        // `(a || b) % c` to `a || (b % c)`
        let mut above = mem::replace(&mut **left, nothing());
        let Expr::BinaryOp { right: place, .. } = &mut above else { return };
        **left = mem::replace(&mut **place, nothing());
        **place = mem::replace(expr, nothing());
        above
    } else {
        return;
    };
    *expr = turned;
}

fn is_arithmetic(op: &BinaryOperator) -> bool {
    use BinaryOperator as Op;
    matches!(op, Op::Plus | Op::Minus | Op::Multiply | Op::Divide | Op::Modulo)
}

fn is_joined(expr: &Expr) -> bool {
    matches!(expr, Expr::BinaryOp { op: BinaryOperator::StringConcat, .. })
}

/// The first of what is joined.
fn first(expr: &mut Expr) -> &mut Expr {
    match expr {
        Expr::BinaryOp { left, op: BinaryOperator::StringConcat, .. } => first(left),
        first => first,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::tree;

    #[test]
    fn it_binds_less_than_arithmetic() {
        for (written, meant) in [
            ("a || b % c", "a || (b % c)"),
            ("a || b + c", "a || (b + c)"),
            ("a + b || c", "(a + b) || c"),
            ("a * b || c", "(a * b) || c"),
            ("a - b || c || d", "((a - b) || c) || d"),
            ("a || b % c * d", "a || ((b % c) * d)"),
            ("a || b % c + d", "a || ((b % c) + d)"),
            ("a || b + c * d", "a || (b + (c * d))"),
            ("a + b || c * d", "(a + b) || (c * d)"),
            ("x || a + b || c", "(x || (a + b)) || c"),
            ("a || b || c / d", "(a || b) || (c / d)"),
            ("a || b = c || d", "(a || b) = (c || d)"),
            ("a IS DISTINCT FROM b || c + 1 AND d", "(a IS DISTINCT FROM (b || (c + 1))) AND d"),
        ] {
            assert_eq!(tree(written), tree(meant), "{written}");
        }
    }
}
