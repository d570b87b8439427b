//! `forebay admin evict`

use std::io::Write;

use anyhow::{Context, Result};
use clap::Args;
use forebay::store::{Row, SampleId};

use crate::command::connected::{Access, StoreArguments};

/// Leave rows out for good, with a reason that people will see
///
/// All of them or none. The reason is counted in the table's numbers and shown in its column `excluded_reason`.
#[derive(Debug, Args)]
pub(super) struct EvictArguments {
    #[command(flatten)]
    store: StoreArguments,
    /// The table
    table: String,
    /// The sample ids of the rows
    #[arg(required = true)]
    samples: Vec<String>,
    /// The policy version of the rows
    #[arg(long, value_name = "VERSION")]
    policy_version: u64,
    /// Why: a word or a few
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

pub(super) fn run(arguments: &EvictArguments) -> Result<()> {
    let EvictArguments { store, table, samples, policy_version, reason } = arguments;
    let client = store.open(Access::Writes)?;
    let of = client.table(table)?;
    let find = |text: &String| -> Result<Row> {
        let sample: SampleId = text.parse()?;
        let missing = || {
            format!(
                "table {table:?} has no row {text:?} of policy version {policy_version}; nothing was evicted"
            )
        };
        of.find(*policy_version, &sample)?.with_context(missing)
    };
    let rows: Vec<Row> = samples.iter().map(find).collect::<Result<_>>()?;
    client.admin().evict(table, &rows, reason)?;
    writeln!(std::io::stdout(), "{} rows of {table:?} are left out as {reason:?}", rows.len())?;
    Ok(())
}
