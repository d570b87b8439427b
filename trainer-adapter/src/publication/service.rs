//! The publisher's thread: lets readers in, answers them, and sees their processes end.
//!
//! It waits for all at once and for none alone: a reader who sends nothing, sends nonsense, or reads no answers costs the others
//! nothing. A reader whose connection is over while he holds something keeps it until his process has ended: his device may still
//! be copying.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};

use super::announcement::Door;
use super::catalog::{Ask, Place};
use super::packet::{Peer, own_user, peer_of, receive, send, wait_for};
use super::publisher::{Board, State};
use super::wire::{Grant, OVER_MAX, Reply, Request};

/// More readers than a node has processes for.
const CONNECTIONS_MAX: usize = 1024;

/// The thread's own.
#[derive(Debug)]
pub(super) struct Service {
    board: Arc<Board>,
    door: Door,
    device: String,
    connections: Vec<Connection>,
    numbers: u64,
    /// Closed to turn somebody away when this process may open no more files; whoever waits at the door would be seen for ever.
    spare: Option<OwnedFd>,
}

/// One reader.
#[derive(Debug)]
struct Connection {
    number: u64,
    /// `None` once it is over.
    socket: Option<OwnedFd>,
    peer: Peer,
    has_greeted: bool,
    /// Memories whose descriptors it was given.
    given: HashSet<u64>,
    waiting: Option<Waiting>,
}

/// What a reader waits for.
#[derive(Debug)]
struct Waiting {
    key: String,
    least: u64,
    /// `None`: however long it takes.
    until: Option<Instant>,
}

impl Service {
    pub(super) fn new(board: Arc<Board>, door: Door, device: String) -> Self {
        Self { board, door, device, connections: Vec::new(), numbers: 0, spare: spare() }
    }

    /// Until the publisher is dropped.
    pub(super) fn run(mut self) {
        while !self.board.state().is_over {
            let Ok(ready) = self.wait() else { return }; // readers see the connection's end
            self.look(&ready);
        }
    }

    /// Waits for anything. Gives what there is: the bell, the door, then the socket and the process of each connection.
    fn wait(&self) -> io::Result<Vec<bool>> {
        let mut files: Vec<BorrowedFd<'_>> = vec![self.board.bell().as_fd(), self.door.listener.as_fd()];
        for connection in &self.connections {
            let process = connection.peer.process.as_fd();
            files.push(connection.socket.as_ref().map_or(process, AsFd::as_fd));
            files.push(process);
        }
        let waiting = self.connections.iter().filter_map(|connection| connection.waiting.as_ref()?.until);
        wait_for(&files, waiting.min())
    }

    fn look(&mut self, ready: &[bool]) {
        if ready[0] {
            let _ = rustix::io::read(self.board.bell(), &mut [0; 8]); // it is looked at below, whatever it says
        }
        let mut others = std::mem::take(&mut self.connections);
        for (connection, ready) in others.iter_mut().zip(ready[2..].chunks(2)) {
            if ready[0] && connection.socket.is_some() {
                self.hear(connection);
            }
            if ready[1] {
                self.bury(connection);
            }
            self.answer_waiting(connection);
        }
        let state = self.board.state();
        let is_needed = |c: &Connection| c.socket.is_some() || state.catalog.is_holding(c.number);
        others.retain(is_needed);
        drop(state);
        self.connections = others;
        if ready[1] {
            self.let_in();
        }
        self.board.state().catalog.counts.domains = self.connections.len();
    }

    /// Its process has ended: nothing of it copies any more.
    fn bury(&self, connection: &mut Connection) {
        connection.socket = None;
        if self.board.state().catalog.release_all(connection.number) {
            self.board.tell_released();
        }
    }

    fn accept(&self) -> Result<OwnedFd, Errno> {
        accept_with(&self.door.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
    }

    fn let_in(&mut self) {
        let socket = match self.accept() {
            Ok(socket) => socket,
            Err(Errno::MFILE | Errno::NFILE) => {
                self.spare = None;
                drop(self.accept()); // he sees the end of the connection
                self.spare = spare();
                return;
            }
            Err(_) => return, // gone already
        };
        let refusal = match peer_of(&socket) {
            Err(_) => return, // gone already
            Ok(peer) if peer.uid != own_user() => Reply::OtherUser { uid: own_user() },
            Ok(_) if self.connections.len() >= CONNECTIONS_MAX => {
                let reason = format!("it has {CONNECTIONS_MAX} readers, and lets no more in");
                Reply::Refused { reason }
            }
            Ok(peer) => {
                self.numbers += 1;
                let (number, socket) = (self.numbers, Some(socket));
                let (has_greeted, given, waiting) = (false, HashSet::new(), None);
                self.connections.push(Connection { number, socket, peer, has_greeted, given, waiting });
                return;
            }
        };
        self.board.state().catalog.counts.refused += 1;
        let _ = send(&socket, &refusal.bytes(), &[]); // he may be gone
    }

    /// Reads one packet and answers it.
    fn hear(&self, connection: &mut Connection) {
        let Some(socket) = &connection.socket else { return };
        let heard = match receive(socket) {
            Ok(Some((bytes, _))) => Request::read(&bytes),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(error.to_string()),
            Ok(None) | Err(_) => {
                connection.socket = None;
                return;
            }
        };
        let answered = heard.and_then(|request| self.act(connection, request));
        if let Err(reason) = answered {
            self.board.state().catalog.counts.refused += 1;
            connection.say(&Reply::Refused { reason }, &[]);
            connection.socket = None;
        }
    }

    /// Does what is asked for. What no reader of ours asks is an error in words.
    fn act(&self, connection: &mut Connection, request: Request) -> Result<(), String> {
        match request {
            Request::Hello { .. } if !connection.has_greeted => {
                connection.has_greeted = true;
                self.board.state().catalog.counts.domains_made += 1;
                connection.say(&Reply::Welcome { device: self.device.clone() }, &[]);
            }
            _ if !connection.has_greeted => return Err("it does not say who it is".to_owned()),
            Request::Hello { .. } => return Err("it says twice who it is".to_owned()),
            Request::Get { key, ask, layout } => self.get(connection, &key, ask, layout),
            Request::Wait { key, least, milliseconds } => {
                let until = Instant::now().checked_add(Duration::from_millis(milliseconds));
                connection.waiting = Some(Waiting { key, least, until });
            }
            Request::Release { hold } => {
                let released = self.board.state().catalog.release(hold, connection.number);
                let version = released.map_err(|()| format!("it has no hold {hold}"))?;
                self.board.tell_released();
                connection.say(&Reply::Released { version }, &[]);
            }
        }
        Ok(())
    }

    fn get(&self, connection: &mut Connection, key: &str, ask: Ask, layout: Option<u64>) {
        let mut state = self.board.state();
        if let Some(refusal) = refusal(&state, key, ask, layout) {
            drop(state);
            connection.say(&refusal, &[]);
            return;
        }
        let (number, process) = (connection.number, connection.peer.pid);
        let Some(granted) = state.catalog.grant(key, ask, (number, process)) else { return };
        let (memories, files) = new_memories(&state, connection, &granted.version.places);
        let live = state.catalog.memories();
        drop(state);
        let over = connection.given.iter().filter(|memory| !live.contains(memory)).copied();
        let (hold, over) = (granted.hold, over.take(OVER_MAX).collect());
        let grant = Grant::of(&granted, memories, over);
        let borrowed: Vec<BorrowedFd<'_>> = files.iter().map(|file| file.as_fd()).collect();
        if connection.say(&Reply::Granted(grant.clone()), &borrowed) {
            grant.over.iter().for_each(|memory| _ = connection.given.remove(memory));
            connection.given.extend(grant.memories.iter().map(|(memory, _)| *memory));
        } else {
            // Nothing of it was sent, so he has nothing to copy from.
            let _ = self.board.state().catalog.release(hold, number);
            self.board.tell_released();
        }
    }

    /// Tells a reader that what he waits for is there, or that the time is over.
    fn answer_waiting(&self, connection: &mut Connection) {
        let Some(Waiting { key, least, until }) = &connection.waiting else { return };
        let state = self.board.state();
        let newest = state.catalog.newest(key);
        drop(state);
        let reply = match newest {
            Some(newest) if newest >= *least => Reply::There,
            _ if until.is_some_and(|until| until <= Instant::now()) => Reply::Missing { newest },
            _ => return,
        };
        connection.waiting = None;
        connection.say(&reply, &[]);
    }
}

/// A descriptor that is good for nothing.
fn spare() -> Option<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC).ok()
}

/// Why a version cannot be given.
fn refusal(state: &State, key: &str, ask: Ask, layout: Option<u64>) -> Option<Reply> {
    let Some(version) = state.catalog.find(key, ask) else {
        return Some(Reply::Missing { newest: state.catalog.newest(key) });
    };
    let is_other = layout.is_some_and(|layout| layout != version.form.layout);
    is_other.then(|| Reply::OtherLayout { version: version.number, layout: version.form.layout })
}

/// Memories of a version that a reader was not given yet, with their descriptors.
fn new_memories(
    state: &State,
    connection: &Connection,
    places: &[Place],
) -> (Vec<(u64, u64)>, Vec<Arc<OwnedFd>>) {
    let mut memories: Vec<(u64, u64)> = Vec::new();
    let mut files = Vec::new();
    for place in places {
        let is_known = connection.given.contains(&place.memory)
            || memories.iter().any(|(memory, _)| *memory == place.memory);
        if let (false, Some((file, values))) = (is_known, state.memories.get(&place.memory)) {
            memories.push((place.memory, *values));
            files.push(Arc::clone(file));
        }
    }
    (memories, files)
}

impl Connection {
    /// Sends a reply; whether it is on its way. A reader who reads none, until there is no room for more, has no connection any more.
    fn say(&mut self, reply: &Reply, files: &[BorrowedFd<'_>]) -> bool {
        let Some(socket) = &self.socket else { return false };
        let said = send(socket, &reply.bytes(), files).is_ok();
        if !said {
            self.socket = None;
        }
        said
    }
}
