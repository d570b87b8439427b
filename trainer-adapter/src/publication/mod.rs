//! Versions that lie on a device, for other processes of the same node: published where they are made, got without a trip through
//! host memory.
//!
//! - A [`Publisher`] has versions of some keys; a [`Reader`] gets them onto its own device, in another process or in the same one.
//! - A version is *published* in one of two modes. As a [snapshot](Publisher::publish): one copy on the device, into one of two
//!   *slots* that the publisher owns, so that the optimiser may step at once. Or [in place](Publisher::in_place): nothing is
//!   copied, and it can be had as long as the guard lives that borrows its buffers.
//! - A *domain* is what a reader and a publisher have between them: a connection, and the memory that was mapped over it. It is made
//!   with the first get and used again by all later ones; a slot is mapped once.
//! - A *hold* is a reader's use of a version. A slot is not written while anybody holds it.
//!
//! # What it promises
//! - A reader gets a version whole, or an error: never some of one and some of another. It holds what it copies, asks afterwards
//!   whether the version was still the one, and says which it was ([`Stamp`]).
//! - What is checked: the version's number and place before and after the copy, always; the version's *fingerprint*, taken on the
//!   publisher's device of the published copy and on the reader's device of what arrived, unless the publisher was told not to
//!   ([`PublisherOptions::fingerprint()`]).
//! - A hold ends when the reader says so, or with the reader's process, and never by a clock.
//! - Publishing that fails leaves the version before it in use.
//! - A publisher that ends, or is dropped, in the middle of a get is an error of that get.
//!
//! # How the two meet
//! In a folder of the node. `KEY.publication` says which node, process and device has the key, and at which socket; its publisher has
//! it locked, so there is one. Whoever connects is asked for nothing but his user id, which has to be the publisher's own, and is
//! known by a handle of his process from then on. Requests and answers are packets of a kilobyte or so; descriptors of memory go
//! beside them, each once. No value ever passes through the socket.
//!
//! # Threads and locks
//! A publisher has one thread, which answers readers and never waits for one of them; for a millisecond after a hold has begun it looks for
//! its end without sleeping. Copies run on the caller's thread. One lock
//! guards the catalog (`catalog`: a state machine without threads, clocks or descriptors), and is held for nothing else. A key is
//! published by one thread at a time; other keys meanwhile.
//!
//! To read in this order: `form`, `catalog`, `wire`, `publisher`, `service`, `domain`, `reader`.

mod announcement;
mod catalog;
mod connection;
mod domain;
mod error;
mod form;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod hostile;
mod in_place;
mod mapped;
mod packet;
mod publisher;
mod reader;
mod service;
mod step;
mod taking;
mod wanted;
mod wire;
mod writing;

pub use announcement::this_node;
pub use catalog::PublisherCounts;
pub use error::PublicationError;
pub use form::{ClassForm, Form, PublishedPart, TargetPart};
pub use in_place::InPlace;
pub use publisher::{Publisher, PublisherOptions};
pub use reader::Reader;
pub use step::{Step, StepObserver};
pub use wanted::{Got, ReaderCounts, ReaderOptions, Source, Stamp, Wanted, Which};
