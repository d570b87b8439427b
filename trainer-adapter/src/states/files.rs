//! States in a folder of files.
//!
//! ```text
//! DIR/KEY/parts/trainer.4711.9c1e    a part; named by the process and a counter, written once
//! DIR/KEY/00000000000000000003.state the manifest of version 3
//! ```
//!
//! A part is written, synced and never changed. A manifest is written under another name, synced, and linked to its own: the link
//! fails where the version is there already, so of two who commit the same version one does. What the two newest manifests do
//! not name is deleted after a commit.
//!
//! A name is on stable storage before what stands on it is acknowledged: that of DIR when it is opened, that of KEY before its first
//! manifest is linked (a rank may have made it and gone), a part's when it is staged, a manifest's at the end of its commit.

#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::folders;
use super::manifest::{self, Entry, is_name};
use super::part::{PartReader, PartWriter};
use super::{Fill, PartInfo, Staged, States, StatesError, Version, Which};
use crate::process_group::{Boundary, Observer};

/// Versions whose files are kept.
const VERSIONS_KEPT: u64 = 2;

/// States in a folder, for as many processes as open it. Crash-safe: a version is there with all its parts or not at all, also
/// after a power failure.
#[derive(Debug)]
pub struct FileStates {
    folder: PathBuf,
    observer: Observer,
    sync: folders::SyncNames,
}

impl FileStates {
    /// Opens a folder, which is made where it is missing; its name is on stable storage then.
    ///
    /// # Errors
    /// [`StatesError::Io`].
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self, StatesError> {
        Self::open_with(folder.into(), folders::sync)
    }

    fn open_with(folder: PathBuf, sync: folders::SyncNames) -> Result<Self, StatesError> {
        folders::make(&folder, sync)?;
        Ok(Self { folder, observer: Observer::default(), sync })
    }

    fn sync(&self, folder: &Path) -> Result<(), StatesError> {
        (self.sync)(folder).map_err(StatesError::io("sync", folder))
    }

    /// The same, telling whenever a boundary is reached.
    pub fn observed(self, observer: Observer) -> Self {
        Self { observer, ..self }
    }

    fn key_folder(&self, key: &str) -> Result<PathBuf, StatesError> {
        check_name(key)?;
        Ok(self.folder.join(key))
    }

    fn newest(&self, key: &str) -> Result<u64, StatesError> {
        let folder = self.key_folder(key)?;
        let numbers = names(&folder)?.into_iter().filter_map(|name| number_of(&name));
        Ok(numbers.max().unwrap_or(0))
    }

    fn manifest_path(&self, key: &str, number: u64) -> Result<PathBuf, StatesError> {
        Ok(self.key_folder(key)?.join(format!("{number:020}.state")))
    }

    /// The parts of a version, or nothing if it is not there.
    fn entries(&self, key: &str, number: u64) -> Result<Option<Vec<Entry>>, StatesError> {
        let path = self.manifest_path(key, number)?;
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StatesError::io("read", &path)(error)),
        };
        let damaged = |reason| StatesError::Damaged { path: path.clone(), reason };
        manifest::read(&text).map(Some).map_err(damaged)
    }

    /// Finds the newest, or the one that is asked for. A version that goes while it is read is looked for once more.
    fn numbered(&self, key: &str, which: Which) -> Result<Option<(u64, Vec<Entry>)>, StatesError> {
        loop {
            let number = match which {
                Which::Latest => self.newest(key)?,
                Which::Exact(number) => number,
            };
            match self.entries(key, number)? {
                Some(entries) => return Ok(Some((number, entries))),
                None if number == 0 || which == Which::Exact(number) => return Ok(None),
                None => {}
            }
        }
    }

    /// What a commit is asked to name, checked against the files.
    fn check_staged(&self, key: &str, parts: &[Staged]) -> Result<Vec<Entry>, StatesError> {
        let folder = self.key_folder(key)?.join("parts");
        let mut entries: Vec<Entry> = Vec::new();
        for Staged(line) in parts {
            let refuse = |reason| {
                let (key, staged) = (key.to_owned(), line.clone());
                StatesError::NotStaged { key, staged, reason }
            };
            let entry = Entry::of_line(line).ok_or_else(|| refuse("it was not made by a stage"))?;
            if entries.iter().any(|earlier| earlier.name == entry.name) {
                return Err(refuse("another part of the version has the same name"));
            }
            let length = fs::metadata(folder.join(&entry.file)).map(|file| file.len());
            if length.ok() != Some(entry.bytes) {
                return Err(refuse("its file is not there"));
            }
            entries.push(entry);
        }
        Ok(entries)
    }

    /// Deletes versions but the newest, and those of the parts that they do not name. What cannot be deleted is left to the next
    /// commit. The parts are those that were there before the commit: whoever stages afterwards may be committed by another.
    fn retire(&self, key: &str, newest: u64, there: Vec<String>) -> Result<(), StatesError> {
        let folder = self.key_folder(key)?;
        let first_kept = (newest + 1).saturating_sub(VERSIONS_KEPT);
        let mut named = Vec::new();
        for number in first_kept.max(1)..=newest {
            let entries = self.entries(key, number)?.unwrap_or_default();
            named.extend(entries.into_iter().map(|entry| entry.file));
        }
        let old = |name: &String| number_of(name).is_some_and(|number| number < first_kept);
        for name in names(&folder)?.into_iter().filter(old) {
            let _ = fs::remove_file(folder.join(name));
        }
        let parts = folder.join("parts");
        for name in there.into_iter().filter(|name| !named.contains(name)) {
            let _ = fs::remove_file(parts.join(name));
        }
        Ok(())
    }
}

impl States for FileStates {
    fn stage_from(
        &self,
        key: &str,
        part: &str,
        bytes: u64,
        fill: &mut Fill<'_>,
    ) -> Result<Staged, StatesError> {
        static STAGED: AtomicU64 = AtomicU64::new(0);
        check_name(part)?;
        let folder = self.key_folder(key)?.join("parts");
        fs::create_dir_all(&folder).map_err(StatesError::io("make the folder", &folder))?;
        let count = STAGED.fetch_add(1, Ordering::Relaxed);
        // Process numbers come again, so the name has a time too, and a file is never opened a second time.
        let file = format!("{part}.{}.{count}.{:x}", std::process::id(), nanoseconds());
        let path = folder.join(&file);
        let written = self.write(&path, bytes, fill);
        let digest = written.map_err(StatesError::io("write", &path))?;
        self.sync(&folder)?;
        self.observer.reached(Boundary::PartWritten);
        Ok(Staged(Entry { name: part.to_owned(), bytes, digest, file }.line()))
    }

    fn discard(&self, key: &str, part: &Staged) {
        if let (Ok(folder), Some(entry)) = (self.key_folder(key), Entry::of_line(&part.0)) {
            let _left = fs::remove_file(folder.join("parts").join(entry.file)); // to the next commit
        }
    }

    fn commit(&self, key: &str, expected: u64, parts: &[Staged]) -> Result<u64, StatesError> {
        let entries = self.check_staged(key, parts)?;
        let (folder, number) = (self.key_folder(key)?, expected.saturating_add(1));
        let conflict = |found| StatesError::Conflict { key: key.to_owned(), expected, found };
        let found = self.newest(key)?;
        if found != expected {
            return Err(conflict(found));
        }
        if expected == 0 {
            self.sync(&self.folder)?;
        }
        // Among the parts: what a crash leaves of it is deleted as a part that nobody names.
        let draft = folder.join("parts").join(format!("draft.{}.{:x}", std::process::id(), nanoseconds()));
        let text = manifest::write(&entries);
        let written = self.write(&draft, text.len() as u64, &mut |to| to.write_all(text.as_bytes()));
        written.map_err(StatesError::io("write", &draft))?;
        self.observer.reached(Boundary::ManifestWritten);
        let path = self.manifest_path(key, number)?;
        let there = names(&folder.join("parts"))?;
        let linked = fs::hard_link(&draft, &path);
        let _ = fs::remove_file(&draft);
        if let Err(error) = linked {
            let found = self.newest(key)?;
            return Err(if found == expected {
                StatesError::io("link", &path)(error)
            } else {
                conflict(found)
            });
        }
        self.observer.reached(Boundary::ManifestLinked);
        // A name whose sync has failed may come to stable storage, and so may its removal: nothing is gained by taking it back.
        self.sync(&folder).map_err(|error| StatesError::NotDurable {
            key: key.to_owned(),
            version: number,
            is_taken_back: false,
            source: Box::new(error),
        })?;
        // The version is there, whatever becomes of those before it.
        let _ = self.retire(key, number, there);
        Ok(number)
    }

    fn make_durable(&self, key: &str, _version: u64) -> Result<(), StatesError> {
        self.sync(&self.key_folder(key)?) // all other names were there before it was linked
    }

    fn find(&self, key: &str, which: Which) -> Result<Option<Version>, StatesError> {
        let info = |entry: Entry| {
            let staged = Staged(entry.line());
            PartInfo { name: entry.name, bytes: entry.bytes, staged }
        };
        let found = self.numbered(key, which)?;
        Ok(found.map(|(number, entries)| Version { number, parts: entries.into_iter().map(info).collect() }))
    }

    fn open<'a>(&'a self, key: &str, which: Which, part: &str) -> Result<Box<dyn Read + 'a>, StatesError> {
        let missing = |what: String| StatesError::Missing { key: key.to_owned(), what };
        let (number, entries) =
            self.numbered(key, which)?.ok_or_else(|| missing(format!("version {which:?}")))?;
        let entry = entries.into_iter().find(|entry| entry.name == part);
        let entry = entry.ok_or_else(|| missing(format!("part {part:?} in version {number}")))?;
        let path = self.key_folder(key)?.join("parts").join(&entry.file);
        let file = File::open(&path).map_err(StatesError::io("read", &path))?;
        Ok(Box::new(PartReader::new(file, path, entry)))
    }
}

impl FileStates {
    /// A new file on stable storage, and the digest of its bytes; half of it may be there before the whole is. One that could not be
    /// written whole is removed: it may be what fills the disk.
    fn write(&self, path: &Path, bytes: u64, fill: &mut Fill<'_>) -> io::Result<String> {
        let mut writer = PartWriter::new(File::create_new(path)?, bytes, &self.observer);
        let written = fill(&mut writer).and_then(|()| writer.finish());
        if written.is_err() {
            let _left = fs::remove_file(path); // nobody names it, and the failure is told
        }
        written
    }
}

fn check_name(name: &str) -> Result<(), StatesError> {
    let is_valid = name.len() <= 100 && is_name(name);
    if is_valid { Ok(()) } else { Err(StatesError::Name { name: name.to_owned() }) }
}

/// The number of a manifest.
fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".state").filter(|digits| digits.len() == 20)?;
    digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

/// What is in a folder; nothing if there is none.
fn names(folder: &Path) -> Result<Vec<String>, StatesError> {
    let failed = || StatesError::io("list", folder);
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed()(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(StatesError::io("list", folder))?;
        found.extend(entry.file_name().into_string().ok());
    }
    Ok(found)
}

fn nanoseconds() -> u128 {
    std::time::UNIX_EPOCH.elapsed().map_or(0, |elapsed| elapsed.as_nanos())
}
