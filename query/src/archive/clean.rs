//! Removes what archivers that were stopped left behind: files that no manifest names. Before that it is settled which manifests
//! count.
//!
//! A file younger than the limit may be of a version that is being moved right now, and stays. So do files that are not
//! named like an archive's: they are somebody else's.

use std::collections::HashSet;
use std::path::Path as FilePath;
use std::time::{Duration, SystemTime};

use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectMeta, ObjectStoreExt};

use super::archiver::Archiver;
use super::blocking::block_on;
use super::contents::by_version;
use super::folder::Archive;
use super::gone::settle_all;
use super::layout::{COMMITS, MARKER, ManifestName, is_part_path};
use crate::error::Result;

/// What was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Files that no manifest named.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Versions that are no longer said to be in the archive: they left the store otherwise before they were moved.
    pub versions: u64,
}

impl Archiver {
    /// Removes files that no manifest names and that are older than `age`: what runs left that were stopped. Take an hour
    /// if another archiver may be at work. Versions that left the store before their move was over, by retention or by name,
    /// are no longer said to be in the archive.
    ///
    /// # Errors
    /// [`Kind::Archive`](crate::Kind::Archive) when the archive is out of reach, or a manifest is damaged;
    /// [`Kind::Store`](crate::Kind::Store) when the store cannot be brought to stable storage.
    pub fn clean(&self, age: Duration) -> Result<Cleaned> {
        block_on(async {
            let versions = settle_all(self.store(), self.archive()).await?;
            Ok(Cleaned { versions, ..clean(self.archive(), age).await? })
        })
    }
}

async fn clean(archive: &Archive, age: Duration) -> Result<Cleaned> {
    let unreachable = |error: StoreError| archive.unreachable(&error);
    let limit = SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
    let is_old = |object: &ObjectMeta| SystemTime::from(object.last_modified) <= limit;
    let objects: Vec<ObjectMeta> = archive
        .objects()
        .list(None)
        .try_filter(|object| std::future::ready(is_part_path(&object.location) && is_old(object)))
        .try_collect()
        .await
        .map_err(unreachable)?;
    let mut cleaned = Cleaned::default();
    if !objects.is_empty() {
        let named = named(archive).await?; // after the files: who was named meanwhile is in it
        for object in objects.into_iter().filter(|object| !named.contains(&object.location)) {
            archive.objects().delete(&object.location).await.map_err(unreachable)?;
            cleaned.files += 1;
            cleaned.bytes += object.size;
        }
    }
    if let Some(root) = archive.local() {
        remove_staged(root, limit, &mut cleaned);
    }
    Ok(cleaned)
}

/// Every file that the newest manifest of its version names, or, where that has no rows, the newest one with rows: what is hidden is
/// not destroyed. Older generations were never read from.
async fn named(archive: &Archive) -> Result<HashSet<Path>> {
    let names = archive.manifest_names(&Path::from(COMMITS)).await?;
    let mut named = HashSet::new();
    for generations in by_version(&names) {
        for name in generations.iter().rev() {
            let Some(manifest) = archive.manifest(name).await? else { continue };
            named.extend(manifest.files.iter().map(|file| manifest.path_of(file)));
            if !manifest.is_void() {
                break;
            }
        }
    }
    Ok(named)
}

/// A file that is being written into a directory has a `#` and a number at the end of its name; when its writer is killed
/// it stays so. What cannot be removed is tried again the next time.
fn remove_staged(root: &FilePath, limit: SystemTime, cleaned: &mut Cleaned) {
    let entries = |path: &FilePath| std::fs::read_dir(path).into_iter().flatten().flatten();
    let folders = entries(root).flat_map(|table| entries(&table.path()).chain([table]).collect::<Vec<_>>());
    let within = folders.flat_map(|folder| entries(&folder.path()).collect::<Vec<_>>());
    for file in entries(root).chain(within) {
        let is_staged = is_staged(root, &file.path());
        let Ok(found) = file.metadata() else { continue };
        let old = found.is_file() && found.modified().is_ok_and(|modified| modified <= limit);
        if is_staged && old && std::fs::remove_file(file.path()).is_ok() {
            cleaned.files += 1;
            cleaned.bytes += found.len();
        }
    }
}

/// Whether a file is being written to where a file of a version, a manifest or the archive's marker goes: others are somebody
/// else's.
fn is_staged(root: &FilePath, path: &FilePath) -> bool {
    let within = path.strip_prefix(root).ok().and_then(FilePath::to_str);
    let Some((place, number)) = within.and_then(|within| within.rsplit_once('#')) else { return false };
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let place = Path::from(place);
    let is_marker = place == Path::from(MARKER);
    is_number && (is_marker || is_part_path(&place) || ManifestName::parse(&place).is_some())
}
