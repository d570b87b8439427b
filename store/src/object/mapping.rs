//! The mapping that bytes of an object lie in, for a device that copies to and from it by itself.
//!
//! What a device pins it pins for long, and whole: pinning takes longer than a copy. So it is told of the mapping, which stays when the
//! object goes, and of where in it the object lies.

use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use super::host::Segment;
use super::memory::Memory;

/// A mapping of shared memory that objects lie in: a segment of this process's store, or of another one's.
///
/// It is mapped for as long as anybody has this or what [`keep`](Self::keep) gives. While somebody does, a segment that the store gives up
/// goes on taking memory.
#[derive(Clone)]
pub struct ObjectMapping(Home);

#[derive(Clone)]
pub(super) enum Home {
    Segment(Arc<Segment>),
    Neighbour(Arc<Memory>),
}

impl ObjectMapping {
    pub(super) fn of(home: Home) -> Self {
        ObjectMapping(home)
    }

    fn memory(&self) -> &Memory {
        match &self.0 {
            Home::Segment(segment) => &segment.memory,
            Home::Neighbour(memory) => memory,
        }
    }

    /// Where it begins: a multiple of the size of a page. Nobody makes a reference to bytes that are being written.
    pub fn place(&self) -> NonNull<u8> {
        self.memory().place()
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> usize {
        self.memory().length()
    }

    /// Whether it may be written, as far as the kernel is concerned: where a filling has lent a range of it.
    pub fn is_writable(&self) -> bool {
        self.memory().is_writable()
    }

    /// Keeps it mapped.
    pub fn keep(&self) -> Arc<dyn Any + Send + Sync> {
        match &self.0 {
            Home::Segment(segment) => segment.clone(),
            Home::Neighbour(memory) => memory.clone(),
        }
    }

    /// Whether it is mapped, without keeping it so.
    pub fn watch(&self) -> Weak<dyn Any + Send + Sync> {
        Arc::downgrade(&self.keep())
    }
}

impl fmt::Debug for ObjectMapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectMapping({} bytes)", self.bytes())
    }
}
