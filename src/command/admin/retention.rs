//! `forebay admin retention`

use std::io::Write;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use forebay::store::Retention;
use serde_json::json;

use crate::command::connected::StoreArguments;

/// Show or change which rows go by themselves
///
/// What is given is the whole rule, in place of the one that held. It holds until the server ends. Rows that somebody holds, or that
/// a rewind may need, never go by a rule; what has gone does not come back.
#[derive(Debug, Args)]
pub(super) struct RetentionArguments {
    #[command(flatten)]
    store: StoreArguments,
    /// Keep the rows of so many versions of each policy, the current one among them
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    versions: Option<u64>,
    /// Keep rows for so long after the step that trained on them, in seconds
    #[arg(long, value_name = "SECONDS")]
    consumed_for: Option<u64>,
    /// Keep everything
    #[arg(long, conflicts_with_all = ["versions", "consumed_for"])]
    all: bool,
    /// Prints one JSON object
    #[arg(long)]
    json: bool,
}

impl RetentionArguments {
    /// The rule that is asked for; none where one only looks.
    fn rule(&self) -> Option<Retention> {
        let asked = self.all || self.versions.is_some() || self.consumed_for.is_some();
        let rule = self.versions.into_iter().fold(Retention::default(), Retention::versions);
        let time = self.consumed_for.map(Duration::from_secs);
        asked.then(|| time.into_iter().fold(rule, Retention::consumed_for))
    }
}

pub(super) fn run(arguments: &RetentionArguments) -> Result<()> {
    let admin = arguments.store.served("rules of retention")?.admin();
    if let Some(rule) = arguments.rule() {
        admin.change_retention(rule)?;
    }
    let rule = admin.retention()?;
    let (versions, time) = (rule.versions_kept(), rule.consumed_kept_for().map(|time| time.as_secs_f64()));
    let mut stdout = std::io::stdout().lock();
    if arguments.json {
        writeln!(stdout, "{}", json!({ "versions": versions, "consumed_for_s": time }))?;
        return Ok(());
    }
    let versions = versions.map_or("all".to_owned(), |versions| versions.to_string());
    let time = time.map_or("for ever".to_owned(), |seconds| format!("for {seconds} s"));
    writeln!(stdout, "versions kept  {versions}\nconsumed rows  {time}")?;
    Ok(())
}
