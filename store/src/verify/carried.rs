//! Values that records carry: where their files do not hold them, opening puts them back, and so does a repair in its copy.

use std::collections::HashSet;
use std::ops::ControlFlow;

use super::named::NamedValue;
use crate::checksum::crc32c;
use crate::directory::Directory;
use crate::error::Result;
use crate::extent::{Place, TRAILER_BYTES, Trailer, View};
use crate::log::record::Record;
use crate::log::{self, Found};
use crate::recovery::{is_of_this_run, split_carried};
use crate::state::State;

/// What the log carries of the values that a state names.
pub(super) struct Carried<'a> {
    pub(super) directory: &'a Directory,
    pub(super) state: &'a State,
    /// The first record that counts.
    from: u64,
    /// Whether somebody is going to put back what is carried.
    is_put_back: bool,
    /// Found out once the first value is missed: sixteen bytes for each that is carried.
    found: Option<HashSet<View>>,
}

impl<'a> Carried<'a> {
    /// For whoever says what opening the store would come to: it looks where another run of the machine wrote the log, or a sync
    /// has failed.
    pub(super) fn by_opening(directory: &'a Directory, state: &'a State, from: u64) -> Self {
        let is_put_back =
            log::segments(directory).is_ok_and(|segments| !is_of_this_run(directory, &segments));
        Carried { directory, state, from, is_put_back, found: None }
    }

    /// For a repair.
    pub(super) fn by_repair(directory: &'a Directory, state: &'a State, from: u64) -> Self {
        Carried { directory, state, from, is_put_back: true, found: None }
    }

    /// Whether a value is carried and is going to be put back.
    pub(super) fn has(&mut self, value: &NamedValue) -> Result<bool> {
        Ok(self.is_put_back && self.found()?.contains(&value.view()))
    }

    /// Whether a value in that place is: then the header of its file is written anew with it.
    pub(super) fn has_in(&mut self, place: Place) -> Result<bool> {
        Ok(self.is_put_back && self.found()?.iter().any(|view| view.place() == place))
    }

    fn found(&mut self) -> Result<&HashSet<View>> {
        if self.found.is_none() {
            let mut found = HashSet::new();
            each_carried(self.directory, self.state, self.from, |view, _| {
                found.insert(view);
                Ok(())
            })?;
            self.found = Some(found);
        }
        Ok(self.found.get_or_insert_default())
    }
}

/// Gives every value that records from `from` on carry, with the zeros and the trailer that follow it. One that does not match its
/// trailer is passed over.
pub(crate) fn each_carried(
    directory: &Directory,
    state: &State,
    from: u64,
    mut take: impl FnMut(View, &[u8]) -> Result<()>,
) -> Result<()> {
    let store_id = Some(directory.store_id).filter(|id| *id != 0);
    let mut outcome = Ok(());
    log::scan_from(&*directory.disk, &directory.log(), (store_id, from), |_, found| {
        if let Found::Record { sequence, record, .. } = found
            && sequence >= from
        {
            outcome = each_of(&record, state, &mut take);
        }
        if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    outcome
}

/// The state is a later one than the record was written on: columns keep their places and their types.
fn each_of(record: &Record, state: &State, take: &mut impl FnMut(View, &[u8]) -> Result<()>) -> Result<()> {
    let mut carried = &record.carried[..];
    if carried.is_empty() {
        return Ok(());
    }
    for view in state.values_named(&record.event) {
        let Ok(bytes) = split_carried(view, &mut carried) else { break };
        if is_whole(view, bytes) {
            take(view, bytes)?;
        }
    }
    Ok(())
}

fn is_whole(view: View, stored: &[u8]) -> bool {
    let trailer = stored.last_chunk::<TRAILER_BYTES>();
    let Some(trailer) = trailer.and_then(|bytes| Trailer::decode(bytes, view.extent())) else { return false };
    trailer.is_of(view) && stored.get(..view.length()).is_some_and(|bytes| crc32c(bytes) == trailer.crc32c)
}
