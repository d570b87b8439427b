//! Messages that are not read before there is room in memory for them.
//!
//! How long a message is stands before it, so it takes its room at once and whole: nobody waits for more of it who has some
//! already. One that is not short is held back meanwhile, and its client by the transport. A call with one message
//! has its room until it is answered; of a stream of messages each has it until the next is asked for. Work that goes on when its call is
//! over keeps the room with what it has of the message ([`Call::holding`](super::call::Call::holding)). Flight SQL's messages are held back
//! so, too, for room of their own.

use std::mem::take;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use forebay_client::Error;
use forebay_client::wire::{from_error, malformed};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http_body::Frame;
use tonic::Status;
use tonic::body::Body;

use super::pace::Clock;
use super::packed::unpacked_bytes_max;
use super::room::{MessageRoom, Taken};

/// What stands before a message: whether it is packed, and its length.
const PREFIX_BYTES: usize = 5;
/// A message that is no longer, packed or not, is read at once and not counted. What it may stand for in memory has a bound of its own
/// ([`decode`](forebay_client::wire::decode)).
const SHORT_BYTES: u64 = 64 << 10;

/// What a call brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Messages {
    One,
    Many,
    /// One, and then frames, for which the call takes room itself.
    OneAndFrames,
}

/// The room of the message that a call has now, until it is given back or nobody has it any more.
#[derive(Clone, Debug, Default)]
pub(crate) struct Occupied(Arc<Mutex<Option<Taken>>>);

impl Occupied {
    fn lock(&self) -> MutexGuard<'_, Option<Taken>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn give_back(&self) {
        let taken = self.lock().take();
        drop(taken);
    }
}

/// What a client sends, message by message.
pub(crate) struct HeldBack {
    body: Body,
    brings: Messages,
    room: MessageRoom,
    caller: String,
    clock: Clock,
    occupied: Occupied,
    /// Until there is room for the message that comes next.
    taking: Option<BoxFuture<'static, Result<Taken, Error>>>,
    /// How many messages have begun.
    begun: u64,
    /// What stands before a message, as far as it has come: in parts, or with a packed message behind it.
    head: BytesMut,
    /// What has come and was not looked at.
    rest: Bytes,
    /// How much of the present message is given on yet, from `head` and then `rest`.
    left: u64,
    /// What came at the end: trailers or nothing.
    end: Option<Option<Frame<Bytes>>>,
}

type Next = Poll<Option<Result<Frame<Bytes>, Status>>>;

impl HeldBack {
    pub(crate) fn new(
        body: Body,
        brings: Messages,
        (room, caller): (MessageRoom, &str),
        (clock, occupied): (Clock, Occupied),
    ) -> Self {
        HeldBack {
            body,
            brings,
            room,
            caller: caller.to_owned(),
            clock,
            occupied,
            taking: None,
            begun: 0,
            head: BytesMut::new(),
            rest: Bytes::new(),
            left: 0,
            end: None,
        }
    }

    /// Whether what comes now is left to the call.
    fn passes(&self) -> bool {
        self.brings == Messages::OneAndFrames && self.begun > 0 && self.left == 0
    }

    /// How long the head has to be before anything is known of the message.
    fn head_bytes(&self) -> usize {
        match prefix_of(&self.head) {
            Some((true, length)) if length <= SHORT_BYTES => PREFIX_BYTES + length as usize,
            _ => PREFIX_BYTES,
        }
    }

    /// Looks at what has come where a message begins. One that is not packed is mostly there with all that stands before it.
    fn look(&mut self) -> Result<(), Status> {
        if let Some((false, length)) = prefix_of(&self.rest).filter(|_| self.head.is_empty()) {
            return self.begin(length, length);
        }
        let missing = (self.head_bytes() - self.head.len()).min(self.rest.len());
        self.head.extend_from_slice(&self.rest.split_to(missing));
        match prefix_of(&self.head) {
            Some((is_packed, length)) if self.head.len() == self.head_bytes() => {
                self.begin(length, if is_packed { self.unpacked_bytes_max(length) } else { length })
            }
            _ => Ok(()),
        }
    }

    /// What the packed message may come to: of a long one, or one of which nobody can tell, the most that is taken.
    fn unpacked_bytes_max(&self, length: u64) -> u64 {
        let most = self.room.message_bytes_max();
        let whole = self.head.get(PREFIX_BYTES..).filter(|content| content.len() as u64 == length);
        whole.and_then(unpacked_bytes_max).map_or(most, |bytes| bytes.min(most))
    }

    /// A message begins that takes so much.
    fn begin(&mut self, length: u64, bytes: u64) -> Result<(), Status> {
        self.begun += 1;
        self.left = length + PREFIX_BYTES as u64;
        if self.begun > 1 && self.brings == Messages::One {
            return Err(from_error(&malformed("a second message in a call of one")));
        }
        self.occupied.give_back();
        // What is too long is refused by whoever reads it, before any of it.
        if bytes > SHORT_BYTES && length <= self.room.message_bytes_max() {
            let (room, caller) = (self.room.clone(), self.caller.clone());
            self.taking = Some(async move { room.take(&caller, bytes).await }.boxed());
        }
        Ok(())
    }

    /// What may be given on of what has come.
    fn given_on(&mut self) -> Option<Bytes> {
        // Of a message that ends in its head whoever reads it says what is missing.
        if (self.left > 0 || self.end.is_some()) && !self.head.is_empty() {
            self.left = self.left.saturating_sub(self.head.len() as u64);
            return Some(self.head.split().freeze());
        }
        if self.passes() && !self.rest.is_empty() {
            self.occupied.give_back(); // the call has taken room for this, and for what came before it
            return Some(take(&mut self.rest));
        }
        let bytes = self.left.min(self.rest.len() as u64) as usize;
        self.left -= bytes as u64;
        (bytes > 0).then(|| self.rest.split_to(bytes))
    }

    /// Waits for the room that the message needs, if it needs any.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        let Some(taking) = &mut self.taking else { return Poll::Ready(Ok(())) };
        let taken = ready!(taking.as_mut().poll(cx));
        self.taking = None;
        self.clock.restart(); // it was not read meanwhile
        *self.occupied.lock() = Some(taken.map_err(|error| from_error(&error))?);
        Poll::Ready(Ok(()))
    }
}

/// Whether a message is packed, and its length, where both have come.
fn prefix_of(bytes: &[u8]) -> Option<(bool, u64)> {
    let [packed, length @ ..] = *bytes.first_chunk::<PREFIX_BYTES>()?;
    Some((packed != 0, u64::from(u32::from_be_bytes(length))))
}

impl tonic::codegen::Body for HeldBack {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Next {
        let this = &mut *self;
        loop {
            ready!(this.poll_room(cx))?;
            if let Some(bytes) = this.given_on() {
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            if !this.rest.is_empty() {
                this.look()?;
                continue;
            }
            if let Some(end) = this.end.take() {
                return Poll::Ready(end.map(Ok));
            }
            if this.brings == Messages::Many && this.left == 0 {
                this.occupied.give_back(); // who asks for the next is done with the one before
            }
            match ready!(Pin::new(&mut this.body).poll_frame(cx)).transpose()?.map(Frame::into_data) {
                Some(Ok(data)) => this.rest = data,
                Some(Err(trailers)) => this.end = Some(Some(trailers)),
                None => this.end = Some(None),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let nothing_is_here = self.head.is_empty() && self.rest.is_empty() && self.end.is_none();
        nothing_is_here && self.taking.is_none() && self.body.is_end_stream()
    }
}

#[cfg(test)]
mod tests;
