//! Rows that were asked for and could not be measured.

use forebay::DeviceTierError;
use forebay::trainer::Error;
use forebay::trainer::device::cuda::CudaError;

/// Why rows of a device were not measured.
#[derive(Debug, thiserror::Error)]
pub enum NotRun {
    /// There is no driver, or no GPU.
    #[error("the rows of {device} have not run, there is no such device: {source}")]
    NoDevice {
        /// As it was asked for.
        device: String,
        /// What was looked for and not found.
        source: CudaError,
    },
    /// There are GPUs, and fewer.
    #[error(
        "the rows of {device} have not run, this process sees {found} GPUs: give one of them, or widen CUDA_VISIBLE_DEVICES"
    )]
    NoSuch {
        /// As it was asked for.
        device: String,
        /// How many there are.
        found: usize,
    },
    /// There is not the memory.
    #[error("the rows of a state of {bytes} bytes have not run, the device has no room for it: {source}")]
    NoRoom {
        /// What was wanted.
        bytes: u64,
        /// What the device said.
        source: Error,
    },
    /// The state could not be moved.
    #[error("the rows of a state of {bytes} bytes have not run, it could not be set or got: {source}")]
    NotMoved {
        /// What was wanted.
        bytes: u64,
        /// What was said.
        source: DeviceTierError,
    },
}

impl NotRun {
    /// One line of JSON.
    pub fn json(&self) -> String {
        format!("{{\"not_run\": {:?}}}", self.to_string())
    }
}
