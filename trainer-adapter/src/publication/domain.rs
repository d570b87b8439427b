//! What a reader has with one publisher: a connection, and the memory that came over it, mapped once.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::announcement::Announcement;
use super::catalog::Ask;
use super::error::PublicationError;
use super::mapped::{Mapped, map_all};
use super::packet::{Peer, connect_to, own_user, peer_of, receive, send, wait_for, watch_for};
use super::wire::{Grant, Reply, Request};
use crate::device::Share;

/// How long an answer is looked for before its reader sleeps: a few times what a round trip takes.
const WATCHED: Duration = Duration::from_micros(150);

/// A connection whose other side has said who it is.
#[derive(Debug)]
pub(super) struct Link {
    socket: OwnedFd,
    pub(super) peer: Peer,
    pub(super) device: String,
    within: Duration,
    key: String,
}

impl Link {
    /// Connects to whoever has announced a key.
    pub(super) fn open(
        folder: &Path,
        key: &str,
        announcement: &Announcement,
        (own, within): (&str, Duration),
    ) -> Result<Self, PublicationError> {
        let (key, pid) = (key.to_owned(), announcement.pid);
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {
                PublicationError::PublisherGone { key: key.clone(), pid, wrote: false }
            }
            io::ErrorKind::WouldBlock => {
                PublicationError::Silent { key: key.clone(), pid, within: Duration::ZERO }
            }
            _ => PublicationError::Io { what: format!("connect to process {pid}"), source: error },
        };
        let socket = connect_to(&folder.join(&announcement.socket)).map_err(failed)?;
        let unknown = |error: io::Error| match error.kind() {
            io::ErrorKind::Unsupported => PublicationError::io(format!("know process {pid}"))(error),
            _ => PublicationError::PublisherGone { key: key.clone(), pid, wrote: false },
        };
        let peer = peer_of(&socket).map_err(unknown)?;
        if peer.uid != own_user() {
            let what = format!("the publisher of {key:?} (process {pid})");
            return Err(PublicationError::OtherUser { what, uid: peer.uid, own: own_user() });
        }
        let mut link = Self { socket, peer, device: String::new(), within, key };
        let until = Instant::now().checked_add(within);
        match link.ask(&Request::Hello { device: own.to_owned() }, until)? {
            (Reply::Welcome { device }, _) => link.device = device,
            (other, _) => return Err(link.unexpected(&other)),
        }
        Ok(link)
    }

    /// Sends a request and waits for its answer. After an error nothing more is to be asked here.
    fn ask(
        &self,
        request: &Request,
        until: Option<Instant>,
    ) -> Result<(Reply, Vec<OwnedFd>), PublicationError> {
        send(&self.socket, &request.bytes(), &[]).map_err(|error| self.failed(error))?;
        let files = [self.socket.as_fd(), self.peer.process.as_fd()];
        let ready = watch_for(&files, until, Instant::now() + WATCHED);
        match ready.map_err(|error| self.failed(error))?[..] {
            [true, _] => {}
            [false, true] => return Err(self.gone(false)),
            _ => return Err(self.silent()),
        }
        let (bytes, files) =
            receive(&self.socket).map_err(|error| self.failed(error))?.ok_or_else(|| self.gone(false))?;
        match Reply::read(&bytes).map_err(|reason| self.protocol(reason))? {
            Reply::OtherUser { uid } => {
                let what = format!("the publisher of {:?} (process {})", self.key, self.peer.pid);
                Err(PublicationError::OtherUser { what, uid, own: own_user() })
            }
            Reply::Refused { reason } => Err(self.protocol(format!("it refuses: {reason}"))),
            reply => Ok((reply, files)),
        }
    }

    /// Whether a version of at least that number is there, now or within the time.
    pub(super) fn wait(&self, least: u64, limit: Duration) -> Result<bool, PublicationError> {
        let milliseconds = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        let request = Request::Wait { key: self.key.clone(), least, milliseconds };
        let until = limit.checked_add(self.within).and_then(|limit| Instant::now().checked_add(limit));
        match self.ask(&request, until)? {
            (Reply::There, _) => Ok(true),
            (Reply::Missing { .. }, _) => Ok(false),
            (other, _) => Err(self.unexpected(&other)),
        }
    }

    pub(super) fn gone(&self, wrote: bool) -> PublicationError {
        PublicationError::PublisherGone { key: self.key.clone(), pid: self.peer.pid, wrote }
    }

    fn silent(&self) -> PublicationError {
        PublicationError::Silent { key: self.key.clone(), pid: self.peer.pid, within: self.within }
    }

    pub(super) fn protocol(&self, reason: String) -> PublicationError {
        PublicationError::Protocol { pid: self.peer.pid, reason }
    }

    fn unexpected(&self, reply: &Reply) -> PublicationError {
        self.protocol(format!("it answers {reply:?}"))
    }

    fn failed(&self, error: io::Error) -> PublicationError {
        match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::NotConnected => {
                self.gone(false)
            }
            io::ErrorKind::WouldBlock => self.silent(),
            io::ErrorKind::InvalidData => self.protocol(error.to_string()),
            _ => PublicationError::Io { what: format!("talk to process {}", self.peer.pid), source: error },
        }
    }
}

/// A reader and a publisher. One request at a time; copies hold nothing of it.
pub(super) struct Domain<D: Share> {
    link: Mutex<(Link, Mapped<D>)>,
    /// The publisher's, to look at while another thread waits for an answer.
    process: Arc<OwnedFd>,
    /// Nothing more is asked here.
    is_broken: AtomicBool,
}

/// Whatever is held has a handle of the domain, so nothing is copied any more: also what the publisher has granted by an answer
/// that was missed is free.
impl<D: Share> Drop for Domain<D> {
    fn drop(&mut self) {
        let link = &self.link.get_mut().unwrap_or_else(PoisonError::into_inner).0;
        let _ = send(&link.socket, &Request::Bye.bytes(), &[]); // he may be gone
    }
}

impl<D: Share> fmt::Debug for Domain<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Domain(of the process behind {:?})", self.process)
    }
}

/// A version that is held until this is dropped or ended.
pub(super) struct Held<D: Share> {
    domain: Arc<Domain<D>>,
    pub(super) grant: Grant,
    /// One a class.
    pub(super) memories: Vec<Arc<D::Imported>>,
    pub(super) pid: u32,
    pub(super) device: String,
    /// How many memories were mapped for it.
    pub(super) mapped: u64,
    is_over: bool,
}

/// What came of asking for a version.
pub(super) enum Asked<D: Share> {
    Held(Held<D>),
    Missing(Option<u64>),
    OtherLayout { version: u64, layout: u64 },
}

impl<D: Share> Domain<D> {
    pub(super) fn new(link: Link) -> Self {
        let process = Arc::clone(&link.peer.process);
        Self { link: Mutex::new((link, HashMap::new())), process, is_broken: AtomicBool::new(false) }
    }

    fn link(&self) -> MutexGuard<'_, (Link, Mapped<D>)> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is of no use any more. Waits for nobody.
    pub(super) fn is_over(&self) -> bool {
        let has_ended = || {
            let soon = Some(Instant::now());
            wait_for(&[self.process.as_fd()], soon).is_ok_and(|ended| ended[0])
        };
        self.is_broken.load(Ordering::Acquire) || has_ended()
    }

    fn ask(&self, link: &Link, request: &Request) -> Result<(Reply, Vec<OwnedFd>), PublicationError> {
        if self.is_broken.load(Ordering::Acquire) {
            return Err(link.gone(false));
        }
        let answered = link.ask(request, Instant::now().checked_add(link.within));
        answered.inspect_err(|_| self.is_broken.store(true, Ordering::Release))
    }

    /// Asks for a version, and maps what it lies in.
    pub(super) fn get(
        self: &Arc<Self>,
        device: &D,
        key: &str,
        (ask, layout): (Ask, Option<u64>),
    ) -> Result<Asked<D>, PublicationError> {
        let mut locked = self.link();
        let (link, mapped) = &mut *locked;
        let request = Request::Get { key: key.to_owned(), ask, layout };
        let (grant, files) = match self.ask(link, &request)? {
            (Reply::Granted(grant), files) => (grant, files),
            (Reply::Missing { newest }, _) => return Ok(Asked::Missing(newest)),
            (Reply::OtherLayout { version, layout }, _) => return Ok(Asked::OtherLayout { version, layout }),
            (other, _) => {
                self.is_broken.store(true, Ordering::Release);
                return Err(link.unexpected(&other));
            }
        };
        let found = map_all(device, link, mapped, &grant, files);
        let memories = match found {
            Ok(memories) => memories,
            Err(error) => {
                // The publisher takes the memories for given. A new domain gets them again.
                let _ = self.ask(link, &Request::Release { hold: grant.hold });
                self.is_broken.store(true, Ordering::Release);
                return Err(error);
            }
        };
        let (pid, device, count) = (link.peer.pid, link.device.clone(), grant.memories.len() as u64);
        let domain = Arc::clone(self);
        Ok(Asked::Held(Held { domain, grant, memories, pid, device, mapped: count, is_over: false }))
    }

    fn release(&self, hold: u64) -> Result<Option<u64>, PublicationError> {
        let locked = self.link();
        let request = Request::Release { hold };
        if self.is_broken.load(Ordering::Acquire) {
            // An answer was missed: nobody knows which would be whose. The publisher, if he goes on, is to know all the same.
            let _ = send(&locked.0.socket, &request.bytes(), &[]);
        }
        match self.ask(&locked.0, &request)? {
            (Reply::Released { version }, _) => Ok(version),
            (other, _) => Err(locked.0.unexpected(&other)),
        }
    }
}

impl<D: Share> Held<D> {
    /// Ends the hold. Gives the version that lay there to the end.
    pub(super) fn end(mut self) -> Result<Option<u64>, PublicationError> {
        self.is_over = true;
        self.domain.release(self.grant.hold)
    }
}

impl<D: Share> Drop for Held<D> {
    fn drop(&mut self) {
        if !self.is_over {
            let _ = self.domain.release(self.grant.hold); // the get has failed already
        }
    }
}
