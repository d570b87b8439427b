//! The publisher's thread: lets readers in, answers them, and sees their processes end.
//!
//! It waits for all at once and for none alone: a reader who sends nothing, sends nonsense, or reads no answers costs the others
//! nothing. A reader who says that he goes holds nothing any more. One whose connection is over without that, while he holds
//! something, keeps it until his process has ended: his device may still be copying.

use std::cell::Cell;
use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};

use super::announcement::Door;
use super::catalog::Ask;
use super::connection::{Connection, Waiting, new_memories, refusal};
use super::packet::{own_user, peer_of, receive, send, wait_for, watch_for};
use super::publisher::Board;
use super::wire::{Grant, OVER_MAX, Reply, Request};

/// More readers than a node has processes for.
const CONNECTIONS_MAX: usize = 1024;
/// Of one process: a domain for each of its readers, one for each wait, and those that it has left without an end of its holds.
pub(super) const CONNECTIONS_OF_PROCESS_MAX: usize = 128;
/// Of one connection: gets of one reader at a time.
pub(super) const HOLDS_MAX: usize = 1024;
/// How long the end of a hold is looked for before the thread sleeps, once it has granted one: a gigabyte is copied by then, and a get that
/// has to wake the thread twice takes a tenth of a millisecond more.
const WATCHED: Duration = Duration::from_millis(1);

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
    /// The end of a hold may come before this.
    watched: Cell<Option<Instant>>,
}

impl Service {
    pub(super) fn new(board: Arc<Board>, door: Door, device: String) -> Self {
        let (connections, watched) = Default::default();
        Self { board, door, device, connections, numbers: 0, spare: spare(), watched }
    }

    /// Until the publisher is dropped.
    pub(super) fn run(mut self) {
        while !self.board.state().is_over {
            match self.wait() {
                Ok(ready) => self.look(&ready),
                Err(error) => {
                    self.board.fail(&error);
                    return; // readers see the connection's end
                }
            }
        }
    }

    /// Waits for anything. Gives what there is: the bell, the door, then of each connection the socket, if it has one, and the
    /// process. Each file once: the system refuses to watch more than a process may have open.
    fn wait(&self) -> io::Result<Vec<bool>> {
        let mut files: Vec<BorrowedFd<'_>> = vec![self.board.bell().as_fd(), self.door.listener.as_fd()];
        for connection in &self.connections {
            files.extend(connection.socket.as_ref().map(AsFd::as_fd));
            files.push(connection.peer.process.as_fd());
        }
        let waiting = self.connections.iter().filter_map(|connection| connection.waiting.as_ref()?.until);
        match self.watched.take() {
            Some(watched) => watch_for(&files, waiting.min(), watched),
            None => wait_for(&files, waiting.min()),
        }
    }

    fn look(&mut self, ready: &[bool]) {
        if ready[0] {
            let _ = rustix::io::read(self.board.bell(), &mut [0; 8]); // it is looked at below, whatever it says
        }
        let mut others = std::mem::take(&mut self.connections);
        let mut of_connections = ready[2..].iter().copied();
        let mut next = || of_connections.next().unwrap_or(false);
        for connection in &mut others {
            let (is_heard, has_ended) = (connection.socket.is_some() && next(), next());
            if is_heard {
                self.hear(connection);
            }
            if has_ended {
                self.bury(connection);
            }
            self.answer_waiting(connection);
        }
        let state = self.board.state();
        let is_needed = |c: &Connection| c.socket.is_some() || state.catalog.holds_of(c.number) > 0;
        others.retain(is_needed);
        drop(state);
        self.connections = others;
        if ready[1] {
            self.let_in();
        }
        self.board.state().catalog.counts.domains = self.connections.len();
    }

    /// Its process has ended, or says that it goes: nothing of it copies any more.
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
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                Reply::Refused { reason: error.to_string() }
            }
            Err(_) => return, // gone already
            Ok(peer) if peer.uid != own_user() => Reply::OtherUser { uid: own_user() },
            Ok(_) if self.connections.len() >= CONNECTIONS_MAX => {
                let reason = format!("it has {CONNECTIONS_MAX} readers, and lets no more in");
                Reply::Refused { reason }
            }
            Ok(peer) if self.connections_of(peer.pid) >= CONNECTIONS_OF_PROCESS_MAX => {
                let reason =
                    format!("process {} has {CONNECTIONS_OF_PROCESS_MAX} connections already", peer.pid);
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

    fn connections_of(&self, process: u32) -> usize {
        self.connections.iter().filter(|connection| connection.peer.pid == process).count()
    }

    /// Reads one packet and answers it.
    fn hear(&self, connection: &mut Connection) {
        let Some(socket) = &connection.socket else { return };
        let heard = match receive(socket) {
            Ok(Some((bytes, _))) => Request::read(&bytes),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(error.to_string()),
            // He has gone without reading all answers. What he said before comes next, and then the end.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return,
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
            Request::Get { key, ask, layout } => self.get(connection, &key, ask, layout)?,
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
            Request::Bye => self.bury(connection),
        }
        Ok(())
    }

    fn get(
        &self,
        connection: &mut Connection,
        key: &str,
        ask: Ask,
        layout: Option<u64>,
    ) -> Result<(), String> {
        let mut state = self.board.state();
        if let Some(refusal) = refusal(&state, key, ask, layout) {
            drop(state);
            connection.say(&refusal, &[]);
            return Ok(());
        }
        let (number, process) = (connection.number, connection.peer.pid);
        if state.catalog.holds_of(number) >= HOLDS_MAX {
            return Err(format!("it has {HOLDS_MAX} holds already"));
        }
        let Some(granted) = state.catalog.grant(key, ask, (number, process)) else { return Ok(()) };
        let (memories, files) = match new_memories(&state, connection, &granted.version.places) {
            Ok(found) => found,
            Err(memory) => {
                let _ = state.catalog.release(granted.hold, number);
                drop(state);
                self.board.tell_released();
                return Err(format!("it has lost memory {memory}, in which a version of {key:?} lies"));
            }
        };
        let live = state.catalog.memories();
        drop(state);
        let over = connection.given.iter().filter(|memory| !live.contains(memory)).copied();
        let (hold, over) = (granted.hold, over.take(OVER_MAX).collect());
        let grant = Grant::of(&granted, memories, over);
        let borrowed: Vec<BorrowedFd<'_>> = files.iter().map(|file| file.as_fd()).collect();
        if connection.say(&Reply::Granted(grant.clone()), &borrowed) {
            grant.over.iter().for_each(|memory| _ = connection.given.remove(memory));
            connection.given.extend(grant.memories.iter().map(|(memory, _)| *memory));
            self.watched.set(Some(Instant::now() + WATCHED));
        } else {
            // Nothing of it was sent, so he has nothing to copy from.
            let _ = self.board.state().catalog.release(hold, number);
            self.board.tell_released();
        }
        Ok(())
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
