//! `forebay admin peek`

use std::io::{BufWriter, Write, stdout};

use anyhow::{Result, ensure};
use clap::Args;
use forebay::query::{Format, Renderer};
use forebay::store::Peek;

use crate::command::connected::{Access, StoreArguments};

/// Look at a few rows of a table, whoever holds them
///
/// Nothing is claimed and nothing changes. For more than a few rows, and for questions, there is `forebay sql`.
#[derive(Debug, Args)]
pub(super) struct PeekArguments {
    #[command(flatten)]
    store: StoreArguments,
    /// The table
    table: String,
    /// Only these columns, with commas in between [default: all that are not lazy]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    columns: Option<Vec<String>>,
    /// How many rows at most, 1000 being the most
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    rows: usize,
    /// The rows that came last, the last one first, instead of those that came first
    #[arg(long)]
    newest: bool,
    /// Only rows that are ready for this consumer
    #[arg(long, value_name = "CONSUMER")]
    ready_for: Option<String>,
    /// How rows are shown: table, json or csv
    #[arg(long, default_value = "table")]
    format: Format,
}

pub(super) fn run(arguments: &PeekArguments) -> Result<()> {
    let format = arguments.format;
    ensure!(
        !format.is_binary(),
        "{format} is for many rows; give table, json or csv, or ask with `forebay sql`"
    );
    let peek = Peek {
        columns: arguments.columns.clone(),
        rows_max: arguments.rows,
        newest: arguments.newest,
        ready_for: arguments.ready_for.clone(),
    };
    let rows = arguments.store.open(Access::Reads)?.admin().peek(&arguments.table, &peek)?;
    let mut stdout = BufWriter::new(stdout());
    // None where nobody looks at a terminal; 0 where the terminal does not know.
    let width = comfy_table::Table::new().width().map(usize::from).filter(|width| *width > 0);
    let mut renderer = Renderer::new(format, &rows.schema(), &mut stdout, width)?;
    renderer.write(&rows)?;
    renderer.finish(false)?;
    Ok(stdout.flush()?)
}
