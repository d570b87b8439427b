//! The budgets that hold.

use crate::error::{Cause, Result};

/// The least memory that may be allowed.
const MEMORY_BYTES_LEAST: u64 = 1 << 20;

/// How much the store may take: see [`Options::memory_bytes_max`](crate::Options::memory_bytes_max) and
/// [`Options::disk_bytes_max`](crate::Options::disk_bytes_max).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budgets {
    /// Bytes of memory; none for no limit.
    pub memory_bytes_max: Option<u64>,
    /// Bytes of extents and log; none for no limit but the disk's.
    pub disk_bytes_max: Option<u64>,
}

impl Budgets {
    /// Refuses a budget under which nothing could ever be written. One below what is taken now is legal: writers wait.
    pub(crate) fn validate(self, extent_bytes_first: usize) -> Result<()> {
        let least = [
            ("memory_bytes_max", self.memory_bytes_max, MEMORY_BYTES_LEAST, "an empty store may need"),
            ("disk_bytes_max", self.disk_bytes_max, extent_bytes_first as u64, "the first extent takes"),
        ];
        for (what, bytes, least, why) in least {
            if let Some(bytes) = bytes.filter(|bytes| *bytes < least) {
                let reason = format!("{bytes} bytes are less than {why}; allow {least} at least");
                return Err(Cause::Argument { what, reason }.into());
            }
        }
        Ok(())
    }
}
