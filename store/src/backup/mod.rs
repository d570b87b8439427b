//! A copy of a store as it is at one position of its log, while others go on writing it.
//!
//! The copy is made by a reader ([`crate::reader`]): its slot keeps the writer from giving away what is being copied. The
//! log is copied up to the last record that the reader has taken in, each file of values as far as those records name
//! values in it, and the objects that they name; those that are set and that no step names where it is asked for. All of it is synced,
//! and the copy's log says so in a last segment of its own, for it names what is not in the copy: values that were deleted and objects
//! of steps that were undone, which whoever opens it in another run of the machine must not miss. The identity is written last: a backup
//! that was cut off is no store. What was copied of one that fails or is stopped is removed again, all but empty folders, which the next
//! copy to that place takes.

mod options;
mod progress;
mod report;

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

pub use options::BackupOptions;
pub use progress::BackupProgress;
pub(crate) use progress::Copying;
pub use report::BackupReport;

use crate::checkpoint::Manifest;
use crate::directory::{Directory, FOLDERS};
use crate::disk::{Disk, link_in_the_way};
use crate::error::{Cause, Result};
use crate::extent::TRAILER_BYTES;
use crate::log;
use crate::numbered::Numbered;
use crate::object::{self, ObjectRef};
use crate::reader::Reading;
use crate::shared::Shared;
use crate::state::State;
use crate::verify::named_values;

const PIECE_BYTES: usize = 1 << 20;

impl Shared {
    /// Copies what this reader shows, to a directory that is reached from `from` on through no link: see
    /// [`Disk::without_links`].
    pub(crate) fn copy_to(
        &self,
        (from, to): (&Path, &Path),
        options: BackupOptions,
        progress: &mut dyn FnMut(BackupProgress) -> ControlFlow<()>,
    ) -> Result<BackupReport> {
        let mut reading = self.reading.lock(); // nothing else is taken in meanwhile
        // From here on the writer gives nothing away, so that the checkpoint that is read now stays whole.
        self.directory.reads_from(0)?;
        let copied = self.copy_held((from, to), options, &mut reading, &mut Copying::watched(progress));
        let needs_from = reading.as_ref().map_or(0, Reading::needs_from);
        self.directory.reads_from(needs_from)?;
        copied
    }

    fn copy_held(
        &self,
        (from, to): (&Path, &Path),
        options: BackupOptions,
        reading: &mut Option<Reading>,
        copying: &mut Copying<'_>,
    ) -> Result<BackupReport> {
        let manifest = Manifest::read(&self.directory)?;
        // The checkpoint may be newer than what this reader has seen; no checkpoint is ahead of the log.
        if let Some(reading) = reading {
            self.take_in(reading)?;
        }
        let end = reading.as_ref().map(Reading::place).unwrap_or_default();
        let records = reading.as_ref().map_or(0, |reading| reading.end().next_sequence);
        let named = Named::by(&self.state.lock());
        let disk = &*self.directory.disk;
        let linkless = disk.without_links(from, to).map_err(|e| Cause::io("create", to, e))?;
        if linkless.is_none() {
            disk.create_directory_durably(to).map_err(|e| Cause::io("create", to, e))?;
        }
        let disk = linkless.as_deref().unwrap_or(disk);
        begin(disk, to)?;
        let begun = BackupReport { to: to.to_owned(), records, ..BackupReport::default() };
        let copied = self.bytes_to_copy(manifest.as_ref(), end, &named).and_then(|bytes| {
            copying.expect(bytes);
            self.copy_all(disk, begun, options, (manifest, end, named), copying)
        });
        if copied.is_err() {
            give_up(disk, to);
        }
        copied
    }

    /// Copies everything to a directory that is this copy's, on that disk.
    fn copy_all(
        &self,
        disk: &dyn Disk,
        mut report: BackupReport,
        options: BackupOptions,
        (manifest, end, named): (Option<Manifest>, (u32, u64), Named),
        copying: &mut Copying<'_>,
    ) -> Result<BackupReport> {
        let to = &*report.to.clone();
        if let Some(manifest) = manifest {
            report.bytes += copy_pages(disk, &self.directory, to, &manifest, copying)?;
        }
        self.copy_log((disk, to), end, &mut report, copying)?;
        for (extent, end) in named.ends {
            let from = self.directory.extent_path(extent);
            let copy = Numbered::Extent.path(&to.join("extents"), extent);
            copy_file(disk, &from, &copy, Some(end), copying)?;
            report.extents += 1;
            report.bytes += end;
        }
        self.copy_objects((disk, to), &named.objects, &mut report, copying)?;
        if options.set_objects {
            self.copy_set_objects((disk, to), &mut report, copying)?;
        }
        let claim = to.join(CLAIM);
        disk.remove(&claim).map_err(|e| Cause::io("remove", &claim, e))?;
        log::prove_copy(&self.directory, (disk, &to.join("log")), end.0, report.records)?;
        sync_directories(disk, to)?;
        copy_file(disk, &self.directory.path.join("FOREBAY"), &to.join("FOREBAY"), None, copying)?;
        disk.sync_directory(to).map_err(|e| Cause::io("sync", to, e))?;
        Ok(report)
    }

    /// How much there is to copy, but for objects that no step names.
    fn bytes_to_copy(
        &self,
        manifest: Option<&Manifest>,
        (last, offset): (u32, u64),
        named: &Named,
    ) -> Result<u64> {
        let (disk, log) = (&*self.directory.disk, self.directory.log());
        let pages: u64 = manifest.iter().flat_map(|manifest| &manifest.files).map(|file| file.bytes).sum();
        let segments = disk.list(&log).map_err(|e| Cause::io("list", &log, e))?;
        let of_segment = |path: &PathBuf| match Numbered::Segment.number(path) {
            Some(number) if number < last => bytes_of(disk, path),
            Some(number) if number == last => offset,
            _ => 0,
        };
        let values: u64 = named.ends.values().sum();
        let objects: u64 = named.objects.iter().map(|(object, _)| object.bytes).sum();
        Ok(pages + segments.iter().map(of_segment).sum::<u64>() + values + objects)
    }

    /// What steps name.
    fn copy_objects(
        &self,
        (disk, to): (&dyn Disk, &Path),
        objects: &[(ObjectRef, bool)],
        report: &mut BackupReport,
        copying: &mut Copying<'_>,
    ) -> Result<()> {
        for (object, needed) in objects {
            let path = |root: &Path| object::path_in(root, &object.key, object.version);
            let (from, copy) = (path(&self.directory.objects()), path(&to.join("objects")));
            let folder = to.join("objects").join(&object.key);
            disk.create_directory(&folder).map_err(|e| Cause::io("create", &folder, e))?;
            // What only a rewind could need may have been removed; what a policy stands on may not.
            let exists = |path| disk.exists(path).map_err(|e| Cause::io("look for", path, e));
            if !exists(&copy)? && (*needed || exists(&from)?) {
                report.bytes += copy_object(disk, &from, &copy, copying)?;
                report.objects += 1;
            }
        }
        Ok(())
    }

    /// What is set and lies in the disk tier. A version that goes before it is open is passed over: it is over.
    fn copy_set_objects(
        &self,
        (disk, to): (&dyn Disk, &Path),
        report: &mut BackupReport,
        copying: &mut Copying<'_>,
    ) -> Result<()> {
        let set = object::files_set(&self.directory)?;
        copying.expect(set.iter().map(|(_, from)| bytes_of(disk, from)).sum());
        for (key, from) in set {
            let folder = to.join("objects").join(key);
            let Some(copy) = from.file_name().map(|name| folder.join(name)) else { continue };
            if disk.exists(&copy).map_err(|e| Cause::io("look for", &copy, e))? {
                continue;
            }
            disk.create_directory(&folder).map_err(|e| Cause::io("create", &folder, e))?;
            match copy_file(disk, &from, &copy, None, copying) {
                Ok(bytes) => {
                    report.bytes += bytes;
                    report.objects += 1;
                }
                Err(_) if matches!(disk.exists(&from), Ok(false)) => {
                    let _ = disk.remove(&copy); // where it was begun
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The segments, the last one up to the place that was read.
    fn copy_log(
        &self,
        (disk, to): (&dyn Disk, &Path),
        (last, offset): (u32, u64),
        report: &mut BackupReport,
        copying: &mut Copying<'_>,
    ) -> Result<()> {
        let log = self.directory.log();
        for from in disk.list(&log).map_err(|e| Cause::io("list", &log, e))? {
            let number = Numbered::Segment.number(&from);
            let Some((number, name)) = number.filter(|number| *number <= last).zip(from.file_name()) else {
                continue;
            };
            let copy = to.join("log").join(name);
            report.bytes += if number < last {
                copy_file(disk, &from, &copy, None, copying)?
            } else {
                copy_prefix(disk, &from, &copy, offset, copying)?
            };
            report.segments += 1;
        }
        Ok(())
    }
}

/// What a state names outside the log.
struct Named {
    /// The end of the last value of each extent.
    ends: BTreeMap<u32, u64>,
    /// Objects, and whether a policy stands on them now.
    objects: Vec<(ObjectRef, bool)>,
}

impl Named {
    fn by(state: &State) -> Self {
        let mut ends: BTreeMap<u32, u64> = BTreeMap::new();
        for value in named_values(state).0 {
            let end = (u64::from(value.offset) + u64::from(value.length)).next_multiple_of(8)
                + TRAILER_BYTES as u64;
            let known = ends.entry(value.extent).or_default();
            *known = end.max(*known);
        }
        let objects = state.objects_named().map(|object| (object.clone(), state.stands_on(object))).collect();
        Named { ends, objects }
    }
}

/// Copies the file of an object, and that it is deleted for all but the steps that name it, if it is. Gives its length.
pub(crate) fn copy_object(disk: &dyn Disk, from: &Path, to: &Path, copying: &mut Copying<'_>) -> Result<u64> {
    let is_deleted = object::is_marked(disk, from)?;
    let bytes = copy_file(disk, from, to, None, copying)?;
    if is_deleted {
        object::mark_deleted(disk, to).map_err(|e| Cause::io("mark", to, e))?;
    }
    Ok(bytes)
}

/// Copies a checkpoint that nobody changes.
pub(crate) fn copy_checkpoint(from: &Directory, to: &Path) -> Result<u64> {
    let copy = |manifest| copy_pages(&*from.disk, from, to, &manifest, &mut Copying::unwatched());
    Manifest::read(from)?.map_or(Ok(0), copy)
}

/// Copies what a manifest names, and then the manifest itself as it was read: the file may be another by now.
fn copy_pages(
    disk: &dyn Disk,
    from: &Directory,
    to: &Path,
    manifest: &Manifest,
    copying: &mut Copying<'_>,
) -> Result<u64> {
    let mut bytes = 0;
    for file in &manifest.files {
        let path = from.pages_path(file.number);
        let Some(name) = path.file_name() else { continue };
        bytes += copy_prefix(disk, &path, &to.join("pages").join(name), file.bytes, copying)?;
    }
    manifest.write_to(disk, &to.join("MANIFEST"), from.store_id)?;
    Ok(bytes)
}

/// The length of a file; 0 for one that is gone.
fn bytes_of(disk: &dyn Disk, path: &Path) -> u64 {
    disk.open(path).and_then(|file| file.length()).unwrap_or(0)
}

/// What is in a directory while a copy is made there: whoever makes that file has the directory to himself.
const CLAIM: &str = "COPYING";

/// Takes a directory for a copy, which is empty, or has but empty folders of one that was given up, and makes its folders.
fn begin(disk: &dyn Disk, to: &Path) -> Result<()> {
    let claim = to.join(CLAIM);
    if let Err(error) = disk.create(&claim) {
        return Err(match error.kind() {
            io::ErrorKind::AlreadyExists => Cause::DirectoryTaken { path: to.to_owned() }.into(),
            _ => Cause::io("create", &claim, error).into(),
        });
    }
    let begun = begin_claimed(disk, to);
    if begun.is_err() {
        remove(disk, &claim);
    }
    begun
}

fn begin_claimed(disk: &dyn Disk, to: &Path) -> Result<()> {
    let create = |path: &Path| disk.create_directory(path).map_err(|e| Cause::io("create", path, e));
    let mut there = disk.list(to).map_err(|e| Cause::io("list", to, e))?;
    there.retain(|path| *path != to.join(CLAIM));
    for path in &there {
        let is_folder = path.file_name().is_some_and(|name| FOLDERS.iter().any(|folder| name == *folder));
        let files = if is_folder { files_in(disk, path) } else { Ok(vec![path.clone()]) };
        match files {
            Ok(files) if files.is_empty() => {}
            Err(error) if link_in_the_way(&error).is_some() => {
                return Err(Cause::io("list", path, error).into());
            }
            _ => return Err(Cause::DirectoryTaken { path: to.to_owned() }.into()),
        }
    }
    for folder in FOLDERS {
        create(&to.join(folder))?;
    }
    Ok(())
}

/// Removes what was copied of a copy that comes to nothing, but for its folders.
fn give_up(disk: &dyn Disk, to: &Path) {
    // The identity first, so that what is left is no store; the claim last, so that nobody else begins meanwhile.
    let mut made = vec![to.join("FOREBAY"), to.join("MANIFEST"), to.join("MANIFEST.tmp")];
    made.extend(FOLDERS.iter().flat_map(|folder| files_in(disk, &to.join(folder)).unwrap_or_default()));
    made.push(to.join(CLAIM));
    made.iter().for_each(|path| remove(disk, path));
}

fn remove(disk: &dyn Disk, path: &Path) {
    if let Err(error) = disk.remove_if_there(path) {
        tracing::warn!(%error, path = %path.display(), "a part of a copy that was given up is left");
    }
}

/// The files of a folder of a copy, those of every key among objects.
fn files_in(disk: &dyn Disk, folder: &Path) -> io::Result<Vec<PathBuf>> {
    let there = disk.list(folder)?;
    let inside = |path: PathBuf| match disk.list(&path) {
        Err(error) if link_in_the_way(&error).is_some() => Err(error),
        listed => Ok(listed.unwrap_or_else(|_| vec![path])),
    };
    Ok(there.into_iter().map(inside).collect::<io::Result<Vec<_>>>()?.concat())
}

/// Copies a file and syncs it. Of one that is to be copied in part the rest is made to read as zeros. Gives its length.
pub(crate) fn copy_file(
    disk: &dyn Disk,
    from: &Path,
    to: &Path,
    end: Option<u64>,
    copying: &mut Copying<'_>,
) -> Result<u64> {
    let length = disk.open(from).and_then(|file| file.length()).map_err(|e| Cause::io("read", from, e))?;
    let copied = copy_prefix(disk, from, to, end.unwrap_or(length).min(length), copying)?;
    if copied < length {
        let file = disk.open_writable(to).map_err(|e| Cause::io("write", to, e))?;
        file.allocate(length).and_then(|()| file.sync()).map_err(|e| Cause::io("write", to, e))?;
    }
    Ok(length)
}

/// Copies the first `length` bytes of a file and syncs them.
fn copy_prefix(
    disk: &dyn Disk,
    from: &Path,
    to: &Path,
    length: u64,
    copying: &mut Copying<'_>,
) -> Result<u64> {
    let source = disk.open(from).map_err(|e| Cause::io("read", from, e))?;
    let target = disk.create(to).map_err(|e| Cause::io("create", to, e))?;
    let mut piece = vec![0; PIECE_BYTES.min(usize::try_from(length).unwrap_or(PIECE_BYTES))];
    let mut at = 0;
    while at < length {
        let piece = &mut piece[..PIECE_BYTES.min((length - at) as usize)];
        source.read_at(piece, at).map_err(|e| Cause::io("read", from, e))?;
        target.append(piece).map_err(|e| Cause::io("write", to, e))?;
        at += piece.len() as u64;
        copying.copied(piece.len() as u64)?;
    }
    target.sync().map_err(|e| Cause::io("sync", to, e))?;
    Ok(length)
}

/// Makes the names in a copy stable.
pub(crate) fn sync_directories(disk: &dyn Disk, to: &Path) -> Result<()> {
    let objects = to.join("objects");
    let mut folders = disk.list(&objects).map_err(|e| Cause::io("list", &objects, e))?;
    folders.extend([to.join("log"), to.join("extents"), to.join("pages"), objects, to.to_owned()]);
    folders
        .iter()
        .try_for_each(|path| disk.sync_directory(path).map_err(|e| Cause::io("sync", path, e).into()))
}
