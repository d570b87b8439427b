//! Where the lines that were typed are kept: in the user's state directory, as the XDG base directories have it.

use std::ffi::OsString;
use std::path::PathBuf;

/// `$XDG_STATE_HOME/forebay/sql_history`, or under `~/.local/state`; none without a home.
pub(super) fn file(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let state = variable("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let state = state.or_else(|| Some(PathBuf::from(variable("HOME")?).join(".local/state")))?;
    Some(state.join("forebay/sql_history"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_directory_is_the_users() {
        let file_of = |state: Option<&str>, home: Option<&str>| {
            file(|name| match name {
                "XDG_STATE_HOME" => state.map(OsString::from),
                _ => home.map(OsString::from),
            })
        };
        assert_eq!(file_of(Some("/s"), Some("/h")), Some("/s/forebay/sql_history".into()));
        assert_eq!(file_of(Some("s"), Some("/h")), Some("/h/.local/state/forebay/sql_history".into()));
        assert_eq!(file_of(None, Some("/h")), Some("/h/.local/state/forebay/sql_history".into()));
        assert_eq!(file_of(None, None), None);
    }
}
