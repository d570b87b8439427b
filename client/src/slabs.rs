//! Slabs: how a client of the server's machine that may not open the store's files hands over its values.
//!
//! A slab is memory that the server has made and this client fills ([`forebay_store::Slab`]). A call takes the slabs that it needs
//! out of the pool, or has the server make one, says in its message where each value lies, and puts them back when it was
//! answered: the server has copied the values by then. Where no slab is to be had a value is sent.
//!
//! Slabs are a session's. When the session is another, all that were had before are let go of.

use std::io::{self, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use forebay_store::{SlabFiller, Value};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketAddrUnix, SocketFlags,
    SocketType, connect, recvmsg, socket_with,
};

use crate::changes::Changes;
use crate::error::Result;
use crate::neighbour::placeable;
use crate::wire::{from_changes, from_changes_placed, from_slab, malformed, proto, to_spot, unplace};

/// How long the server has to make a slab.
const WITHIN: Duration = Duration::from_millis(500);
/// For how long none is asked for after none was had.
const QUIET: Duration = Duration::from_secs(5);

/// The slabs that this client fills.
#[derive(Debug)]
pub(crate) struct Slabs {
    /// Where they are had.
    door: PathBuf,
    /// How large each is.
    bytes: u32,
    pool: Mutex<Pool>,
}

#[derive(Debug, Default)]
struct Pool {
    session: Bytes,
    idle: Vec<Slab>,
    /// Until then none is asked for: there are no more, or nobody answered.
    quiet_until: Option<Instant>,
}

#[derive(Debug)]
struct Slab {
    number: u32,
    filler: SlabFiller,
}

/// The slabs that one call fills, until it is over.
#[derive(Debug)]
pub(crate) struct Stowed {
    slabs: Arc<Slabs>,
    session: Bytes,
    taken: Vec<Slab>,
    /// No slab is to be had: the rest is sent.
    is_over: bool,
    /// Something could not be put into one: nothing of the call may be named.
    failed: bool,
}

impl Slabs {
    /// Slabs of so many bytes, from the server that listens at a socket.
    pub(crate) fn new(socket: &Path, bytes: u32) -> Self {
        let mut door = socket.as_os_str().to_owned();
        door.push(".slabs");
        Slabs { door: door.into(), bytes, pool: Mutex::default() }
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner) // whoever panicked left whole entries
    }

    /// An empty slab of a session, if one is to be had.
    fn take(&self, session: &Bytes) -> Option<Slab> {
        {
            let mut pool = self.pool();
            if pool.session != *session {
                *pool = Pool { session: session.clone(), ..Pool::default() };
            }
            if let Some(slab) = pool.idle.pop() {
                return Some(slab);
            }
            if pool.quiet_until.is_some_and(|until| Instant::now() < until) {
                return None;
            }
        }
        let received = receive(&self.door, session)
            .inspect_err(|error| tracing::info!(%error, "no slab was had; values are sent"));
        match received {
            Ok(Some((number, file))) => Some(Slab { number, filler: SlabFiller::new(file, self.bytes) }),
            Ok(None) | Err(_) => {
                self.pool().quiet_until = Some(Instant::now() + QUIET);
                None
            }
        }
    }
}

/// Has the server make a slab for a session; none where it makes no more.
fn receive(door: &Path, session: &[u8]) -> io::Result<Option<(u32, OwnedFd)>> {
    // Not to wait in a line that somebody else has filled.
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(door)?)?;
    let mut stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(WITHIN))?;
    stream.set_write_timeout(Some(WITHIN))?;
    stream.write_all(session)?;
    let mut number = [0; 4];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let message =
        recvmsg(&stream, &mut [IoSliceMut::new(&mut number)], &mut beside, RecvFlags::CMSG_CLOEXEC)?;
    let mut files = beside.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    match (message.bytes, files.next()) {
        (4, Some(file)) => Ok(Some((u32::from_le_bytes(number), file))),
        (0, None) => Ok(None),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "the server sent something else than a slab")),
    }
}

impl Stowed {
    /// Begins a call of a session.
    pub(crate) fn begin(slabs: Arc<Slabs>, session: Bytes) -> Self {
        Stowed { slabs, session, taken: Vec::new(), is_over: false, failed: false }
    }

    /// Changes on the wire, with their larger values in slabs. Where that cannot be they are sent.
    pub(crate) fn message(&mut self, changes: &Changes<'_>) -> proto::Changes {
        let message = from_changes_placed(changes, &mut |_, value| self.place(value));
        for slab in &mut self.taken {
            self.failed |= slab.filler.flush().inspect_err(not_put).is_err();
        }
        if self.failed { from_changes(changes) } else { message }
    }

    fn place(&mut self, value: &Value<'_>) -> Option<proto::Value> {
        let (kind, bytes) = placeable(value).filter(|_| !self.is_over && !self.failed)?;
        if bytes.len() > self.slabs.bytes as usize {
            return None;
        }
        loop {
            if let Some(slab) = self.taken.last_mut()
                && let Some(spot) = slab.filler.place(bytes).transpose()
            {
                let spot = spot.inspect_err(not_put);
                self.failed |= spot.is_err();
                return Some(from_slab(slab.number, kind, spot.ok()?));
            }
            let next = self.slabs.take(&self.session);
            self.is_over = next.is_none();
            self.taken.push(next?);
        }
    }

    /// The message with its values in it, for a server that does not know these slabs any more.
    ///
    /// # Errors
    /// As the system has them.
    pub(crate) fn unplaced(&self, mut message: proto::Changes) -> Result<proto::Changes> {
        unplace(&mut message, &mut |placed| {
            let slab = self.taken.iter().find(|slab| slab.number == placed.extent);
            let slab = slab.ok_or_else(|| malformed("a value in a slab that this call did not fill"))?;
            Ok(slab.filler.read(to_spot(placed))?)
        })?;
        Ok(message)
    }
}

fn not_put(error: &forebay_store::Error) {
    tracing::warn!(%error, "values could not be put into a slab; they are sent");
}

impl Drop for Stowed {
    /// The call is over: the server has copied what it wanted.
    fn drop(&mut self) {
        let mut taken = std::mem::take(&mut self.taken);
        taken.iter_mut().for_each(|slab| slab.filler.clear());
        let mut pool = self.slabs.pool();
        if pool.session == self.session {
            pool.idle.append(&mut taken);
        }
    }
}
