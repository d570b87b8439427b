//! Where slabs are had: a socket beside the one for calls, since files do not go through those.
//!
//! Whoever sends a session's name, which is a secret of its client, gets a number and with it the slab's file, or nothing where
//! there are no more. Nobody stays longer than that takes.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::AsyncReadExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use super::UnixSocket;
use super::sessions::{SessionId, Sessions};
use super::slabs::Made;

/// How many may ask at the same time; others wait until they are let in.
const ASKING_MAX: usize = 64;
/// How long one may take.
const WITHIN: Duration = Duration::from_secs(1);
/// The pause after no connection could be taken, for there are too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// A door that is open until it is dropped; its socket is removed then.
#[derive(Debug)]
pub(super) struct Door {
    open: AbortHandle,
    path: PathBuf,
}

impl Drop for Door {
    fn drop(&mut self) {
        self.open.abort();
        let _ = std::fs::remove_file(&self.path); // a socket that nobody listens on
    }
}

/// Opens the door, inside of a runtime.
pub(super) fn open(socket: UnixSocket, sessions: Sessions) -> io::Result<Door> {
    let listener = UnixListener::from_std(socket.listener)?;
    let open = tokio::spawn(hand_out_all(listener, sessions)).abort_handle();
    Ok(Door { open, path: socket.path })
}

async fn hand_out_all(listener: UnixListener, sessions: Sessions) {
    let places = Arc::new(Semaphore::new(ASKING_MAX));
    while let Ok(place) = places.clone().acquire_owned().await {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "nobody is let in who wants a slab");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let sessions = sessions.clone();
        tokio::spawn(async move {
            match tokio::time::timeout(WITHIN, hand_out(stream, &sessions)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%error, "no slab was handed out"),
                Err(_) => tracing::debug!("no slab was handed out: whoever asked took too long"),
            }
            drop(place);
        });
    }
}

async fn hand_out(mut stream: UnixStream, sessions: &Sessions) -> io::Result<()> {
    let mut id = SessionId::default();
    stream.read_exact(&mut id).await?;
    let Some(session) = sessions.named(&id) else { return Ok(()) };
    let Some(slabs) = &session.slabs else { return Ok(()) };
    let Some((number, made)) = slabs.make().map_err(io::Error::other)? else { return Ok(()) };
    // Nothing was sent before, so there is room for it.
    send(&stream, number, &made).inspect_err(|_| slabs.unmake(number))
}

fn send(stream: &UnixStream, number: u32, made: &Made) -> io::Result<()> {
    let files = [made.slab.fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    beside.push(SendAncillaryMessage::ScmRights(&files));
    let number = number.to_le_bytes();
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let sent = sendmsg(stream.as_fd(), &[IoSlice::new(&number)], &mut beside, flags)?;
    if sent == number.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}
