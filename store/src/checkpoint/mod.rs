//! Checkpoints: the state as it was after some record of the log, so that opening a store replays what came after and
//! nothing else.
//!
//! ```text
//! MANIFEST                  what there is, small: names, counts, and where each page lies; replaced at once
//! pages/00000001.pages      images of pages, written once, raw little-endian columns
//! ```
//! A checkpoint is incremental. A page that has not changed since an earlier one stays where it is; the manifest names
//! it there. What a pages file still has that is named shrinks from checkpoint to checkpoint; below a quarter the rest
//! is written anew and the file removed.
//!
//! # How one is taken
//! 1. Under the state's lock: references to all pages, an image of the small rest, the sequence number of the next
//!    record. No page is copied, so this costs the number of chunks.
//! 2. The log is made stable up to there, with the values that it names: a checkpoint is never ahead of the log.
//! 3. Changed pages, and index runs over what is new, go to a pages file, which is then synced.
//! 4. The manifest is written beside the old one, synced, and put in its place: from here on the checkpoint is there.
//! 5. Pages learn where they are stored; texts that [nothing names](unnamed) go; log segments and pages files that nothing needs any more are removed.
//!
//! A crash before 4 leaves files that no manifest names, which the next opening removes. One after 4 leaves files that
//! are not needed, removed likewise.
//!
//! # Opening from one
//! The manifest is read and checked; pages are mapped, not read: those of rows, texts, queues, groups and indexes. So
//! opening costs the number of pages and the records since the checkpoint. Page images are checked against their checksums
//! by `verify`, which reads them all.
//!
//! Invariants
//! - A pages file is never written again once a manifest names it.
//! - The state that is restored equals the state that the log up to there gives.
//! - One checkpoint is taken at a time (`Shared::checkpoint` holds the lock for it).
//!
//! Read in this order: [`manifest`] is what is stored, [`capture`] takes it from the state, [`pages`] stores and maps
//! images, [`mod@restore`] makes a state of it, [`take`] is the procedure above. [`unnamed`] is what leaves texts out that nobody needs. [`consumers`] is what all of these have to
//! do for queues and groups.

mod capture;
pub(crate) mod consumers;
mod let_go;
mod manifest;
mod pages;
mod restore;
mod take;
mod unnamed;

#[cfg(test)]
pub(crate) use manifest::MANIFEST_HEADER_BYTES;
pub(crate) use manifest::{ContentImage, LifeImage, LivenessImage, Manifest, RunImage};
#[cfg(test)]
pub(crate) use pages::PAGES_HEADER_BYTES;
pub(crate) use pages::image_bytes;
pub(crate) use restore::restore;
pub use take::CheckpointReport;
pub(crate) use take::Checkpointer;
