//! Which objects lie where in the segments: what a crash of the process leaves of the host tier.
//!
//! ```text
//! length u32 | crc32c of the body u32 | body: one record as JSON
//! ```
//! A record is whole or is not there; reading ends before the first that is not. All members of a commit are one record, so
//! they are there together or not at all. It is written anew, with only what counts, when it is opened and when most of it is
//! over. Nothing is synced: the folder ends with the boot, as segments do.

use std::collections::{BTreeMap, HashMap, HashSet};
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
}

/// What an earlier process left.
#[derive(Debug, Default)]
pub(crate) struct Recovered {
    pub(crate) objects: Vec<(Manifest, Entry)>,
    pub(crate) last: BTreeMap<String, u64>,
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
        let objects = recovered.objects.iter().map(|(manifest, entry)| (&manifest.layout, entry));
        let journal = Journal::write_anew(&path, objects, &recovered.last)?;
        Ok((journal, recovered))
    }

    fn write_anew<'a>(
        path: &Path,
        objects: impl Iterator<Item = (&'a Layout, &'a Entry)>,
        last: &BTreeMap<String, u64>,
    ) -> io::Result<Self> {
        let temporary = path.with_extension("tmp");
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = OpenOptions::new().create_new(true).append(true).open(&temporary)?;
        let mut journal =
            Journal { path: path.to_owned(), file, bytes: 0, live_bytes: 0, layouts: HashSet::new() };
        for (key, version) in last {
            journal.append(&Record::Last { key: key.clone(), version: *version })?;
        }
        for (layout, entry) in objects {
            journal.commit(&[(layout, entry.clone())])?;
        }
        fs::rename(&temporary, path)?;
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
        objects: impl Iterator<Item = (&'a Layout, &'a Entry)>,
        last: &BTreeMap<String, u64>,
    ) -> io::Result<()> {
        *self = Journal::write_anew(&self.path, objects, last)?;
        Ok(())
    }

    /// Says that objects were committed, all at once.
    pub(crate) fn commit(&mut self, members: &[(&Layout, Entry)]) -> io::Result<()> {
        for (layout, _) in members {
            if self.layouts.insert(layout.fingerprint()) {
                self.append(&layout_record(layout))?;
            }
        }
        self.append(&Record::Committed(members.iter().map(|(_, entry)| entry.clone()).collect()))
    }

    /// Says that a version is not in the host tier any more.
    pub(crate) fn drop_version(&mut self, key: &str, version: u64) -> io::Result<()> {
        self.append(&Record::Dropped { key: key.to_owned(), version })
    }

    /// Removes it: nothing that it says is to be believed any more.
    pub(crate) fn remove(self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::error!(path = %self.path.display(), %error, "a journal that is wrong could not be removed");
        }
    }

    fn append(&mut self, record: &Record) -> io::Result<()> {
        let body = serde_json::to_vec(record)?;
        let length = u32::try_from(body.len()).map_err(io::Error::other)?;
        let mut frame = Vec::with_capacity(8 + body.len());
        frame.extend_from_slice(&length.to_le_bytes());
        frame.extend_from_slice(&crc32c::crc32c(&body).to_le_bytes());
        frame.extend_from_slice(&body);
        if let Err(error) = self.file.write_all(&frame) {
            self.file.set_len(self.bytes)?; // a part of a record would hide those that come after it
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

/// The records up to the first that is not whole.
fn records(mut bytes: &[u8]) -> impl Iterator<Item = Record> {
    std::iter::from_fn(move || {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let (crc, rest) = rest.split_first_chunk::<4>()?;
        let body = rest.get(..u32::from_le_bytes(*length) as usize)?;
        bytes = &rest[body.len()..];
        let whole = crc32c::crc32c(body) == u32::from_le_bytes(*crc);
        whole.then(|| serde_json::from_slice(body).ok()).flatten()
    })
}

fn replay(bytes: &[u8]) -> Recovered {
    let mut layouts: HashMap<u64, Layout> = HashMap::new();
    let mut live: BTreeMap<(String, u64), Entry> = BTreeMap::new();
    let mut last: BTreeMap<String, u64> = BTreeMap::new();
    let mut rises = |key: &str, version: u64| {
        let greatest = last.entry(key.to_owned()).or_default();
        *greatest = version.max(*greatest);
    };
    for record in records(bytes) {
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
        }
    }
    let objects = live.into_values().filter_map(|entry| {
        let layout = layouts.get(&entry.manifest.fingerprint)?.clone();
        let manifest = entry.manifest.clone().with(layout).ok()?;
        (manifest.layout.payloads().len() == entry.places.len()).then_some((manifest, entry))
    });
    Recovered { objects: objects.collect(), last }
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
}
