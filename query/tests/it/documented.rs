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

/// What stands first in the rows of the table of functions, up to the first bracket, and the texts that it takes.
fn functions() -> impl Iterator<Item = (&'static str, Vec<&'static str>)> {
    let section = DOCUMENT.split("## Functions of the field").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| {
        let texts = row.split('`').filter(|code| code.starts_with('\''));
        (row.split('(').next().unwrap(), texts.collect())
    })
}

#[test]
fn every_function_and_each_of_its_estimators_has_an_example() {
    let run = Run::empty();
    let known = run.session.functions();
    let is_shown = |words: &str| examples().any(|sql| sql.contains(words));
    assert!(functions().count() >= 8);
    for (name, texts) in functions() {
        assert!(known.iter().any(|function| function == name), "there is no {name}");
        assert!(is_shown(&format!("{name}(")), "docs/sql.md has no example of {name}");
        for text in texts {
            let used = examples().any(|sql| sql.contains(&format!("{name}(")) && sql.contains(text));
            assert!(used, "docs/sql.md has no example of {name} with {text}");
        }
    }
    for words in
        ["as_of('solver', step =>", "as_of('solver', version =>", "lineage(", "version => 0) ORDER BY depth"]
    {
        assert!(is_shown(words), "docs/sql.md has no example with {words}");
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
