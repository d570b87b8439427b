//! `forebay sql`

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use forebay::query::{Format, Session};
use forebay::store::{Options, Store};

/// Ask a store, with SQL
///
/// Every agent is a table; `SHOW TABLES` lists them and `DESCRIBE solver` shows columns. Claims, steps and policies are
/// in `system.claims`, `system.steps` and `system.policies`. The store is opened for reading only, also beside a process
/// that writes it.
#[derive(Debug, Args)]
pub(super) struct SqlArguments {
    /// The statement
    statement: String,
    /// The store's directory
    #[arg(long)]
    dir: PathBuf,
    /// How the answer is printed: table, json or csv
    #[arg(long, default_value_t = Format::Table)]
    format: Format,
}

pub(super) fn run(arguments: &SqlArguments) -> Result<()> {
    let store = Store::open(&arguments.dir, Options::default().read_only(true))?;
    let answer = Session::new(&store)?.sql_blocking(&arguments.statement)?;
    let width = comfy_table::Table::new().width().map(usize::from); // none where nobody looks at a terminal
    answer.render(arguments.format, &mut std::io::stdout().lock(), width)?;
    Ok(())
}
