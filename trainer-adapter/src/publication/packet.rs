//! Packets between processes of this machine, with descriptors beside them; and who is on the other side.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, recvmsg,
    sendmsg, socket_with,
};
use rustix::process::{Pid, PidfdFlags, geteuid, pidfd_open};

use super::form::CLASSES_MAX;
use super::wire::PACKET_BYTES_MAX;

/// Who may wait to be let in.
const BACKLOG: i32 = 128;

/// The other side of a connection.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) pid: u32,
    pub(super) uid: u32,
    /// Readable once the process has ended, and not before all of its memory is unmapped.
    pub(super) process: Arc<OwnedFd>,
}

/// This process's user, by which others know it.
pub(super) fn own_user() -> u32 {
    geteuid().as_raw()
}

/// Who was on the other side when the connection was made. One of another PID namespace, which has no number here, is
/// [`io::ErrorKind::Unsupported`].
pub(super) fn peer_of(connection: impl AsFd) -> io::Result<Peer> {
    known(credentials(connection.as_fd())?)
}

fn known(libc::ucred { pid, uid, .. }: libc::ucred) -> io::Result<Peer> {
    let reason = "it is a process of another PID namespace; run both in one";
    let number = Pid::from_raw(pid).ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, reason))?;
    let process = Arc::new(pidfd_open(number, PidfdFlags::empty())?);
    Ok(Peer { pid: pid.unsigned_abs(), uid, process })
}

/// `rustix` gives a process number that may not be 0; the kernel gives 0 for a process of another PID namespace.
#[allow(unsafe_code, reason = "a call of the system that fills three plain numbers")]
fn credentials(connection: BorrowedFd<'_>) -> io::Result<libc::ucred> {
    let mut found = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    let (place, socket) = ((&raw mut found).cast(), connection.as_raw_fd());
    // SAFETY: the descriptor is open for the call; the kernel writes at most `length` bytes to `found`, whose fields take any bits.
    let code =
        unsafe { libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, place, &raw mut length) };
    if code == 0 { Ok(found) } else { Err(io::Error::last_os_error()) }
}

fn packets(flags: SocketFlags) -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags | SocketFlags::CLOEXEC, None)?)
}

/// Listens at a path where nothing is yet.
pub(super) fn listen_at(path: &Path) -> io::Result<OwnedFd> {
    let listener = packets(SocketFlags::NONBLOCK)?;
    bind(&listener, &SocketAddrUnix::new(path)?)?;
    listen(&listener, BACKLOG)?;
    Ok(listener)
}

/// Connects, and never waits in a line that others have filled.
pub(super) fn connect_to(path: &Path) -> io::Result<OwnedFd> {
    let connection = packets(SocketFlags::NONBLOCK)?;
    connect(&connection, &SocketAddrUnix::new(path)?)?;
    Ok(connection)
}

/// Sends a packet, or nothing of it; never waits.
pub(super) fn send(connection: impl AsFd, bytes: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(CLASSES_MAX))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::Error::other(format!("{} descriptors for one packet", files.len())));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let sent = retry(|| sendmsg(&connection, &[IoSlice::new(bytes)], &mut beside, flags))?;
    if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// A packet and the descriptors beside it, or `None` when the other side has closed. Never waits: `WouldBlock` when there is none.
pub(super) fn receive(connection: impl AsFd) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(CLASSES_MAX))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = vec![0; PACKET_BYTES_MAX];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = retry(|| recvmsg(&connection, &mut [IoSliceMut::new(&mut bytes)], &mut beside, flags))?;
    let mut files: Vec<OwnedFd> = Vec::new();
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            files.extend(rights);
        }
    }
    let invalid = |reason: &str| Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    if received.flags.contains(ReturnFlags::TRUNC) {
        return invalid("a packet that is too long");
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return invalid(
            "descriptors that did not arrive: there were too many, or this process has too many open",
        );
    }
    bytes.truncate(received.bytes);
    Ok(if bytes.is_empty() { None } else { Some((bytes, files)) })
}

fn retry<T>(mut work: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    loop {
        match work() {
            Err(Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
}

/// Waits until one of the files can be read (or is over), or the time is. Gives which can.
pub(super) fn wait_for(files: &[BorrowedFd<'_>], until: Option<Instant>) -> io::Result<Vec<bool>> {
    let mut watched: Vec<PollFd<'_>> = files.iter().map(|file| PollFd::new(file, PollFlags::IN)).collect();
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = left.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
        match poll(&mut watched, left.as_ref()) {
            Ok(_) => return Ok(watched.iter().map(|file| !file.revents().is_empty()).collect()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// As [`wait_for`], for what is on its way: looks again and again until `watched` before it sleeps, since a thread that sleeps is woken
/// later than what is on its way comes.
pub(super) fn watch_for(
    files: &[BorrowedFd<'_>],
    until: Option<Instant>,
    watched: Instant,
) -> io::Result<Vec<bool>> {
    let watched = until.map_or(watched, |until| until.min(watched));
    while Instant::now() < watched {
        let ready = wait_for(files, Some(Instant::now()))?;
        if ready.contains(&true) {
            return Ok(ready);
        }
        std::thread::yield_now(); // whoever answers may have no other core
    }
    wait_for(files, until)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;

    #[test]
    fn packets_go_whole_with_their_descriptors_and_the_end_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = listen_at(&path).unwrap();
        let one = connect_to(&path).unwrap();
        let other = rustix::net::accept_with(&listener, SocketFlags::CLOEXEC).unwrap();
        assert_eq!(receive(&other).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let file = std::fs::File::open("/proc/self/stat").unwrap();
        send(&one, b"first", &[file.as_fd(), file.as_fd()]).unwrap();
        send(&one, b"second", &[]).unwrap();
        let (bytes, files) = receive(&other).unwrap().unwrap();
        assert_eq!((&bytes[..], files.len()), (&b"first"[..], 2));
        assert_eq!(receive(&other).unwrap().unwrap().0, b"second");
        send(&one, &vec![1; PACKET_BYTES_MAX + 1], &[]).unwrap();
        assert_eq!(receive(&other).unwrap_err().kind(), io::ErrorKind::InvalidData);
        let peer = peer_of(&other).unwrap();
        assert_eq!((peer.pid, peer.uid), (std::process::id(), own_user()));
        let unseen = known(libc::ucred { pid: 0, uid: own_user(), gid: 0 }).unwrap_err();
        assert!(unseen.to_string().contains("another PID namespace"), "{unseen}");
        drop(one);
        assert!(receive(&other).unwrap().is_none());
        assert_eq!(send(&other, b"nobody", &[]).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        let soon = Some(Instant::now());
        assert_eq!(wait_for(&[other.as_fd(), peer.process.as_fd()], soon).unwrap(), [true, false]);
    }

    #[test]
    fn a_watch_ends_with_what_comes_with_its_time_and_with_the_deadline() {
        let (one, other) = std::os::unix::net::UnixDatagram::pair().unwrap();
        let (now, files) = (Instant::now, [other.as_fd()]);
        let [past, never] = [now(), now() + std::time::Duration::from_secs(600)];
        assert_eq!(watch_for(&files, Some(past), never).unwrap(), [false]);
        let soon = now() + std::time::Duration::from_millis(1);
        assert_eq!(watch_for(&files, Some(soon), never).unwrap(), [false]);
        assert!(now() >= soon);
        assert_eq!(watch_for(&files, Some(now()), past).unwrap(), [false]);
        one.send(b"come").unwrap();
        assert_eq!(watch_for(&files, None, never).unwrap(), [true]);
        assert_eq!(watch_for(&files, None, past).unwrap(), [true]);
    }
}
