//! What was found lately, by hash: what is asked for comes again soon (rows of a group, an agent's name), and is then
//! found without a walk through tables and runs.

/// How many hashes are remembered; a later one of the same place takes it.
const PLACES: usize = 64;

/// Numbers by hash. A number that is remembered may have any key of that place: the owner compares.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memo([u32; PLACES]);

impl Default for Memo {
    fn default() -> Self {
        Memo([u32::MAX; PLACES])
    }
}

impl Memo {
    /// The number that a hash of this place was last found to have.
    pub(crate) fn recall(&self, hash: u64) -> Option<u32> {
        Some(self.0[hash as usize % PLACES]).filter(|number| *number != u32::MAX)
    }

    pub(crate) fn remember(&mut self, hash: u64, number: u32) {
        self.0[hash as usize % PLACES] = number;
    }
}
