//! Extents: files of values.
//!
//! Text, bytes, lists and tensors do not lie in the table but in extents; the table holds a 16-byte [`View`] that says
//! where. An extent has exactly one writer at a time, so value bytes move once, in parallel, outside every lock.
//!
//! # A life
//! *Open*: one [`Writer`](writer) fills it from the front. *Sealed*: it is full, or its version is over; its tail is
//! given back, unless versions go by themselves and it is used again soon. *Thin*: less than a quarter of it is live; what lives is copied elsewhere ([`mod@evacuate`]). *Empty*:
//! nothing in it is live. *Free*: nobody may read it any more either ([`mod@reclaim`]); it waits in a bounded pool, or
//! is deleted. *Open* again, as the next *generation* of the same file: no new pages, nothing allocated.
//!
//! # Invariants
//! - A value is written once, before the log record that names it; as long as anybody may read its generation its bytes
//!   do not change. That is what lets [`ValueBytes`] hand them out as `&[u8]`.
//! - What is live is part of the state ([`Liveness`]): it follows from the records alone.
//! - A generation is over only when three things hold, looked at together under the state's lock: the state names
//!   nothing in it; no [`Pin`](pins) was taken while the state did; nobody holds its [`Extent`] (a batch that is not
//!   committed, a [`ValueBytes`], an Arrow buffer). Who opens the store anew knows of no such holder, so an [`Extent`] keeps
//!   the directory's lock, or a reader's slot: until the last one is gone nobody else writes the files. And no crash
//!   can lead back to a promised state that names it ([`reclaim`]); recovery ends the log where no state does.
//! - Every value is followed by a trailer that says what it is and in which generation it was written, so that a damaged
//!   store can be checked without its log and a stale value is never taken for a live one.
//!
//! # Locks
//! The pins and the pools of writers and files are leaves, and so is the registry, but for a neighbour's: what is taken out of
//! that may move his slot on. The registry and the pins may be taken with the state locked, the pools not. A value's bytes are
//! moved, compared and synced with none of them held. The whole order is that of [`Rank`](crate::sync::Rank).
//!
//! Layout: a 64-byte header, then values. A value starts at a multiple of 64 (lists, tensors) or of 8 (text, bytes);
//! its trailer follows at the next multiple of 8. Sizes and offsets are drawn in `docs/format.md`.

mod bytes;
mod checked;
mod compared;
mod contents;
mod evacuate;
mod file;
mod layout;
mod liveness;
mod outlook;
mod pins;
mod reclaim;
mod registry;
mod show;
mod sizing;
mod source;
mod stored;
mod tend;
#[cfg(test)]
mod tests;
mod view;
mod writer;

pub use bytes::ValueBytes;
pub(crate) use compared::Compared;
pub(crate) use contents::NewContents;
pub(crate) use file::{Extent, Kept};
pub(crate) use layout::{ExtentHeader, HEADER_BYTES, TRAILER_BYTES, Trailer, ValueOwner};
pub(crate) use liveness::{Liveness, Place};
pub(crate) use pins::{AgeLimit, Pin};
pub use reclaim::PinInfo;
pub(crate) use registry::{Extents, MappedFile};
pub use show::ExtentInfo;
pub(crate) use source::{ValueSource, ValueWriter};
pub(crate) use stored::{StoredValues, absence, stored_bytes, write_again};
#[cfg(test)]
pub(crate) use view::INLINE_BYTES_MAX;
pub(crate) use view::View;
pub(crate) use writer::Lifetime;
