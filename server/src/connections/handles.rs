//! File handles: a connection takes one, and so does a file of the store.
//!
//! Without a handle the store cannot write, so connections of all doors together leave it some, whatever each door may have.

use std::sync::Arc;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::Semaphore;

/// The least that is left to the store, its clients' memory and the archive, where the limit has as much.
const RESERVE_LEAST: u64 = 256;

/// Raises this process's limit of open files as far as it may. What it is then; none for no limit.
///
/// # Errors
/// What the system says; the limit is as it was.
pub fn raise_handles() -> std::io::Result<Option<u64>> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    Ok(maximum)
}

/// How many connections there may be where so many files may be open: three quarters of them, or all but the reserve where
/// that is less, and never less than half.
fn places_of(handles: u64) -> u64 {
    (handles - handles / 4).min(handles.saturating_sub(RESERVE_LEAST)).max(handles / 2)
}

/// The connections that all doors of a server may have together.
#[derive(Clone, Debug)]
pub(crate) struct Handles(pub(super) Arc<Semaphore>);

impl Handles {
    /// What this process's limit of open files leaves, for doors that would have so many. A smaller number is told of.
    pub(crate) fn left_for(wanted: usize) -> Self {
        let limit = getrlimit(Resource::Nofile).current;
        let places = limit.map_or(wanted, |handles| usize::try_from(places_of(handles)).unwrap_or(wanted));
        if places < wanted {
            tracing::info!(
                places,
                wanted,
                limit,
                "this process may not open enough files for as many connections as the doors would take; raise its limit \
                 (`ulimit -n`, `LimitNOFILE=`)"
            );
        }
        Handles(Arc::new(Semaphore::new(places.min(wanted).min(Semaphore::MAX_PERMITS))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_store_has_its_share_of_every_limit() {
        for (handles, places) in
            [(1_048_576, 786_432), (1_024, 768), (600, 344), (512, 256), (256, 128), (64, 32)]
        {
            assert_eq!(places_of(handles), places, "{handles}");
        }
    }
}
