//! Where slabs are had: a socket beside the one for calls, since files do not go through those.
//!
//! Whoever sends a session's name, which is a secret of its client, gets a number and with it the slab's file, or nothing where
//! there are no more. Nobody stays longer than that takes.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::{AsyncReadExt, Interest};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

use super::sessions::{SessionId, Sessions};
use super::slabs::{Made, Slabs};

/// How many may ask at the same time; others wait until they are let in.
const ASKING_MAX: usize = 64;
/// How long one may take.
const WITHIN: Duration = Duration::from_secs(5);
/// The pause after no connection could be taken, for there are too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// Hands out slabs for as long as it is polled.
pub(super) async fn open(listener: UnixListener, sessions: Sessions) {
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
    let made = session.slabs.as_ref().map_or(Ok(None), Slabs::make).map_err(io::Error::other)?;
    let Some((number, made)) = made else { return Ok(()) };
    stream.async_io(Interest::WRITABLE, || send(&stream, number, &made)).await
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
