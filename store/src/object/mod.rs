//! Objects: large state of agents (weights, master copies, moments, gradients), set under keys in immutable versions.
//!
//! An agent's state is *set* under a key by whoever suspends it, and *got* by whoever resumes it: another thread, another
//! process, the next one after a crash. The words:
//!
//! - A [`Layout`] says which tensors there are, and lays them out in one *payload* a memory class.
//! - A [`Filling`] is a version that is being filled; its *commit* makes it the newest of its key, by comparing what that is
//!   with what was expected, and wakes who waits.
//! - A [`Manifest`] is what is known of a version: layout, a checksum a chunk, metadata.
//! - A [`Held`] is a lease on a version: its bytes stay until it is dropped.
//! - A [`Tier`] is where bytes are: in segments of shared memory that are mapped once and kept ([`host`]), or in files that
//!   stock readers of safetensors open ([`disk`]). A copy from one tier to another is checked chunk by chunk.
//!
//! # What it promises
//! - A version never changes, and is seen whole or not at all.
//! - What was committed survives the end of the process where the host tier has a folder, and a power failure once it was
//!   spilled. What was being filled does not.
//! - A held version stays, whatever becomes of its key. Memory that another process may still use is not used again before
//!   that process has said so, or has ended.
//!
//! Steps name the objects that hold their state ([`ObjectRef`], [`named`]); a version is named so by
//! [`Objects::reference`], and both lie in the same folder.
//!
//! A device's memory is not a tier of this crate, which knows no device: who has one fills and reads through
//! [`Filling::write`] and [`Held`], or maps [`Objects::segments`] himself.
//!
//! To read in this order: [`layout`], [`manifest`], [`filling`], [`catalog`], [`held`], [`moves`], [`host`], [`disk`].

mod beside;
mod bytes;
mod catalog;
mod commit;
mod core;
mod delete;
mod disk;
mod dtype;
mod duty;
mod filling;
mod held;
mod host;
mod layout;
mod lent;
mod manifest;
mod many;
mod mapping;
mod memory;
mod message;
mod moves;
mod named;
mod neighbour;
mod objects;
mod options;
mod owner;
mod parts;
mod puts;
mod set;
mod stats;
mod version;
mod wait;

pub use beside::{CopiedObject, ObjectReader};
pub use bytes::ObjectBytes;
pub use dtype::Dtype;
pub use filling::{Filling, FillingRange};
pub use held::{Held, TensorView};
pub use host::{HostLeftover, SegmentInfo, host_leftovers};
pub use layout::{Layout, LayoutBuilder, Payload, TENSOR_ALIGN_BYTES, Tensor};
pub use manifest::{Manifest, OBJECT_CHUNK_BYTES};
pub use many::OBJECT_KEYS_MAX;
pub use mapping::ObjectMapping;
pub use message::{RECEIVE_MANY_WAIT, RECEIVE_WAIT, Received};
pub use moves::Exchanged;
pub use named::ObjectRef;
pub use neighbour::{NeighbourFilling, NeighbourSegments};
pub use objects::{Get, ObjectInfo, Objects, Which};
pub use options::{HostFolder, ObjectOptions};
pub use owner::{Owner, ProcessHandle};
pub use parts::{ObjectParts, ObjectPut};
pub use set::{Expected, TensorBytes};
pub use stats::ObjectStats;
pub use version::Tier;
pub use wait::{HeldFuture, ObjectNews, Watch};

pub(crate) use self::core::Core;
pub(crate) use beside::files_set;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use disk::{Found as FoundFile, look_at};
pub(crate) use disk::{
    MARK, check_ours, is_marked, is_ours, mark_deleted, remove_aside, remove_needless_mark, set_aside,
    verify_file,
};
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use host::replay_journal;
pub(crate) use named::{check, found, left_aside, path_in, path_of, read, versions_in};
pub(crate) use puts::{Puts, Unnamed};

use host::Entry;
