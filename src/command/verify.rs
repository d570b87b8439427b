//! `forebay verify`

use std::io::Write;
use std::ops::ControlFlow;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use forebay::store::{Options, VerifyProgress, VerifyReport, verify};
use serde_json::json;

use super::bar::Bar;
use super::connected::{Access, StoreArguments};

/// Check every byte that a store stands on
///
/// Reads the whole log, every value that a row names and every object that a policy stands on, and holds them against
/// their checksums and against each other. Nothing is changed. Beside a process that writes the store it checks what had
/// been written when it began; with --connect the server checks its store. Exit code 0: all is sound; 1: something is wrong; 2: it
/// could not be checked.
#[derive(Debug, Args)]
pub(super) struct VerifyArguments {
    #[command(flatten)]
    store: StoreArguments,
    /// Prints one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &VerifyArguments) -> Result<ExitCode> {
    let mut bar = Bar::new();
    let mut show = |progress: VerifyProgress| {
        bar.show(progress.stage.as_str(), progress.done_bytes, progress.total_bytes);
        ControlFlow::Continue(())
    };
    let report = match arguments.store.dir() {
        // Not opened, for a damaged store might not be.
        Some(dir) => verify(dir, &Options::default(), &mut show)?,
        None => arguments.store.open(Access::Reads)?.admin().verify(&mut show)?,
    };
    bar.end();
    let mut stdout = std::io::stdout().lock();
    if arguments.json {
        writeln!(stdout, "{}", to_json(&report))?;
    } else {
        write!(stdout, "{}", to_text(&report))?;
    }
    Ok(if report.is_sound() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

pub(super) fn to_json(report: &VerifyReport) -> serde_json::Value {
    let checked = &report.checked;
    let fault = |fault: &forebay::store::VerifyFault| {
        json!({
            "kind": fault.kind.as_str(),
            "path": fault.path.display().to_string(),
            "offset": fault.offset,
            "reason": fault.reason,
        })
    };
    json!({
        "path": report.path.display().to_string(),
        "store_id": report.store_id.map(|id| format!("{id:016x}")),
        "sound": report.is_sound(),
        "next_sequence": report.next_sequence,
        "checked": {
            "segments": checked.segments, "log_bytes": checked.log_bytes, "records": checked.records,
            "torn_bytes": checked.torn_bytes, "pages": checked.pages, "page_bytes": checked.page_bytes, "tables": checked.tables, "rows": checked.rows,
            "cells": checked.cells, "values": checked.values, "value_bytes": checked.value_bytes,
            "values_carried": checked.values_carried,
            "extents": checked.extents, "objects": checked.objects, "object_bytes": checked.object_bytes,
            "claims": checked.claims, "steps": checked.steps, "policies": checked.policies,
            "consumers": checked.consumers,
        },
        "faults": report.faults.iter().map(fault).collect::<Vec<_>>(),
        "fault_count": report.fault_count(),
        "orphans": report.orphans.iter().map(|path| path.display().to_string()).collect::<Vec<_>>(),
    })
}

pub(super) fn to_text(report: &VerifyReport) -> String {
    let checked = &report.checked;
    let mut text = format!(
        "log      {} records in {} segments, {} bytes\n\
         state    {} tables, {} rows, {} cells; {} claims, {} steps, {} policies, {} consumers\n\
         values   {} in {} extents, {} bytes\n\
         objects  {}, {} bytes\n",
        checked.records,
        checked.segments,
        checked.log_bytes,
        checked.tables,
        checked.rows,
        checked.cells,
        checked.claims,
        checked.steps,
        checked.policies,
        checked.consumers,
        checked.values,
        checked.extents,
        checked.value_bytes,
        checked.objects,
        checked.object_bytes,
    );
    if checked.pages > 0 {
        text += &format!("pages    {} of the checkpoint, {} bytes\n", checked.pages, checked.page_bytes);
    }
    if checked.torn_bytes > 0 {
        text += &format!("torn     {} bytes of appends that were cut short; no fault\n", checked.torn_bytes);
    }
    if checked.values_carried > 0 {
        text += &format!(
            "carried  {} values that opening takes from the log; no fault\n",
            checked.values_carried
        );
    }
    for orphan in &report.orphans {
        text += &format!("unnamed  {} takes room and is no fault\n", orphan.display());
    }
    for fault in &report.faults {
        text += &format!("FAULT    {fault}\n");
    }
    if report.faults_not_described > 0 {
        text += &format!("         and {} more\n", report.faults_not_described);
    }
    text += &match report.fault_count() {
        0 => "sound\n".to_owned(),
        faults => format!(
            "{faults} faults; restore the store from a copy, or see what `forebay repair --dir {} --dry-run` can keep\n",
            report.path.display()
        ),
    };
    text
}
