//! Who may do what over gRPC: a file with a table for each token.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use forebay::server::{Grant, Scope, Token};
use serde::Deserialize;

/// What a file says of one token.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    token: String,
    scopes: Vec<String>,
    tables: Option<Vec<String>>,
}

/// The grants in a file, each under the name that logs call it by.
pub(super) fn read(file: &Path) -> Result<Vec<Grant>> {
    let cannot = || format!("cannot take tokens from {}", file.display());
    let text = std::fs::read_to_string(file).with_context(cannot)?;
    parse(&text).with_context(cannot)
}

fn parse(text: &str) -> Result<Vec<Grant>> {
    let entries: BTreeMap<String, Entry> = toml::from_str(text).map_err(|error| {
        // The lines of the file, which the error would show, hold secrets.
        anyhow::anyhow!("{}", error.message())
    })?;
    if entries.is_empty() {
        bail!("it has no [NAME] with `token` and `scopes`, so nobody would be let in");
    }
    entries.into_iter().map(|(name, entry)| grant(&name, &entry)).collect()
}

fn grant(name: &str, entry: &Entry) -> Result<Grant> {
    let scope = |word: &String| {
        let found = Scope::ALL.into_iter().find(|scope| scope.as_str() == word);
        found.with_context(|| {
            let known = Scope::ALL.map(Scope::as_str).join(", ");
            format!("[{name}] has the scope {word:?}, which is none; give some of {known}")
        })
    };
    let scopes = entry.scopes.iter().map(scope).collect::<Result<Vec<_>>>()?;
    let token = Token::new(&entry.token).with_context(|| format!("[{name}]"))?;
    let granted = Grant::new(name, token).scopes(scopes);
    Ok(match &entry.tables {
        None => granted,
        Some(tables) => granted.tables(tables.iter().map(String::as_str)),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn each_table_of_the_file_is_a_grant() {
        let text = "[a]\ntoken = \"t\"\nscopes = [\"admin\"]\n[b]\ntoken = \"u\"\nscopes = [\"read\", \"write\"]\ntables = [\"solver\"]\n";
        assert_eq!(parse(text).unwrap().len(), 2);
    }

    #[test]
    fn what_is_wrong_is_named_and_no_token_is_shown() {
        for (text, named) in [
            ("", "[NAME]"),
            ("[a]\nscopes = []", "token"),
            ("[a]\ntoken = \"secret-word\"\nscopes = [\"king\"]", "king"),
            ("[a]\ntoken = \"secret word\"\nscopes = []", "[a]"),
            ("[a]\ntoken = \"secret-word\"\nscopes = []\ntable = []", "table"),
            ("[a]\ntoken = secret-word\nscopes = []", ""),
        ] {
            let error = format!("{:#}", parse(text).unwrap_err());
            assert!(error.contains(named) && !error.contains("secret"), "{text:?}: {error}");
        }
    }
}
