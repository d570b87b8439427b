//! Why a move between a device and an object did not happen.

use crate::client::{self, ObjectFilling};
use crate::trainer;
use crate::trainer::publication::PublicationError;

/// A refused or failed move.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceTierError {
    /// The objects refused: a version that is not there, a conflict, no room. It says what to do next.
    #[error(transparent)]
    Objects(#[from] client::Error),
    /// The device gives no stream, a copy of it failed, or the device has: the source says which, and what to do.
    #[error("the device did not copy: {0}; what was to be set is not there")]
    Device(#[from] trainer::Error),
    /// There is no host memory for pieces to pass through. Nothing was moved, and the device goes on.
    #[error("nothing was moved: {source}, by `piece_chunks`")]
    HostMemory {
        /// How much was asked for, and why it is not to be had.
        source: trainer::Error,
    },
    /// A version was not published, or not got, from device to device.
    #[error(transparent)]
    Publication(#[from] PublicationError),
    /// A version is neither to be had from device to device nor from the store.
    #[error("{key:?} is not to be had: {device}; and from the store: {store}")]
    Nowhere {
        /// The key.
        key: String,
        /// Why it did not come from a device.
        device: Box<PublicationError>,
        /// Why it did not come from the store.
        store: Box<DeviceTierError>,
    },
    /// The parts are not what the layout says.
    #[error("part {class:?}: {reason}")]
    Part {
        /// The memory class.
        class: String,
        /// What is wrong, and what is wanted.
        reason: String,
    },
    /// Bytes of a version do not have the checksums that were taken when it was set.
    #[error("{reason}; get another version, or the same from another tier")]
    Damaged {
        /// Object, version, memory class and chunk.
        reason: String,
    },
    /// The old state has left the device and cannot be committed as it was meant to: the key has another version by now, or the
    /// server cannot be reached. `filling` holds it: let it [`expect`](ObjectFilling::expect) what is there and commit it.
    #[error("the old state of {:?} is filled, and not known to be committed: {source}; commit the filling", filling.key())]
    Uncommitted {
        /// The old state, whole.
        filling: Box<ObjectFilling>,
        /// What became of the new one: its version, now on the device, or why it did not come.
        got: Result<u64, Box<DeviceTierError>>,
        /// Why the old one was not committed.
        source: client::Error,
    },
    /// The old state could not be taken out to its end, and new values have taken the place of some of it.
    #[error("the old state is lost: {source}; get a version that was set before")]
    Overwritten {
        /// Why it could not be taken out.
        source: Box<DeviceTierError>,
    },
    /// The old state was set, the new one could not be got.
    #[error("the old state is {key:?} version {set}; the new one did not come: {source}")]
    Exchanged {
        /// The key of the old state.
        key: String,
        /// Its version.
        set: u64,
        /// Why the new one did not come.
        source: Box<DeviceTierError>,
    },
}
