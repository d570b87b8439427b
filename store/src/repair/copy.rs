//! The repaired copy while it is written.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use crate::backup::{Copying, copy_checkpoint, copy_file, copy_object, sync_directories};
use crate::directory::Directory;
use crate::durability::Durability;
use crate::error::{Cause, Result};
use crate::extent::{ExtentHeader, HEADER_BYTES};
use crate::log::record::Record;
use crate::log::{LogEnd, Writer};
use crate::object::{self, ObjectRef};
use crate::options::Options;
use crate::state::State;
use crate::sync::Mutex;
use crate::verify::named_values;

/// Records wait in memory until they are this many bytes.
const BUFFERED_BYTES_MAX: usize = 1 << 20;

pub(super) struct Copy<'a> {
    from: &'a Directory,
    /// The copy begins with the checkpoint.
    checkpoint: bool,
    directory: Arc<Directory>,
    log: Writer,
    last: Mutex<u64>,
}

impl<'a> Copy<'a> {
    /// Makes the directory, as a store of the same identity that holds the checkpoint which `next_sequence` goes on from.
    pub(super) fn begin(
        options: &Options,
        from: &'a Directory,
        to: &Path,
        next_sequence: u64,
    ) -> Result<Self> {
        let directory = Arc::new(Directory::create_as(to, options, from.store_id)?);
        let end = LogEnd { next_sequence, durable_through: next_sequence, ..LogEnd::default() };
        let log = Writer::new(directory.clone(), options.segment_bytes_max, &end);
        Ok(Copy { from, checkpoint: next_sequence > 0, directory, log, last: Mutex::new(0) })
    }

    pub(super) fn append(&self, record: &Record) -> Result<()> {
        let appended = self.log.append(record, true, Durability::Logged)?;
        *self.last.lock() = appended.sequence;
        if appended.buffered_bytes >= BUFFERED_BYTES_MAX { self.log.flush(appended.sequence) } else { Ok(()) }
    }

    /// Copies what the state names, and makes all of it stable.
    pub(super) fn finish(self, state: &State, lost: &HashSet<(String, u64)>) -> Result<()> {
        let disk = &*self.directory.disk;
        if self.checkpoint {
            copy_checkpoint(self.from, &self.directory.path)?;
        }
        let (values, _) = named_values(state);
        let extents: BTreeMap<u32, u32> =
            values.iter().map(|value| (value.extent, value.generation)).collect();
        for (extent, generation) in extents {
            let (from, to) = (self.from.extent_path(extent), self.directory.extent_path(extent));
            let length = copy_file(disk, &from, &to, None, &mut Copying::unwatched())?;
            self.mend_header(extent, generation, &to, length)?;
        }
        for policy in &state.policies {
            let there = |object: &&ObjectRef| !lost.contains(&(object.key.clone(), object.version));
            for object in policy.objects.iter().filter(there) {
                let folder = self.directory.objects().join(&object.key);
                disk.create_directory(&folder).map_err(|e| Cause::io("create", &folder, e))?;
                let path = |root: &Path| object::path_in(root, &object.key, object.version);
                let to = path(&self.directory.objects());
                if !disk.exists(&to) {
                    copy_object(disk, &path(&self.from.objects()), &to, &mut Copying::unwatched())?;
                }
            }
        }
        self.log.sync_all(&|_| Ok(()))?;
        sync_directories(disk, &self.directory.path)
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
