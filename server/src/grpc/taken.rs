//! The pace at which the answer of a call with one message has to be taken, where it is large.
//!
//! The transport takes an answer as its client makes room for it, and one that never does would have tens of megabytes kept for it.
//! So a large answer is given to the transport a small copy at a time, and what was not taken in time is let go of: what is left of
//! it then is one such copy. Small answers go as they are.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes};
use forebay_client::wire::PIECE_BYTES;
use http_body::Frame;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Body as _;
use tonic::codegen::http::HeaderMap;

use super::pace::late;
use super::tally::Tally;

/// How much is given to the transport at once. An answer that is no longer goes as it is.
const PART_BYTES: usize = 64 << 10;

type Next = Option<Result<Frame<Bytes>, Status>>;

/// An answer with one message, every piece of which has to be taken in that time. Its clock runs from now on.
pub(crate) fn taken_in_time(mut body: Body, piece_time_max: Duration, tally: Tally) -> Body {
    // All of it is there: nobody has to be woken for it.
    let first = Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop()));
    match first {
        Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
            Ok(message) if message.len() > PART_BYTES => {
                Body::new(Large::new(message, body, piece_time_max, tally))
            }
            Ok(message) => Body::new(Begun { first: Some(Ok(Frame::data(message))), rest: body }),
            Err(frame) => Body::new(Begun { first: Some(Ok(frame)), rest: body }),
        },
        Poll::Ready(Some(failed)) => Body::new(Begun { first: Some(failed), rest: body }),
        Poll::Ready(None) | Poll::Pending => body,
    }
}

/// A body of which the first frame was looked at.
struct Begun {
    first: Next,
    rest: Body,
}

impl tonic::codegen::Body for Begun {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Next> {
        match self.first.take() {
            None => Pin::new(&mut self.rest).poll_frame(cx),
            first => Poll::Ready(first),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.rest.is_end_stream()
    }
}

/// What was not given to the transport yet.
struct Left {
    message: Bytes,
    /// How much of the present piece was given, in bytes.
    given: usize,
    /// When the present piece has to be taken; none for never.
    until: Option<Instant>,
    is_late: bool,
}

fn lock(left: &Mutex<Left>) -> MutexGuard<'_, Left> {
    left.lock().unwrap_or_else(PoisonError::into_inner) // it is changed in one step
}

/// A large answer.
struct Large {
    left: Arc<Mutex<Left>>,
    /// What comes behind the message.
    rest: Body,
    piece_time_max: Duration,
    watch: AbortHandle,
    is_over: bool,
}

impl Drop for Large {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

impl Large {
    fn new(message: Bytes, rest: Body, piece_time_max: Duration, tally: Tally) -> Self {
        let until = Instant::now().checked_add(piece_time_max);
        let left = Arc::new(Mutex::new(Left { message, given: 0, until, is_late: false }));
        let watch = tokio::spawn(watch(Arc::downgrade(&left), tally)).abort_handle();
        Large { left, rest, piece_time_max, watch, is_over: false }
    }

    /// The next part, a copy: whatever the transport does with it keeps nothing else.
    fn next_part(&self) -> Option<Bytes> {
        let mut left = lock(&self.left);
        let length = left.message.len().min(PART_BYTES);
        if length == 0 {
            return None;
        }
        let part = Bytes::copy_from_slice(&left.message[..length]);
        left.message.advance(length);
        if left.message.is_empty() {
            left.message = Bytes::new(); // else all of it is kept
        }
        left.given += length;
        if left.given >= PIECE_BYTES {
            (left.given, left.until) = (0, Instant::now().checked_add(self.piece_time_max));
        }
        Some(part)
    }

    /// What is said in the place of the rest: that the call failed, behind a message that is not whole.
    fn was_late(&mut self) -> Poll<Next> {
        if std::mem::replace(&mut self.is_over, true) {
            return Poll::Ready(None);
        }
        let status = late("a piece of the answer", PIECE_BYTES as u64, self.piece_time_max);
        let mut trailers = HeaderMap::new();
        Poll::Ready(Some(status.add_header(&mut trailers).map(|()| Frame::trailers(trailers))))
    }
}

impl tonic::codegen::Body for Large {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Next> {
        if let Some(part) = self.next_part() {
            return Poll::Ready(Some(Ok(Frame::data(part))));
        }
        let is_late = lock(&self.left).is_late;
        match is_late {
            true => self.was_late(),
            false => Pin::new(&mut self.rest).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        let left = lock(&self.left);
        match left.is_late {
            true => self.is_over,
            false => left.message.is_empty() && self.rest.is_end_stream(),
        }
    }
}

/// Lets go of what is left of an answer once a piece was not taken in time.
async fn watch(left: Weak<Mutex<Left>>, tally: Tally) {
    loop {
        let Some(until) = left.upgrade().and_then(|left| lock(&left).until) else { return };
        sleep_until(until).await;
        let Some(left) = left.upgrade() else { return };
        let mut left = lock(&left);
        if left.message.is_empty() {
            return; // all of it was taken
        }
        if left.until == Some(until) {
            (left.message, left.is_late) = (Bytes::new(), true);
            return tally.answer_abandoned();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tonic::codegen::http::HeaderValue;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    /// A message, and that it went well.
    struct Whole(Option<Bytes>, bool);

    impl tonic::codegen::Body for Whole {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Next> {
            let message = self.0.take().map(Frame::data);
            let ok = HeaderMap::from_iter([(Status::GRPC_STATUS, HeaderValue::from_static("0"))]);
            let trailers = || (!std::mem::replace(&mut self.1, true)).then(|| Frame::trailers(ok));
            Poll::Ready(message.or_else(trailers).map(Ok))
        }
    }

    /// Bytes of which it can be seen whether they are still kept.
    struct Seen {
        bytes: Vec<u8>,
        _kept: Arc<()>,
    }

    impl AsRef<[u8]> for Seen {
        fn as_ref(&self) -> &[u8] {
            &self.bytes
        }
    }

    fn answer(bytes: usize, time: Duration, tally: &Tally) -> (Body, Arc<()>) {
        let seen = Arc::new(());
        let bytes = (0..bytes).map(|at| at as u8).collect();
        let message = Bytes::from_owner(Seen { bytes, _kept: seen.clone() });
        (taken_in_time(Body::new(Whole(Some(message), false)), time, tally.clone()), seen)
    }

    async fn next(body: &mut Body) -> Option<Frame<Bytes>> {
        poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await.map(Result::unwrap)
    }

    /// All data that come, how many parts they were, and the status behind them.
    async fn read(mut body: Body) -> (Vec<u8>, usize, Status) {
        let (mut all, mut parts) = (Vec::new(), 0);
        while let Some(frame) = next(&mut body).await {
            match frame.into_data() {
                Ok(data) => {
                    parts += 1;
                    all.extend(data);
                }
                Err(frame) => {
                    assert!(next(&mut body).await.is_none());
                    let status = Status::from_header_map(frame.trailers_ref().unwrap()).unwrap();
                    return (all, parts, status);
                }
            }
        }
        panic!("no status after {parts} parts");
    }

    #[tokio::test]
    async fn an_answer_comes_whole_a_small_one_at_once_and_a_large_one_in_parts() {
        for (bytes, due) in [(0, 1), (1, 1), (PART_BYTES, 1), (PART_BYTES + 1, 2), (5 * PIECE_BYTES, 80)] {
            let tally = Tally::default();
            let (body, seen) = answer(bytes, HOUR, &tally);
            let (all, parts, status) = read(body).await;
            assert_eq!((all.len(), parts, status.code()), (bytes, due, tonic::Code::Ok));
            assert!(all.iter().enumerate().all(|(at, byte)| *byte == at as u8));
            assert_eq!((Arc::strong_count(&seen), tally.counts().answers_abandoned), (1, 0));
        }
    }

    #[tokio::test]
    async fn an_answer_that_nobody_takes_is_let_go_of_but_for_a_part_and_says_so() {
        let tally = Tally::default();
        let (mut body, seen) = answer(8 * PIECE_BYTES, Duration::from_millis(1), &tally);
        let part = next(&mut body).await.unwrap().into_data().unwrap(); // what the transport has
        while Arc::strong_count(&seen) > 1 {
            tokio::task::yield_now().await;
        }
        assert_eq!((part.len(), tally.counts().answers_abandoned), (PART_BYTES, 1));
        let (all, _, status) = read(body).await;
        assert_eq!((all.len(), status.code()), (0, tonic::Code::DeadlineExceeded), "{status}");
    }

    #[tokio::test]
    async fn an_answer_whose_client_is_gone_is_let_go_of_at_once() {
        let (mut body, seen) = answer(PIECE_BYTES, HOUR, &Tally::default());
        next(&mut body).await.unwrap();
        assert_eq!(Arc::strong_count(&seen), 2);
        drop(body);
        assert_eq!(Arc::strong_count(&seen), 1);
    }

    #[tokio::test]
    async fn every_piece_has_its_whole_time() {
        let message = Bytes::from(vec![7; 3 * PIECE_BYTES]);
        let large = Large::new(message, Body::empty(), HOUR, Tally::default());
        let until = || lock(&large.left).until;
        for _ in 0..2 {
            let first = until();
            for _ in 1..PIECE_BYTES / PART_BYTES {
                large.next_part().unwrap();
                assert_eq!(until(), first);
            }
            large.next_part().unwrap();
            assert!(until() > first);
        }
    }
}
