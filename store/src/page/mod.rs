//! Pages: columns of plain values that snapshots share and checkpoints store.
//!
//! Everything that there is much of (rows, texts, index entries) lies in pages. A page is held by a [`CowArc`]; a snapshot
//! clones the reference, and [`Page::edit`] copies a page that somebody else holds before it changes it. A page that a
//! checkpoint has stored remembers where ([`StoredAt`]), and forgets it with its next change, so the next checkpoint
//! writes what has changed and nothing else.
//!
//! Invariants
//! - Nobody sees a page change that he holds.
//! - `stored_at` is set only while the stored image equals the content.
//! - [`Rows::Mapped`] is over a checkpoint's file, which is never written again.

mod rows;

pub(crate) use rows::{Rows, Window};

use rkyv::{Archive, Deserialize, Serialize};
use std::fmt;
use std::ops::Deref;
/// How pages, and chunks of them, are shared: by whoever holds the reference, and copied by who changes them while others do.
/// That of the standard library has weak references too, and looks for those with a locked instruction at every change.
pub(crate) use triomphe::Arc as CowArc;

use crate::sync::Mutex;

/// Where a page's image lies: what a manifest says of it.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoredAt {
    /// The number of the pages file.
    pub(crate) file: u32,
    /// The crc32c of the image.
    pub(crate) crc32c: u32,
    pub(crate) offset: u64,
    /// The length of each part in bytes, zeros behind.
    pub(crate) parts: [u32; PARTS_MAX],
}

/// What a page can hold: plain values that have an image.
pub(crate) trait Content: Clone + Sized {
    /// The image, in parts that each begin at a multiple of [`PART_ALIGN`].
    fn parts(&self) -> Vec<&[u8]>;
}

/// The most parts that an image has.
pub(crate) const PARTS_MAX: usize = 3;

/// Where each part of an image begins: a multiple of this from the image's start, and the image at one in its file.
pub(crate) const PART_ALIGN: usize = 64;

/// A shared page.
#[derive(Default)]
pub(crate) struct Page<C> {
    content: C,
    stored_at: Mutex<Option<StoredAt>>,
}

impl<C: Content> Page<C> {
    pub(crate) fn new(content: C) -> CowArc<Self> {
        CowArc::new(Page { content, stored_at: Mutex::default() })
    }

    /// A page whose image is stored already.
    pub(crate) fn stored(content: C, at: StoredAt) -> CowArc<Self> {
        CowArc::new(Page { content, stored_at: Mutex::new(Some(at)) })
    }

    /// The content, to be changed: a copy of it where somebody else holds the page.
    pub(crate) fn edit(this: &mut CowArc<Self>) -> &mut C {
        let page = CowArc::make_mut(this);
        *page.stored_at.get_mut() = None;
        &mut page.content
    }
}

/// A page of any content, as a checkpoint sees it.
pub(crate) trait Storable {
    /// Its image, in parts.
    fn image(&self) -> Vec<&[u8]>;

    /// Where the image of this very content is stored.
    fn stored_at(&self) -> Option<StoredAt>;

    /// Remembers where the image is.
    fn set_stored(&self, at: StoredAt);
}

impl<C: Content> Storable for Page<C> {
    fn image(&self) -> Vec<&[u8]> {
        self.content.parts()
    }

    fn stored_at(&self) -> Option<StoredAt> {
        *self.stored_at.lock()
    }

    fn set_stored(&self, at: StoredAt) {
        *self.stored_at.lock() = Some(at);
    }
}

/// What a checkpoint holds while it stores.
impl<C: Content> Storable for CowArc<Page<C>> {
    fn image(&self) -> Vec<&[u8]> {
        (**self).image()
    }

    fn stored_at(&self) -> Option<StoredAt> {
        (**self).stored_at()
    }

    fn set_stored(&self, at: StoredAt) {
        (**self).set_stored(at);
    }
}

impl<C: Content> Clone for Page<C> {
    /// A copy that is about to change: it is stored nowhere.
    fn clone(&self) -> Self {
        Page { content: self.content.clone(), stored_at: Mutex::default() }
    }
}

impl<C> Deref for Page<C> {
    type Target = C;

    fn deref(&self) -> &C {
        &self.content
    }
}

impl<C: fmt::Debug> fmt::Debug for Page<C> {
    /// The content alone, so that two states can be compared wherever their pages lie.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.content.fmt(f)
    }
}
