//! The bytes of one value, as readers hold them.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::file::Extent;
use super::view::View;
use crate::local::ValuePlace;

/// The bytes of one value, kept alive by whoever holds them: across retention, evacuation and recycling.
#[derive(Clone)]
pub struct ValueBytes(Held);

#[derive(Clone)]
enum Held {
    Inline(View),
    Extent { extent: Arc<Extent>, offset: usize, length: usize },
}

impl ValueBytes {
    pub(super) fn inline(view: View) -> Self {
        ValueBytes(Held::Inline(view))
    }

    /// A range of an extent that was checked to lie inside it.
    pub(crate) fn located(extent: Arc<Extent>, offset: usize, length: usize) -> Self {
        ValueBytes(Held::Extent { extent, offset, length })
    }

    /// Where they lie, for a process that can read the store's files; `None` for a few that lie in no file.
    pub fn place(&self) -> Option<ValuePlace> {
        let Held::Extent { extent, offset, length } = &self.0 else { return None };
        let (number, generation) = (extent.number(), extent.generation());
        Some(ValuePlace::of_view(View::located(*length as u32, number, generation, *offset as u32)))
    }

    /// The extent that holds them, to be held longer than the bytes are.
    pub(crate) fn extent(&self) -> Option<&Arc<Extent>> {
        match &self.0 {
            Held::Inline(_) => None,
            Held::Extent { extent, .. } => Some(extent),
        }
    }
}

impl Deref for ValueBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Held::Inline(view) => view.inline_bytes(),
            // Checked when the view was resolved; values do not change while anybody holds their extent.
            Held::Extent { extent, offset, length } => extent.stable(*offset, *length).unwrap_or_default(),
        }
    }
}

impl AsRef<[u8]> for ValueBytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for ValueBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ValueBytes({} bytes)", self.len())
    }
}
