//! Reads values out of extents.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arrow_buffer::Buffer;
use parking_lot::{Mutex, RwLock};

use super::view::View;
use super::{HEADER_BYTES, MAGIC};
use crate::directory::{Directory, FORMAT_VERSION};
use crate::disk::{DiskFile, Mapping};
use crate::error::{Cause, Error, Result};
use crate::schema::StorageClass;

/// One file of values.
#[derive(Debug)]
pub(crate) struct Extent {
    number: u32,
    mapping: Arc<Mapping>,
    /// What its only writer writes through; `None` for one that was there when the store was opened.
    written: Option<Written>,
}

/// The file of an extent that is being written in this life of the store.
#[derive(Debug)]
struct Written {
    file: Box<dyn DiskFile>,
    /// Something was written since the last sync began.
    unsynced: AtomicBool,
    /// Held while the file is synced, so that nobody takes a sync under way for one that is done.
    syncing: Mutex<()>,
}

/// A panic while values are written leaves bytes that no record names; nothing that a reader sees is half done.
impl std::panic::RefUnwindSafe for Extent {}

impl Extent {
    pub(super) fn new(number: u32, mapping: Arc<Mapping>) -> Self {
        Extent { number, mapping, written: None }
    }

    /// An extent that is written through `file`, which holds its header and nothing else yet.
    pub(super) fn begun(number: u32, mapping: Arc<Mapping>, file: Box<dyn DiskFile>) -> Self {
        let written = Written { file, unsynced: AtomicBool::new(true), syncing: Mutex::new(()) };
        Extent { number, mapping, written: Some(written) }
    }

    /// Notes that a value was written; called before any record names it.
    pub(super) fn changed(&self) {
        if let Some(written) = &self.written {
            written.unsynced.swap(true, Ordering::SeqCst); // after the bytes, in the eyes of every thread
        }
    }

    /// Makes what was written before the call stable.
    fn sync(&self) -> std::io::Result<()> {
        let Some(written) = &self.written else { return Ok(()) };
        let _alone = written.syncing.lock();
        if !written.unsynced.swap(false, Ordering::SeqCst) {
            return Ok(());
        }
        written.file.sync().inspect_err(|_| written.unsynced.store(true, Ordering::Release))
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn capacity(&self) -> usize {
        self.mapping.len()
    }

    pub(crate) fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    /// A range of written values as an Arrow buffer, not copied; the buffer keeps the extent mapped.
    pub(crate) fn buffer(self: &Arc<Self>, range: Range<usize>) -> Buffer {
        assert!(self.mapping.stable(range.start, range.len()).is_some(), "a window outside its extent");
        #[allow(unsafe_code, reason = "an Arrow buffer over mapped bytes")]
        // SAFETY: the range lies inside the mapping, as just checked; the mapping lives as long as the `Arc` that the
        // buffer holds; the bytes of values in the range do not change (see the head of this folder). Bytes between
        // values (padding, trailers) are written before a later value's record exists and are never read through it.
        unsafe {
            Buffer::from_custom_allocation(self.mapping.address(range.start), range.len(), self.clone())
        }
    }
}

/// Every extent of the store.
#[derive(Debug, Default)]
pub(crate) struct Extents {
    directory: PathBuf,
    by_number: RwLock<BTreeMap<u32, Arc<Extent>>>,
    /// How many values were read; meta and status queries leave it alone (FX-23).
    value_reads: AtomicU64,
}

/// The bytes of one value, kept alive by whoever holds them.
#[derive(Clone)]
pub struct ValueBytes(Held);

#[derive(Clone)]
enum Held {
    Inline(View),
    Extent { extent: Arc<Extent>, offset: usize, length: usize },
}

impl Deref for ValueBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Held::Inline(view) => view.inline_bytes(),
            // Checked when the view was resolved; values do not change once a record names them.
            Held::Extent { extent, offset, length } => {
                extent.mapping.stable(*offset, *length).unwrap_or_default()
            }
        }
    }
}

impl fmt::Debug for ValueBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ValueBytes({} bytes)", self.len())
    }
}

impl Extents {
    /// Finds and maps the extents of a directory.
    pub(crate) fn open(directory: &Directory) -> Result<Self> {
        let extents = Extents { directory: directory.extents(), ..Extents::default() };
        let path = directory.extents();
        for file in directory.disk.list(&path).map_err(|e| Cause::io("list", &path, e))? {
            if let Some(extent) = open_extent(directory, &file)? {
                extents.add(Arc::new(extent));
            }
        }
        Ok(extents)
    }

    /// Maps the extents that have come since, for a reader beside the writer.
    pub(crate) fn take_in(&self, directory: &Directory) -> Result<()> {
        let path = directory.extents();
        for file in directory.disk.list(&path).map_err(|e| Cause::io("list", &path, e))? {
            let number = file.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok());
            let known = number.and_then(|number: u32| self.by_number.read().get(&number).cloned());
            // One that was still being made when it was looked at has no byte mapped yet.
            if known.is_none_or(|extent| extent.mapping.is_empty())
                && let Some(extent) = open_extent(directory, &file)?
            {
                self.add(Arc::new(extent));
            }
        }
        Ok(())
    }

    /// Whether somebody holds a value of any extent.
    pub(crate) fn is_any_held(&self) -> bool {
        self.by_number.read().values().any(|extent| Arc::strong_count(extent) > 1)
    }

    pub(super) fn add(&self, extent: Arc<Extent>) {
        self.by_number.write().insert(extent.number, extent);
    }

    /// Makes every value that was written before the call stable.
    pub(super) fn sync(&self) -> Result<()> {
        let extents: Vec<_> = self.by_number.read().values().cloned().collect();
        extents.iter().try_for_each(|extent| {
            extent.sync().map_err(|e| {
                let path = self.directory.join(format!("{:08}.extent", extent.number));
                Cause::io("sync", path, e).into()
            })
        })
    }

    /// The greatest extent number in use.
    pub(super) fn greatest(&self) -> u32 {
        self.by_number.read().last_key_value().map_or(0, |(number, _)| *number)
    }

    /// How many extents there are and how many bytes they take on disk.
    pub(crate) fn totals(&self) -> (usize, u64) {
        let by_number = self.by_number.read();
        (by_number.len(), by_number.values().map(|extent| extent.capacity() as u64).sum())
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn count_reads(&self, values: u64) {
        self.value_reads.fetch_add(values, Ordering::Relaxed);
    }

    pub(crate) fn value_reads(&self) -> u64 {
        self.value_reads.load(Ordering::Relaxed)
    }

    /// Finds the bytes that a view stands for.
    pub(crate) fn resolve(&self, view: View, class: StorageClass) -> Result<ValueBytes> {
        if view.is_inline(class) {
            return Ok(ValueBytes(Held::Inline(view)));
        }
        let length = view.length();
        self.count_reads(1);
        let (extent, offset) = self.locate(view)?;
        Ok(ValueBytes(Held::Extent { extent, offset, length }))
    }

    /// The extent and offset of a view that is not inline, checked to lie inside the extent.
    pub(crate) fn locate(&self, view: View) -> Result<(Arc<Extent>, usize)> {
        let extent = self.by_number.read().get(&view.extent()).cloned();
        let inside = |extent: &Arc<Extent>| {
            view.generation() == 0 && extent.mapping.stable(view.offset(), view.length()).is_some()
        };
        match extent {
            Some(extent) if inside(&extent) => Ok((extent, view.offset())),
            found => Err(self.dangling(view, found.is_some())),
        }
    }

    fn dangling(&self, view: View, exists: bool) -> Error {
        let path = self.directory.join(format!("{:08}.extent", view.extent()));
        let why = if exists { "lies outside the file" } else { "is in a file that is missing" };
        let reason = format!("a value of {} bytes, generation {}, {why}", view.length(), view.generation());
        Cause::Corrupt { path, offset: view.offset() as u64, reason }.into()
    }
}

/// Maps one extent file, after its header was read and checked. A file that a crash left without its header or its
/// length holds no value that a record names, and is passed over.
fn open_extent(directory: &Directory, path: &Path) -> Result<Option<Extent>> {
    let number = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse::<u32>().ok());
    let Some(number) = number else { return Ok(None) };
    let io = |e| Cause::io("read", path, e);
    let file = directory.disk.open(path).map_err(io)?;
    let length = file.length().map_err(io)?;
    let mut header = [0; HEADER_BYTES];
    if length < HEADER_BYTES as u64 {
        return Ok(Some(Extent::new(number, Arc::new(Mapping::empty()))));
    }
    file.read_at(&mut header, 0).map_err(io)?;
    let corrupt = |reason: &str| Cause::Corrupt { path: path.to_owned(), offset: 0, reason: reason.into() };
    if header[..8] != MAGIC || crc32c::crc32c(&header[..60]).to_le_bytes() != header[60..] {
        return Err(corrupt("the extent's header does not match its checksum").into());
    }
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| header[at + i]));
    let format = word(8) as u32;
    if format != FORMAT_VERSION {
        return Err(
            Cause::FormatVersion { path: path.to_owned(), found: format, expected: FORMAT_VERSION }.into()
        );
    }
    if word(16) != directory.store_id || (word(8) >> 32) as u32 != number {
        return Err(corrupt("the extent belongs to another store or carries another number").into());
    }
    let capacity =
        usize::try_from(length.min(word(24))).map_err(|_| corrupt("the extent is too long to map"))?;
    Ok(Some(Extent::new(number, file.map(capacity).map_err(|e| Cause::io("map", path, e))?)))
}
