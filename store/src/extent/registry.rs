//! Every extent of the store, and how the bytes of a view are found.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::bytes::ValueBytes;
use super::file::{Extent, ExtentFile, Kept};
use super::layout::{ExtentHeader, HEADER_BYTES};
use super::liveness::{Liveness, Place};
use super::pins::Pins;
use super::view::View;
use crate::directory::{Directory, FORMAT_VERSION};
use crate::disk::Mapping;
use crate::error::{Cause, Error, Result};
use crate::header::HeaderFault;
use crate::numbered::Numbered;
use crate::schema::StorageClass;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Rank, RwLock};

/// Every extent that may hold something to read, one generation of each file.
#[derive(Debug)]
pub(crate) struct Extents {
    directory: PathBuf,
    by_number: RwLock<BTreeMap<u32, Arc<Extent>>>,
    /// Files whose header cannot be read, and why: damage if a record names a value in one, debris of a crash if not.
    unreadable: RwLock<BTreeMap<u32, Error>>,
    pins: Arc<Pins>,
    /// Values are held against their checksums as they are read.
    checks_values: bool,
    /// How many values were read; meta and status queries leave it alone (FX-23).
    value_reads: AtomicU64,
}

/// A mapped file of some extent, whatever generation of it is there.
#[derive(Clone, Debug)]
pub(crate) struct MappedFile(Arc<ExtentFile>);

impl MappedFile {
    /// Maps the file of an extent for reading.
    pub(crate) fn open(directory: &Arc<Directory>, number: u32) -> Result<Self> {
        let (extent, error) = open_extent(directory, &directory.extent_path(number), number, false)?;
        error.map_or_else(|| Ok(MappedFile(extent.file().clone())), Err)
    }

    /// Whether the store still has it.
    pub(crate) fn is_named(&self) -> bool {
        self.0.is_named()
    }

    /// Whether something of it is held elsewhere.
    pub(crate) fn is_held(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

impl Extents {
    /// Finds and maps the extents of a directory.
    pub(crate) fn open(directory: &Arc<Directory>, writable: bool) -> Result<Self> {
        let extents = Extents::none(directory.extents());
        let path = directory.extents();
        for file in directory.disk.list(&path).map_err(|e| Cause::io("list", &path, e))? {
            let Some(number) = Numbered::Extent.number(&file) else { continue };
            let opened = open_extent(directory, &file, number, writable);
            if !writable && opened.as_ref().is_err_and(is_not_found) {
                continue; // the writer has removed it since
            }
            let (extent, error) = opened?;
            extents.add(Arc::new(extent));
            if let Some(error) = error {
                extents.unreadable.write().insert(number, error);
            }
        }
        Ok(extents)
    }

    /// No extent yet: for who is told which there are.
    pub(crate) fn none(directory: PathBuf) -> Self {
        Extents {
            directory,
            by_number: RwLock::ranked(Rank::Extents, BTreeMap::new()),
            unreadable: RwLock::default(),
            pins: Arc::default(),
            checks_values: false,
            value_reads: AtomicU64::new(0),
        }
    }

    /// Whether values are held against their checksums as they are read; they are not where nothing is said.
    pub(crate) fn checking_values(mut self, checks_values: bool) -> Self {
        self.checks_values = checks_values;
        self
    }

    /// Whether a generation of an extent is among them.
    pub(crate) fn knows(&self, (number, generation): Place) -> bool {
        self.by_number.read().get(&number).is_some_and(|extent| extent.generation() == generation)
    }

    /// Shows a generation of a mapped file; whoever gets a value of it keeps `kept`.
    pub(crate) fn show(&self, file: &MappedFile, generation: u32, kept: Arc<dyn Kept>) {
        self.add(Arc::new(Extent::shown(file.0.clone(), generation, kept)));
    }

    /// Maps the extents, and the generations of extents, that have come since, for a reader beside the writer. Those whose files the
    /// writer has removed are let go of unless somebody holds them: their space comes free with the last mapping.
    pub(crate) fn take_in(&self, directory: &Arc<Directory>) -> Result<()> {
        let (path, mut there) = (directory.extents(), BTreeSet::new());
        for file in directory.disk.list(&path).map_err(|e| Cause::io("list", &path, e))? {
            let Some(number) = Numbered::Extent.number(&file) else { continue };
            there.insert(number);
            let known = self.by_number.read().get(&number).cloned();
            // One that was still being made when it was looked at has no byte mapped yet.
            let is_known = known.is_some_and(|known| {
                known.capacity() > 0 && generation_of(directory, &file) == Some(known.generation())
            });
            if is_known {
                continue;
            }
            match open_extent(directory, &file, number, false) {
                Ok((extent, _)) => self.add(Arc::new(extent)),
                Err(error) if is_not_found(&error) => {} // it was removed in between; nothing that is shown lies there
                Err(error) => return Err(error),
            }
        }
        let mut by_number = self.by_number.write();
        by_number.retain(|number, extent| there.contains(number) || Arc::strong_count(extent) > 1);
        Ok(())
    }

    /// Whether somebody holds a value of any extent.
    pub(crate) fn is_any_held(&self) -> bool {
        self.by_number.read().values().any(|extent| Arc::strong_count(extent) > 1)
    }

    /// Holds the files against the state that the log led to: a file that cannot be read must not be named by it.
    /// One that is missing is an error when its values are read.
    pub(crate) fn check(&self, liveness: &Liveness) -> Result<()> {
        for ((number, generation), _) in liveness.live() {
            if let Some(error) = self.unreadable.write().remove(&number) {
                return Err(error);
            }
            let found = self.by_number.read().get(&number).map(|extent| extent.generation());
            if let Some(found) = found.filter(|found| *found != generation) {
                let path = Numbered::Extent.path(&self.directory, number);
                let reason =
                    format!("the extent holds generation {found}, the log names values of {generation}");
                return Err(Cause::Corrupt { path, offset: 32, reason }.into());
            }
        }
        Ok(())
    }

    pub(super) fn add(&self, extent: Arc<Extent>) {
        self.by_number.write().insert(extent.number(), extent);
    }

    /// Takes a generation out if nobody but the registry holds it; from then on nobody can find it either.
    pub(super) fn take_unheld(&self, (number, generation): Place) -> Option<Extent> {
        let mut by_number = self.by_number.write();
        let extent = by_number.remove(&number)?;
        if extent.generation() != generation {
            by_number.insert(number, extent);
            return None;
        }
        Arc::try_unwrap(extent)
            .inspect_err(|held| {
                by_number.insert(number, held.clone());
            })
            .ok()
    }

    /// Whether a file's header could be read, so that its generation is known.
    pub(super) fn is_readable(&self, number: u32) -> bool {
        !self.unreadable.read().contains_key(&number)
    }

    /// Every extent, in the order of their numbers.
    pub(crate) fn all(&self) -> Vec<Arc<Extent>> {
        self.by_number.read().values().cloned().collect()
    }

    /// Makes every value that was written before the call stable, but for those in generations that are `over`, and those
    /// that are made free before their turn comes: only the extent whose turn it is is held.
    pub(super) fn sync(&self, over: &[Place]) -> Result<()> {
        let all: Vec<Place> = self.by_number.read().values().map(|extent| extent.place()).collect();
        for place in all.into_iter().filter(|place| !over.contains(place)) {
            let Some(extent) = self.at(place) else { continue };
            extent.sync().map_err(|e| Cause::io("sync", extent.file().path.clone(), e))?;
        }
        Ok(())
    }

    /// The extent of that number, while it has that generation.
    fn at(&self, place: Place) -> Option<Arc<Extent>> {
        self.by_number.read().get(&place.0).filter(|extent| extent.place() == place).cloned()
    }

    /// The greatest extent number in use.
    pub(super) fn greatest(&self) -> u32 {
        self.by_number.read().last_key_value().map_or(0, |(number, _)| *number)
    }

    /// How many extents there are and how many bytes they take on disk.
    pub(crate) fn totals(&self) -> (usize, u64) {
        let by_number = self.by_number.read();
        (by_number.len(), by_number.values().map(|extent| extent.reserved()).sum())
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn pins(&self) -> &Arc<Pins> {
        &self.pins
    }

    pub(crate) fn count_reads(&self, values: u64) {
        self.value_reads.fetch_add(values, Ordering::Relaxed);
    }

    pub(crate) fn value_reads(&self) -> u64 {
        self.value_reads.load(Ordering::Relaxed)
    }

    /// Finds the bytes that a view stands for. The view must come from the state as it is now, with its lock held, or
    /// from one that the caller holds a pin of.
    pub(crate) fn resolve(&self, view: View, class: StorageClass) -> Result<ValueBytes> {
        if view.is_inline(class) {
            return Ok(ValueBytes::inline(view));
        }
        self.count_reads(1);
        let (extent, offset) = self.locate(view)?;
        Ok(ValueBytes::located(extent, offset, view.length()))
    }

    /// As [`resolve`](Self::resolve), for whoever reads: the value is held against its checksum where that is wished. With no lock
    /// held.
    pub(crate) fn read(&self, view: View, class: StorageClass) -> Result<ValueBytes> {
        let bytes = self.resolve(view, class)?;
        bytes.extent().map_or(Ok(()), |extent| self.check_value(extent, view))?;
        Ok(bytes)
    }

    /// As [`read`](Self::read), for many: the extents are looked up once for values that lie together.
    pub(crate) fn read_all(
        &self,
        views: impl Iterator<Item = Option<View>>,
        class: StorageClass,
    ) -> Result<Vec<Option<ValueBytes>>> {
        let (mut last, mut reads): (Option<Arc<Extent>>, u64) = (None, 0);
        let mut resolve = |view: View| {
            if view.is_inline(class) {
                return Ok(ValueBytes::inline(view));
            }
            reads += 1;
            let extent = match last.take() {
                Some(extent) if self.is_sound_in(&extent, view)? => extent,
                _ => self.locate_sound(view)?.0,
            };
            last = Some(extent.clone());
            Ok(ValueBytes::located(extent, view.offset(), view.length()))
        };
        let found = views.map(|view| view.map(&mut resolve).transpose()).collect();
        self.count_reads(reads);
        found
    }

    /// Holds a value against its checksum, where that is wished.
    fn check_value(&self, extent: &Extent, view: View) -> Result<()> {
        if !self.checks_values {
            return Ok(());
        }
        let sound = extent.sound_trailer(view);
        sound.map(drop).inspect_err(|error| tracing::error!(%error, "a damaged value is not given"))
    }

    /// Whether a value lies in an extent that is at hand.
    ///
    /// # Errors
    /// `corrupt` when it does, and is damaged.
    pub(crate) fn is_sound_in(&self, extent: &Extent, view: View) -> Result<bool> {
        let is_in = why_not(extent, view).is_none();
        if is_in {
            self.check_value(extent, view)?;
        }
        Ok(is_in)
    }

    /// As [`locate`](Self::locate), for whoever reads.
    pub(crate) fn locate_sound(&self, view: View) -> Result<(Arc<Extent>, usize)> {
        let (extent, offset) = self.locate(view)?;
        self.check_value(&extent, view)?;
        Ok((extent, offset))
    }

    /// The extent and offset of a view that is not inline, checked to lie inside the extent.
    pub(crate) fn locate(&self, view: View) -> Result<(Arc<Extent>, usize)> {
        let extent = self.by_number.read().get(&view.extent()).cloned();
        let why = match extent {
            None => "is in a file that is missing",
            Some(extent) => match why_not(&extent, view) {
                None => return Ok((extent, view.offset())),
                Some(why) => why,
            },
        };
        let path = Numbered::Extent.path(&self.directory, view.extent());
        let reason = format!("a value of {} bytes, generation {}, {why}", view.length(), view.generation());
        Err(Cause::Corrupt { path, offset: view.offset() as u64, reason }.into())
    }
}

/// Why a value does not lie in an extent; `None` when it does.
fn why_not(extent: &Extent, view: View) -> Option<&'static str> {
    if extent.number() != view.extent() {
        return Some("lies in another file");
    }
    if extent.generation() != view.generation() {
        return Some("was overwritten by another generation");
    }
    extent.stable(view.offset(), view.length()).is_none().then_some("lies outside the file")
}

fn is_not_found(error: &Error) -> bool {
    matches!(error.cause(), Cause::Io { source, .. } if source.kind() == ErrorKind::NotFound)
}

/// The generation that a file's header tells now.
fn generation_of(directory: &Directory, path: &Path) -> Option<u32> {
    let mut bytes = [0; HEADER_BYTES];
    directory.disk.open(path).and_then(|file| file.read_at(&mut bytes, 0)).ok()?;
    ExtentHeader::decode(&bytes).ok().map(|header| header.generation)
}

/// Maps one extent file. One whose header cannot be read is given with the error, and without any bytes.
fn open_extent(
    directory: &Arc<Directory>,
    path: &Path,
    number: u32,
    writable: bool,
) -> Result<(Extent, Option<Error>)> {
    let disk = &directory.disk;
    let opened = if writable { disk.open_writable(path) } else { disk.open(path) };
    let file = opened.map_err(|e| Cause::io("open", path, e))?;
    let length = file.length().map_err(|e| Cause::io("read", path, e))?;
    let corrupt = |reason: &str| {
        Error::from(Cause::Corrupt { path: path.to_owned(), offset: 0, reason: reason.to_owned() })
    };
    let nothing = |error| {
        let file = ExtentFile::found(directory, number, path.to_owned(), Arc::new(Mapping::empty()), 0);
        Ok((Extent::found(file, 0), error))
    };
    let mut bytes = [0; HEADER_BYTES];
    if length < HEADER_BYTES as u64 {
        return nothing(None); // what a crash leaves of one that was being made
    }
    file.read_at(&mut bytes, 0).map_err(|e| Cause::io("read", path, e))?;
    let header = match ExtentHeader::read(&bytes) {
        Ok(header) => header,
        Err(HeaderFault::Format(found)) => {
            let path = path.to_owned();
            return Err(Cause::FormatVersion { path, found, expected: FORMAT_VERSION }.into());
        }
        Err(HeaderFault::Damaged) => {
            return nothing(Some(corrupt("the extent's header does not match its checksum")));
        }
    };
    if header.store_id != directory.store_id || header.number != number {
        return Err(corrupt("the extent belongs to another store or carries another number"));
    }
    let capacity =
        usize::try_from(length.min(header.capacity)).map_err(|_| corrupt("the extent is too long to map"))?;
    let mapping = file.map(capacity).map_err(|e| Cause::io("map", path, e))?;
    let occupied = file.occupied().map_err(|e| Cause::io("measure", path, e))?;
    let file = ExtentFile::found(directory, number, path.to_owned(), mapping, occupied);
    Ok((Extent::found(file, header.generation), None))
}
