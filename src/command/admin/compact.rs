//! `forebay admin compact`

use std::io::Write;

use anyhow::Result;
use clap::Args;
use serde_json::json;

use crate::command::bar::Bar;
use crate::command::connected::{Access, StoreArguments};

/// Make the store as small as it can be now
///
/// Others go on with it meanwhile. Rows go that retention does not keep, values move together, a checkpoint is taken, and what is free
/// is given back to the disk. Over --connect it goes on to its end also where this command is ended.
#[derive(Debug, Args)]
pub(super) struct CompactArguments {
    #[command(flatten)]
    store: StoreArguments,
    /// Prints one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &CompactArguments) -> Result<()> {
    let client = arguments.store.open(Access::Writes)?;
    let mut bar = Bar::new();
    bar.wait_for("compacting");
    let report = client.admin().compact()?;
    bar.end();
    let mut stdout = std::io::stdout().lock();
    if arguments.json {
        let report = json!({
            "bytes_before": report.bytes_before, "bytes_after": report.bytes_after,
            "values_moved": report.values_moved, "held_back_bytes": report.held_back_bytes,
        });
        writeln!(stdout, "{report}")?;
        return Ok(());
    }
    writeln!(
        stdout,
        "{} bytes of extents and log, {} before; {} values moved",
        report.bytes_after, report.bytes_before, report.values_moved
    )?;
    if report.held_back_bytes > 0 {
        writeln!(
            stdout,
            "{} bytes more are held back by readers: see system.pins with `forebay sql`",
            report.held_back_bytes
        )?;
    }
    Ok(())
}
