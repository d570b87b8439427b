//! Objects: large state of agents, set under keys in immutable versions, wherever the store is.
//!
//! What they are and what holds of them is said by [`forebay_store::Objects`]; here is the same for a store that may be behind a
//! server. [`Objects`], [`ObjectFilling`] and [`HeldObject`] are what callers hold. [`ObjectCalls`] is the seam under them: plain
//! calls that name what is being filled and what is held by numbers, as [`KeptObjects`] keeps it, of an embedded client or of a
//! server's session.
//!
//! A client on the server's machine and of its user maps the memory of objects itself, so that no byte of them goes through the
//! socket. Bytes that others may write are never seen as a slice: they are copied, or had by address
//! ([`HeldObject::bytes`]).

mod calls;
mod filling;
mod handle;
mod held;
mod kept;
mod many;
mod watch;

pub use calls::{
    Beginning, Holding, LeasedObject, ObjectAsk, ObjectCalls, ObjectCommit, ObjectShown, Relocated,
    Relocation, WhichObject,
};
pub use filling::ObjectFilling;
pub use handle::{GetObject, Objects};
pub use held::{HeldObject, HeldTensor, LeasedBytes, ReceivedObject};
pub use kept::KeptObjects;
pub use watch::ObjectWatch;
