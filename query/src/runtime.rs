//! What the queries of a session share: the memory that they may take, and the files that they spill to.

use std::sync::Arc;

use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::prelude::SessionConfig;

use crate::error::{Cause, Result};
use crate::memory::SharedMemory;
use crate::options::Options;

/// The width of a row, values and all, that a sort can still spill, in bytes.
const ROW_BYTES: usize = 16 << 10;
/// Smaller batches cost more than they save.
const BATCH_ROWS_LEAST: usize = 64;

/// The memory pool and the spill files of a session.
///
pub(crate) fn runtime(options: &Options) -> Result<Arc<RuntimeEnv>> {
    let mode = match (&options.spill_dir, options.spill_bytes_max) {
        (_, 0) => DiskManagerMode::Disabled,
        (Some(directory), _) => DiskManagerMode::Directories(vec![directory.clone()]),
        (None, _) => DiskManagerMode::OsTmpDirectory,
    };
    let spill =
        DiskManagerBuilder::default().with_mode(mode).with_max_temp_directory_size(options.spill_bytes_max);
    RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(SharedMemory::new(options.memory_bytes_max)))
        .with_disk_manager_builder(spill)
        .build_arc()
        .map_err(|error| match &options.spill_dir {
            Some(directory) => {
                let (directory, reason) = (directory.clone(), error.message().into_owned());
                Cause::SpillDirectory { directory, reason }.into()
            }
            None => error.into(),
        })
}

/// Sets what the limits say of the engine's settings.
///
/// A merge finds its memory when it needs it (`memory`), so none is kept free for it before.
pub(crate) fn limited(mut config: SessionConfig, options: &Options) -> SessionConfig {
    config.options_mut().execution.sort_spill_reservation_bytes = 0;
    config.with_batch_size(options.batch_rows.min(rows(options.memory_bytes_max, 1)))
}

/// The rows of a batch where so many sorts share the memory.
///
/// A merge of what was spilled holds at least four batches. So where memory is scarce batches have less rows: as many as
/// fit four times if a row is as wide as `ROW_BYTES`.
pub(crate) fn rows(memory: usize, sorts: usize) -> usize {
    (memory / (4 * ROW_BYTES * sorts.max(1))).max(BATCH_ROWS_LEAST)
}
