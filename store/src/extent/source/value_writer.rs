//! One call's values on their way into extents.

use std::io;
use std::sync::Arc;

use super::{Asking, ValueSource};
use crate::aside::Aside;
use crate::copy::StoreFence;
use crate::error::{Cause, Result};
use crate::extent::file::Extent;
use crate::extent::layout::{HEADER_BYTES, TRAILER_BYTES, ValueOwner};
use crate::extent::view::{INLINE_BYTES_MAX, View};
use crate::extent::writer::{Lifetime, Writer};
use crate::local::TakenValues;
use crate::schema::StorageClass;
use crate::sync::atomic::Ordering;

/// One call's way to write values: one open extent for each lifetime that it brings values of.
pub(crate) struct ValueWriter<'a> {
    source: &'a ValueSource,
    asking: Asking<'a>,
    writers: Vec<Writer>,
    /// Extents that hold values of this call: they are not recycled before its record is there.
    held: Vec<Arc<Extent>>,
    /// Values of this call that another process has put where they lie.
    taken: TakenValues,
    /// Bytes of values that are yet to be counted: a count that is shared would have each value wait for the stores before.
    written_bytes: u64,
    /// Values that were written before did not get into their extent: the call may not be recorded, whoever goes on with it.
    is_lost: bool,
}

impl<'a> ValueWriter<'a> {
    pub(super) fn new(source: &'a ValueSource, asking: Asking<'a>) -> Self {
        ValueWriter {
            source,
            asking,
            writers: Vec::new(),
            held: Vec::new(),
            taken: TakenValues::default(),
            written_bytes: 0,
            is_lost: false,
        }
    }

    /// Writes one value, made of `parts` in a row, and says where it will lie. It can be read after
    /// [`flush`](Self::flush).
    pub(crate) fn write(
        &mut self,
        parts: &[&[u8]],
        class: StorageClass,
        lifetime: Lifetime,
        owner: ValueOwner,
    ) -> Result<View> {
        let mut view = View::default();
        self.write_among(parts, class, lifetime, owner, &StoreFence::default(), &mut view)?;
        Ok(view)
    }

    /// As [`write`](Self::write), of one of several values: before a [`flush`](Self::flush) `fence` has to order the
    /// stores. Where it will lie goes to `view`.
    pub(crate) fn write_among(
        &mut self,
        parts: &[&[u8]],
        class: StorageClass,
        lifetime: Lifetime,
        owner: ValueOwner,
        fence: &StoreFence,
        view: &mut View,
    ) -> Result<()> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        if class == StorageClass::View && length <= INLINE_BYTES_MAX {
            *view = View::inline(&parts.concat());
            return Ok(());
        }
        if length == 0 {
            *view = View::default();
            return Ok(());
        }
        let align = if class == StorageClass::Slice { 64 } else { 8 };
        let limit = self.source.bytes_max;
        if HEADER_BYTES + length + 64 + TRAILER_BYTES > limit {
            return Err(Cause::ValueTooLarge { bytes: length, limit }.into());
        }
        let written = self.writer(lifetime, length, align, fence)?.write(parts, align, owner, fence, view);
        written.inspect_err(|_| self.is_lost = true)?;
        self.written_bytes += length as u64;
        Ok(())
    }

    /// The open extent for a value; one that is full makes way for the next.
    fn writer(
        &mut self,
        lifetime: Lifetime,
        length: usize,
        align: usize,
        fence: &StoreFence,
    ) -> Result<&mut Writer> {
        let index = match self.writers.iter().position(|writer| writer.lifetime == lifetime) {
            Some(index) if self.writers[index].fits(length, align) => return Ok(&mut self.writers[index]),
            Some(index) => {
                fence.order(); // from here on it is anybody's to sync
                let mut full = self.writers.swap_remove(index);
                if let Err(error) = full.flush() {
                    self.is_lost = true;
                    full.discard();
                    self.writers.push(full); // it is put back like any other, and sealed in its time
                    return Err(error);
                }
                let next = self.source.follow(full, length, self.asking)?;
                self.push(next)
            }
            None => {
                let writer = self.source.check_out(lifetime, length, align, self.asking)?;
                self.push(writer)
            }
        };
        Ok(&mut self.writers[index])
    }

    fn push(&mut self, writer: Writer) -> usize {
        self.held.push(writer.extent.clone());
        self.writers.push(writer);
        self.writers.len() - 1
    }

    /// Brings every value into its extent, so that it can be read and a record may name it, and puts the open extents
    /// back. What was written stays held until the writer is dropped. Fails also where a write before has failed: what was gathered
    /// with it is in no extent.
    pub(crate) fn flush(&mut self) -> Result<()> {
        let lost = || {
            let reason = io::Error::other("an earlier write of the same batch failed");
            Cause::io("write to", self.source.directory.extents(), reason).into()
        };
        self.count_written();
        let mut outcome = self.taken.close().and(if self.is_lost { Err(lost()) } else { Ok(()) });
        for mut writer in self.writers.drain(..) {
            outcome = outcome.and(writer.flush());
            self.source.check_in(writer);
        }
        outcome
    }

    fn count_written(&mut self) {
        let bytes = std::mem::take(&mut self.written_bytes);
        self.source.written_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Has waits for room run aside.
    pub(crate) fn wait_aside(&mut self, aside: Aside) {
        self.asking.aside = aside;
    }

    /// Counts bytes that came to lie in an extent in another way.
    pub(crate) fn count(&mut self, bytes: u64) {
        self.written_bytes += bytes;
    }

    /// Values that lie in an extent already.
    pub(crate) fn taken(&mut self) -> &mut TakenValues {
        &mut self.taken
    }

    /// Holds an extent, that its bytes are there when the call's record is.
    pub(crate) fn hold(&mut self, extent: Arc<Extent>) {
        self.held.push(extent);
    }
}

impl Drop for ValueWriter<'_> {
    fn drop(&mut self) {
        self.count_written();
        for mut writer in self.writers.drain(..) {
            writer.discard();
            self.source.check_in(writer);
        }
    }
}

impl std::fmt::Debug for ValueWriter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ValueWriter").field("writers", &self.writers).finish_non_exhaustive()
    }
}
