//! `forebay repair`

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use forebay::store::{Options, RepairReport, repair};
use serde_json::json;

/// Make a sound copy of a damaged store, and say what had to be given up
///
/// Never done by itself and never in place: the damaged store stays as it is. Keeps every record and value that can be
/// proven. Rows whose values are damaged are excluded as `damaged`, their cells become null. The copy is checked in full.
#[derive(Debug, Args)]
pub(super) struct RepairArguments {
    /// The damaged store's directory
    #[arg(long)]
    dir: PathBuf,
    /// The directory of the copy: empty, or not there yet
    #[arg(long, required_unless_present = "dry_run")]
    to: Option<PathBuf>,
    /// Only says what a repair would come to
    #[arg(long, conflicts_with = "to")]
    dry_run: bool,
    /// Prints one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &RepairArguments) -> Result<()> {
    let report = repair(&arguments.dir, arguments.to.as_deref(), &Options::default())?;
    let mut stdout = std::io::stdout().lock();
    if arguments.json {
        writeln!(stdout, "{}", to_json(&report))?;
    } else {
        write!(stdout, "{}", to_text(&report))?;
    }
    if let Some(verified) = report.verified.as_ref().filter(|verified| !verified.is_sound()) {
        let fault = verified.faults.first().map(ToString::to_string).unwrap_or_default();
        anyhow::bail!("the copy is not sound ({fault}); do not use it, and please report this");
    }
    Ok(())
}

fn to_json(report: &RepairReport) -> serde_json::Value {
    json!({
        "path": report.path.display().to_string(),
        "to": report.to.as_ref().map(|to| to.display().to_string()),
        "faults": report.faults.len() as u64 + report.faults_not_described,
        "records_kept": report.records_kept,
        "records_given_up": report.records_given_up,
        "records_unreadable": report.records_unreadable,
        "records_missing": report.records_missing,
        "rows_lost": report.rows_lost,
        "values_put_back": report.values_put_back,
        "cells_emptied": report.cells_emptied,
        "rows_excluded": report.rows_excluded,
        "objects_lost": report.objects_lost,
        "losses": report.losses,
        "losses_not_described": report.losses_not_described,
        "verified": report.verified.as_ref().map(super::verify::to_json),
    })
}

fn to_text(report: &RepairReport) -> String {
    let mut text = String::new();
    for loss in &report.losses {
        text += &format!("given up  {loss}\n");
    }
    if report.losses_not_described > 0 {
        text += &format!("          and {} more\n", report.losses_not_described);
    }
    text += &format!(
        "records   {} kept, {} given up, {} missing, {} places that cannot be read\n\
         values    {} taken from the log\n\
         rows      {} lost, {} excluded as damaged, {} cells emptied\n\
         objects   {} lost\n",
        report.records_kept,
        report.records_given_up,
        report.records_missing,
        report.records_unreadable,
        report.values_put_back,
        report.rows_lost,
        report.rows_excluded,
        report.cells_emptied,
        report.objects_lost,
    );
    text += &match (&report.to, report.is_whole()) {
        (Some(to), _) => format!("the copy is in {}; the damaged store is as it was\n", to.display()),
        (None, true) => "nothing would be given up\n".to_owned(),
        (None, false) => "nothing was written; name a directory with --to for the copy\n".to_owned(),
    };
    text
}
