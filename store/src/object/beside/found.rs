//! What one look at the folders finds.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::directory::Directory;
use crate::error::{Cause, Error, Kind, Result};
use crate::numbered::number_of;
use crate::object::Manifest;
use crate::object::disk::{DiskCopy, Found as File, is_marked, look_at};
use crate::object::host::{Recovered, look_at_host, read_journal};
use crate::object::options::HostFolder;

/// A version, and where its bytes are.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) manifest: Manifest,
    pub(super) once: bool,
    /// Segment and offset of each payload in the host tier.
    pub(super) places: Option<Vec<(u32, u64)>>,
    pub(super) disk: Option<DiskCopy>,
}

/// What is known of a key.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) versions: BTreeMap<u64, Found>,
    /// Versions whose files are damaged.
    damaged: BTreeMap<u64, Error>,
    /// The greatest number that is known to have been used.
    pub(super) last: u64,
}

impl Known {
    pub(super) fn newest(&self) -> Option<u64> {
        self.versions.iter().rev().find(|(_, found)| !found.once).map(|(version, _)| *version)
    }

    /// Takes out a version, or the newest.
    ///
    /// # Errors
    /// `corrupt` when it is there and damaged.
    pub(super) fn take(&mut self, version: Option<u64>) -> Result<Option<Found>> {
        let Some(version) = version.or_else(|| self.newest()) else { return Ok(None) };
        if let Some(found) = self.versions.get(&version) {
            return Ok(if found.once { None } else { self.versions.remove(&version) });
        }
        self.damaged.remove(&version).map_or(Ok(None), Err)
    }

    fn add(&mut self, found: Found) {
        let version = found.manifest.version;
        self.last = self.last.max(version);
        match self.versions.get_mut(&version) {
            Some(there) if there.manifest == found.manifest => {
                there.places = there.places.take().or(found.places);
            }
            Some(_) => {} // the file stands for itself
            None => _ = self.versions.insert(version, found),
        }
    }
}

/// Every key.
pub(super) fn look(directory: &Directory, host: &HostFolder) -> Result<BTreeMap<String, Known>> {
    let mut keys = BTreeMap::new();
    for folder in directory.disk.list(&directory.objects()).unwrap_or_default() {
        let Some(key) = folder.file_name().and_then(|name| name.to_str()) else { continue };
        keys.insert(key.to_owned(), look_at_files(directory, key, &folder)?);
    }
    let recovered = look_at_journal(directory, host)?;
    for (manifest, entry) in recovered.objects {
        if !recovered.deleted.contains(&(manifest.key.clone(), manifest.version)) {
            let known: &mut Known = keys.entry(manifest.key.clone()).or_default();
            known.add(Found { manifest, once: entry.once, places: Some(entry.places), disk: None });
        }
    }
    forget(&mut keys, &recovered.deleted);
    Ok(keys)
}

/// One key.
pub(super) fn look_at_key(directory: &Directory, host: &HostFolder, key: &str) -> Result<Known> {
    let mut known = look_at_files(directory, key, &directory.objects().join(key))?;
    let recovered = look_at_journal(directory, host)?;
    known.last = known.last.max(recovered.last.get(key).copied().unwrap_or(0));
    for (manifest, entry) in recovered.objects.into_iter().filter(|(manifest, _)| manifest.key == key) {
        known.add(Found { manifest, once: entry.once, places: Some(entry.places), disk: None });
    }
    let over = |version: &u64| recovered.deleted.contains(&(key.to_owned(), *version));
    known.versions.retain(|version, _| !over(version));
    Ok(known)
}

fn forget(keys: &mut BTreeMap<String, Known>, deleted: &BTreeSet<(String, u64)>) {
    for (key, version) in deleted {
        if let Some(known) = keys.get_mut(key) {
            known.versions.remove(version);
        }
    }
}

fn look_at_journal(directory: &Directory, host: &HostFolder) -> Result<Recovered> {
    let Some(folder) = look_at_host(host, directory) else { return Ok(Recovered::default()) };
    Ok(read_journal(&folder).map_err(|e| Cause::io("read the journal in", &folder, e))?)
}

fn look_at_files(directory: &Directory, key: &str, folder: &Path) -> Result<Known> {
    let disk = &*directory.disk;
    let mut known = Known::default();
    if crate::schema::check_name("object", key).is_err() {
        return Ok(known);
    }
    for path in disk.list(folder).unwrap_or_default() {
        let Some(version) = number_of(&path) else { continue };
        known.last = known.last.max(version);
        if path.extension().is_none_or(|e| e != "safetensors") || is_marked(disk, &path)? {
            continue;
        }
        match look_at(disk, &path) {
            Ok(File::Ours { manifest, once, copy }) => {
                known.add(Found { manifest, once, places: None, disk: Some(copy) });
            }
            Ok(File::Other) => {}
            Err(error) if error.kind() == Kind::Corrupt => _ = known.damaged.insert(version, error),
            Err(error) if is_gone(&error) => {} // its version went meanwhile
            Err(error) => return Err(error),
        }
    }
    Ok(known)
}

fn is_gone(error: &Error) -> bool {
    matches!(error.cause(), Cause::Io { source, .. } if source.kind() == ErrorKind::NotFound)
}

/// Key and file of every version in the disk tier that can be had.
pub(crate) fn files_set(directory: &Directory) -> Result<Vec<(String, PathBuf)>> {
    let mut files = Vec::new();
    for (key, known) in look(directory, &HostFolder::Anonymous)? {
        let copies = known.versions.into_values().filter_map(|found| found.disk);
        files.extend(copies.map(|copy| (key.clone(), copy.path)));
    }
    Ok(files)
}
