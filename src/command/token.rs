//! The token of what is served: from a file or the environment, never from the command line, which others can read.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use forebay::server::Token;

const VARIABLE: &str = "FOREBAY_TOKEN";

#[derive(Debug, Args)]
pub(super) struct TokenArguments {
    /// Lets in only who shows the token in this file [default: the variable FOREBAY_TOKEN, or nobody needs one]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl TokenArguments {
    /// The token, where there is one.
    pub(super) fn read(&self) -> Result<Option<Token>> {
        if let Some(file) = &self.token_file {
            let cannot = || format!("cannot take a token from {}", file.display());
            let text = std::fs::read_to_string(file).with_context(cannot)?;
            return Token::new(&text).map(Some).with_context(cannot);
        }
        let text = std::env::var_os(VARIABLE).map(|text| text.to_string_lossy().into_owned());
        text.map(|text| Token::new(&text))
            .transpose()
            .with_context(|| format!("cannot take a token from {VARIABLE}"))
    }
}
