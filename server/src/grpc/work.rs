//! Work of an operator that takes long, is done once under the name of its call, and is watched by whoever asks.
//!
//! The work runs on a thread for what may wait, and says how far it is and how it ended through a watch channel; the streams that
//! answer are its receivers. A stream that breaks is begun again under the same name and finds the same work, for the session
//! keeps it as the answer of that name for as long as it goes on, whatever else is answered meanwhile. So whether anybody is there is how many receivers there are.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_client::Error;
use forebay_client::wire::proto::WorkEvent;
use forebay_client::wire::proto::work_event::Event;
use forebay_client::wire::{from_error, from_work_progress};
use forebay_store::{BackupProgress, Kind, Store};
use futures_util::{StreamExt, stream};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tonic::Status;

use super::call::{Call, Reply, Service};
use super::replies::Found;
use super::streams::Answers;

/// How often a client hears that its work is under way.
const ALIVE_EVERY: Duration = Duration::from_secs(5);
/// How long nobody may be there before work that can be given up is: a client whose connection broke comes back sooner.
const ALONE_MAX: Duration = Duration::from_secs(2);

/// Where work is.
#[derive(Clone, Debug)]
enum Stage {
    UnderWay(BackupProgress),
    /// How far it had come, and how it ended.
    Over(BackupProgress, Result<Event, Status>),
}

/// Work under way, or what it came to.
#[derive(Debug)]
pub(super) struct Work {
    stage: watch::Sender<Stage>,
}

/// How the one who works tells of it.
pub(super) struct Teller {
    work: Arc<Work>,
    alone_since: Option<Instant>,
}

impl Teller {
    /// Says how far the work is, and is told whether it goes on: not where nobody has been there for a while.
    pub(super) fn tell(&mut self, progress: BackupProgress) -> ControlFlow<()> {
        self.work.stage.send_replace(Stage::UnderWay(progress));
        if self.work.stage.receiver_count() > 0 {
            self.alone_since = None;
            return ControlFlow::Continue(());
        }
        let since = *self.alone_since.get_or_insert_with(Instant::now);
        if since.elapsed() < ALONE_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

impl Service {
    /// The turn of whoever reads or writes the whole disk: one at a time.
    pub(super) fn turn(&self) -> Result<OwnedSemaphorePermit, Status> {
        self.checks.clone().try_acquire_owned().map_err(|_| {
            let message = "another check, copy or compaction is under way; ask again when it is over";
            from_error(&Error::new(Kind::Retry, "Busy", message))
        })
    }

    /// Has work done once under the name of a call, and answers with how it goes.
    pub(super) async fn worked(
        &self,
        call: Call,
        work: impl FnOnce(&Store, &mut Teller) -> Result<Event, Error> + Send + 'static,
    ) -> Reply<Answers<WorkEvent>> {
        let begin = |under_way: Found| {
            let turn = self.turn()?;
            let begun =
                Arc::new(Work { stage: watch::Sender::new(Stage::UnderWay(BackupProgress::default())) });
            let (session, told) = (call.session.clone(), begun.clone());
            tokio::task::spawn_blocking(move || {
                let _under_way = under_way; // until everybody can hear how it ended
                let mut teller = Teller { work: told.clone(), alone_since: None };
                // Else a panic would leave a client to wait for ever.
                let over = Over(told, Err(Status::internal("the work panicked; look into the server's log")));
                let outcome = work(session.holder.store(), &mut teller).map_err(|error| from_error(&error));
                drop(turn); // before anybody hears of it who may ask for the next
                over.with(outcome);
            });
            Ok(begun)
        };
        let work = call.answers()?.once_begun(call.name, 1, begin)?.await?;
        self.answer(work.events())
    }
}

/// Says how work ended when it is dropped.
struct Over(Arc<Work>, Result<Event, Status>);

impl Over {
    fn with(mut self, outcome: Result<Event, Status>) {
        self.1 = outcome;
    }
}

impl Drop for Over {
    fn drop(&mut self) {
        let outcome = std::mem::replace(&mut self.1, Err(Status::internal("told twice")));
        self.0.stage.send_modify(|stage| {
            let (Stage::UnderWay(far) | Stage::Over(far, _)) = *stage;
            *stage = Stage::Over(far, outcome);
        });
    }
}

impl Work {
    /// How it goes from now on: the newest word alone where its reader is slow, how far it had come in the end, and how it ended.
    fn events(&self) -> Answers<WorkEvent> {
        let mut receiver = self.stage.subscribe();
        receiver.mark_changed(); // what it is now is the first word
        // Who watches is told how far it came, also of work that was over before he looked.
        let none = BackupProgress::default();
        let told = stream::unfold(Some((receiver, none)), |listening| async move {
            let (mut receiver, heard) = listening?;
            // The sender is gone with the session, which has heard the end.
            let _ = tokio::time::timeout(ALIVE_EVERY, receiver.changed()).await;
            let stage = receiver.borrow_and_update().clone();
            let progress = |far| Ok(Event::Progress(from_work_progress(far)));
            Some(match stage {
                Stage::UnderWay(far) => (progress(far), Some((receiver, far))),
                Stage::Over(far, _) if far != heard => {
                    receiver.mark_changed(); // the end comes next
                    (progress(far), Some((receiver, far)))
                }
                Stage::Over(_, outcome) => (outcome, None),
            })
        });
        told.map(|event| event.map(|event| WorkEvent { event: Some(event) })).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn under_way() -> (Arc<Work>, Teller) {
        let work = Arc::new(Work { stage: watch::Sender::new(Stage::UnderWay(BackupProgress::default())) });
        (work.clone(), Teller { work, alone_since: None })
    }

    #[tokio::test]
    async fn work_goes_on_while_somebody_is_there_or_may_come_back_and_no_longer() {
        let (work, mut teller) = under_way();
        let far = BackupProgress { done_bytes: 1, total_bytes: 2 };
        let mut events = work.events();
        teller.alone_since = Instant::now().checked_sub(ALONE_MAX);
        assert!(teller.tell(far).is_continue(), "somebody is there");
        let event = events.next().await.unwrap().unwrap().event;
        assert_eq!(event, Some(Event::Progress(from_work_progress(far))));
        drop(events);
        assert!(teller.tell(far).is_continue(), "he has just gone");
        let again = work.events();
        assert!(teller.tell(far).is_continue() && teller.alone_since.is_none());
        drop(again);
        teller.alone_since = Instant::now().checked_sub(ALONE_MAX);
        assert!(teller.tell(far).is_break());
    }

    #[tokio::test]
    async fn who_watches_work_that_was_over_before_he_looked_hears_how_far_it_came() {
        let (work, mut teller) = under_way();
        let far = BackupProgress { done_bytes: 2, total_bytes: 2 };
        assert!(teller.tell(far).is_continue());
        let over = Event::Progress(Default::default()); // stands for an outcome
        drop(Over(work.clone(), Ok(over.clone())));
        for _ in 0..2 {
            let events: Vec<_> = work.events().map(|event| event.unwrap().event).collect().await;
            assert_eq!(events, [Some(Event::Progress(from_work_progress(far))), Some(over.clone())]);
        }
    }

    #[tokio::test]
    async fn whoever_asks_later_hears_the_end_also_of_what_panicked() {
        for outcome in [Ok(Event::Progress(Default::default())), Err(Status::internal("panicked"))] {
            let (work, _) = under_way();
            drop(Over(work.clone(), outcome.clone()));
            for _ in 0..2 {
                let events: Vec<_> = work.events().collect().await;
                assert_eq!(events.len(), 1);
                let told = events.into_iter().next().unwrap();
                assert_eq!(
                    told.map(|event| event.event).map_err(|s| s.code()),
                    outcome.clone().map(Some).map_err(|s| s.code())
                );
            }
        }
    }
}
