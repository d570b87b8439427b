//! The pace at which a client has to send and to take: so much time for every piece.
//!
//! A call whose message comes a byte a second holds memory, and an answer that is taken a byte a second holds what a query
//! holds, its turn among them. Both end once a piece took too long, however long the whole may take.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use forebay_client::Error;
use forebay_client::wire::{PIECE_BYTES, from_error};
use forebay_store::Kind;
use futures_util::{StreamExt, stream};
use tokio::sync::mpsc;
use tokio::time::{Sleep, sleep};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Bytes;

use super::streams::Answers;
use super::tally::Tally;

/// Begins the time of the present piece anew, for a call that has waited and did not read meanwhile.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock(Arc<AtomicBool>);

impl Clock {
    pub(crate) fn restart(&self) {
        self.0.store(true, Ordering::Release);
    }

    #[cfg(test)]
    pub(super) fn is_to_begin_anew(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// What a client sends, which has to come at a pace.
pub(crate) struct Paced {
    body: Body,
    piece_time_max: Duration,
    /// How much of the present piece has come, in bytes.
    come: usize,
    /// Since it is waited for the present piece.
    until: Option<Pin<Box<Sleep>>>,
    clock: Clock,
}

impl Paced {
    pub(crate) fn new(body: Body, piece_time_max: Duration, clock: Clock) -> Self {
        Paced { body, piece_time_max, come: 0, until: None, clock }
    }
}

pub(super) fn late(what: &str, bytes: u64, time: Duration) -> Status {
    let message = format!(
        "{what} of {bytes} bytes took longer than {time:?}, and the call was ended; make it again, in smaller parts where the line is slow"
    );
    from_error(&Error::new(Kind::Retry, "Deadline", message))
}

impl tonic::codegen::Body for Paced {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Status>>> {
        let this = &mut *self;
        if this.clock.0.swap(false, Ordering::AcqRel) {
            (this.come, this.until) = (0, None);
        }
        let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) else {
            let time = this.piece_time_max;
            ready!(this.until.get_or_insert_with(|| Box::pin(sleep(time))).as_mut().poll(cx));
            return Poll::Ready(Some(Err(late("a piece of the message", PIECE_BYTES as u64, time))));
        };
        if let Some(Ok(frame)) = &frame {
            this.come += frame.data_ref().map_or(0, Bytes::len);
            if this.come >= PIECE_BYTES {
                (this.come, this.until) = (0, None);
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

/// A piece on its way to its reader, out of which it can be taken again.
struct OnItsWay<T>(Arc<Mutex<Option<Result<T, Status>>>>);

impl<T> OnItsWay<T> {
    /// Two ends of one way.
    fn new(piece: Result<T, Status>) -> (Self, Self) {
        let piece = Arc::new(Mutex::new(Some(piece)));
        (OnItsWay(piece.clone()), OnItsWay(piece))
    }

    /// Whoever comes first has the piece.
    fn take(&self) -> Option<Result<T, Status>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Gives the pieces of an answer on, each once the one before is taken. What is not taken in time is let go of, after that is said.
async fn give_on<T>(
    mut answers: Answers<T>,
    give: mpsc::Sender<OnItsWay<T>>,
    piece_time_max: Duration,
    was_late: &AtomicBool,
) {
    let mut before: Option<OnItsWay<T>> = None;
    loop {
        let answer = tokio::select! {
            answer = answers.next() => answer,
            () = give.closed() => return,
        };
        match tokio::time::timeout(piece_time_max, give.reserve()).await {
            Ok(Ok(turn)) => {
                let Some(answer) = answer else { return };
                let (mine, theirs) = OnItsWay::new(answer);
                before = Some(mine);
                turn.send(theirs);
            }
            Ok(Err(_)) => return, // nobody reads any more
            Err(_) => {
                was_late.store(true, Ordering::Release);
                drop(before.and_then(|before| before.take()));
                return;
            }
        }
    }
}

/// An answer whose pieces have to be taken at a pace, the last too: else it is let go of, and the client is told when it reads on.
pub(crate) fn taken_at_a_pace<T: Send + 'static>(
    answers: Answers<T>,
    piece_time_max: Duration,
    tally: Tally,
) -> Answers<T> {
    let (give, take) = mpsc::channel(1);
    let was_late = Arc::new(AtomicBool::new(false));
    let tells = was_late.clone();
    tokio::spawn(async move {
        give_on(answers, give, piece_time_max, &tells).await;
        if tells.load(Ordering::Acquire) {
            tally.answer_abandoned();
        }
    });
    let taken = stream::unfold(Some(take), move |take| {
        let was_late = was_late.clone();
        async move {
            let mut take = take?;
            match take.recv().await.and_then(|piece| piece.take()) {
                Some(answer) => Some((answer, Some(take))),
                None if was_late.load(Ordering::Acquire) => {
                    Some((Err(late("a piece of the answer", PIECE_BYTES as u64, piece_time_max)), None))
                }
                None => None,
            }
        }
    });
    taken.boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A body of which nothing comes.
    struct Silent;

    impl tonic::codegen::Body for Silent {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<http_body::Frame<Bytes>, Status>>> {
            Poll::Pending
        }
    }

    #[tokio::test]
    async fn a_piece_has_its_whole_time_again_after_the_clock_began_anew() {
        let clock = Clock::default();
        let mut paced = Paced::new(Body::new(Silent), Duration::from_secs(3600), clock.clone());
        let mut until = || {
            let poll = tonic::codegen::Body::poll_frame(
                Pin::new(&mut paced),
                &mut Context::from_waker(std::task::Waker::noop()),
            );
            assert!(poll.is_pending());
            paced.until.as_ref().unwrap().deadline()
        };
        let first = until();
        assert_eq!(until(), first);
        clock.restart();
        assert!(until() > first);
    }

    #[tokio::test]
    async fn an_answer_that_nobody_takes_is_let_go_of_and_says_so() {
        let tally = Tally::default();
        let held = Arc::new(());
        let kept = held.clone();
        let pieces = stream::iter(0..5_u8).map(move |at| {
            let _kept = &kept;
            Ok(at)
        });
        let mut taken = taken_at_a_pace(pieces.boxed(), Duration::from_millis(1), tally.clone());
        while Arc::strong_count(&held) > 1 {
            tokio::task::yield_now().await; // its producer is not gone yet
        }
        let mut got = Vec::new();
        while let Some(piece) = taken.next().await {
            got.push(piece.map_err(|status| status.code()));
        }
        assert_eq!(got.last(), Some(&Err(tonic::Code::DeadlineExceeded)), "{got:?}");
        assert!(got.len() < 5 && tally.counts().answers_abandoned == 1);
    }

    #[tokio::test]
    async fn a_piece_that_nobody_takes_is_let_go_of_and_so_is_the_last() {
        for count in [1, 2, 5] {
            let held = Arc::new(());
            let pieces: Vec<_> = (0..count).map(|_| Ok(held.clone())).collect();
            let tally = Tally::default();
            let pieces = stream::iter(pieces).boxed();
            let mut taken = taken_at_a_pace(pieces, Duration::from_millis(1), tally.clone());
            while Arc::strong_count(&held) > 1 {
                tokio::task::yield_now().await;
            }
            let told = taken.next().await.unwrap().unwrap_err();
            assert_eq!(told.code(), tonic::Code::DeadlineExceeded, "of {count}");
            assert!(taken.next().await.is_none() && tally.counts().answers_abandoned == 1);
        }
    }

    #[tokio::test]
    async fn an_answer_that_is_taken_comes_whole_and_one_that_is_dropped_ends() {
        let whole = || stream::iter(0..100_u8).map(Ok).boxed();
        let taken = taken_at_a_pace(whole(), Duration::from_secs(3600), Tally::default());
        assert_eq!(taken.map(Result::unwrap).collect::<Vec<_>>().await, (0..100).collect::<Vec<_>>());
        let held = Arc::new(());
        let kept = held.clone();
        let endless = stream::pending().map(move |()| {
            let _kept = &kept;
            Ok(())
        });
        drop(taken_at_a_pace(endless.boxed(), Duration::from_secs(3600), Tally::default()));
        while Arc::strong_count(&held) > 1 {
            tokio::task::yield_now().await;
        }
    }
}
