//! Tokenizers for `detokenise`, by name: of `forebay sql`, and of what is served.

use std::path::PathBuf;

use clap::{Args, ValueHint};

/// The name of one that is given without.
const ONLY: &str = "default";

#[derive(Debug, Args)]
pub(super) struct TokenizerArguments {
    /// A tokenizer (`tokenizer.json`) for detokenise(); again for several, under names of their own
    #[arg(long, value_name = "[NAME=]FILE", value_parser = tokenizer, value_hint = ValueHint::AnyPath)]
    tokenizer: Vec<(String, PathBuf)>,
}

impl TokenizerArguments {
    /// The names, and the files.
    pub(super) fn named(&self) -> impl Iterator<Item = (String, PathBuf)> {
        self.tokenizer.iter().cloned()
    }
}

/// A tokenizer as it is given. A comma may be part of its path.
fn tokenizer(given: &str) -> Result<(String, PathBuf), &'static str> {
    match named(given) {
        (_, "") => Err("it names no file; give [NAME=]FILE"),
        (Some(""), _) => Err("the name before = is empty; give [NAME=]FILE"),
        (name, file) => Ok((name.unwrap_or(ONLY).to_owned(), file.into())),
    }
}

/// The name that comes before a file, if one does.
pub(super) fn named(given: &str) -> (Option<&str>, &str) {
    match given.split_once('=') {
        Some((name, file)) => (Some(name), file),
        None => (None, given),
    }
}
