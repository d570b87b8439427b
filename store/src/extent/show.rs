//! What people see of extents.

use crate::shared::Shared;

/// One extent, as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExtentInfo {
    /// Its number, as in the name of its file.
    pub number: u32,
    /// Greater with each use of the file: by much with the first after an opening, else by one.
    pub generation: u32,
    /// Bytes of the disk that it takes.
    pub bytes: u64,
    /// Bytes of live values in it, without trailers and padding.
    pub live_bytes: u64,
    /// How many values live in it.
    pub live_values: u64,
    /// Nothing is written to it any more.
    pub sealed: bool,
}

impl Shared {
    /// Every extent that may hold something to read, in the order of their numbers.
    pub(crate) fn show_extents(&self) -> Vec<ExtentInfo> {
        let all = self.extents.all();
        let state = self.state.lock();
        let show = all.iter().map(|extent| {
            let (number, generation) = (extent.number(), extent.generation());
            let life = state.liveness.of((number, generation)).unwrap_or_default();
            ExtentInfo {
                number,
                generation,
                bytes: extent.reserved(),
                live_bytes: life.bytes,
                live_values: life.values,
                sealed: extent.is_sealed(),
            }
        });
        show.collect()
    }
}
