//! Where the settings of `forebay serve` come from: a file, the environment and flags, each over the one before.
//!
//! A setting has one name, its flag's: `--connections-max` is `connections_max` in the file and
//! `FOREBAY_SERVE_CONNECTIONS_MAX` in the environment. What the file and the environment say is put before the words that were
//! typed, as flags, so a setting is declared, checked and explained in one place. Paths in the file are relative to the file.
//! Of a flag that may come again, a variable and the file say all values at once, separated by commas.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::builder::ValueHint;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, Args, Command};
use toml::Spanned;

use super::serve::ServeArguments;
use super::tokenizers::named;

/// What the names of variables begin with.
const PREFIX: &str = "FOREBAY_SERVE_";
/// The setting that names the file.
const CONFIG: &str = "config";
/// The setting whose numbers are octal, as those of files are.
const SOCKET_MODE: &str = "socket-mode";
/// What stands between several values of a setting, where it cannot be given again.
const SEPARATOR: char = ',';

/// Where the file is.
#[derive(Debug, Args)]
pub(super) struct SettingsArguments {
    /// A TOML file with any of these settings, by the flags' names: `connections_max = 1000`; FOREBAY_SERVE_CONNECTIONS_MAX
    /// in the environment comes before it, and a flag before both
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// A setting from elsewhere than the words that were typed.
struct Found {
    flag: String,
    value: OsString,
    /// Where it is from, as messages call it.
    origin: String,
}

/// The words of a command, with what a file and the environment say of it put before what was typed.
///
/// # Errors
/// For a file that cannot be read or is no TOML, a setting that is none, and a value that its setting cannot take.
pub(super) fn gather(
    words: Vec<OsString>,
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Vec<OsString>> {
    let only_asks =
        words.iter().any(|word| ["--help", "-h", "--version", "-V"].iter().any(|flag| word == flag));
    if words.get(1).is_none_or(|word| word != "serve") || only_asks {
        return Ok(words);
    }
    let command = ServeArguments::augment_args(Command::new("forebay serve"));
    let of_environment = from_environment(&command, variables)?;
    let named = of_environment.iter().find(|found| found.flag == CONFIG).map(|found| found.value.clone());
    let file = typed(&words).or(named);
    let of_file = file.map(|file| from_file(&command, Path::new(&file))).transpose()?.unwrap_or_default();
    let mut gathered = words[..2].to_vec();
    // A switch is on where its word stands, so none may stand for one that the environment turns off.
    let said_again = |found: &&Found| of_environment.iter().any(|other| other.flag == found.flag);
    let of_file = of_file.iter().filter(|found| !(said_again(found) && is_switch(&command, &found.flag)));
    for found in of_file.chain(&of_environment) {
        gathered.extend(found.word(&command)?);
    }
    gathered.extend_from_slice(&words[2..]);
    Ok(gathered)
}

/// The file that was typed last, as for every flag.
fn typed(words: &[OsString]) -> Option<OsString> {
    let flag = format!("--{CONFIG}");
    let joined = format!("{flag}=");
    words.iter().enumerate().rev().find_map(|(at, word)| {
        let value =
            word.as_bytes().strip_prefix(joined.as_bytes()).map(|value| OsStr::from_bytes(value).into());
        value.or_else(|| (*word == *flag).then(|| words.get(at + 1).cloned()).flatten())
    })
}

fn from_environment(
    command: &Command,
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Vec<Found>> {
    let mut all = Vec::new();
    for (name, value) in variables {
        let Some(key) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else { continue };
        let flag = key.to_ascii_lowercase().replace('_', "-");
        let as_variable = |flag: &str| format!("{PREFIX}{}", flag.replace('-', "_").to_ascii_uppercase());
        // Whoever runs a service of that name has these made for everybody beside it.
        if ["port", "service"].contains(&flag.split('-').next().unwrap_or_default()) {
            continue;
        }
        let argument = setting(command, &flag, &as_variable).context("in the environment")?;
        let origin = as_variable(&flag);
        let values = match value.to_str() {
            Some(text) => each(argument, text).map(OsString::from).collect(),
            None => vec![value],
        };
        all.extend(found(&flag, &origin, values));
    }
    Ok(all)
}

fn from_file(command: &Command, file: &Path) -> Result<Vec<Found>> {
    let cannot = || format!("cannot take settings from {}", file.display());
    let text = std::fs::read_to_string(file).with_context(cannot)?;
    let table: BTreeMap<String, Spanned<toml::Value>> = toml::from_str(&text).map_err(|error| {
        // Not the line itself, which the error would show: it may be a secret where another file was meant.
        let line = error.span().map_or(0, |span| text[..span.start].lines().count().max(1));
        anyhow::anyhow!("{}: line {line}: {}", cannot(), error.message())
    })?;
    let mut all = Vec::new();
    for (key, value) in table {
        let flag = key.replace('_', "-");
        let of_file = |flag: &str| flag.replace('-', "_");
        let argument = setting(command, &flag, &of_file).with_context(cannot)?;
        if flag == CONFIG {
            bail!("{}: {key} = {}: a file names no other", cannot(), value.get_ref());
        }
        let literal = text.get(value.span()).unwrap_or_default();
        let is_octal = literal.starts_with("0o");
        if flag == SOCKET_MODE && (literal.starts_with("0x") || literal.starts_with("0b")) {
            bail!("{}: {key} = {literal}: a mode is octal, such as 0o660", cannot());
        }
        let text = match value.into_inner() {
            toml::Value::String(text) => text,
            toml::Value::Integer(mode) if flag == SOCKET_MODE && is_octal => format!("{mode:o}"),
            toml::Value::Integer(number) => number.to_string(),
            toml::Value::Float(number) => number.to_string(),
            toml::Value::Boolean(on) if is_switch(command, &flag) => on.to_string(),
            other => bail!("{}: {key} = {other}: give text or a number", cannot()),
        };
        let values = each(argument, &text).map(|text| placed(file, argument, text)).collect();
        all.extend(found(&flag, &format!("{key} of {}", file.display()), values));
    }
    Ok(all)
}

/// The values that a text gives a setting.
fn each<'t>(argument: &Arg, text: &'t str) -> impl Iterator<Item = &'t str> {
    let count = if is_repeated(argument) { usize::MAX } else { 1 };
    text.splitn(count, SEPARATOR)
}

fn found(flag: &str, origin: &str, values: Vec<OsString>) -> impl Iterator<Item = Found> {
    values.into_iter().map(|value| Found { flag: flag.to_owned(), value, origin: origin.to_owned() })
}

fn flags(command: &Command) -> impl Iterator<Item = &str> {
    command.get_arguments().filter_map(|argument| argument.get_long())
}

/// The setting of that flag; `shown` is how its kind of source writes a name.
fn setting<'c>(command: &'c Command, flag: &str, shown: &dyn Fn(&str) -> String) -> Result<&'c Arg> {
    if let Some(found) = command.get_arguments().find(|argument| argument.get_long() == Some(flag)) {
        return Ok(found);
    }
    let close = forebay::config::nearest(flag, flags(command));
    let hint = close.map_or_else(
        || format!("there are {}", flags(command).map(shown).collect::<Vec<_>>().join(", ")),
        |close| format!("did you mean {}?", shown(close)),
    );
    bail!("{} is no setting; {hint}", shown(flag))
}

/// Whether a setting is on or off.
fn is_switch(command: &Command, flag: &str) -> bool {
    let argument = command.get_arguments().find(|argument| argument.get_long() == Some(flag));
    argument.is_some_and(|argument| matches!(argument.get_action(), ArgAction::SetTrue))
}

/// Whether a setting may be given again, each time with the name of a file.
fn is_repeated(argument: &Arg) -> bool {
    matches!(argument.get_action(), ArgAction::Append)
}

/// A value of a file's setting: a path is meant from where the file is.
fn placed(file: &Path, argument: &Arg, text: &str) -> OsString {
    let (name, path) = if is_repeated(argument) { named(text) } else { (None, text) };
    let paths = [ValueHint::AnyPath, ValueHint::DirPath, ValueHint::FilePath];
    let is_path = paths.contains(&argument.get_value_hint()) && !text.contains("://");
    if !is_path || path.is_empty() {
        return text.into();
    }
    let mut word = OsString::from(name.map(|name| format!("{name}=")).unwrap_or_default());
    word.push(file.parent().unwrap_or(Path::new("")).join(path));
    word
}

impl Found {
    /// The setting as a word that might have been typed, if it can take the value; none for a switch that is off.
    fn word(&self, command: &Command) -> Result<Option<OsString>> {
        if is_switch(command, &self.flag) {
            return match self.value.to_str() {
                Some("true" | "1") => Ok(Some(format!("--{}", self.flag).into())),
                Some("false" | "0") => Ok(None),
                _ => bail!("{}: {:?} is neither true nor false", self.origin, self.value.display()),
            };
        }
        let mut word = OsString::from(format!("--{}=", self.flag));
        word.push(&self.value);
        let tried = command.clone().try_get_matches_from([OsString::from("forebay"), word.clone()]);
        match tried.map_err(|error| (error.kind(), error)) {
            Err((ErrorKind::InvalidValue | ErrorKind::ValueValidation | ErrorKind::InvalidUtf8, error)) => {
                let text = error.to_string();
                let reason = text.trim_start_matches("error: ").lines().next().unwrap_or_default();
                bail!("{}: {reason}", self.origin)
            }
            // What it lacks may be among the others.
            Ok(_) | Err(_) => Ok(Some(word)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn gathered(file: &str, variables: &[(&str, &str)], typed: &[&str]) -> Result<Vec<String>> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("serve.toml");
        std::fs::write(&path, file)?;
        let config = format!("--config={}", path.display());
        let words = ["forebay", "serve", &config].into_iter().chain(typed.iter().copied());
        let variables = variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let all = gather(words.map(OsString::from).collect(), variables)?;
        let place = dir.path().display().to_string();
        Ok(all.iter().map(|word| word.to_str().unwrap().replace(&place, "HERE")).collect())
    }

    #[test]
    fn the_file_comes_first_then_the_environment_then_what_was_typed() {
        let file = "dir = \"store\"\ngrpc = \"127.0.0.1:7070\"\nconnections_max = 5\nsession_grace = 0.5\narchive = \"s3://b/a\"\n\
                    tokenizer = \"one.json,two=/2.json\"";
        let variables = [("FOREBAY_SERVE_CONNECTIONS_MAX", "6"), ("FOREBAY_TOKEN", "t"), ("HOME", "/")];
        let words = gathered(file, &variables, &["--connections-max", "7"]).unwrap();
        let expected = [
            "forebay",
            "serve",
            "--dir=HERE/store",
            "--grpc=127.0.0.1:7070",
            "--connections-max=5",
            "--session-grace=0.5",
            "--archive=s3://b/a",
            "--tokenizer=HERE/one.json",
            "--tokenizer=two=/2.json",
            "--connections-max=6",
            "--config=HERE/serve.toml",
            "--connections-max",
            "7",
        ];
        let sorted = |mut words: Vec<String>| {
            words[2..9].sort(); // a file has no order
            words
        };
        assert_eq!(sorted(words), sorted(expected.map(str::to_owned).to_vec()));
        let plain: Vec<OsString> = ["forebay", "sql", "--config", "nowhere"].map(OsString::from).to_vec();
        assert_eq!(gather(plain.clone(), std::iter::empty()).unwrap(), plain);
    }

    #[test]
    fn the_last_file_counts_and_what_others_name_after_services_is_left_aside() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, format!("dir = \"{name}\"")).unwrap();
            path.display().to_string()
        };
        let (first, second) = (file("first"), file("second"));
        let gathered = |words: &[&str]| {
            let words = ["forebay", "serve"].iter().chain(words).map(OsString::from).collect();
            let foreign =
                [("FOREBAY_SERVE_SERVICE_HOST", "10.0.0.1"), ("FOREBAY_SERVE_PORT", "tcp://10.0.0.1:80")];
            gather(words, foreign.map(|(name, value)| (name.into(), value.into())).into_iter()).unwrap()
        };
        for words in [
            vec!["--config", &first, "--config", &second],
            vec![&*format!("--config={first}"), "--config", &second],
            vec!["--config", &first, &*format!("--config={second}")],
        ] {
            assert!(gathered(&words)[2].to_str().unwrap().ends_with("/second"), "{words:?}");
        }
        assert_eq!(gathered(&["--version"]).len(), 3);
    }

    #[test]
    fn switches_modes_and_folders_are_said_as_a_file_says_such() {
        let off = [("FOREBAY_SERVE_CHECK_VALUES", "false")];
        for (file, variables, expected) in [
            ("socket_mode = 0o660", &[][..], &["--socket-mode=660"][..]),
            ("socket_mode = 660", &[], &["--socket-mode=660"]),
            ("socket_mode = \"0o660\"", &[], &["--socket-mode=0o660"]),
            ("host_folder = \"memory\"", &[], &["--host-folder=HERE/memory"]),
            ("check_values = true", &[], &["--check-values"]),
            ("check_values = false", &[], &[]),
            ("check_values = \"true\"", &[], &["--check-values"]),
            ("check_values = true", &off, &[]),
        ] {
            let words = gathered(file, variables, &[]).unwrap();
            assert_eq!(words[2..words.len() - 1], *expected, "{file}");
        }
        let variables = [("FOREBAY_SERVE_READERS_WITHOUT_TOKEN", "1"), ("FOREBAY_SERVE_CHECK_VALUES", "yes")];
        let words = gathered("", &variables[..1], &[]).unwrap();
        assert_eq!(words[2], "--readers-without-token");
        let error = format!("{:#}", gathered("", &variables, &[]).unwrap_err());
        assert!(error.contains("FOREBAY_SERVE_CHECK_VALUES: \"yes\" is neither"), "{error}");
    }

    #[test]
    fn what_is_wrong_is_named_with_where_it_is_from() {
        for (file, variables, named) in [
            ("connection_max = 5", vec![], "did you mean connections_max?"),
            ("wibble = 5", vec![], "there are"),
            ("socket_mode = 0x1b0", vec![], "socket_mode = 0x1b0: a mode is octal"),
            ("connections_max = true", vec![], "connections_max = true: give text or a number"),
            ("connections_max = -5", vec![], "serve.toml: invalid value '-5'"),
            ("grpc = \"here\"", vec![], "serve.toml: invalid value 'here'"),
            ("dir = \"d\"\ngrpc = ", vec![], "serve.toml: line 2"),
            ("config = \"other.toml\"", vec![], "a file names no other"),
            ("tokenizer = \"one.json,\"", vec![], "serve.toml: invalid value ''"),
            (
                "",
                vec![("FOREBAY_SERVE_TOKENIZER", "one=,two=2.json")],
                "FOREBAY_SERVE_TOKENIZER: invalid value 'one='",
            ),
            ("", vec![("FOREBAY_SERVE_GRPX", "1")], "did you mean FOREBAY_SERVE_GRPC?"),
            ("", vec![("FOREBAY_SERVE_SESSION_GRACE", "soon")], "FOREBAY_SERVE_SESSION_GRACE: invalid value"),
        ] {
            let error = format!("{:#}", gathered(file, &variables, &[]).unwrap_err());
            assert!(error.contains(named), "{file:?}: {error}");
        }
    }
}
