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
//! 6. The store deletes the version, on the condition that it is to the row as the snapshot showed it. The same record says
//!    that it was moved out.
//!
//! Stopped before 4, files lie about that nobody names; [`Archiver::clean`] removes them once they are old. Stopped
//! between 4 and 6, the next run finds the manifest, compares it with the store, makes sure that it is stable, and goes on at 5. If the rows have changed
//! meanwhile (somebody scored an evaluation late), it writes the next *generation* of the manifest instead. Of two
//! archivers, one puts the manifest and the other finds it there and begins anew; so does one that finds a manifest of a later
//! instant than its own, for the greatest generation has to be of the latest. A version that the store would not let go, because somebody holds a
//! row of it, say, stays behind 4: each further run asks the store, and reads no more than its manifest, until it would.
//!
//! # A query sees every row once, at every instant
//! It takes its snapshot of the store first and lists the manifests after it. A version of a table is read
//!
//! - from the store, if the snapshot has rows of it;
//! - else from the archive, by the newest manifest that was made from an instant no later than the snapshot's, if the snapshot
//!   says that the version was moved out.
//!
//! *Not twice*: the two cases exclude each other, and a version leaves the store in one record. *Not never*: if the snapshot
//! has no row of a version that had some, the store deleted it before; the manifest had been put before that; the list was
//! made after it. *As of the snapshot*: a manifest from a later instant may hold rows that came after the snapshot, and is
//! left aside; the snapshot then still has what there was. From the instant of its manifest to its deletion a version that was
//! moved out did not change (6), so what is read is what the snapshot's instant had. The numbers of instants are
//! those of the log's records; 3 sees to it that no power failure takes the log back behind a manifest.
//!
//! # A manifest alone says nothing
//! Between 4 and 6 a version is in both, for as long as somebody holds a row of it, or until the next archiver comes. Its rows may
//! change in this time, and others may delete it: retention, or a rule, or its rows by name. None of them asks the archive, and the
//! manifest is then not what the version was. Only the record of its deletion can tell, for only that is made where nothing can come
//! between:
//!
//! - *6 deletes it*: the record says so, and the manifest is what the version was.
//! - *Others delete it*, held back or stopped between 4 and 6, changed or not: no record says so, and the version is gone beside
//!   the store from that instant on.
//! - *A power failure takes the deletion back*: it takes what it says along, and the rows are in the store.
//! - *Its rows come back*, of a peer, into a version that was not retired: they are read from the store, and the next move makes a generation of
//!   its own.
//! - *The store is gone*: the archive is all that is known. What it holds of a version that was still in the store is a copy of an earlier
//!   instant, and is read. What others had deleted is not, once an archiver has seen that it is gone: it puts a generation without
//!   rows (`gone` argues why it may).
//! - *An older program put the manifest*: the store may not say what was moved out, so it counts as it did then, once no row is left.
//!   Where rows are left, the next move makes a generation of its own.
//!
//! A generation without rows as soon as a version is held back was considered, and not taken. It has to be put after the store has refused the
//! deletion, so it leaves the same gap; another archiver may delete the version in between, whose rows would then be nowhere; and each
//! try, two in a minute, would write all files anew.
//!
//! # Nothing that is read is trusted
//! Every block of a file is held against the checksum in its manifest before a byte of it is used, the manifest against its
//! own. What does not match, or is not there, is an error that names file and way out; live rows and other versions can
//! still be asked.

mod archiver;
mod blocking;
mod checksum;
mod clean;
mod columns;
mod contents;
mod digest;
mod fault;
mod fill;
mod folder;
mod gone;
mod layout;
mod manifest;
mod moving;
mod names;
mod places;
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
