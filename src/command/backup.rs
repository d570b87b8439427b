//! `forebay backup`

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use forebay::store::Store;

/// Copy a store as it is at this moment, also while a process writes it
///
/// The copy is consistent at one position of the log, and on stable storage when the command ends.
#[derive(Debug, Args)]
pub(super) struct BackupArguments {
    /// The store's directory
    #[arg(long)]
    dir: PathBuf,
    /// The directory of the copy: empty, or not there yet
    #[arg(long)]
    to: PathBuf,
}

pub(super) fn run(arguments: &BackupArguments) -> Result<()> {
    let copied = Store::open_read_only(&arguments.dir)?.backup(&arguments.to)?;
    writeln!(
        std::io::stdout(),
        "{} records, {} extents, {} objects, {} bytes in {}",
        copied.records,
        copied.extents,
        copied.objects,
        copied.bytes,
        copied.to.display()
    )?;
    Ok(())
}
