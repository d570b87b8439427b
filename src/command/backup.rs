//! `forebay backup`

use std::io::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Args;
use forebay::store::{BackupOptions, BackupProgress};

use super::bar::Bar;
use super::connected::{Access, StoreArguments};

/// Copy a store as it is at this moment, also while a process writes it
///
/// The copy is consistent at one position of the log, and on stable storage when the command ends. With --connect the server makes it
/// on its own machine, beneath the directory that `forebay serve --backup-dir` allows.
#[derive(Debug, Args)]
pub(super) struct BackupArguments {
    #[command(flatten)]
    store: StoreArguments,
    /// The directory of the copy: empty, or not there yet; of a server, relative to the one that it allows
    #[arg(long)]
    to: PathBuf,
    /// Versions of objects that were set and that no step names go along, too, as far as they lie on the disk
    #[arg(long)]
    set_objects: bool,
}

pub(super) fn run(arguments: &BackupArguments) -> Result<()> {
    ensure!(!arguments.to.as_os_str().is_empty(), "--to names no directory");
    let mut bar = Bar::new();
    let mut show = |progress: BackupProgress| {
        bar.show("copying", progress.done_bytes, progress.total_bytes);
        ControlFlow::Continue(())
    };
    let options = BackupOptions::default().set_objects(arguments.set_objects);
    let copied = arguments.store.open(Access::Reads)?.admin().backup(&arguments.to, options, &mut show)?;
    bar.end();
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
