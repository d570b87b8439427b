//! How deep a statement nests and how much it lists, known before anything recurses over it.
//!
//! Parsing, planning, running and dropping a statement all take stack for each level of it, and a chain (`1 + 1 + 1 …`) is as
//! deep as it is long. So its tokens are counted first, in one pass that recurses over nothing: no level comes without a token of its
//! own that is neither a name nor a value. What commas of a list keep apart stands side by side, and the deepest counts; what brackets
//! hold is inside of what is around them. The count is at least as high as the depth, mostly higher: a term `a = 1 OR` is two.
//!
//! Some rules of the planner take the square of the columns of a list for their time, and none can be ended midway. So what commas keep
//! apart is counted as well, but for the lists of `x IN (…)`, which they go through once.

use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

use crate::error::{Cause, Result};

/// The longest statement, in bytes.
pub(crate) const BYTES_MAX: usize = 1 << 20;
/// The deepest, in levels: what the stack of `room` suffices for many times over, and what is planned in seconds at worst.
const DEPTH_MAX: usize = 1000;
/// The most columns, arguments and rows of `VALUES`, in all of its lists together. An unoptimised planner took 16 s for 10,000 constants, 38 s
/// for as many columns, and 314 s for as many aggregates, on a busy machine; a fifth of them
/// should take a twenty-fifth of that, which was not measured.
const ITEMS_MAX: usize = 2_000;

/// Refuses a statement that is longer or deeper than may be or lists more, and tells how deep one is that does not. What is no SQL is
/// left to the parser.
pub(crate) fn check(sql: &str) -> Result<usize> {
    check_bytes(sql)?;
    let Ok(tokens) = Tokenizer::new(&GenericDialect {}, sql).tokenize() else { return Ok(0) };
    match of(&tokens) {
        Size { depth, .. } if depth > DEPTH_MAX => Err(Cause::TooDeep { depth, limit: DEPTH_MAX }.into()),
        Size { items, .. } if items > ITEMS_MAX => Err(Cause::TooMany { items, limit: ITEMS_MAX }.into()),
        Size { depth, .. } => Ok(depth),
    }
}

/// Refuses a statement that is longer than may be.
pub(crate) fn check_bytes(sql: &str) -> Result<()> {
    let bytes = sql.len();
    match bytes > BYTES_MAX {
        true => Err(Cause::TooLong { bytes, limit: BYTES_MAX }.into()),
        false => Ok(()),
    }
}

/// At least the depth of a statement, and how many commas are outside of lists of `IN`.
#[derive(Debug, PartialEq, Eq)]
struct Size {
    depth: usize,
    items: usize,
}

/// What is between two brackets, up to where its counting is.
#[derive(Default)]
struct Group {
    /// Tokens of the present part that may nest.
    tokens: usize,
    /// The deepest group inside of it, or in a `WITH` all of them together, for each may be built on those before it.
    inside: usize,
    in_with: bool,
    /// A comma ends no part any more: tables that follow one another are joined, and it may stand in a type.
    is_one: bool,
    /// Its commas are those of `x IN (…)`.
    in_list: bool,
    /// The deepest of the parts that commas have ended.
    deepest: usize,
}

impl Group {
    fn depth(&self) -> usize {
        self.deepest.max(self.tokens + self.inside)
    }

    fn comma(&mut self) {
        match self.is_one {
            true => self.tokens += 1,
            false => *self = Group { deepest: self.depth(), in_list: self.in_list, ..Group::default() },
        }
    }

    fn keyword(&mut self, keyword: Keyword) {
        use Keyword as K;
        match keyword {
            K::NULL | K::TRUE | K::FALSE | K::AS => return,
            K::WITH => (self.in_with, self.is_one) = (true, true),
            K::SELECT => (self.in_with, self.in_list) = (false, false),
            K::VALUES => self.in_list = false,
            K::FROM | K::UNION | K::EXCEPT | K::INTERSECT | K::MINUS => self.is_one = true,
            _ => {}
        }
        self.tokens += 1;
    }
}

/// A group has ended: it is inside of the one around it.
fn close(groups: &mut Vec<Group>) {
    if groups.len() > 1
        && let Some(ended) = groups.pop()
        && let Some(around) = groups.last_mut()
    {
        let depth = ended.depth();
        around.inside = if around.in_with { around.inside + depth } else { around.inside.max(depth) };
    }
}

/// At least the size of whatever these tokens mean.
fn of(tokens: &[Token]) -> Size {
    let (mut groups, mut items, mut after_in) = (vec![Group::default()], 0, false);
    for token in tokens {
        let Some(group) = groups.last_mut() else { break };
        match token {
            Token::LParen | Token::LBracket | Token::LBrace => {
                group.tokens += 1;
                groups.push(Group { in_list: after_in, ..Group::default() });
            }
            Token::RParen | Token::RBracket | Token::RBrace => close(&mut groups),
            Token::Comma => {
                items += usize::from(!group.in_list);
                group.comma();
            }
            Token::Word(word) if word.keyword != Keyword::NoKeyword => group.keyword(word.keyword),
            Token::Word(_) | Token::Whitespace(_) | Token::EOF | Token::SemiColon => {}
            Token::Number(..) | Token::SingleQuotedString(_) | Token::Placeholder(_) => {}
            Token::Lt | Token::VerticalBarRightAngleBracket => {
                group.is_one = true; // of a type, or a query in steps
                group.tokens += 1;
            }
            _ => group.tokens += 1,
        }
        after_in = match token {
            Token::Whitespace(_) => after_in,
            Token::Word(word) => word.keyword == Keyword::IN,
            _ => false,
        };
    }
    while groups.len() > 1 {
        close(&mut groups);
    }
    Size { depth: groups.first().map_or(0, Group::depth), items }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot read its own input should stop there")]

    use super::*;

    fn size(sql: &str) -> Size {
        of(&Tokenizer::new(&GenericDialect {}, sql).tokenize().unwrap())
    }

    fn depth(sql: &str) -> usize {
        size(sql).depth
    }

    #[test]
    fn every_chain_is_as_deep_as_it_is_long() {
        for (first, link) in [
            ("1", "+1"),
            ("'a'", "||'a'"),
            ("1", "::int"),
            ("1", " IS NULL"),
            ("a", " BETWEEN 1 AND 2"),
            ("true", " AND true"),
            ("true", " OR true"),
            ("", "NOT "),
            ("", "- "),
            ("a", "[1]"),
            ("a", ".b"),
            ("", "("),
            ("", "CASE WHEN "),
            ("", "f(1, "),
            ("1 FROM a", " JOIN b"),
            ("1 FROM a", ", b"),
            ("1", " UNION ALL SELECT 1"),
            ("1 FROM ", "(SELECT 1 FROM "),
            ("1::int", "[]"),
            ("a", " COLLATE c"),
            ("a", " AT TIME ZONE 'UTC'"),
            ("1", ", 2 UNION ALL SELECT 1"),
            ("1 FROM a", ", b JOIN c ON x OR y"),
            ("1", "::STRUCT<a INT, b INT>"),
            ("1", " + [1, 2][1]"),
            ("1", " + {a: 1, b: 2}"),
            ("1", " + case.a + or + 1 + end.b"),
        ] {
            for length in [1, 10, 1000] {
                let sql = format!("SELECT {first}{}", link.repeat(length));
                assert!(depth(&sql) >= length, "{link} {length}: {}", depth(&sql));
            }
        }
        let with = |count: usize| {
            let each = (1..count).map(|n| format!(", a{n} AS (SELECT * FROM a{})", n - 1));
            format!("WITH a0 AS (SELECT 1){} SELECT * FROM a{}", each.collect::<String>(), count - 1)
        };
        assert!(depth(&with(1000)) >= 1000);
    }

    #[test]
    fn what_stands_side_by_side_is_no_deeper_for_being_long() {
        let list = |one: &str, between: &str, count: usize| vec![one; count].join(between);
        assert!(depth(&format!("SELECT a IN ({})", list("'q1_0_0'", ", ", 10_000))) < 10);
        assert!(depth(&format!("SELECT {} FROM solver", list("a + b", ", ", 10_000))) < 10);
        assert!(depth(&format!("SELECT {} FROM solver", list("f(a, b)", ", ", 10_000))) < 10);
        assert!(depth(&format!("VALUES {}", list("(1, -1)", ", ", 10_000))) < 10);
        let either = list("sample_id = 'q1_0_0'", " OR ", 490);
        assert!(depth(&format!("SELECT 1 FROM solver WHERE {either}")) < DEPTH_MAX);
    }

    #[test]
    fn all_lists_are_counted_but_those_of_in() {
        for (sql, items) in [
            ("SELECT a, b, f(c, d) FROM s, t GROUP BY 1, 2", 5),
            ("SELECT a FROM s WHERE a IN (1, 2, 3) AND b NOT IN ('x', 'y')", 0),
            ("SELECT a FROM s WHERE a IN (f(1, 2), 3)", 1),
            ("SELECT a FROM s WHERE a IN (SELECT max(b, c), d FROM t)", 2),
            ("SELECT a FROM s WHERE a IN (VALUES (1), (2), (3))", 2),
            ("SELECT [1, 2], {a: 1, b: 2}", 3),
        ] {
            assert_eq!(size(sql).items, items, "{sql}");
        }
        let many = check(&format!("SELECT 1{}", ", 1".repeat(ITEMS_MAX + 1))).unwrap_err();
        assert!(many.to_string().contains("2001") && many.to_string().contains("2000"), "{many}");
        assert!(check(&format!("SELECT 1{}", ", 1".repeat(ITEMS_MAX))).is_ok());
        assert!(check(&format!("SELECT a IN (1{})", ", 1".repeat(20 * ITEMS_MAX))).is_ok());
    }

    #[test]
    fn what_is_too_long_or_too_deep_is_refused_with_its_measure() {
        let long = check(&" ".repeat(BYTES_MAX + 1)).unwrap_err();
        assert!(long.to_string().contains("1048577") && long.to_string().contains("1048576"), "{long}");
        assert!(check(&" ".repeat(BYTES_MAX)).is_ok());
        let deep = check(&format!("SELECT 1{}", "+1".repeat(DEPTH_MAX))).unwrap_err(); // and the SELECT
        assert!(deep.to_string().contains("1001") && deep.to_string().contains("1000"), "{deep}");
        assert_eq!(check(&format!("SELECT 1{}", "+1".repeat(DEPTH_MAX - 1))).unwrap(), DEPTH_MAX);
    }
}
