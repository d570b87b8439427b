//! Who may do what: a file with a table for each token.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime};

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
    /// Keys, or the beginnings of keys with a `*` behind them.
    objects: Option<Vec<String>>,
    /// When the token ends, in UTC.
    expires: Option<toml::value::Datetime>,
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
        let before = error.span().map_or("", |span| text.get(..span.start).unwrap_or_default());
        let line = before.matches('\n').count() + 1;
        anyhow::anyhow!(
            "line {line}: {}; a [NAME] has `token`, `scopes` and maybe `tables`, `objects`, `expires`",
            error.message()
        )
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
    let granted = match &entry.tables {
        None => granted,
        Some(tables) => granted.tables(tables.iter().map(String::as_str)),
    };
    let granted = match &entry.objects {
        None => granted,
        Some(keys) => {
            if let Some(key) =
                keys.iter().find(|key| key.trim_end_matches('*').contains('*') || key.contains("**"))
            {
                bail!(
                    "[{name}] names the objects {key:?}; a `*` stands at the end alone, for all keys that begin so"
                );
            }
            granted.objects(keys.iter().map(String::as_str))
        }
    };
    let until = entry.expires.as_ref().map(|expires| {
        let wrong = || {
            format!(
                "[{name}] expires at {expires}, which is no time in UTC; give one as 2027-01-31T00:00:00Z"
            )
        };
        time_of(expires).with_context(wrong)
    });
    Ok(until.transpose()?.into_iter().fold(granted, Grant::until))
}

/// The instant that a date and time in UTC names.
fn time_of(text: &toml::value::Datetime) -> Option<SystemTime> {
    let (date, time) = text.date.zip(text.time)?;
    if text.offset != Some(toml::value::Offset::Z) {
        return None;
    }
    let days = days_since_1970(date.year.into(), date.month.into(), date.day.into());
    let of_day =
        u64::from(time.hour) * 3600 + u64::from(time.minute) * 60 + u64::from(time.second.unwrap_or(0));
    let seconds = u64::try_from(days).ok()? * 86_400 + of_day;
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}

/// Counts years from March on, so that the day that some years have comes last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let of_year = (153 * month + 2) / 5 + day - 1;
    365 * year + year / 4 - year / 100 + year / 400 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn each_table_of_the_file_is_a_grant() {
        let text = "[a]\ntoken = \"t\"\nscopes = [\"admin\"]\n[b]\ntoken = \"u\"\nscopes = [\"read\", \"write\"]\ntables = [\"solver\"]\nobjects = [\"solver*\"]\n";
        assert_eq!(parse(text).unwrap().len(), 2);
    }

    #[test]
    fn a_token_may_end_at_a_time_in_utc() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T12:30:15Z", 951_827_415),
            ("2027-01-31T00:00:00Z", 1_801_353_600),
        ] {
            let time = time_of(&text.parse().unwrap()).unwrap();
            assert_eq!(time, SystemTime::UNIX_EPOCH + Duration::from_secs(seconds), "{text}");
        }
        for text in ["1969-12-31T23:59:59Z", "2027-01-31", "2027-01-31T00:00:00", "2027-01-31T00:00:00+01:00"]
        {
            assert_eq!(time_of(&text.parse().unwrap()), None, "{text}");
        }
        let entry = "[a]\ntoken = \"t\"\nscopes = []\nexpires = 2027-01-31";
        assert!(format!("{:#}", parse(entry).unwrap_err()).contains("2027-01-31T00:00:00Z"));
    }

    #[test]
    fn what_is_wrong_is_named_and_no_token_is_shown() {
        for (text, named) in [
            ("", "[NAME]"),
            (
                "[a]\ntoken = \"secret-word\"\nscopes = [\"read\"]\n\n[b]\ntoken = \"secret-word\"",
                "line 5: missing field `scopes`",
            ),
            ("[a]\nscopes = []", "token"),
            ("[a]\ntoken = \"secret-word\"\nscopes = [\"king\"]", "king"),
            ("[a]\ntoken = \"secret word\"\nscopes = []", "[a]"),
            ("[a]\ntoken = \"secret-word\"\nscopes = []\ntable = []", "table"),
            ("[a]\ntoken = secret-word\nscopes = []", ""),
            ("[a]\ntoken = \"secret-word\"\nscopes = []\nobjects = [\"a*b\"]", "a*b"),
        ] {
            let error = format!("{:#}", parse(text).unwrap_err());
            assert!(error.contains(named) && !error.contains("secret"), "{text:?}: {error}");
        }
    }
}
