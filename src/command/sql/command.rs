//! What the prompt understands beside SQL.

use forebay::query::Format;

/// A line that begins with a backslash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Tables,
    Describe(String),
    Timing,
    Format(Format),
    Rows(Option<usize>),
    Help,
    Quit,
}

/// The commands with what they take and do.
pub(super) const COMMANDS: [(&str, &str, &str); 7] = [
    ("\\d", "", "lists all tables"),
    ("\\d", "TABLE", "shows the columns of a table"),
    ("\\format", "FORMAT", "table, json or csv from now on"),
    ("\\rows", "N", "shows at most so many rows of an answer; 0 shows all"),
    ("\\timing", "", "tells how long statements take, or no longer does"),
    ("\\?", "", "shows this"),
    ("\\q", "", "leaves; so does Ctrl-D"),
];

/// Reads a line that begins with a backslash.
///
/// # Errors
/// What to type instead.
pub(super) fn read(line: &str) -> Result<Command, String> {
    let line = line.trim().trim_end_matches(';');
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    match (word, rest.trim()) {
        ("\\d", "") => Ok(Command::Tables),
        ("\\d", table) => Ok(Command::Describe(table.to_owned())),
        ("\\timing", "") => Ok(Command::Timing),
        ("\\format", word) => word.parse().map(Command::Format).map_err(|error| error.to_string()),
        ("\\rows", number) => match number.parse() {
            Ok(0) => Ok(Command::Rows(None)),
            Ok(rows) => Ok(Command::Rows(Some(rows))),
            Err(_) => Err(format!("{number:?} is no number of rows; try \\rows 100, or \\rows 0 for all")),
        },
        ("\\?" | "\\h" | "\\help", "") => Ok(Command::Help),
        ("\\q" | "\\quit", "") => Ok(Command::Quit),
        _ => Err(format!("{line} is no command; \\? lists them")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_with_what_they_take() {
        for (line, command) in [
            ("\\d", Command::Tables),
            ("\\d solver;", Command::Describe("solver".to_owned())),
            (" \\d  system.claims ", Command::Describe("system.claims".to_owned())),
            ("\\timing", Command::Timing),
            ("\\format csv", Command::Format(Format::Csv)),
            ("\\rows 20", Command::Rows(Some(20))),
            ("\\rows 0", Command::Rows(None)),
            ("\\?", Command::Help),
            ("\\q", Command::Quit),
        ] {
            assert_eq!(read(line), Ok(command), "{line}");
        }
        for (line, way_out) in
            [("\\x", "\\?"), ("\\format xml", "json"), ("\\rows many", "\\rows 100"), ("\\q now", "\\?")]
        {
            assert!(read(line).is_err_and(|error| error.contains(way_out)), "{line}");
        }
    }
}
