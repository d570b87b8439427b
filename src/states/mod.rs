//! States of agents as objects of a store, for process groups ([`forebay_trainer_adapter::process_group`]).
//!
//! A part is an object of its own, found by nobody but who knows its name; a version is an object that names its parts, committed
//! by comparing the newest version with what was expected. So ranks set parts side by side, each from a process of its own and,
//! as neighbours of the store's server, into shared memory; and a part that has not changed is named again instead of written.
//!
//! # How bytes move
//! A part is begun, filled and committed as any object: straight from a rank's buffers into memory that it has mapped, summed up in
//! chunks (crc32c) by the commit. It is got by a mapping and read from there in chunks, each compared with its sum after it has left
//! the object's memory. So either way is one copy at the speed of memory, and a byte that has changed is an error before anything is
//! trained on.
//!
//! A commit removes what was there before it and neither it nor the version before it names: parts of older versions, and what ranks
//! have left that were killed. Whoever had set parts by then and has not committed them is another coordinator, whose commit is refused.

mod part;
mod spilled;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use serde::{Deserialize, Serialize};

use self::part::{PartReader, PartWriter};
use crate::client::{self, ObjectFilling, ObjectShown, Objects};
use crate::store::{Dtype, Expected, Kind, Layout, Randomness, SystemRandomness, Which as Newest};
use forebay_trainer_adapter::process_group::{Boundary, Observer};
use forebay_trainer_adapter::states::{Fill, PartInfo, Staged, States, StatesError, Version, Which};

/// What a part's metadata call its key, and its name.
const OF_KEY: &str = "state";
const OF_PART: &str = "part";
/// And its length: an object's payload is filled up.
const BYTES: &str = "bytes";
/// The memory class and the tensor that a part's or a version's object has.
const CLASS: &str = "state";
const TENSOR: &str = "bytes";
/// The longest name of a key or part.
pub(crate) const NAME_BYTES_MAX: usize = 50;

/// States as objects of a store, in this process or behind a server.
///
/// ```
/// use forebay::ObjectStates;
/// use forebay::client::Client;
/// use forebay::store::{HostFolder, ObjectOptions, Options, Store};
/// use forebay_trainer_adapter::states::{States, Which};
/// # let dir = tempfile::tempdir()?;
/// # let objects = ObjectOptions::default().host_folder(HostFolder::At(dir.path().join("host")));
/// # let options = Options::default().objects(objects);
/// let store = Store::open(dir.path().join("store"), options)?;
/// let states = ObjectStates::new(Client::embedded(store).objects());
/// let part = states.stage("solver", "trainer", b"weights")?;
/// assert_eq!(states.commit("solver", 0, &[part])?, 1);
/// assert_eq!(states.read("solver", Which::Latest, "trainer")?, b"weights");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct ObjectStates {
    objects: Objects,
    spills: bool,
    observer: Observer,
}

/// A version, as its object has it.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    parts: Vec<PartRecord>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct PartRecord {
    name: String,
    object: String,
    bytes: u64,
}

impl ObjectStates {
    /// States among these objects. They survive the end of every process of the machine.
    pub fn new(objects: Objects) -> Self {
        ObjectStates { objects: objects.for_states(), spills: false, observer: Observer::default() }
    }

    /// The same, telling whenever a boundary is reached.
    pub fn observed(self, observer: Observer) -> Self {
        ObjectStates { observer, ..self }
    }

    /// Brings every part to the disk when it is set, and every version before its commit is acknowledged, so that it survives a power
    /// failure. A part that cannot be brought there is not staged, and leaves nothing in memory. A version that cannot is
    /// [`StatesError::NotDurable`], and is taken back: the one before it is the newest again, and until the next commit the only one that is sure
    /// to be there. It stays where it cannot be taken back, and where the store has let go of the one before it (it keeps two versions
    /// unless told otherwise). Default: false.
    pub fn spills(mut self, spills: bool) -> Self {
        self.spills = spills;
        self
    }

    /// Deletes every version of a key, and every part that was staged for it. Of a key that nobody uses any more: nothing is left to
    /// resume from.
    ///
    /// # Errors
    /// [`StatesError::Name`]; [`StatesError::Other`] where an object cannot be deleted. What is left is deleted by the next call.
    pub fn forget(&self, key: &str) -> Result<(), StatesError> {
        let object = object_of(key)?;
        let versions = self.objects.list_of(&object).map_err(|error| other("listing states", error))?;
        let versions = versions.into_iter().filter(|shown| shown.key == object);
        for shown in versions.chain(self.parts_of(key)?) {
            let deleted = self.objects.delete(&shown.key, shown.version);
            deleted.map_err(|error| other("deleting a state", error))?;
        }
        Ok(())
    }

    /// Begins an object of so many bytes.
    fn begin(&self, key: &str, bytes: u64, newest: Expected) -> client::Result<ObjectFilling> {
        let layout = Layout::builder().tensor(CLASS, TENSOR, Dtype::U8, &[bytes]).build()?;
        self.objects.begin(key, newest, &layout)
    }

    fn set_part(
        &self,
        object: &str,
        bytes: u64,
        metadata: &BTreeMap<String, String>,
        fill: &mut Fill<'_>,
    ) -> Result<(), StatesError> {
        let failed = |error| other("setting a part of a state", error);
        let mut filling = self.begin(object, bytes, Expected::Any).map_err(failed)?;
        filling.metadata_of(metadata);
        let mut writer = PartWriter::new(&filling, bytes, &self.observer);
        let filled = fill(&mut writer).and_then(|()| writer.finish());
        filled.map_err(|error| other("filling a part of a state", error))?;
        let version = filling.commit().map_err(failed)?;
        self.keep(object, Newest::Exact(version)).map_err(|error| {
            self.let_go(object, version);
            failed(error)
        })?;
        self.observer.reached(Boundary::PartWritten);
        Ok(())
    }

    fn set_version(&self, object: &str, bytes: &[u8], expected: u64) -> client::Result<u64> {
        let newest = if expected == 0 { Expected::Absent } else { Expected::Version(expected) };
        let mut filling = self.begin(object, bytes.len() as u64, newest)?;
        filling.write(TENSOR, 0, bytes)?;
        self.observer.reached(Boundary::ManifestWritten);
        // Numbers do not come again, neither those of a key that was forgotten nor that of a version that was taken back.
        let version = filling.commit()?;
        self.observer.reached(Boundary::ManifestLinked);
        Ok(version)
    }

    /// A version's record, and its number; nothing if there is none.
    fn record(&self, key: &str, which: Which) -> Result<Option<(u64, Record)>, StatesError> {
        let asked = match which {
            Which::Latest => Newest::Latest,
            Which::Exact(number) => Newest::Exact(number),
        };
        let read =
            |held: client::HeldObject| held.tensor(TENSOR)?.to_vec().map(|bytes| (held.version(), bytes));
        match self.objects.get(&object_of(key)?, asked).and_then(read) {
            Ok((number, bytes)) => {
                let record =
                    serde_json::from_slice(&bytes).map_err(|error| other("reading a state", error))?;
                Ok(Some((number, record)))
            }
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(other("getting a state", error)),
        }
    }

    /// The objects of a key's parts, whether a version names them or not.
    fn parts_of(&self, key: &str) -> Result<Vec<ObjectShown>, StatesError> {
        let all = self.objects.list().map_err(|error| other("listing states", error))?;
        Ok(all.into_iter().filter(|shown| shown.metadata.get(OF_KEY).is_some_and(|of| of == key)).collect())
    }
}

/// Removes parts that none of these versions names. `there` is of before the commit: what has come since is for the next one, whoever
/// makes it. What cannot be removed is left to that.
fn remove_unnamed(objects: &Objects, there: &[ObjectShown], versions: &[&Record]) {
    let named: BTreeSet<&str> =
        versions.iter().flat_map(|record| &record.parts).map(|part| part.object.as_str()).collect();
    for part in there.iter().filter(|part| !named.contains(part.key.as_str())) {
        if let Err(error) = objects.delete(&part.key, part.version) {
            tracing::warn!(%error, part = part.key, "a part of an older state was not removed");
        }
    }
}

impl States for ObjectStates {
    fn stage_from(
        &self,
        key: &str,
        part: &str,
        bytes: u64,
        fill: &mut Fill<'_>,
    ) -> Result<Staged, StatesError> {
        object_of(key)?;
        check_name(part)?;
        let random = || SystemRandomness.next_u64();
        let object = format!("part.{:016x}{:016x}", random(), random());
        let length = bytes.to_string();
        let metadata = [(OF_KEY, key), (OF_PART, part), (BYTES, length.as_str())];
        let metadata = metadata.map(|(name, value)| (name.to_owned(), value.to_owned()));
        self.set_part(&object, bytes, &metadata.into(), fill)?;
        Ok(Staged(object))
    }

    fn discard(&self, key: &str, part: &Staged) {
        let found = self.objects.list_of(&part.0).inspect_err(|error| {
            tracing::warn!(%error, part = part.0, "a part that was staged for nothing was not looked for");
        });
        let is_it = |shown: &ObjectShown| {
            shown.key == part.0 && shown.metadata.get(OF_KEY).is_some_and(|of| of == key)
        };
        found.into_iter().flatten().filter(is_it).for_each(|shown| self.let_go(&shown.key, shown.version));
    }

    fn commit(&self, key: &str, expected: u64, parts: &[Staged]) -> Result<u64, StatesError> {
        let object = object_of(key)?;
        let before = self.record(key, Which::Latest)?;
        let found = before.as_ref().map_or(0, |(number, _)| *number);
        if found != expected {
            return Err(StatesError::Conflict { key: key.to_owned(), expected, found });
        }
        let there = self.parts_of(key)?;
        let record = Record { parts: named(key, parts, &there)? };
        let bytes = serde_json::to_vec(&record).map_err(|error| other("writing a state", error))?;
        match self.set_version(&object, &bytes, expected) {
            Ok(number) => {
                self.keep_version(key, number, expected)?;
                let previous = before.as_ref().map(|(_, record)| record);
                remove_unnamed(
                    &self.objects,
                    &there,
                    &previous.into_iter().chain([&record]).collect::<Vec<_>>(),
                );
                Ok(number)
            }
            Err(error) if error.kind() == Kind::State => match self.record(key, Which::Latest)? {
                Some((found, _)) if found != expected => {
                    Err(StatesError::Conflict { key: key.to_owned(), expected, found })
                }
                _ => Err(other("committing a state", error)),
            },
            Err(error) => Err(other("committing a state", error)),
        }
    }

    fn make_durable(&self, key: &str, version: u64) -> Result<(), StatesError> {
        let object = object_of(key)?;
        let found = self.record(key, Which::Exact(version))?;
        // Whoever made it may not have brought its parts there.
        let parts = found.iter().flat_map(|(_, record)| &record.parts);
        let kept = parts.into_iter().try_for_each(|part| self.keep(&part.object, Newest::Latest));
        let kept = kept.and_then(|()| self.keep(&object, Newest::Exact(version)));
        kept.map_err(|error| other("bringing a state to the disk", error))
    }

    fn find(&self, key: &str, which: Which) -> Result<Option<Version>, StatesError> {
        let info =
            |part: PartRecord| PartInfo { name: part.name, bytes: part.bytes, staged: Staged(part.object) };
        let found = self.record(key, which)?;
        Ok(found
            .map(|(number, record)| Version { number, parts: record.parts.into_iter().map(info).collect() }))
    }

    fn open<'a>(&'a self, key: &str, which: Which, part: &str) -> Result<Box<dyn Read + 'a>, StatesError> {
        let missing = |what: String| StatesError::Missing { key: key.to_owned(), what };
        let (number, record) =
            self.record(key, which)?.ok_or_else(|| missing(format!("version to read ({which:?})")))?;
        let found = record.parts.iter().find(|found| found.name == part);
        let found = found.ok_or_else(|| missing(format!("part {part:?} in version {number}")))?;
        let held = self.objects.get(&found.object, Newest::Latest);
        let held = held.map_err(|error| other("getting a part of a state", error))?;
        Ok(Box::new(PartReader::new(held, found.bytes)))
    }
}

/// The parts that were staged under these names, each by its name and once.
fn named(key: &str, parts: &[Staged], there: &[ObjectShown]) -> Result<Vec<PartRecord>, StatesError> {
    let not_staged = |staged: &Staged, reason| {
        let (key, staged) = (key.to_owned(), staged.0.clone());
        StatesError::NotStaged { key, staged, reason }
    };
    let mut named: Vec<PartRecord> = Vec::with_capacity(parts.len());
    for staged in parts {
        let found = there.iter().find(|shown| shown.key == staged.0);
        let found = found.ok_or_else(|| not_staged(staged, "it was not staged for this key, or is gone"))?;
        let name = found.metadata.get(OF_PART).cloned().unwrap_or_default();
        if named.iter().any(|part| part.name == name) {
            return Err(not_staged(staged, "another part has its name"));
        }
        let bytes = found.metadata.get(BYTES).and_then(|bytes| bytes.parse().ok());
        named.push(PartRecord { name, object: staged.0.clone(), bytes: bytes.unwrap_or(found.bytes) });
    }
    Ok(named)
}

fn check_name(name: &str) -> Result<(), StatesError> {
    let legal = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let is_legal =
        (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.starts_with('.') && name.chars().all(legal);
    if is_legal { Ok(()) } else { Err(StatesError::Name { name: name.to_owned() }) }
}

/// The object that a key's versions are.
fn object_of(key: &str) -> Result<String, StatesError> {
    check_name(key)?;
    Ok(format!("state.{key}"))
}

fn is_absent(error: &client::Error) -> bool {
    matches!(error.cause(), "Unknown" | "ObjectGone" | "ObjectNotYet")
}

fn other(verb: &'static str, source: impl std::error::Error + Send + Sync + 'static) -> StatesError {
    StatesError::Other { verb, source: Box::new(source) }
}
