//! Tokenizers for `detokenise`, by name: of `forebay sql`, and of what is served.

use std::path::PathBuf;

use clap::{Args, ValueHint};

/// The name of one that is given without.
const ONLY: &str = "default";
/// What stands between several.
pub(super) const SEPARATOR: char = ',';

#[derive(Debug, Args)]
pub(super) struct TokenizerArguments {
    /// A tokenizer (`tokenizer.json`) for detokenise(); several, separated by commas, under names of their own
    #[arg(long, value_name = "[NAME=]FILE", value_delimiter = SEPARATOR, value_hint = ValueHint::AnyPath)]
    tokenizer: Vec<String>,
}

impl TokenizerArguments {
    /// The names, and the files.
    pub(super) fn named(&self) -> impl Iterator<Item = (String, PathBuf)> {
        self.tokenizer.iter().map(|given| {
            let (name, file) = named(given);
            (name.unwrap_or(ONLY).to_owned(), file.into())
        })
    }
}

/// The name that comes before a file, if one does.
pub(super) fn named(given: &str) -> (Option<&str>, &str) {
    match given.split_once('=') {
        Some((name, file)) => (Some(name), file),
        None => (None, given),
    }
}
