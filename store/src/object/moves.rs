//! Copies between tiers: a version is read where it is, every chunk is checked on its way, and the copy counts once it is whole.
//! One copy of a version at a time; who comes meanwhile waits for it.

use std::sync::Arc;

use super::ObjectRef;
use super::catalog::Ask;
use super::disk::{DiskCopy, NotWritten, Passage};
use super::held::exactly;
use super::host::HostExtent;
use super::manifest::Manifest;
use super::objects::{Objects, Which};
use super::version::{Copies, HostCopy};
use crate::consumer::Wait;
use crate::error::{Cause, Error, Kind, Result};

/// What an exchange did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchanged {
    /// The version that went to the disk.
    pub out: u64,
    /// The version that came into the host tier.
    pub into: u64,
    /// Whether both went on at once; otherwise there was no room for the second before the first had gone.
    pub overlapped: bool,
}

/// Held while a version is copied.
struct Moving<'a> {
    objects: &'a Objects,
    manifest: &'a Manifest,
    copies: Copies,
    once: bool,
    /// It was deleted before, and no mark says so of a file that comes now.
    deleted: bool,
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        let (key, version) = (&*self.manifest.key, self.manifest.version);
        let mut catalog = self.objects.core.catalog.lock();
        if let Some(found) = catalog.version(key, version) {
            found.moving = false;
        }
        let changed = catalog.key(key).changed.clone();
        let gone = catalog.retain(key, self.objects.core.options.versions_kept);
        drop(catalog);
        changed.notify(usize::MAX);
        self.objects.bury(gone);
    }
}

impl Objects {
    fn begin_move<'a>(&'a self, manifest: &'a Manifest) -> Result<Moving<'a>> {
        loop {
            let mut catalog = self.core.catalog.lock();
            let missing = catalog.missing(&manifest.key, exactly(manifest));
            let found = catalog.version(&manifest.key, manifest.version).ok_or(missing)?;
            if !found.moving {
                found.moving = true;
                let (copies, once, deleted) = (found.copies.clone(), found.once, found.is_deleted());
                return Ok(Moving { objects: self, manifest, copies, once, deleted });
            }
            let listener = catalog.key(&manifest.key).changed.listen();
            drop(catalog);
            self.core.clock.wait(listener, None);
        }
    }

    /// The version in memory, copied there when it is not. The caller holds a lease.
    pub(super) fn host_copy(&self, manifest: &Manifest) -> Result<Arc<HostCopy>> {
        let there = self.copies(manifest).host;
        if let Some(copy) = there {
            match copy.verify_once(manifest).inspect_err(|error| self.count_corrupt(error)) {
                Ok(()) => return Ok(copy),
                Err(error) if self.copies(manifest).disk.is_none() => return Err(error),
                Err(error) => {
                    tracing::error!(%error, "a damaged copy in the host tier is replaced from the disk");
                    let damaged = self.core.catalog.lock().take_host(&manifest.key, manifest.version);
                    drop((damaged, copy)); // there may be room for just one
                }
            }
        }
        let moving = self.begin_move(manifest)?;
        match (&moving.copies.host, &moving.copies.disk) {
            (Some(copy), _) => Ok(copy.clone()), // somebody else has copied it meanwhile
            (None, Some(disk)) => self.promote(manifest, disk),
            (None, None) => Err(self.core.catalog.lock().missing(&manifest.key, exactly(manifest)).into()),
        }
    }

    fn promote(&self, manifest: &Manifest, disk: &DiskCopy) -> Result<Arc<HostCopy>> {
        let payloads = manifest.layout.payloads().iter();
        let extents: Result<Vec<HostExtent>> = payloads.map(|payload| self.allocate(payload.bytes)).collect();
        let extents = extents?;
        let copied = disk.copy_to(self.passage(), manifest, &extents);
        let is_direct = copied.inspect_err(|error| self.count_corrupt(error))?;
        self.count_direct(is_direct, manifest);
        let copy = Arc::new(HostCopy::new(Arc::new(extents), true, true));
        self.core.catalog.lock().add_host(&manifest.key, manifest.version, copy.clone())?;
        self.core.counters.promotions.add(1);
        self.core.counters.promoted_bytes.add(manifest.bytes());
        Ok(copy)
    }

    /// The version on disk, copied there when it is not. The caller holds a lease.
    pub(super) fn disk_copy(&self, manifest: &Manifest) -> Result<Arc<DiskCopy>> {
        if let Some(copy) = self.copies(manifest).disk {
            return Ok(copy);
        }
        let moving = self.begin_move(manifest)?;
        match (&moving.copies.disk, &moving.copies.host) {
            (Some(copy), _) => Ok(copy.clone()),
            (None, Some(host)) => self.write_file(&moving, host),
            (None, None) => Err(self.core.catalog.lock().missing(&manifest.key, exactly(manifest)).into()),
        }
    }

    /// The version in a file to which it may be left: one that was just written, or every byte of which was just held against
    /// its checksum. A file that has come to be damaged is written again from memory. One that there is nothing to mend with is given
    /// as it is. The caller holds a lease.
    fn sound_disk_copy(&self, manifest: &Manifest) -> Result<DiskFound> {
        let moving = self.begin_move(manifest)?;
        match (&moving.copies.disk, &moving.copies.host) {
            (Some(copy), None) => Ok(DiskFound::before(copy)), // there is nothing to mend it with, and nothing to lose
            (Some(copy), Some(host)) => match copy.verify(&*self.core.directory.disk, manifest) {
                Ok(()) => Ok(DiskFound::before(copy)),
                Err(error) => {
                    self.count_corrupt(&error);
                    tracing::error!(%error, "a damaged file of an object is written again from memory");
                    self.write_file(&moving, host).map(DiskFound::written)
                }
            },
            (None, Some(host)) => self.write_file(&moving, host).map(DiskFound::written),
            (None, None) => Err(self.core.catalog.lock().missing(&manifest.key, exactly(manifest)).into()),
        }
    }

    fn write_file(&self, moving: &Moving<'_>, host: &HostCopy) -> Result<Arc<DiskCopy>> {
        let (directory, manifest) = (&self.core.directory, moving.manifest);
        let (key, version) = (&*manifest.key, manifest.version);
        if moving.deleted {
            return Err(self.core.catalog.lock().missing(key, exactly(manifest)).into());
        }
        let named = self.store.0.state.lock().committed_object(key, version).cloned();
        let written = DiskCopy::write(
            self.passage(),
            &directory.objects(),
            manifest,
            moving.once,
            host,
            named.as_ref(),
        );
        let (written, is_direct) = written.map_err(|failed| self.not_written(manifest, failed))?;
        let copy = Arc::new(written);
        self.count_direct(is_direct, manifest);
        if let Some(found) = self.core.catalog.lock().version(&manifest.key, manifest.version) {
            found.copies.disk = Some(copy.clone());
        }
        self.core.counters.spills.add(1);
        self.core.counters.spilled_bytes.add(manifest.bytes());
        Ok(copy)
    }

    fn not_written(&self, manifest: &Manifest, failed: NotWritten) -> Error {
        let NotWritten { error, may_come } = failed;
        self.count_corrupt(&error);
        if let Some(found) = self.core.catalog.lock().version(&manifest.key, manifest.version) {
            found.may_come |= may_come;
        }
        error
    }

    fn copies(&self, manifest: &Manifest) -> Copies {
        let mut catalog = self.core.catalog.lock();
        let found = catalog.version(&manifest.key, manifest.version);
        found.map(|found| found.copies.clone()).unwrap_or_default()
    }

    /// The way to the disk and back.
    fn passage(&self) -> Passage<'_> {
        Passage { disk: &*self.core.directory.disk, is_direct: self.core.options.direct_io }
    }

    fn count_direct(&self, is_direct: bool, manifest: &Manifest) {
        if is_direct {
            self.core.counters.direct_bytes.add(manifest.bytes());
        }
    }

    pub(super) fn count_corrupt(&self, error: &Error) {
        if error.kind() == Kind::Corrupt {
            self.core.counters.corrupt.add(1);
        }
    }

    fn ask_of(which: Which) -> (Ask, Wait) {
        match which {
            Which::Latest => (Ask::Latest, Wait::No),
            Which::Exact(version) => (Ask::Exact(version), Wait::No),
            Which::AtLeast(version, wait) => (Ask::AtLeast(version), wait),
        }
    }

    /// Brings a version to the disk as well, on stable storage, and gives its number. It stays in memory. A file that is there
    /// is read and held against the checksums as long as there is a copy in memory to write it again from.
    ///
    /// # Errors
    /// As for [`get`](Self::get); `capacity` when the disk is full.
    pub fn spill(&self, key: &str, which: Which) -> Result<u64> {
        let (ask, wait) = Self::ask_of(which);
        let leased = self.lease_when_there(key, ask, wait)?;
        self.sound_disk_copy(&leased.manifest)?;
        Ok(leased.version())
    }

    /// Brings a version to the disk, and takes it out of memory: not before the file is known to hold every byte of it. Whoever
    /// holds it there keeps it.
    ///
    /// # Errors
    /// As for [`spill`](Self::spill).
    pub fn demote(&self, key: &str, which: Which) -> Result<u64> {
        let (ask, wait) = Self::ask_of(which);
        let leased = self.lease_when_there(key, ask, wait)?;
        self.demote_leased(&leased.manifest)
    }

    pub(super) fn demote_leased(&self, manifest: &Manifest) -> Result<u64> {
        self.sound_disk_copy(manifest)?;
        let copy = self.core.catalog.lock().take_host(&manifest.key, manifest.version);
        drop(copy);
        Ok(manifest.version)
    }

    /// One version goes to the disk while another comes from there: both at once where there is room, one after the other
    /// otherwise.
    ///
    /// # Errors
    /// As for [`demote`](Self::demote) and [`get`](Self::get). What was done of the one stays done when the other fails.
    pub fn exchange(&self, out: (&str, Which), into: (&str, Which)) -> Result<Exchanged> {
        let lease = |(key, which): (&str, Which)| {
            let (ask, wait) = Self::ask_of(which);
            self.lease_when_there(key, ask, wait)
        };
        let (leaving, coming) = (lease(out)?, lease(into)?);
        let (leaves, comes) = (&*leaving.manifest, &*coming.manifest);
        let overlapped =
            self.core.arena.has_room(comes.layout.payloads().iter().map(|payload| payload.bytes));
        if overlapped {
            std::thread::scope(|scope| {
                let left = scope.spawn(|| self.demote_leased(leaves));
                let came = self.host_copy(comes).map(drop);
                let left = left.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                // Room may be there, and not in one piece.
                let came = came.or_else(|error| match error.kind() {
                    Kind::Capacity => self.host_copy(comes).map(drop),
                    _ => Err(error),
                });
                left.and(came)
            })?;
        } else {
            self.demote_leased(leaves)?;
            self.host_copy(comes)?;
        }
        Ok(Exchanged { out: leaves.version, into: comes.version, overlapped })
    }

    /// What a step calls a version by, so that a commit can name it: brought to the disk when it is not there. A step that stands
    /// keeps it from then on, as it keeps what [`Store::put_object`](crate::Store::put_object) wrote.
    ///
    /// ```
    /// # use forebay_store::*;
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let options = Options::default().objects(ObjectOptions::default().host_folder(HostFolder::Anonymous));
    /// # let store = Store::open(dir.path().join("store"), options)?;
    /// let objects = store.objects()?;
    /// let bytes = TensorBytes { class: "weights", name: "w", dtype: Dtype::U8, shape: &[3], bytes: &[1, 2, 3] };
    /// let version = objects.set("solver", &[bytes])?;
    /// let named = objects.reference("solver", version)?;
    /// store.declare_policy("solver", Policy::volatile().version(version).objects(&[named.clone()]))?;
    /// assert_eq!(store.object(&named)?.len() as u64, named.bytes); // the file, as stock readers open it
    /// # Ok::<(), forebay_store::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`spill`](Self::spill).
    pub fn reference(&self, key: &str, version: u64) -> Result<ObjectRef> {
        let leased = self.lease_when_there(key, Ask::Exact(version), Wait::No)?;
        let found = self.sound_disk_copy(&leased.manifest)?;
        let object = found.copy.reference(&*self.core.directory.disk, &leased.manifest)?;
        if found.is_written {
            self.store.0.puts.remember(&object); // or the commit that names it would read all of it again
        }
        Ok(object)
    }
}

/// A version in its file.
struct DiskFound {
    copy: Arc<DiskCopy>,
    /// This very call has written the file. Of one that was there before, what is around the tensors may have come to be damaged.
    is_written: bool,
}

impl DiskFound {
    fn written(copy: Arc<DiskCopy>) -> Self {
        DiskFound { copy, is_written: true }
    }

    fn before(copy: &Arc<DiskCopy>) -> Self {
        DiskFound { copy: copy.clone(), is_written: false }
    }
}

/// Refuses what names more keys than one call takes.
pub(super) fn check_count(count: usize) -> Result<()> {
    if count <= super::OBJECT_KEYS_MAX {
        return Ok(());
    }
    let reason = format!("{count} in one call; take {} at most", super::OBJECT_KEYS_MAX);
    Err(Cause::Argument { what: "keys", reason }.into())
}
