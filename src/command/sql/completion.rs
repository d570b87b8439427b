//! What Tab offers: keywords, tables, columns, and the prompt's own commands.

use forebay::query::{Format, TableInfo};

use super::command::COMMANDS;

const KEYWORDS: [&str; 50] = [
    "ALL",
    "AND",
    "ANY",
    "AS",
    "ASC",
    "BETWEEN",
    "BY",
    "CASE",
    "CAST",
    "CROSS",
    "DESC",
    "DESCRIBE",
    "DISTINCT",
    "ELSE",
    "END",
    "EXCEPT",
    "EXISTS",
    "EXPLAIN ANALYZE",
    "FALSE",
    "FILTER",
    "FROM",
    "GROUP BY",
    "HAVING",
    "IN",
    "INNER",
    "INTERSECT",
    "IS",
    "JOIN",
    "LEFT",
    "LIKE",
    "LIMIT",
    "NOT",
    "NULL",
    "OFFSET",
    "ON",
    "OR",
    "ORDER BY",
    "OVER",
    "PARTITION BY",
    "QUALIFY",
    "RECURSIVE",
    "SELECT",
    "SHOW TABLES",
    "THEN",
    "TRUE",
    "UNION",
    "USING",
    "WHERE",
    "WITH",
    "WITHIN GROUP",
];

/// What can be offered.
#[derive(Debug, Default)]
pub(super) struct Names {
    tables: Vec<Table>,
    functions: Vec<String>,
}

#[derive(Debug)]
struct Table {
    schema: String,
    name: String,
    columns: Vec<String>,
}

impl Names {
    /// The names of a store as it is now, and the functions that its session knows.
    pub(super) fn of(tables: Vec<TableInfo>, functions: Vec<String>) -> Self {
        let table = |table: TableInfo| Table {
            schema: table.schema,
            name: table.name,
            columns: table.columns.fields().iter().map(|field| field.name().clone()).collect(),
        };
        Names { tables: tables.into_iter().map(table).collect(), functions }
    }

    /// Where the word before the cursor begins, and what it could become.
    pub(super) fn offers(&self, line: &str, cursor: usize) -> (usize, Vec<String>) {
        let before = &line[..cursor];
        let is_part =
            |character: char| character.is_alphanumeric() || matches!(character, '_' | '.' | '\\' | '?');
        let from = before.char_indices().rev().take_while(|(_, character)| is_part(*character)).last();
        let from = from.map_or(cursor, |(at, _)| at);
        let (word, earlier) = (&before[from..], before[..from].trim_end());
        let last = earlier.rsplit(|character: char| !is_part(character)).next().unwrap_or_default();
        let mut offers = match last.to_uppercase().as_str() {
            _ if word.starts_with('\\') && earlier.is_empty() => {
                fitting(word, COMMANDS.iter().map(|(command, ..)| (*command).to_owned()))
            }
            "\\FORMAT" => {
                let shown = Format::ALL.into_iter().filter(|format| !format.is_binary());
                fitting(word, shown.map(|format| format.to_string()))
            }
            "FROM" | "JOIN" | "\\D" | "DESCRIBE" => fitting(word, self.table_names()),
            _ => self.anywhere(word),
        };
        offers.sort();
        offers.dedup();
        (from, offers)
    }

    fn anywhere(&self, word: &str) -> Vec<String> {
        if let Some((owner, part)) = word.rsplit_once('.') {
            let of = self.tables.iter().filter(|table| {
                [table.name.clone(), table.full_name()].iter().any(|name| name.eq_ignore_ascii_case(owner))
            });
            let columns = of.flat_map(|table| &table.columns).map(String::as_str);
            let columns =
                fitting(part, columns.map(quoted)).into_iter().map(|column| format!("{owner}.{column}"));
            return columns.chain(fitting(word, self.table_names())).collect();
        }
        let columns =
            self.tables.iter().filter(|table| table.schema == PUBLIC).flat_map(|table| &table.columns);
        let is_lower = word.chars().all(|character| !character.is_uppercase());
        let keywords = KEYWORDS.iter().map(|keyword| match is_lower && !word.is_empty() {
            true => keyword.to_lowercase(),
            false => (*keyword).to_owned(),
        });
        // There are hundreds, so not before a letter is there.
        let functions =
            self.functions.iter().filter(|_| !word.is_empty()).map(|function| format!("{function}("));
        let names = columns.map(|column| quoted(column)).chain(self.table_names());
        fitting(word, names.chain(keywords).chain(functions))
    }

    fn table_names(&self) -> impl Iterator<Item = String> {
        self.tables.iter().map(Table::full_name)
    }
}

/// The schema whose tables need no prefix.
const PUBLIC: &str = "public";

impl Table {
    fn full_name(&self) -> String {
        match self.schema.as_str() {
            PUBLIC => quoted(&self.name),
            schema => format!("{schema}.{}", quoted(&self.name)),
        }
    }
}

/// The name as SQL wants it.
fn quoted(name: &str) -> String {
    let is_plain =
        |character: char| character.is_ascii_lowercase() || character.is_ascii_digit() || character == '_';
    match name.chars().all(is_plain) && !name.starts_with(|first: char| first.is_ascii_digit()) {
        true => name.to_owned(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

fn fitting(word: &str, names: impl Iterator<Item = String>) -> Vec<String> {
    let word = word.to_lowercase();
    names.filter(|name| name.trim_start_matches('"').to_lowercase().starts_with(&word)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        let table = |schema: &str, name: &str, columns: &[&str]| Table {
            schema: schema.to_owned(),
            name: name.to_owned(),
            columns: columns.iter().map(|column| (*column).to_owned()).collect(),
        };
        Names {
            tables: vec![
                table("public", "solver", &["sample_id", "reward", "Odd name"]),
                table("public", "Söldner", &["rank"]),
                table("system", "steps", &["step", "state"]),
            ],
            functions: ["pass_at_k", "as_of", "usurp"].map(str::to_owned).into(),
        }
    }

    #[test]
    fn what_fits_is_offered_where_it_fits() {
        for (line, from, expected) in [
            ("SELECT * FROM s", 14, &["\"Söldner\"", "solver", "system.steps"][..]),
            ("SELECT * FROM system.", 14, &["system.steps"]),
            ("select rew", 7, &["reward"]),
            ("SELECT sa", 7, &["sample_id"]),
            ("SELECT solver.re", 7, &["solver.reward"]),
            ("SELECT solver.o", 7, &["solver.\"Odd name\""]),
            ("SELECT system.steps.st", 7, &["system.steps.state", "system.steps.step"]),
            ("SELECT 1 wher", 9, &["where"]),
            ("SELECT 1 WHER", 9, &["WHERE"]),
            ("SELECT pass", 7, &["pass_at_k("]),
            ("SELECT * FROM solver JOIN checker us", 34, &["using", "usurp("]),
            ("SELECT 1 QUAL", 9, &["QUALIFY"]),
            ("WITH REC", 5, &["RECURSIVE"]),
            ("SELECT approx_percentile_cont(0.5) within", 35, &["within group"]),
            ("\\ti", 0, &["\\timing"]),
            ("\\d so", 3, &["solver"]),
            ("\\format ", 8, &["csv", "json", "table"]),
            ("SELECT zzz", 7, &[]),
        ] {
            let offers = names().offers(line, line.len());
            assert_eq!(offers, (from, expected.iter().map(|offer| (*offer).to_owned()).collect()), "{line}");
        }
    }

    #[test]
    fn the_cursor_may_stand_anywhere() {
        let line = "SELECT réw, äöü FROM solver";
        for (cursor, _) in line.char_indices() {
            let (from, _) = names().offers(line, cursor);
            assert!(from <= cursor && line.is_char_boundary(from));
        }
    }
}
