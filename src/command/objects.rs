//! How `forebay serve` keeps objects in memory.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use forebay::store::{HostFolder, ObjectOptions};

/// Memory for objects (`docs/objects.md`). What is not said is as the store has it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Objects")]
pub(super) struct ObjectArguments {
    /// The most shared memory for objects, mapped once and kept [default: 17179869184]
    #[arg(long, value_name = "BYTES")]
    host_bytes_max: Option<u64>,
    /// The most memory beyond that, which ends with this process [default: 4294967296]
    #[arg(long, value_name = "BYTES")]
    pageable_bytes_max: Option<u64>,
    /// Where that shared memory lies, a folder of a file system in memory [default: of its own in /dev/shm]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    host_folder: Option<PathBuf>,
    /// How many of the newest versions of an object are kept [default: 2]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    host_versions_kept: Option<u32>,
}

impl ObjectArguments {
    pub(super) fn options(&self) -> ObjectOptions {
        let options = ObjectOptions::default();
        let options = self.host_bytes_max.into_iter().fold(options, ObjectOptions::host_bytes_max);
        let options = self.pageable_bytes_max.into_iter().fold(options, ObjectOptions::pageable_bytes_max);
        let folder = self.host_folder.iter().cloned().map(HostFolder::At);
        let options = folder.fold(options, ObjectOptions::host_folder);
        let kept = self.host_versions_kept.map(|versions| versions as usize);
        kept.into_iter().fold(options, ObjectOptions::versions_kept)
    }
}
