//! Readers beside a writer.
//!
//! Any number of processes may open a store for reading while one process writes it. A reader replays the log as far as
//! it has been written, and later, when it is asked to ([`Store::refresh`](crate::Store::refresh)), what has come since.
//! It changes nothing in the directory but its own *slot*.
//!
//! The writer never waits for a reader. But what a reader may still read must not be given away under it: values in an
//! extent that is to be used again, an object that a later step has replaced, a segment that a checkpoint has made
//! superfluous. So a reader holds a [`ReaderSlot`], a file with a lock on it that ends with its process, and says there
//! how many records it has seen. The writer asks [`readers_hold`] before it gives anything away.
//!
//! Why that is enough: a thing is over by a record. The writer hands that record to the kernel *first* and looks at the
//! slots *then*; a reader takes its slot (which at first holds everything) *first* and reads the log *then*. So either
//! the writer sees the slot, or the reader sees the record and does not need the thing.

mod reading;
mod slot;

pub(crate) use reading::Reading;
pub(crate) use slot::{ReaderSlot, readers_hold};
