//! The bytes of a payload where they lie, for whoever hands them to something that is not Rust, such as an array of numpy.
//!
//! Nobody in this process makes a reference to them: in memory that several processes have mapped, one of them may do what it
//! must not. They are read by copies, or through an address whose user keeps the [`ObjectBytes`].

use std::fmt;
use std::sync::Arc;

use super::held::Held;
use super::mapping::{Home as MappingHome, ObjectMapping};
use super::memory::Memory;

/// The bytes of one payload of a held version. As long as this is there they are.
#[derive(Clone)]
pub struct ObjectBytes {
    home: Home,
    length: u64,
}

#[derive(Clone)]
enum Home {
    Held { held: Arc<Held>, payload: usize },
    Mapped { memory: Arc<Memory>, offset: usize },
}

impl ObjectBytes {
    pub(super) fn held(held: Arc<Held>, payload: usize, length: u64) -> Self {
        ObjectBytes { home: Home::Held { held, payload }, length }
    }

    /// Of another process's memory. The range has been checked to lie inside.
    pub(super) fn mapped(memory: Arc<Memory>, offset: usize, length: u64) -> Self {
        ObjectBytes { home: Home::Mapped { memory, offset }, length }
    }

    /// How many there are.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Where the first lies. Nobody may write there, and whoever reads keeps this for as long.
    pub fn address(&self) -> usize {
        match &self.home {
            Home::Held { held, payload } => held.address(*payload).unwrap_or_default(), // made of one that has it
            Home::Mapped { memory, offset } => memory.address() + offset,
        }
    }

    /// The mapping that they lie in, and where; nothing for heap memory.
    pub fn mapping(&self) -> Option<(ObjectMapping, usize)> {
        match &self.home {
            Home::Held { held, payload } => held.mapping(*payload),
            Home::Mapped { memory, offset } => {
                Some((ObjectMapping::of(MappingHome::Neighbour(memory.clone())), *offset))
            }
        }
    }

    /// Fills `buffer` from byte `offset` on.
    ///
    /// # Panics
    /// When there are fewer bytes.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) {
        let end = offset.checked_add(buffer.len() as u64);
        assert!(end.is_some_and(|end| end <= self.length), "{} bytes at {offset}", buffer.len());
        match &self.home {
            Home::Held { held, payload } => held.read_in_memory(*payload, offset, buffer),
            Home::Mapped { memory, offset: start } => memory.read(start + offset as usize, buffer),
        }
    }
}

impl fmt::Debug for ObjectBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectBytes({} bytes)", self.length)
    }
}
