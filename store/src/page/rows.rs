//! A column of plain values, owned or mapped.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use bytemuck::Pod;

use super::Content;
use crate::disk::Mapping;

/// Part of a mapped file that is never written again.
#[derive(Clone)]
pub(crate) struct Window {
    pub(crate) mapping: Arc<Mapping>,
    pub(crate) offset: usize,
}

/// Values in a row. Read as a slice; [`Rows::to_mut`] takes mapped ones into memory of their own first.
pub(crate) enum Rows<T> {
    Owned(Vec<T>),
    Mapped { window: Window, values: usize },
}

impl<T: Clone> Clone for Rows<T> {
    /// A copy with the room that the original has: it is made because one of the two is about to grow, and would move again.
    fn clone(&self) -> Self {
        match self {
            Rows::Owned(values) => {
                let mut copy = Vec::with_capacity(values.capacity());
                copy.extend_from_slice(values);
                Rows::Owned(copy)
            }
            Rows::Mapped { window, values } => Rows::Mapped { window: window.clone(), values: *values },
        }
    }
}

impl<T: Pod> Rows<T> {
    /// `values` values from the window's start on; `None` when they do not lie in the file.
    pub(crate) fn mapped(window: Window, values: usize) -> Option<Self> {
        let bytes = values.checked_mul(size_of::<T>())?;
        let stable = window.mapping.stable(window.offset, bytes)?;
        bytemuck::try_cast_slice::<u8, T>(stable).ok()?;
        Some(Rows::Mapped { window, values })
    }

    /// The values, to be changed.
    pub(crate) fn to_mut(&mut self) -> &mut Vec<T> {
        if let Rows::Mapped { .. } = self {
            *self = Rows::Owned(self.to_vec());
        }
        match self {
            Rows::Owned(values) => values,
            Rows::Mapped { .. } => unreachable!("taken into memory just now"),
        }
    }

    /// Bytes of memory that the values take, other than a file's.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Rows::Owned(values) => values.capacity() * size_of::<T>(),
            Rows::Mapped { .. } => 0,
        }
    }
}

impl<T: Pod> Deref for Rows<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Rows::Owned(values) => values,
            Rows::Mapped { window, values } => {
                // Checked when the rows were made; the mapping has not changed since.
                let bytes = window.mapping.stable(window.offset, values * size_of::<T>());
                bytemuck::cast_slice(bytes.unwrap_or_default())
            }
        }
    }
}

impl<T> Default for Rows<T> {
    fn default() -> Self {
        Rows::Owned(Vec::new())
    }
}

impl<T> From<Vec<T>> for Rows<T> {
    fn from(values: Vec<T>) -> Self {
        Rows::Owned(values)
    }
}

impl<T: Pod> Content for Rows<T> {
    fn parts(&self) -> Vec<&[u8]> {
        vec![bytemuck::cast_slice(self)]
    }
}

impl<T: Pod + fmt::Debug> fmt::Debug for Rows<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_grows_where_its_original_would_have() {
        let mut rows = Rows::from(Vec::with_capacity(64));
        rows.to_mut().extend(0..40_u64);
        let mut copy = rows.clone();
        let before = copy.as_ptr();
        copy.to_mut().extend(40..64);
        assert_eq!((copy.as_ptr(), copy.len(), rows.len()), (before, 64, 40));
    }

    #[test]
    fn mapped_rows_read_as_they_were_written_and_are_copied_before_a_change() {
        let mapping = Arc::new(Mapping::memory(128));
        mapping.write(64, bytemuck::cast_slice(&[1_u64, 2, 3]));
        let window = Window { mapping: mapping.clone(), offset: 64 };
        let mut rows = Rows::<u64>::mapped(window.clone(), 3).unwrap();
        assert_eq!((&*rows, rows.heap_bytes()), (&[1, 2, 3][..], 0));
        rows.to_mut().push(4);
        assert_eq!(&*rows, &[1, 2, 3, 4]);
        assert_eq!(mapping.stable(64, 8), Some(&1_u64.to_le_bytes()[..]));
        assert!(Rows::<u64>::mapped(window, 9).is_none(), "beyond the end of the file");
        assert!(Rows::<u64>::mapped(Window { mapping, offset: 4 }, 1).is_none(), "not aligned");
    }
}
