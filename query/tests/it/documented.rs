//! The examples of `docs/sql.md` are run as they stand there.

use forebay_query::Format;

use crate::fixture::Run;

const DOCUMENT: &str = include_str!("../../../docs/sql.md");

fn examples() -> impl Iterator<Item = &'static str> {
    DOCUMENT.split("```sql\n").skip(1).filter_map(|rest| rest.split_once("\n```")).map(|(sql, _)| sql)
}

#[test]
fn every_example_runs_and_renders() {
    let (run, _step, _claim) = Run::busy();
    assert!(examples().count() >= 10);
    for sql in examples() {
        let answer = run.session.sql_blocking(sql).unwrap_or_else(|error| panic!("{sql}\n{error}"));
        assert!(answer.row_count() > 0, "the example shows nothing: {sql}");
        for format in Format::ALL {
            answer.render(format, &mut std::io::sink(), Some(120)).unwrap();
        }
    }
}

#[test]
fn every_column_is_described() {
    let run = Run::with_tables();
    let schemas = "SELECT DISTINCT column_name FROM information_schema.columns WHERE table_schema = 'system'";
    let meta = "SELECT DISTINCT column_name FROM system.columns WHERE class = 'meta'";
    for name in run.column(schemas).into_iter().chain(run.column(meta)) {
        let name = name.as_str().unwrap();
        assert!(DOCUMENT.contains(&format!("`{name}`")), "docs/sql.md does not tell what {name} is");
    }
}
