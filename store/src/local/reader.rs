//! Values of a store that another process writes, read where they lie.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;

use super::places::Places;
use crate::directory::Directory;
use crate::disk::{Disk, LocalDisk};
use crate::error::Result;
use crate::extent::{Extents, Kept, MappedFile, ValueBytes, View};
use crate::snapshot::Lists;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, Rank};

/// Mapped files of which nothing is held are let go when there are more than this, or when the store has removed them.
const FILES_MAX: usize = 256;

/// Reads values of a store that another process writes, for who is told where they lie. It holds back what may still be read:
/// ask for a [`Hold`] before every question whose answer names places.
#[derive(Debug)]
pub struct ValueReader {
    directory: Arc<Directory>,
    files: Mutex<HashMap<u32, MappedFile>>,
    needs: Mutex<Needs>,
    checks_values: AtomicBool,
}

/// Which records are needed.
#[derive(Debug, Default)]
struct Needs {
    /// The latest that is known.
    latest: u64,
    /// How many holds there are that began with so many records.
    held: BTreeMap<u64, usize>,
    /// What the slot says.
    said: u64,
}

/// Holds back, for as long as it or a value that it gave lives, what the answer may name.
#[derive(Debug)]
pub struct Hold {
    held: Arc<Held>,
    /// The extents that the answer named so far, each of which keeps `held`.
    extents: Extents,
}

/// What is kept by whoever holds a value.
#[derive(Debug)]
struct Held {
    reader: Arc<ValueReader>,
    from: u64,
}

impl ValueReader {
    /// Begins to read values of the store at `path` with that identity.
    ///
    /// # Errors
    /// `state` when it is another store, or this process may not read it.
    pub fn open(path: &Path, store_id: u64) -> Result<Arc<Self>> {
        Self::open_on(Arc::new(LocalDisk), path, store_id)
    }

    /// As [`open`](Self::open), on a disk of the caller's.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_on(disk: Arc<dyn Disk>, path: &Path, store_id: u64) -> Result<Arc<Self>> {
        let directory = Directory::of_reading_neighbour(disk, path, store_id)?;
        directory.reads_from(u64::MAX)?; // nothing was asked for yet
        let needs = Needs { said: u64::MAX, ..Needs::default() };
        Ok(Arc::new(ValueReader {
            directory: Arc::new(directory),
            files: Mutex::ranked(Rank::NeighbourFiles, HashMap::new()),
            needs: Mutex::ranked(Rank::Needs, needs),
            checks_values: AtomicBool::new(false),
        }))
    }

    /// Whether what is held from now on is held against its checksums as it is read
    /// ([`Options::check_values`](crate::Options::check_values)). At first it is not.
    pub fn check_values(&self, check: bool) {
        self.checks_values.store(check, Ordering::Relaxed);
    }

    /// Says that the store has so many records: the more is known, the less is held back.
    pub fn knows(&self, commits: u64) {
        let mut needs = self.needs.lock();
        needs.latest = needs.latest.max(commits);
    }

    /// To be had before a question is asked.
    ///
    /// # Errors
    /// When what is needed cannot be said; then nothing may be read.
    pub fn hold(self: &Arc<Self>) -> Result<Hold> {
        let mut needs = self.needs.lock();
        let from = needs.latest;
        *needs.held.entry(from).or_default() += 1;
        let held = Arc::new(Held { reader: self.clone(), from });
        let said = self.say(&mut needs);
        drop(needs); // before what is held is, should that have failed
        said.map(|()| {
            let extents = Extents::none(self.directory.extents())
                .checking_values(self.checks_values.load(Ordering::Relaxed));
            Hold { held, extents }
        })
    }

    /// Lets the slot say what is needed now.
    fn say(&self, needs: &mut Needs) -> Result<()> {
        let needed = needs.held.first_key_value().map_or(u64::MAX, |(from, _)| *from);
        if needed != needs.said {
            self.directory.reads_from(needed)?;
            needs.said = needed;
        }
        Ok(())
    }

    fn let_go(&self, from: u64) {
        let mut needs = self.needs.lock();
        if let Some(holds) = needs.held.get_mut(&from) {
            *holds -= 1;
            if *holds == 0 {
                needs.held.remove(&from);
            }
        }
        if let Err(error) = self.say(&mut needs) {
            tracing::warn!(%error, "a reader's slot could not be moved on; it holds back space until it can");
        }
    }

    /// The mapped file of an extent.
    fn file(&self, number: u32) -> Result<MappedFile> {
        let mut files = self.files.lock();
        if let Some(file) = files.get(&number) {
            return Ok(file.clone());
        }
        let full = files.len() >= FILES_MAX;
        // A file that was removed takes its space for as long as it is mapped.
        files.retain(|_, file| file.is_held() || !full && file.is_named());
        let file = MappedFile::open(&self.directory, number)?;
        files.insert(number, file.clone());
        Ok(file)
    }
}

impl Kept for Held {}

impl Drop for Held {
    fn drop(&mut self) {
        self.reader.let_go(self.from);
    }
}

impl Hold {
    /// Columns with their values. Texts and bytes are not copied, and lists and tensors come as they are wished.
    ///
    /// # Errors
    /// `corrupt` when a place is none.
    pub fn columns(&self, places: &Places, lists: Lists) -> Result<RecordBatch> {
        self.held.reader.knows(places.commits());
        places.views()?.into_iter().try_for_each(|view| self.find(view))?;
        places.fill(&self.extents, lists)
    }

    /// The bytes of a value, where they lie.
    ///
    /// # Errors
    /// `corrupt` when the place is none.
    pub fn value(&self, place: ValuePlace) -> Result<ValueBytes> {
        self.find(place.0)?;
        let (extent, offset) = self.extents.locate_sound(place.0)?;
        Ok(ValueBytes::located(extent, offset, place.0.length()))
    }

    /// Finds the extent that a value lies in, so that it is known here.
    fn find(&self, view: View) -> Result<()> {
        if !self.extents.knows(view.place()) {
            let file = self.held.reader.file(view.extent())?;
            self.extents.show(&file, view.generation(), self.held.clone());
        }
        Ok(())
    }
}

/// Where a value lies, for a process that reads it there: see [`ValueBytes::place`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValuePlace(View);

impl ValuePlace {
    /// How many bytes it takes to say so.
    pub const BYTES: usize = 16;

    pub(crate) fn of_view(view: View) -> Self {
        ValuePlace(view)
    }

    /// As another process is told.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        self.0.0
    }

    /// As it was told. Whether it is a place at all, [`Hold::value`] finds out.
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        ValuePlace(View(bytes))
    }
}
