//! The archive: versions that are over, moved out of the store into Parquet files, and read beside the live rows.
//!
//! An archive lies in a directory or in an object store. Its files are plain Parquet, a folder for each agent's table and
//! in it one for each policy version, so anything that reads Parquet reads them; what makes an archive of them is a
//! *manifest* a version, which names the version's files with their sizes and checksums:
//!
//! ```text
//! forebay-archive.json                            whose archive this is, and in which format
//! solver/at_version=3/part-4f..-0.parquet         rows of version 3 of the table `solver`
//! _commits/solver/3.1.json                        the manifest of that version, generation 1
//! ```
//!
//! # A version is moved whole, or not at all
//! An [`Archiver`] takes one version of one table at a time through these steps, and may be stopped after any of them:
//!
//! 1. A snapshot. The version is over: no rollout writes it, no trainer takes it, no rewind brings it back.
//! 2. Its rows go into new files, under names that nobody else has.
//! 3. What the snapshot shows is brought to stable storage in the store, and the files in a local archive.
//! 4. The manifest is put where none is yet, and brought to stable storage. From here on the version is in the archive.
//! 5. The files are read back, and hold the same rows.
//! 6. The store deletes the version, on the condition that it is to the row as the snapshot showed it.
//!
//! Stopped before 4, files lie about that nobody names; [`Archiver::clean`] removes them once they are old. Stopped
//! between 4 and 6, the next run finds the manifest, compares it with the store, makes sure that it is stable, and goes on at 5. If the rows have changed
//! meanwhile (somebody scored an evaluation late), it writes the next *generation* of the manifest instead. Of two
//! archivers, one puts the manifest and the other finds it there and begins anew.
//!
//! # A query sees every row once, at every instant
//! It takes its snapshot of the store first and lists the manifests after it. A version of a table is read
//!
//! - from the store, if the snapshot has rows of it;
//! - else from the archive, by the newest manifest that was made from an instant no later than the snapshot's.
//!
//! *Not twice*: the two cases exclude each other, and a version leaves the store in one record. *Not never*: if the snapshot
//! has no row of a version that had some, the store deleted it before; the manifest had been put before that; the list was
//! made after it. *As of the snapshot*: a manifest from a later instant may hold rows that came after the snapshot, and is
//! left aside; the snapshot then still has what there was. From the instant of its manifest to its deletion a version does
//! not change, or it is not deleted (6), so what is read is what the snapshot's instant had. The numbers of instants are
//! those of the log's records; 3 sees to it that no power failure takes the log back behind a manifest.
//!
//! # Nothing that is read is trusted
//! Every block of a file is held against the checksum in its manifest before a byte of it is used, the manifest against its
//! own. What does not match, or is not there, is an error that names file and way out; live rows and other versions can
//! still be asked.

mod archiver;
mod blocking;
mod checksum;
mod clean;
mod contents;
mod digest;
mod fault;
mod fill;
mod folder;
mod layout;
mod manifest;
mod moving;
#[cfg(test)]
mod power;
mod reader;
mod rule;
mod scan;
mod spanning;
mod stable;
mod statistics;
mod upload;

pub use archiver::{Archiver, Due, Moved};
pub use clean::Cleaned;
pub(crate) use contents::Contents;
pub use fault::ArchiveFault;
pub use folder::Archive;
pub use rule::ArchiveRule;
pub(crate) use spanning::table;
