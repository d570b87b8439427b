//! The repaired copy while it is written.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::backup::{Copying, copy_checkpoint, copy_file, copy_object, sync_directories};
use crate::directory::Directory;
use crate::durability::Durability;
use crate::error::{Cause, Result};
use crate::extent::{ExtentHeader, HEADER_BYTES, StoredValues, View};
use crate::log::record::Record;
use crate::log::{LogEnd, Writer};
use crate::options::Options;
use crate::state::State;
use crate::sync::Mutex;
use crate::unsynced::sync_all;
use crate::verify::{NamedValue, each_carried, named_values};

/// Records wait in memory until they are this many bytes.
const BUFFERED_BYTES_MAX: usize = 1 << 20;

pub(super) struct Copy<'a> {
    from: &'a Directory,
    /// The first record that the checkpoint does not hold with which the copy begins; 0 without one.
    next_sequence: u64,
    directory: Arc<Directory>,
    log: Writer,
    last: Mutex<u64>,
}

impl<'a> Copy<'a> {
    /// Makes the directory, for a store of the same identity that holds the checkpoint which `next_sequence` goes on from.
    pub(super) fn begin(
        options: &Options,
        from: &'a Directory,
        to: &Path,
        next_sequence: u64,
    ) -> Result<Self> {
        let directory = Arc::new(Directory::begin_as(to, options, from.store_id)?);
        let end = LogEnd { next_sequence, durable_through: next_sequence, ..LogEnd::default() };
        let log = Writer::new(directory.clone(), options.segment_bytes_max, &end, Arc::new(()));
        Ok(Copy { from, next_sequence, directory, log, last: Mutex::new(0) })
    }

    pub(super) fn append(&self, record: &Record) -> Result<()> {
        let appended = self.log.append(record, true, Durability::Logged)?;
        *self.last.lock() = appended.sequence;
        if appended.buffered_bytes >= BUFFERED_BYTES_MAX { self.log.flush(appended.sequence) } else { Ok(()) }
    }

    /// Copies what the state names, with those values that records carry and these objects, and makes all of it stable. The log says
    /// so, for whoever opens the copy in another run of the machine: it names what was damaged, too. The identity comes last.
    pub(super) fn finish(self, state: &State, carried: &[NamedValue], objects: &[PathBuf]) -> Result<()> {
        if self.next_sequence > 0 {
            copy_checkpoint(self.from, &self.directory.path)?;
        }
        self.copy_extents(state)?;
        self.put_back(state, carried)?;
        self.copy_objects(objects)?;
        self.log.sync_all(&|_| Ok(()))?;
        sync_directories(&*self.directory.disk, &self.directory.path)?;
        self.log.prove_durable()?.needed()?;
        self.directory.identify()
    }

    fn copy_extents(&self, state: &State) -> Result<()> {
        let disk = &*self.directory.disk;
        let (values, _) = named_values(state);
        let extents: BTreeMap<u32, u32> =
            values.iter().map(|value| (value.extent, value.generation)).collect();
        for (extent, generation) in extents {
            let (from, to) = (self.from.extent_path(extent), self.directory.extent_path(extent));
            let there = disk.open(&from).and_then(|file| file.length()).unwrap_or(0);
            if there < HEADER_BYTES as u64 {
                continue; // it holds no value: what is named in it is carried
            }
            let length = copy_file(disk, &from, &to, None, &mut Copying::unwatched())?;
            self.mend_header(extent, generation, &to, length)?;
        }
        Ok(())
    }

    /// Puts values into their files that these do not hold and that records carry.
    fn put_back(&self, state: &State, carried: &[NamedValue]) -> Result<()> {
        let mut wanted: HashSet<View> = carried.iter().map(NamedValue::view).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let (mut values, mut files) = (StoredValues::new(&self.directory), BTreeSet::new());
        each_carried(self.from, state, self.next_sequence, |view, bytes| {
            if wanted.remove(&view) {
                let path = self.directory.extent_path(view.extent());
                values.put_back(view, bytes).map_err(|e| Cause::io("put a value into", &path, e))?;
                files.insert(path);
            }
            Ok(())
        })?;
        sync_all(&*self.directory.disk, &files)
    }

    fn copy_objects(&self, files: &[PathBuf]) -> Result<()> {
        let disk = &*self.directory.disk;
        for from in files {
            let Ok(inside) = from.strip_prefix(self.from.objects()) else { continue };
            let to = self.directory.objects().join(inside);
            if let Some(folder) = to.parent() {
                disk.create_directory(folder).map_err(|e| Cause::io("create", folder, e))?;
            }
            copy_object(disk, from, &to, &mut Copying::unwatched())?;
        }
        Ok(())
    }

    /// A value is believed by its own trailer; the header of its file says nothing that its name and its views do not.
    fn mend_header(&self, number: u32, generation: u32, path: &Path, length: u64) -> Result<()> {
        let io = |e| Cause::io("write", path, e);
        let file = self.directory.disk.open_writable(path).map_err(io)?;
        let mut found = [0; HEADER_BYTES];
        file.read_at(&mut found, 0).map_err(io)?;
        let store_id = self.directory.store_id;
        let sound = |header: ExtentHeader| {
            (header.number, header.generation, header.store_id) == (number, generation, store_id)
        };
        if ExtentHeader::decode(&found).is_ok_and(sound) {
            return Ok(());
        }
        let header = ExtentHeader { number, generation, store_id, capacity: length };
        file.write_at(0, &header.encode()).map_err(io)?;
        file.sync().map_err(|e| io(e).into())
    }
}
