//! Statements: parsed, and refused when they would do anything but read.
//!
//! What reads is listed; everything else is refused, also what a later release of the parser learns. The plan is checked
//! once more before it runs, for writes inside of queries.

use std::ops::ControlFlow;

use datafusion::error::DataFusionError;
use datafusion::sql::parser::{DFParser, Statement};
use datafusion::sql::sqlparser::ast::{Query, SetExpr, Statement as SqlStatement, Visit, Visitor};
use datafusion::sql::sqlparser::parser::ParserError;

use crate::error::{Cause, Error, Result, innermost};
use crate::precedence;

/// Statements that change something, by their first words, and the library call that does it. The first that fits
/// counts.
const INSTEAD: [(&str, &str); 19] = [
    ("INSERT", "rows are inserted with `Table::insert`"),
    ("UPDATE", "cells are written with `Table::write`, once each"),
    ("MERGE", "cells are written with `Table::write`, once each"),
    (
        "DELETE",
        "rows are deleted with `Table::delete`; to leave them out of training and keep their reason, `Table::exclude`",
    ),
    ("TRUNCATE", "rows are deleted with `Table::delete`, by version or one by one"),
    ("CREATE TABLE", "tables are made with `Store::create_table`"),
    ("CREATE EXTERNAL TABLE", "tables are made with `Store::create_table`"),
    ("CREATE", "tables are made with `Store::create_table`, consumers with `Store::create_consumer`"),
    (
        "ALTER TABLE",
        "columns change with `Table::add_column`, `Table::rename_column` and `Table::retire_column`",
    ),
    ("ALTER", "a run is changed with the calls of `Store` and `Table`"),
    ("DROP", "a run keeps its tables; to be rid of it, remove the store's directory"),
    ("COPY", "answers are written with `Answer::render` (`forebay sql --format csv`)"),
    ("SET", "a session is set up with `Session::with_options`"),
    ("RESET", "a session is set up with `Session::with_options`"),
    ("START TRANSACTION", "several changes are made at once with `Store::batch`"),
    ("BEGIN", "several changes are made at once with `Store::batch`"),
    ("COMMIT", "steps are committed with `Step::commit`"),
    ("ROLLBACK", "a step that is dropped before its commit is given up"),
    ("", "ask with SELECT, SHOW, DESCRIBE or EXPLAIN"),
];

/// Parses exactly one statement.
pub(crate) fn parse(sql: &str) -> Result<Statement> {
    let mut statements = DFParser::parse_sql(sql).map_err(|error| syntax_error(sql, error))?;
    match (statements.pop_front(), statements.len()) {
        (Some(mut statement), 0) => {
            precedence::mend(&mut statement);
            Ok(statement)
        }
        (None, _) => Err(Cause::Empty.into()),
        (Some(_), rest) => Err(Cause::ManyStatements { count: rest + 1 }.into()),
    }
}

/// Refuses a statement that would change the store, the session or a file.
pub(crate) fn check_reads_only(statement: &Statement) -> Result<()> {
    match statement {
        Statement::Explain(explain) => check_reads_only(&explain.statement),
        Statement::Statement(sql) => match &**sql {
            sql if reads(sql) => match sql.visit(&mut Writes) {
                ControlFlow::Continue(()) => Ok(()),
                ControlFlow::Break(written) => Err(refused(&written)),
            },
            other => Err(refused(&other.to_string())),
        },
        other => Err(refused(&other.to_string())),
    }
}

fn reads(statement: &SqlStatement) -> bool {
    use SqlStatement as S;
    match statement {
        S::Query(_) | S::ExplainTable { .. } => true,
        S::ShowTables { .. } | S::ShowColumns { .. } | S::ShowFunctions { .. } => true,
        S::ShowVariable { .. } | S::ShowVariables { .. } | S::ShowSchemas { .. } => true,
        S::ShowDatabases { .. } | S::ShowCatalogs { .. } | S::ShowCreate { .. } => true,
        S::Explain { statement, .. } => reads(statement),
        _ => false,
    }
}

/// Looks for what writes within a query: `WITH ... INSERT` and its like parse as queries.
struct Writes;

impl Visitor for Writes {
    type Break = String;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<String> {
        writes(&query.body)
    }
}

fn writes(body: &SetExpr) -> ControlFlow<String> {
    match body {
        SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_) => {
            ControlFlow::Break(body.to_string())
        }
        SetExpr::SetOperation { left, right, .. } => {
            writes(left)?;
            writes(right)
        }
        _ => ControlFlow::Continue(()),
    }
}

/// The refusal of a statement, with what does the same in the library.
pub(crate) fn refused(statement: &str) -> Error {
    let upper = statement.to_uppercase();
    let fits = |(words, _): &&(&str, &'static str)| upper.starts_with(words);
    let (words, instead) = INSTEAD.iter().find(fits).copied().unwrap_or_default();
    let first_word = || statement.split_whitespace().next().unwrap_or("this").to_owned();
    let verb = if words.is_empty() { first_word() } else { words.to_owned() };
    Cause::ReadOnly { verb, instead }.into()
}

/// A syntax error with the line that it is in and a mark under the place.
fn syntax_error(sql: &str, error: DataFusionError) -> Error {
    let error = innermost(error);
    let DataFusionError::SQL(parser_error, _) = error else { return error.into() };
    let message = match *parser_error {
        ParserError::ParserError(message) | ParserError::TokenizerError(message) => message,
        ParserError::RecursionLimitExceeded => "it is nested too deeply".to_owned(),
    };
    let (message, snippet) = match place(&message) {
        Some((text, line, column)) => (text.to_owned(), snippet(sql, line, column)),
        None => (message, String::new()),
    };
    Cause::Syntax { message, snippet }.into()
}

/// Splits `TEXT at Line: L, Column: C`.
fn place(message: &str) -> Option<(&str, usize, usize)> {
    let (text, place) = message.rsplit_once(" at Line: ")?;
    let (line, column) = place.split_once(", Column: ")?;
    Some((text, line.trim().parse().ok()?, column.trim().parse().ok()?))
}

/// Columns of a line that are shown on either side of the mark.
const SNIPPET_REACH: usize = 50;

fn snippet(sql: &str, line: usize, column: usize) -> String {
    let Some(text) = sql.lines().nth(line.saturating_sub(1)) else { return String::new() };
    let at = column.saturating_sub(1);
    let from = at.saturating_sub(SNIPPET_REACH);
    let shown: String = text.chars().skip(from).take(2 * SNIPPET_REACH).collect();
    format!(" (line {line}, column {column})\n  {}\n  {}^", shown.replace('\t', " "), " ".repeat(at - from))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot parse its own input should stop there")]

    use super::*;
    use crate::error::Kind;

    fn refusal(sql: &str) -> String {
        let error = check_reads_only(&parse(sql).unwrap()).unwrap_err();
        assert_eq!(error.kind(), Kind::ReadOnly, "{sql}");
        error.to_string()
    }

    #[test]
    fn what_writes_is_refused_with_the_call_that_does_it() {
        let cases = [
            ("INSERT INTO solver VALUES (1)", "Table::insert"),
            ("EXPLAIN INSERT INTO solver VALUES (1)", "Table::insert"),
            ("WITH x AS (SELECT 1) INSERT INTO solver SELECT * FROM x", "Table::insert"),
            ("WITH x AS (DELETE FROM solver) SELECT 1", "Table::delete"),
            (
                "SELECT * FROM (SELECT 1) a, (WITH y AS (UPDATE solver SET reward = 1) SELECT 2) b",
                "Table::write",
            ),
            ("EXPLAIN WITH x AS (INSERT INTO solver VALUES (1)) SELECT 1", "Table::insert"),
            ("UPDATE solver SET reward = 1", "Table::write"),
            (
                "DELETE FROM solver",
                "Table::delete`; to leave them out of training and keep their reason, `Table::exclude",
            ),
            ("TRUNCATE TABLE solver", "Table::delete"),
            ("CREATE TABLE t (a INT)", "Store::create_table"),
            ("CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '/etc/passwd'", "Store::create_table"),
            ("CREATE VIEW v AS SELECT 1", "Store::create_table"),
            ("ALTER TABLE solver ADD COLUMN a INT", "Table::add_column"),
            ("ALTER TABLE solver RENAME COLUMN a TO b", "Table::rename_column"),
            ("ALTER TABLE solver DROP COLUMN a", "Table::retire_column"),
            ("DROP TABLE solver", "keeps its tables"),
            ("COPY solver TO '/tmp/x.csv'", "Answer::render"),
            ("COPY (SELECT 1) TO '/tmp/x.csv'", "Answer::render"),
            ("SET datafusion.execution.batch_size = 1", "Session::with_options"),
            ("RESET datafusion.execution.batch_size", "Session::with_options"),
            ("BEGIN", "Store::batch"),
            ("PREPARE p AS SELECT 1", "SELECT, SHOW, DESCRIBE or EXPLAIN"),
            ("EXECUTE p", "SELECT, SHOW, DESCRIBE or EXPLAIN"),
        ];
        for (sql, expected) in cases {
            let message = refusal(sql);
            assert!(message.contains(expected), "{sql}: {message}");
        }
    }

    #[test]
    fn what_reads_is_let_through() {
        for sql in [
            "SELECT 1",
            "WITH a AS (SELECT 1) SELECT * FROM a",
            "EXPLAIN SELECT 1",
            "EXPLAIN ANALYZE SELECT 1",
        ] {
            check_reads_only(&parse(sql).unwrap()).unwrap();
        }
        for sql in ["SHOW TABLES", "DESCRIBE solver", "SHOW COLUMNS FROM solver", "VALUES (1), (2)"] {
            check_reads_only(&parse(sql).unwrap()).unwrap();
        }
    }

    #[test]
    fn a_syntax_error_points_at_the_word() {
        let message = parse("SELECT reward\nFROM solver\nWHRE reward > 0").unwrap_err().to_string();
        assert!(message.contains("found: reward"), "{message}");
        assert!(message.ends_with("WHRE reward > 0\n       ^"), "{message}");
    }

    #[test]
    fn a_query_is_one_statement() {
        assert!(matches!(parse(" ; ").unwrap_err().cause(), Cause::Empty));
        assert!(matches!(parse("").unwrap_err().cause(), Cause::Empty));
        assert!(matches!(
            parse("SELECT 1; SELECT 2").unwrap_err().cause(),
            Cause::ManyStatements { count: 2 }
        ));
        assert!(parse("SELECT 1;").is_ok());
    }
}
