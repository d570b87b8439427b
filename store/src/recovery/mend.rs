//! Puts in order what a crash left beside the log, as far as the log is followed.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use super::check::{Kept, split_carried};
use crate::directory::Directory;
use crate::error::{Cause, Result};
use crate::extent::{self, StoredValues, View};
use crate::log::record::Record;
use crate::log::{Refusal, SegmentFile};
use crate::object;
use crate::state::State;
use crate::verify::named_values;

/// Puts values back that records carry, and writes again what is in doubt.
#[derive(Debug)]
pub(super) struct Mend<'a> {
    directory: &'a Directory,
    values: StoredValues<'a>,
    writable: bool,
    put_back: u64,
    kept: Kept,
}

impl<'a> Mend<'a> {
    pub(super) fn new(directory: &'a Directory, writable: bool, kept: Kept) -> Self {
        Mend { directory, values: StoredValues::new(directory), writable, put_back: 0, kept }
    }

    /// How many values were missing and carried.
    pub(super) fn put_back(&self) -> u64 {
        self.put_back
    }

    /// Puts back what one record carries. What lay in an earlier generation than the last that the log names is dead: bytes
    /// of the last may lie in its place, whatever the file's header says.
    pub(super) fn record(&mut self, state: &State, record: &Record) -> std::result::Result<(), Refusal> {
        let mut carried = &record.carried[..];
        if carried.is_empty() {
            return Ok(());
        }
        for view in state.values_named(&record.event) {
            let bytes = split_carried(view, &mut carried)?;
            self.carried(view, bytes).map_err(|error| {
                let path = self.directory.extent_path(view.extent());
                Refusal::Failed(Cause::io("put a value back into", path, error).into())
            })?;
        }
        Ok(())
    }

    fn carried(&mut self, view: View, bytes: &[u8]) -> io::Result<()> {
        let values = &mut self.values;
        if self.kept.is_over(view) || values.used_again(view)?.is_some() || values.holds(view, bytes)? {
            return Ok(());
        }
        self.put_back += 1;
        if self.writable { values.put_back(view, bytes) } else { Ok(()) }
    }

    /// Extents without a sound header in which the state names nothing: they were being made when the machine went down.
    pub(super) fn unfinished(&self, state: &State) -> Result<Vec<PathBuf>> {
        let extents = self.directory.extents();
        let mut found = self.values.without_header().map_err(|e| Cause::io("read", &extents, e))?;
        if !found.is_empty() {
            let named: HashSet<u32> = named_values(state).0.iter().map(|value| value.extent).collect();
            found.retain(|(number, _)| !named.contains(number));
        }
        Ok(found.into_iter().map(|(_, path)| path).collect())
    }

    /// Writes what was kept as it was read: a sync that failed may have left the kernel taking for written what the disk does
    /// not have, and then another sync alone would bring nothing there.
    pub(super) fn write_again(&mut self, segments: &[SegmentFile]) -> Result<()> {
        if !self.directory.is_in_doubt() {
            return Ok(());
        }
        let kept = std::mem::take(&mut self.kept);
        let extents = self.directory.extents();
        let values = &mut self.values;
        let mut alive = kept.values.iter().filter(|view| !kept.is_over(**view));
        alive
            .try_for_each(|view| values.write_again(*view))
            .map_err(|e| Cause::io("write again", &extents, e))?;
        let objects = kept.objects.iter().map(|object| object::path_of(self.directory, object));
        for path in objects.chain(segments.iter().map(|segment| segment.path.clone())) {
            write_file_again(self.directory, &path).map_err(|e| Cause::io("write again", &path, e))?;
        }
        Ok(())
    }
}

fn write_file_again(directory: &Directory, path: &Path) -> io::Result<()> {
    let file = directory.disk.open_writable(path)?;
    extent::write_again(&*file, 0, file.length()?)
}
