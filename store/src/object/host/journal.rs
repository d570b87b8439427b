//! Which objects lie where in the segments: what a crash of the process leaves of the host tier.
//!
//! ```text
//! length u32 | crc32c of the body u32 | body: one record as JSON
//! ```
//! A record is whole or is not there; reading ends before the first that is not. All members of a commit are one record, so
//! they are there together or not at all. It is written anew, with only what counts, when it is opened and when most of it is
//! over; where there is no room for that it goes on as it is. Nothing is synced: the folder ends with the boot, as segments do.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::object::layout::Layout;
use crate::object::manifest::{Manifest, ManifestRecord};
use crate::object::{Dtype, LayoutBuilder};

/// From this size on it is written anew once most of it is over.
const BYTES_MIN: u64 = 1 << 20;

/// A committed object, and where its payloads lie: segment and offset of each.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) manifest: ManifestRecord,
    pub(crate) places: Vec<(u32, u64)>,
    /// Whether it goes with the first who receives it.
    pub(crate) once: bool,
}

#[derive(Debug, Serialize, Deserialize)]
enum Record {
    /// Class, name, type and dimensions of every tensor.
    Layout {
        fingerprint: u64,
        tensors: Vec<(String, String, String, Vec<u64>)>,
    },
    Committed(Vec<Entry>),
    Dropped {
        key: String,
        version: u64,
    },
    /// The greatest version that a key ever had.
    Last {
        key: String,
        version: u64,
    },
    /// Nobody is to find the version any more, whatever is left of it.
    Deleted {
        key: String,
        version: u64,
    },
}

/// What an earlier process left.
#[derive(Debug, Default)]
pub(crate) struct Recovered {
    pub(crate) objects: Vec<(Manifest, Entry)>,
    pub(crate) last: BTreeMap<String, u64>,
    /// Versions that were deleted and that somebody held, or whose files were there, when that was last written down.
    pub(crate) deleted: BTreeSet<(String, u64)>,
    /// How many bytes of the journal are whole records.
    bytes: u64,
}

impl Recovered {
    fn state(&self) -> Kept<'_, impl Iterator<Item = (&Layout, &Entry)>> {
        let objects = self.objects.iter().map(|(manifest, entry)| (&manifest.layout, entry));
        Kept { objects, last: &self.last, deleted: &self.deleted }
    }
}

/// What a journal that is written anew says.
#[derive(Debug)]
pub(crate) struct Kept<'a, O> {
    pub(crate) objects: O,
    pub(crate) last: &'a BTreeMap<String, u64>,
    pub(crate) deleted: &'a BTreeSet<(String, u64)>,
}

/// The open journal; one thread at a time writes it, under the catalog's lock.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    bytes: u64,
    /// How large it was when it was written anew.
    live_bytes: u64,
    layouts: HashSet<u64>,
    /// Part of a record stands behind the last whole one, and could not be cut off.
    torn: bool,
}

impl Journal {
    /// Opens it, and gives what it says.
    pub(crate) fn open(folder: &Path) -> io::Result<(Self, Recovered)> {
        let path = folder.join("journal");
        let recovered = match fs::read(&path) {
            Ok(bytes) => replay(&bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Recovered::default(),
            Err(error) => return Err(error),
        };
        let journal = Journal::write_anew(&path, recovered.state()).or_else(|error| {
            tracing::warn!(%error, "the journal of the host tier could not be written anew: it goes on as it is");
            Journal::go_on(&path, &recovered)
        })?;
        Ok((journal, recovered))
    }

    /// Appends to the journal that is there, behind its last whole record.
    fn go_on(path: &Path, recovered: &Recovered) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).open(path)?;
        file.set_len(recovered.bytes)?;
        let (path, bytes) = (path.to_owned(), recovered.bytes);
        // Which layouts stand there is not asked: one that comes again stands there twice.
        Ok(Journal { path, file, bytes, live_bytes: bytes, layouts: HashSet::new(), torn: false })
    }

    fn write_anew<'a>(
        path: &Path,
        kept: Kept<'_, impl Iterator<Item = (&'a Layout, &'a Entry)>>,
    ) -> io::Result<Self> {
        let temporary = path.with_extension("tmp");
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let written = Journal::write_to(path, &temporary, kept);
        if written.is_err() {
            let _ = fs::remove_file(&temporary); // the room is wanted
        }
        written
    }

    fn write_to<'a>(
        path: &Path,
        temporary: &Path,
        kept: Kept<'_, impl Iterator<Item = (&'a Layout, &'a Entry)>>,
    ) -> io::Result<Self> {
        let file = OpenOptions::new().create_new(true).append(true).open(temporary)?;
        let path = path.to_owned();
        let mut journal =
            Journal { path, file, bytes: 0, live_bytes: 0, layouts: HashSet::new(), torn: false };
        for (key, version) in kept.last {
            journal.use_number(key, *version)?;
        }
        for (layout, entry) in kept.objects {
            journal.commit(&[(layout, entry.clone())])?;
        }
        for (key, version) in kept.deleted {
            journal.delete_version(key, *version)?;
        }
        fs::rename(temporary, &journal.path)?;
        journal.live_bytes = journal.bytes;
        Ok(journal)
    }

    /// Whether it is time to write it anew.
    pub(crate) fn is_mostly_over(&self) -> bool {
        self.bytes > BYTES_MIN && self.bytes > 4 * self.live_bytes
    }

    /// Writes it anew with what counts.
    pub(crate) fn compact<'a>(
        &mut self,
        kept: Kept<'_, impl Iterator<Item = (&'a Layout, &'a Entry)>>,
    ) -> io::Result<()> {
        *self = Journal::write_anew(&self.path, kept)?;
        Ok(())
    }

    /// Says that objects were committed, all at once.
    pub(crate) fn commit(&mut self, members: &[(&Layout, Entry)]) -> io::Result<()> {
        for (layout, _) in members {
            if !self.layouts.contains(&layout.fingerprint()) {
                self.append(&layout_record(layout))?;
                self.layouts.insert(layout.fingerprint()); // not before it stands there: entries lean on it
            }
        }
        self.append(&Record::Committed(members.iter().map(|(_, entry)| entry.clone()).collect()))
    }

    /// Says that a version is not in the host tier any more.
    pub(crate) fn drop_version(&mut self, key: &str, version: u64) -> io::Result<()> {
        self.append(&Record::Dropped { key: key.to_owned(), version })
    }

    /// Says that nobody is to find a version any more.
    pub(crate) fn delete_version(&mut self, key: &str, version: u64) -> io::Result<()> {
        self.append(&Record::Deleted { key: key.to_owned(), version })
    }

    /// Says that a number was used by a version that the host tier does not keep.
    pub(crate) fn use_number(&mut self, key: &str, version: u64) -> io::Result<()> {
        self.append(&Record::Last { key: key.to_owned(), version })
    }

    /// Removes it: nothing that it says is to be believed any more.
    pub(crate) fn remove(self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::error!(path = %self.path.display(), %error, "a journal that is wrong could not be removed");
        }
    }

    /// From here on it is as if there were no room for another byte.
    #[cfg(test)]
    pub(crate) fn fill(&mut self) -> File {
        let full = OpenOptions::new().append(true).open("/dev/full").unwrap();
        fs::create_dir(self.path.with_extension("tmp")).unwrap(); // it cannot be written anew either
        std::mem::replace(&mut self.file, full)
    }

    /// There is room again.
    #[cfg(test)]
    pub(crate) fn mend(&mut self, file: File) {
        fs::remove_dir(self.path.with_extension("tmp")).unwrap();
        self.file = file;
    }

    fn append(&mut self, record: &Record) -> io::Result<()> {
        let body = serde_json::to_vec(record)?;
        let length = u32::try_from(body.len()).map_err(io::Error::other)?;
        let mut frame = Vec::with_capacity(8 + body.len());
        frame.extend_from_slice(&length.to_le_bytes());
        frame.extend_from_slice(&crc32c::crc32c(&body).to_le_bytes());
        frame.extend_from_slice(&body);
        if self.torn {
            self.file.set_len(self.bytes)?;
            self.torn = false;
        }
        if let Err(error) = self.file.write_all(&frame) {
            // A part of a record would hide those that come after it.
            self.torn = self.file.set_len(self.bytes).is_err();
            return Err(error);
        }
        self.bytes += frame.len() as u64;
        Ok(())
    }
}

fn layout_record(layout: &Layout) -> Record {
    let class = |payload: usize| layout.payloads()[payload].class.clone();
    let tensors = layout.tensors().iter().map(|tensor| {
        (class(tensor.payload), tensor.name.clone(), tensor.dtype.name().to_owned(), tensor.shape.clone())
    });
    Record::Layout { fingerprint: layout.fingerprint(), tensors: tensors.collect() }
}

fn layout_of(tensors: Vec<(String, String, String, Vec<u64>)>) -> Option<Layout> {
    let mut builder = LayoutBuilder::default();
    for (class, name, dtype, shape) in tensors {
        builder = builder.tensor(&class, &name, Dtype::named(&dtype)?, &shape);
    }
    builder.build().ok()
}

/// The records up to the first that is not whole, and how many bytes are left behind each.
fn records(mut bytes: &[u8]) -> impl Iterator<Item = (Record, usize)> {
    std::iter::from_fn(move || {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let (crc, rest) = rest.split_first_chunk::<4>()?;
        let body = rest.get(..u32::from_le_bytes(*length) as usize)?;
        bytes = &rest[body.len()..];
        let whole = crc32c::crc32c(body) == u32::from_le_bytes(*crc);
        let record = whole.then(|| serde_json::from_slice(body).ok()).flatten()?;
        Some((record, bytes.len()))
    })
}

fn replay(bytes: &[u8]) -> Recovered {
    let mut layouts: HashMap<u64, Layout> = HashMap::new();
    let mut live: BTreeMap<(String, u64), Entry> = BTreeMap::new();
    let mut last: BTreeMap<String, u64> = BTreeMap::new();
    let mut deleted: BTreeSet<(String, u64)> = BTreeSet::new();
    let mut whole_bytes = 0;
    let mut rises = |key: &str, version: u64| {
        let greatest = last.entry(key.to_owned()).or_default();
        *greatest = version.max(*greatest);
    };
    for (record, left) in records(bytes) {
        whole_bytes = bytes.len() - left;
        match record {
            Record::Layout { fingerprint, tensors } => {
                layouts.extend(layout_of(tensors).map(|layout| (fingerprint, layout)));
            }
            Record::Committed(entries) => {
                for entry in entries {
                    let (key, version) = (entry.manifest.key.clone(), entry.manifest.version);
                    rises(&key, version);
                    live.insert((key, version), entry);
                }
            }
            Record::Dropped { key, version } => _ = live.remove(&(key, version)),
            Record::Last { key, version } => rises(&key, version),
            Record::Deleted { key, version } => {
                rises(&key, version);
                deleted.insert((key, version));
            }
        }
    }
    let objects = live.into_values().filter_map(|entry| {
        let (key, version) = (entry.manifest.key.clone(), entry.manifest.version);
        let found = manifest_of(entry, &layouts);
        if found.is_none() {
            tracing::error!(
                key,
                version,
                "an object in the host tier is lost: the journal does not say what it is"
            );
        }
        found
    });
    Recovered { objects: objects.collect(), last, deleted, bytes: whole_bytes as u64 }
}

fn manifest_of(entry: Entry, layouts: &HashMap<u64, Layout>) -> Option<(Manifest, Entry)> {
    let layout = layouts.get(&entry.manifest.fingerprint)?.clone();
    let manifest = entry.manifest.clone().with(layout).ok()?;
    (manifest.layout.payloads().len() == entry.places.len()).then_some((manifest, entry))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;

    fn object(key: &str, version: u64) -> (Layout, Entry) {
        let layout = Layout::builder().tensor("weights", "a", Dtype::U8, &[5]).build().unwrap();
        let manifest = Manifest {
            key: key.into(),
            version,
            layout: layout.clone(),
            checksums: vec![vec![9]],
            metadata: BTreeMap::new(),
            created_at: Timestamp(1),
        };
        (layout, Entry { manifest: ManifestRecord::of(&manifest), places: vec![(1, 4096)], once: false })
    }

    fn named(recovered: &Recovered) -> Vec<(&str, u64)> {
        recovered.objects.iter().map(|(manifest, _)| (&*manifest.key, manifest.version)).collect()
    }

    #[test]
    fn members_of_a_commit_are_there_together_wherever_the_journal_was_cut() {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, _) = Journal::open(folder.path()).unwrap();
        let members = ["a", "b"].map(|key| object(key, 3));
        journal.commit(&members.each_ref().map(|(layout, entry)| (layout, entry.clone()))).unwrap();
        let (layout, entry) = object("c", 1);
        journal.commit(&[(&layout, entry)]).unwrap();
        journal.drop_version("c", 1).unwrap();
        let bytes = fs::read(folder.path().join("journal")).unwrap();
        let mut seen = HashSet::new();
        for cut in 0..=bytes.len() {
            let recovered = replay(&bytes[..cut]);
            let found = named(&recovered);
            assert!(
                [vec![], vec![("a", 3), ("b", 3)], vec![("a", 3), ("b", 3), ("c", 1)]].contains(&found),
                "{cut}"
            );
            seen.insert(found.len());
        }
        assert_eq!(seen.len(), 3);
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1;
            let found = replay(&bytes);
            assert!(found.objects.len() != 1, "half a commit, with byte {at} changed");
        }
        let (_, again) = Journal::open(folder.path()).unwrap();
        assert_eq!(
            (named(&again), again.last["c"]),
            (vec![("a", 3), ("b", 3)], 1),
            "and its number is not used again"
        );
    }

    #[test]
    fn a_journal_that_was_full_says_what_comes_after_it() {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, _) = Journal::open(folder.path()).unwrap();
        let (layout, entry) = object("a", 1);
        let file = journal.fill();
        assert_eq!(
            journal.commit(&[(&layout, entry.clone())]).unwrap_err().kind(),
            io::ErrorKind::StorageFull
        );
        journal.mend(file);
        journal.commit(&[(&layout, entry)]).unwrap();
        let (_, again) = Journal::open(folder.path()).unwrap();
        assert_eq!(named(&again), [("a", 1)], "with its layout");
    }

    #[test]
    fn a_journal_that_cannot_be_written_anew_goes_on_behind_its_last_whole_record() {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, _) = Journal::open(folder.path()).unwrap();
        let (layout, entry) = object("a", 1);
        journal.commit(&[(&layout, entry)]).unwrap();
        journal.delete_version("b", 7).unwrap();
        let path = folder.path().join("journal");
        let whole = fs::read(&path).unwrap();
        fs::write(&path, [&whole[..], &whole[..11]].concat()).unwrap();
        fs::create_dir(path.with_extension("tmp")).unwrap();
        let (mut journal, recovered) = Journal::open(folder.path()).unwrap();
        assert_eq!(named(&recovered), [("a", 1)]);
        let (layout, entry) = object("a", 2);
        journal.commit(&[(&layout, entry)]).unwrap();
        for _ in 0..2 {
            let (_, again) = Journal::open(folder.path()).unwrap();
            assert_eq!((named(&again), again.last["b"]), (vec![("a", 1), ("a", 2)], 7));
            assert_eq!(again.deleted, BTreeSet::from([("b".to_owned(), 7)]));
            let _ = fs::remove_dir(path.with_extension("tmp")); // now it can
        }
    }
}
