//! `forebay sql`

mod command;
mod completion;
mod help;
mod history;
mod interrupt;
mod output;
mod prompt;
mod runner;
mod statements;
mod typing;

use std::io::{IsTerminal, Read};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use forebay::query::{Archive, Format, Options as QueryOptions, Session};
use forebay::store::{Options, Store};

use self::output::Output;
use self::runner::Runner;
use super::tokenizers::TokenizerArguments;

/// How often the prompt takes in what the writer has written.
const REFRESH_EVERY: Duration = Duration::from_secs(1);

/// Ask a store, with SQL
///
/// Every agent is a table; `SHOW TABLES` lists them and `DESCRIBE solver` shows columns. Claims, steps and policies are
/// in `system.claims`, `system.steps` and `system.policies`. The store is opened for reading only, also beside a process
/// that writes it; every statement sees what has been written by then.
///
/// Without a statement it reads them from a pipe, separated by `;`. On a terminal it prompts for them: \? tells what else it
/// understands.
#[derive(Debug, Args)]
pub(super) struct SqlArguments {
    /// The statement, or several separated by `;`
    #[arg(conflicts_with = "file")]
    statement: Option<String>,
    /// Reads the statements from a file
    #[arg(long)]
    file: Option<PathBuf>,
    /// The store's directory
    #[arg(long, required_unless_present = "archive")]
    dir: Option<PathBuf>,
    /// The archive of the store, whose versions are read beside the live ones; alone, without --dir, where the store is gone
    #[arg(long, value_name = "URL")]
    archive: Option<String>,
    #[command(flatten)]
    tokenizers: TokenizerArguments,
    /// How answers are written: table, json, csv, parquet or arrow [default: what the output's name says, or table]
    #[arg(long)]
    format: Option<Format>,
    /// Writes the answer to a file
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The most rows that are shown of an answer [default: all; at the prompt 1000]
    #[arg(long, value_name = "ROWS")]
    rows_max: Option<NonZeroUsize>,
    /// How long a statement may take, in seconds [default: for ever]
    #[arg(long, value_name = "SECONDS")]
    time_max_s: Option<u64>,
    /// The memory that a statement may take for sorts, joins and groups, in bytes; beyond it goes on in temporary files
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 30)]
    memory_bytes_max: usize,
}

pub(super) fn run(arguments: &SqlArguments) -> Result<()> {
    let output = Output::new(arguments.format, arguments.output.clone())?;
    let mut options = QueryOptions::default().refresh(true).memory_bytes_max(arguments.memory_bytes_max);
    if let Some(seconds) = arguments.time_max_s {
        options = options.statement_time_max(Duration::from_secs(seconds));
    }
    for (name, file) in arguments.tokenizers.named() {
        options = options.tokenizer(name, file);
    }
    let store = arguments.dir.as_ref().map(|dir| Store::open(dir, Options::default().read_only(true)));
    let store = store.transpose()?;
    let rows_max = arguments.rows_max.map(NonZeroUsize::get);
    let session = session(arguments, store.as_ref(), &options)?.with_rows_max(rows_max);
    let Some(text) = text(arguments)? else {
        store.map_or(Ok(()), follow)?;
        return prompt::run(&session, output, rows_max);
    };
    let statements = statements::all(&text);
    ensure!(!statements.is_empty(), "there is no statement; write one SELECT");
    ensure!(
        statements.len() == 1 || !output.is_one_document(),
        "{} statements give as many answers, and one file holds one; ask them one by one",
        statements.len()
    );
    let runner = Runner::new(session, output)?;
    statements.iter().try_for_each(|statement| runner.run(statement).map(|_| ()))
}

/// Takes in what the writer has written also while nobody types: it keeps what those who read may need. Ends with the
/// process, or when the store can no longer be read, which the next statement tells.
fn follow(store: Store) -> Result<()> {
    let follow = move || {
        while store.refresh().is_ok() {
            std::thread::sleep(REFRESH_EVERY);
        }
    };
    std::thread::Builder::new()
        .name("forebay-follow".to_owned())
        .spawn(follow)
        .context("cannot follow the store")?;
    Ok(())
}

/// What is asked: a store, an archive, or both.
fn session(arguments: &SqlArguments, store: Option<&Store>, options: &QueryOptions) -> Result<Session> {
    let archive = arguments.archive.as_deref().map(Archive::open).transpose()?;
    let options = archive.iter().fold(options.clone(), QueryOptions::archive);
    match (store, &archive) {
        (Some(store), _) => Ok(Session::with_options(store, &options)?),
        (None, Some(archive)) => Ok(Session::of_archive(archive, &options)?),
        (None, None) => bail!("give --dir, --archive or both"),
    }
}

/// The statements as text; none when they are to be asked for.
fn text(arguments: &SqlArguments) -> Result<Option<String>> {
    if let Some(statement) = &arguments.statement {
        return Ok(Some(statement.clone()));
    }
    if let Some(file) = &arguments.file {
        let text =
            std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        return Ok(Some(text));
    }
    let mut stdin = std::io::stdin();
    if stdin.is_terminal() {
        return Ok(None);
    }
    let mut text = String::new();
    stdin.read_to_string(&mut text).context("cannot read statements from standard input")?;
    Ok(Some(text))
}
