//! What can be wrong with a configuration.

use std::path::PathBuf;

/// Why a configuration was refused. Nothing has been touched then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(
    missing_docs,
    reason = "each variant's message is its documentation; fields are named for what they hold"
)]
pub enum ConfigError {
    #[error("cannot read {}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{} is not a valid configuration: {message}", path.display())]
    Syntax { path: PathBuf, message: String },
    #[error("{key} = {value}: {reason}")]
    Value { key: String, value: String, reason: String },
}

impl ConfigError {
    /// Turns a message of the TOML reader into an error, with the nearest known key for an unknown one.
    pub(super) fn syntax(path: PathBuf, error: &toml::de::Error) -> Self {
        let text = error.to_string();
        let mut message = text.trim_end().to_owned();
        if let Some(close) = nearest_key(error.message()) {
            message.push_str(&format!("\ndid you mean `{close}`?"));
        }
        ConfigError::Syntax { path, message }
    }

    pub(super) fn value(key: impl Into<String>, value: impl ToString, reason: impl Into<String>) -> Self {
        ConfigError::Value { key: key.into(), value: value.to_string(), reason: reason.into() }
    }
}

/// serde says "unknown field `x`, expected one of `a`, `b`": the nearest of those that are close enough.
fn nearest_key(message: &str) -> Option<String> {
    let mut quoted = message.strip_prefix("unknown field ")?.split('`').skip(1).step_by(2);
    let unknown = quoted.next()?;
    nearest(unknown, quoted).map(str::to_owned)
}

/// The one of the `known` words that somebody may have meant who wrote `unknown`; none where all are far from it.
pub fn nearest<'k>(unknown: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let scored = known.map(|known| (strsim::damerau_levenshtein(unknown, known), known));
    let (distance, best) = scored.min_by_key(|(distance, _)| *distance)?;
    (distance <= 2 + unknown.len() / 4).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_key_is_suggested_and_a_far_one_is_not() {
        let message =
            "unknown field `group_sise`, expected one of `global_batch`, `group_size`, `micro_batch`";
        assert_eq!(nearest_key(message).as_deref(), Some("group_size"));
        assert_eq!(nearest_key("unknown field `zzzzzz`, expected `seed`"), None);
        assert_eq!(nearest_key("invalid type: string"), None);
    }
}
