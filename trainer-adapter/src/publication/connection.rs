//! One reader, as the publisher's thread has it, and what it can be given.

use std::collections::HashSet;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use super::catalog::{Ask, Place};
use super::packet::{Peer, send};
use super::publisher::State;
use super::wire::Reply;

/// One reader.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) number: u64,
    /// `None` once it is over.
    pub(super) socket: Option<OwnedFd>,
    pub(super) peer: Peer,
    pub(super) has_greeted: bool,
    /// Memories whose descriptors it was given.
    pub(super) given: HashSet<u64>,
    pub(super) waiting: Option<Waiting>,
}

/// What a reader waits for.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) key: String,
    pub(super) least: u64,
    /// `None`: however long it takes.
    pub(super) until: Option<Instant>,
}

/// Numbers and values, and the descriptors in the same order.
pub(super) type NewMemories = (Vec<(u64, u64)>, Vec<Arc<OwnedFd>>);

/// Why a version cannot be given.
pub(super) fn refusal(state: &State, key: &str, ask: Ask, layout: Option<u64>) -> Option<Reply> {
    let Some(version) = state.catalog.find(key, ask) else {
        return Some(Reply::Missing { newest: state.catalog.newest(key) });
    };
    let is_other = layout.is_some_and(|layout| layout != version.form.layout);
    is_other.then(|| Reply::OtherLayout { version: version.number, layout: version.form.layout })
}

/// Memories of a version that a reader was not given yet, with their descriptors; or which of them nobody knows.
pub(super) fn new_memories(
    state: &State,
    connection: &Connection,
    places: &[Place],
) -> Result<NewMemories, u64> {
    let mut memories: Vec<(u64, u64)> = Vec::new();
    let mut files = Vec::new();
    for place in places {
        let is_known = connection.given.contains(&place.memory)
            || memories.iter().any(|(memory, _)| *memory == place.memory);
        if !is_known {
            let (file, values) = state.memories.get(&place.memory).ok_or(place.memory)?;
            memories.push((place.memory, *values));
            files.push(Arc::clone(file));
        }
    }
    Ok((memories, files))
}

impl Connection {
    /// Sends a reply; whether it is on its way. A reader who reads none, until there is no room for more, has no connection any
    /// more. What one has said before he went is still heard.
    pub(super) fn say(&mut self, reply: &Reply, files: &[BorrowedFd<'_>]) -> bool {
        let Some(socket) = &self.socket else { return false };
        let Err(error) = send(socket, &reply.bytes(), files) else { return true };
        if !matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) {
            self.socket = None;
        }
        false
    }
}
