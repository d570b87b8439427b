//! Tokens, of what is served and for servers: from a file or the environment, never from the command line, which others can read.

use std::path::{Path, PathBuf};

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
    /// Whether the arguments name a file; the environment speaks to every command.
    pub(super) fn is_file(&self) -> bool {
        self.token_file.is_some()
    }

    /// The token, where there is one.
    pub(super) fn read(&self) -> Result<Option<Token>> {
        let Some((text, origin)) = found(self.token_file.as_deref())? else { return Ok(None) };
        Token::new(&text).map(Some).with_context(|| format!("cannot take a token from {origin}"))
    }
}

/// The token to show to a server, where there is one: from that file, or from the environment.
pub(super) fn shown(file: Option<&Path>) -> Result<Option<String>> {
    Ok(found(file)?.map(|(text, _)| text.trim().to_owned()))
}

/// The text of a token, and where it is from.
fn found(file: Option<&Path>) -> Result<Option<(String, String)>> {
    if let Some(file) = file {
        let origin = file.display().to_string();
        let text =
            std::fs::read_to_string(file).with_context(|| format!("cannot take a token from {origin}"))?;
        return Ok(Some((text, origin)));
    }
    let text = std::env::var_os(VARIABLE).map(|text| text.to_string_lossy().into_owned());
    Ok(text.map(|text| (text, VARIABLE.to_owned())))
}
