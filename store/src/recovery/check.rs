//! Looks whether what a record names is there: values and objects, by reading their files.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};

use crate::directory::Directory;
use crate::error::{Cause, Result as StoreResult};
use crate::extent::{self, StoredValues, View};
use crate::log::record::{ObjectRecord, Record};
use crate::log::{Refusal, SegmentFile};
use crate::object::{self, ObjectRef};
use crate::state::State;
use crate::verify::named_values;

/// Checks records against the files beside the log, and puts back values that records carry.
#[derive(Debug)]
pub(super) struct Check<'a> {
    directory: &'a Directory,
    values: StoredValues<'a>,
    writable: bool,
    put_back: u64,
    /// Values that nobody proved to be on stable storage, where what memory holds of them is in doubt.
    kept: Option<Vec<View>>,
    /// Objects that were read already: a version is named once for each policy that stands on it.
    objects: HashMap<ObjectRef, bool>,
}

impl<'a> Check<'a> {
    /// `in_doubt`: a sync failed, so what is kept is to be written again.
    pub(super) fn new(directory: &'a Directory, writable: bool, in_doubt: bool) -> Self {
        let values = StoredValues::new(directory);
        let kept = (writable && in_doubt).then(Vec::new);
        Check { directory, values, writable, put_back: 0, kept, objects: HashMap::new() }
    }

    /// How many values were missing and carried.
    pub(super) fn put_back(&self) -> u64 {
        self.put_back
    }

    /// Looks at one record. `doubted`: it lies above what was known to be durable.
    pub(super) fn record(&mut self, state: &State, record: &Record, doubted: bool) -> Result<(), Refusal> {
        let mut views = state.values_named(&record.event);
        if !record.carried.is_empty() {
            self.carried(views, &record.carried)?;
        } else if doubted {
            views.try_for_each(|view| self.values.check(view)).map_err(Refusal::Incomplete)?;
        }
        if doubted {
            record.event.objects().try_for_each(|named| self.object(named))?;
        }
        if let Some(kept) = self.kept.as_mut().filter(|_| doubted || !record.carried.is_empty()) {
            kept.extend(state.values_named(&record.event));
        }
        Ok(())
    }

    /// Extents without a sound header in which the state names nothing: they were being made when the machine went down.
    pub(super) fn unfinished(&self, state: &State) -> StoreResult<Vec<PathBuf>> {
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
    pub(super) fn write_again(&mut self, segments: &[SegmentFile]) -> StoreResult<()> {
        let Some(kept) = self.kept.take() else { return Ok(()) };
        let extents = self.directory.extents();
        let values = &mut self.values;
        kept.into_iter()
            .try_for_each(|view| values.write_again(view))
            .map_err(|e| Cause::io("write again", &extents, e))?;
        let objects = self.objects.iter().filter(|(_, is_there)| **is_there);
        let objects = objects.map(|(object, _)| object::path_of(self.directory, object));
        for path in objects.chain(segments.iter().map(|segment| segment.path.clone())) {
            write_file_again(self.directory, &path).map_err(|e| Cause::io("write again", &path, e))?;
        }
        Ok(())
    }

    fn carried(&mut self, views: impl Iterator<Item = View>, mut carried: &[u8]) -> Result<(), Refusal> {
        for view in views {
            let bytes = carried.split_off(..extent::stored_bytes(view));
            let bytes =
                bytes.ok_or_else(|| Refusal::Impossible("it carries less than it names".to_owned()))?;
            if self.values.holds(view, bytes) {
                continue;
            }
            self.put_back += 1;
            if self.writable {
                self.values.put_back(view, bytes).map_err(Refusal::Incomplete)?;
            }
        }
        if carried.is_empty() {
            return Ok(());
        }
        Err(Refusal::Impossible("it carries more than it names".to_owned()))
    }

    fn object(&mut self, named: &ObjectRecord) -> Result<(), Refusal> {
        let object = ObjectRef::from_record(named.clone());
        let directory = self.directory;
        let is_there =
            *self.objects.entry(object.clone()).or_insert_with(|| object::read(directory, &object).is_ok());
        if is_there {
            return Ok(());
        }
        let reason = format!(
            "version {} of object {:?}, which it names, is not there whole",
            named.version, named.key
        );
        Err(Refusal::Incomplete(reason))
    }
}

fn write_file_again(directory: &Directory, path: &Path) -> io::Result<()> {
    let file = directory.disk.open_writable(path)?;
    extent::write_again(&*file, 0, file.length()?)
}
