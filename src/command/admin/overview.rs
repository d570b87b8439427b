//! `forebay admin overview`

use std::io::Write;

use anyhow::Result;
use clap::Args;
use forebay::client::{Depth, Overview};
use serde_json::json;

use crate::command::connected::{Access, StoreArguments};

/// Show settings, counters, and how much is ready for each consumer
#[derive(Debug, Args)]
pub(super) struct OverviewArguments {
    #[command(flatten)]
    store: StoreArguments,
    /// Prints one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &OverviewArguments) -> Result<()> {
    let overview = arguments.store.open(Access::Reads)?.admin().overview()?;
    let mut stdout = std::io::stdout().lock();
    match arguments.json {
        true => writeln!(stdout, "{}", to_json(&overview))?,
        false => write!(stdout, "{}", to_text(&overview))?,
    }
    Ok(())
}

fn to_json(overview: &Overview) -> serde_json::Value {
    let depth = |depth: &Depth| {
        json!({
            "consumer": depth.consumer, "kind": depth.kind.as_str(), "table": depth.table,
            "ready_rows": depth.ready_rows, "future_rows": depth.future_rows,
            "processing_rows": depth.processing_rows, "current_version": depth.current_version,
            "group_members": depth.group_members,
        })
    };
    json!({
        "settings": overview.settings,
        "stats": overview.stats,
        "depths": overview.depths.iter().map(depth).collect::<Vec<_>>(),
    })
}

fn to_text(overview: &Overview) -> String {
    let mut text = String::new();
    let mut section = |name: &str, lines: Vec<(String, String)>| {
        let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        text += &format!("{name}\n");
        for (name, value) in lines {
            text += &format!("  {name:width$}  {value}\n");
        }
    };
    let settings = overview.settings.iter();
    let set = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".to_owned());
    section("settings", settings.map(|(name, value)| (name.clone(), set(value))).collect());
    let stats = overview.stats.iter();
    section("counters", stats.map(|(name, value)| (name.clone(), value.to_string())).collect());
    let depth = |depth: &Depth| {
        let Depth { consumer, kind, table, ready_rows, future_rows, processing_rows, .. } = depth;
        let rows =
            format!("{ready_rows} ready, {future_rows} of a later version, {processing_rows} in hands");
        (format!("{consumer} of {table}"), format!("{rows} ({})", kind.as_str()))
    };
    section("consumers", overview.depths.iter().map(depth).collect());
    text
}
