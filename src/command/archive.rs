//! `forebay archive`

use std::io::{IsTerminal, Write};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use forebay::query::{Archive, ArchiveRule, Archiver, Due};
use forebay::store::{Options, Store};
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use serde_json::json;

/// Work that is over sooner shows no bar.
const BAR_AFTER: Duration = Duration::from_secs(2);
/// What no manifest names is somebody's work for so long.
const AGE_DEFAULT_SECONDS: u64 = 3600;

/// Move versions that are over out of a store, into an archive of Parquet files
///
/// A version is over when no rollout writes it, no trainer may take a row of it and no rewind brings it back. It is moved
/// whole: the command may be killed at any moment and run again. `forebay sql --archive URL` and Session in a program
/// read the archive beside the store; DuckDB, pyarrow and pandas read its files. While a run goes on, it archives by
/// itself if its configuration has `[archive]`.
#[derive(Debug, Args)]
pub(super) struct ArchiveArguments {
    /// The store's directory
    #[arg(long)]
    dir: PathBuf,
    /// Where the archive lies: a directory, file:///PATH or s3://BUCKET/PREFIX (credentials from AWS_... variables)
    #[arg(long, value_name = "URL")]
    to: String,
    /// Moves only these versions, the first and the last of A..B among them
    #[arg(long, value_name = "A..B", value_parser = parse_versions)]
    versions: Option<RangeInclusive<u64>>,
    /// Keeps the newest versions of each policy in the store, the current one among them
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    keep_versions: u64,
    /// Only says what would be moved
    #[arg(long)]
    dry_run: bool,
    /// Only removes what archivers that were killed left behind: files that no version needs
    #[arg(long, conflicts_with = "dry_run")]
    clean: bool,
    /// How old what --clean removes has to be, in seconds: 0 if nobody else writes the archive now
    #[arg(long, value_name = "SECONDS", default_value_t = AGE_DEFAULT_SECONDS)]
    older_than: u64,
    /// Prints one JSON object
    #[arg(long)]
    json: bool,
}

fn parse_versions(text: &str) -> Result<RangeInclusive<u64>> {
    let (first, last) = text.split_once("..").context("give the first and the last, as in 10..19")?;
    let number = |text: &str| text.parse::<u64>().with_context(|| format!("{text:?} is not a version"));
    let (first, last) = (number(first)?, number(last.trim_start_matches('='))?);
    ensure!(first <= last, "{first} comes after {last}");
    Ok(first..=last)
}

/// What a run of the command did.
#[derive(Debug, Default)]
struct Totals {
    versions: u64,
    rows: u64,
    files: u64,
    bytes: u64,
    held_back: Vec<(Due, String)>,
}

pub(super) fn run(arguments: &ArchiveArguments) -> Result<()> {
    let rule = ArchiveRule::keep_versions(arguments.keep_versions);
    let rule = arguments.versions.iter().cloned().fold(rule, ArchiveRule::versions);
    let archive = Archive::open(&arguments.to)?;
    if arguments.dry_run {
        let store = Store::open_read_only(&arguments.dir)?;
        return show_due(arguments, &Archiver::over(&store, &archive, rule).due()?);
    }
    let store = Store::open(&arguments.dir, Options::default().create(false))?;
    let archiver = Archiver::new(&store, &archive, rule)?;
    let cleaned = archiver.clean(Duration::from_secs(arguments.older_than))?;
    let due = if arguments.clean { Vec::new() } else { archiver.due()? };
    let totals = move_all(&archiver, due)?;
    if totals.rows > 0 {
        let taken = store.checkpoint(); // proves that they are gone; on a full disk it may come as far as its sync
        store.run_once()?; // frees what they took
        taken?;
    }
    let mut stdout = std::io::stdout().lock();
    if arguments.json {
        let held_back: Vec<_> = totals
            .held_back
            .iter()
            .map(|(due, reason)| json!({"table": due.table, "version": due.version, "reason": reason}))
            .collect();
        let Totals { versions, rows, files, bytes, .. } = totals;
        let moved = json!({"versions": versions, "rows": rows, "files": files, "bytes": bytes});
        let removed = json!({"files": cleaned.files, "bytes": cleaned.bytes, "versions": cleaned.versions});
        let url = archive.url();
        writeln!(
            stdout,
            "{}",
            json!({"archive": url, "moved": moved, "held_back": held_back, "removed": removed})
        )?;
        return Ok(());
    }
    let (versions, rows, size) = (totals.versions, totals.rows, HumanBytes(totals.bytes));
    writeln!(
        stdout,
        "moved {versions} versions with {rows} rows into {} ({} files, {size})",
        archive.url(),
        totals.files
    )?;
    for (due, reason) in &totals.held_back {
        writeln!(stdout, "kept  {} version {}: {reason}", due.table, due.version)?;
    }
    if cleaned.versions > 0 {
        let gone = cleaned.versions;
        writeln!(
            stdout,
            "{gone} versions left the store before they were moved; they are hidden, and their files stay"
        )?;
    }
    if cleaned.files > 0 {
        writeln!(
            stdout,
            "removed {} files that no version needs ({})",
            cleaned.files,
            HumanBytes(cleaned.bytes)
        )?;
    }
    Ok(())
}

fn show_due(arguments: &ArchiveArguments, due: &[Due]) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    if arguments.json {
        let due: Vec<_> = due
            .iter()
            .map(|due| json!({"table": due.table, "version": due.version, "rows": due.rows}))
            .collect();
        writeln!(stdout, "{}", json!({ "due": due }))?;
        return Ok(());
    }
    let rows: u64 = due.iter().map(|due| due.rows).sum();
    for due in due {
        writeln!(stdout, "{} version {}: {} rows", due.table, due.version, due.rows)?;
    }
    writeln!(stdout, "{} versions with {rows} rows would be moved", due.len())?;
    Ok(())
}

fn move_all(archiver: &Archiver, due: Vec<Due>) -> Result<Totals> {
    let (begun, all) = (Instant::now(), due.iter().map(|due| due.rows).sum());
    let (mut bar, mut totals, mut done): (Option<ProgressBar>, Totals, u64) = (None, Totals::default(), 0);
    for due in due {
        if bar.is_none() && begun.elapsed() >= BAR_AFTER && std::io::stderr().is_terminal() {
            let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} rows {eta} {msg}");
            let plain = ProgressBar::new(all);
            bar = Some(style.map(|style| plain.clone().with_style(style)).unwrap_or(plain));
        }
        if let Some(bar) = &bar {
            bar.set_message(format!("{} version {}", due.table, due.version));
            bar.set_position(done);
        }
        let moved = archiver.move_version(&due)?;
        done += due.rows;
        match moved.held_back {
            Some(reason) => totals.held_back.push((due, reason)),
            None => {
                totals.versions += 1;
                totals.rows += moved.rows;
                totals.files += moved.files as u64;
                totals.bytes += moved.bytes;
            }
        }
    }
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    Ok(totals)
}
