//! Windows of extents: what the arrays of a column are made over.

use std::ops::Range;
use std::sync::Arc;

use arrow_buffer::Buffer;

use crate::error::Result;
use crate::extent::{Extent, Extents, View};
use crate::schema::StorageClass;

/// The parts of extents that some values lie in: one window an extent, as small as it can be.
#[derive(Debug, Default)]
pub(super) struct Windows {
    windows: Vec<Window>,
    values: u64,
}

#[derive(Debug)]
struct Window {
    bytes: Arc<Extent>,
    range: Range<usize>,
}

impl Windows {
    /// Takes in a value of a column of this class.
    pub(super) fn cover(&mut self, view: View, class: StorageClass, extents: &Extents) -> Result<()> {
        if view.is_inline(class) {
            return Ok(());
        }
        self.values += 1;
        let range = view.offset()..view.offset() + view.length();
        match self.windows.iter_mut().find(|window| window.bytes.number() == view.extent()) {
            Some(window) if extents.is_sound_in(&window.bytes, view)? => {
                window.range = window.range.start.min(range.start)..window.range.end.max(range.end);
            }
            _ => self.windows.push(Window { bytes: extents.locate_sound(view)?.0, range }),
        }
        Ok(())
    }

    /// How many values they are of that lie in extents.
    pub(super) fn values(&self) -> u64 {
        self.values
    }

    /// Where the window begins in its extent, and its bytes, if there is one window at most.
    pub(super) fn only_one(&self) -> Option<(usize, Buffer)> {
        match &self.windows[..] {
            [] => Some((0, Buffer::from_vec(Vec::<u64>::new()))),
            [window] => Some((window.range.start, window.bytes.buffer(window.range.clone()))),
            _ => None,
        }
    }

    /// Arrow's own 16 bytes: like ours when inline; else length, first four bytes, window, offset in it.
    pub(super) fn arrow_view(&self, view: Option<View>) -> u128 {
        let Some(view) = view else { return 0 };
        let window = self.windows.iter().position(|window| window.bytes.number() == view.extent());
        let (false, Some(index)) = (view.is_inline(StorageClass::View), window) else {
            return u128::from_le_bytes(view.0);
        };
        let window = &self.windows[index];
        let prefix = window.bytes.stable(view.offset(), 4).unwrap_or_default();
        let prefix: [u8; 4] = prefix.try_into().unwrap_or_default();
        let offset = (view.offset() - window.range.start) as u32;
        let parts = [view.length() as u32, u32::from_le_bytes(prefix), index as u32, offset];
        parts.iter().rev().fold(0, |bits, part| bits << 32 | u128::from(*part))
    }

    pub(super) fn into_buffers(self) -> Vec<Buffer> {
        self.windows.into_iter().map(|window| window.bytes.buffer(window.range)).collect()
    }
}
