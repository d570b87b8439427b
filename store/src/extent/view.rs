//! The 16 bytes in a table that stand for a value elsewhere.

use bytemuck::TransparentWrapper;

use super::layout::pair;
use crate::log::record::StoredValue;
use crate::schema::StorageClass;

/// Where a value lies: in the view itself, or in an extent.
///
/// ```text
/// length u32 | bytes, up to 12                          text and binary of 12 bytes or fewer
/// length u32 | extent u32 | generation u32 | offset u32  everything else
/// ```
/// Which of the two it is follows from the column's storage class and the length, never from a flag.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, TransparentWrapper)]
#[repr(transparent)]
pub(crate) struct View(pub(crate) [u8; 16]);

/// The most bytes that fit into a view.
pub(crate) const INLINE_BYTES_MAX: usize = 12;

impl View {
    /// A value inside its view; it must fit.
    pub(crate) fn inline(bytes: &[u8]) -> Self {
        let mut view = [0; 16];
        view[..4].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
        view[4..4 + bytes.len()].copy_from_slice(bytes);
        View(view)
    }

    /// A value in an extent.
    pub(crate) fn located(length: u32, extent: u32, generation: u32, offset: u32) -> Self {
        View(bytemuck::cast([pair(length, extent), pair(generation, offset)]))
    }

    /// Makes `value` a view, to be filled in where it stays: one that is moved as soon as it was put together has the processor wait
    /// for all stores before it.
    pub(crate) fn within(value: &mut StoredValue) -> &mut Self {
        *value = StoredValue::View([0; 16]);
        match value {
            StoredValue::View(view) => View::wrap_mut(view),
            _ => unreachable!("made a view just now"),
        }
    }

    /// What stands for a value in a column of views; none where it is null or lies in the table.
    pub(crate) fn of(value: StoredValue) -> Option<Self> {
        match value {
            StoredValue::View(view) => Some(View(view)),
            StoredValue::Null | StoredValue::Inline(_) => None,
        }
    }

    fn part(self, index: usize) -> u32 {
        let at = index * 4;
        u32::from_le_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
    }

    /// The value's length in bytes.
    pub(crate) fn length(self) -> usize {
        self.part(0) as usize
    }

    /// Whether the value of a column of this class lies in the view.
    pub(crate) fn is_inline(self, class: StorageClass) -> bool {
        self.length() == 0 || (class == StorageClass::View && self.length() <= INLINE_BYTES_MAX)
    }

    /// The bytes inside the view, for a value of `View` storage class that fits.
    pub(crate) fn inline_bytes(&self) -> &[u8] {
        &self.0[4..4 + self.length().min(INLINE_BYTES_MAX)]
    }

    pub(crate) fn extent(self) -> u32 {
        self.part(1)
    }

    pub(crate) fn generation(self) -> u32 {
        self.part(2)
    }

    /// Extent and generation.
    pub(crate) fn place(self) -> (u32, u32) {
        (self.extent(), self.generation())
    }

    pub(crate) fn offset(self) -> usize {
        self.part(3) as usize
    }
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (extent, generation) = self.place();
        write!(f, "View({} bytes, extent {extent}.{generation} at {})", self.length(), self.offset())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_give_back_what_they_hold() {
        let short = View::inline(b"twelve bytes");
        assert_eq!((short.length(), short.inline_bytes()), (12, &b"twelve bytes"[..]));
        let long = View::located(13, 7, 2, 1 << 30);
        assert_eq!((long.length(), long.extent(), long.generation(), long.offset()), (13, 7, 2, 1 << 30));
    }
}
