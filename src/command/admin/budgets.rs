//! `forebay admin budgets`

use std::io::Write;

use anyhow::Result;
use clap::Args;
use forebay::store::{BudgetChange, Budgets};
use serde_json::json;

use super::size::{Limit, shown};
use crate::command::connected::StoreArguments;

/// Show or change how much memory and disk the store may take
///
/// A change holds until the server ends; writers who wait for room look at once. A budget below what is taken drops nothing:
/// writers wait.
#[derive(Debug, Args)]
pub(super) struct BudgetsArguments {
    #[command(flatten)]
    store: StoreArguments,
    /// The most memory, such as 4GiB, or `none`
    #[arg(long, value_name = "SIZE")]
    memory: Option<Limit>,
    /// The most that extents and log may take on the disk, such as 200GiB, or `none`
    #[arg(long, value_name = "SIZE")]
    disk: Option<Limit>,
    /// Prints one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &BudgetsArguments) -> Result<()> {
    let change = BudgetChange {
        memory_bytes_max: arguments.memory.map(|limit| limit.0),
        disk_bytes_max: arguments.disk.map(|limit| limit.0),
    };
    let client = arguments.store.served("budgets")?;
    let Budgets { memory_bytes_max, disk_bytes_max } = client.admin().change_budgets(&change)?;
    let mut stdout = std::io::stdout().lock();
    if arguments.json {
        let budgets = json!({ "memory_bytes_max": memory_bytes_max, "disk_bytes_max": disk_bytes_max });
        writeln!(stdout, "{budgets}")?;
    } else {
        writeln!(stdout, "memory  {}\ndisk    {}", shown(memory_bytes_max), shown(disk_bytes_max))?;
    }
    Ok(())
}
