//! What `\?` shows.

use super::command::COMMANDS;

pub(super) fn text() -> String {
    let commands =
        COMMANDS.map(|(word, takes, does)| format!("  {:<16} {does}\n", format!("{word} {takes}")));
    format!(
        "SQL ends with `;` and may take several lines. Tab completes, Ctrl-C ends the query that runs.\n{}",
        commands.concat()
    )
}
