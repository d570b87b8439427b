//! What an operator asks: calls that need the scope `admin`, and, where they are about more than one table, a token of all.
//!
//! A check ends with its client. What changes the store or the disk ([`work`](super::work)) is done once under the name of its call.

use std::ops::ControlFlow;

use forebay_client::wire::proto::admin_server::Admin as Protocol;
use forebay_client::wire::proto::verify_event::Event;
use forebay_client::wire::proto::*;
use forebay_client::wire::{self, from_error};
use forebay_client::{AdminCalls, Error};
use forebay_store::{VerifyProgress, VerifyReport, VerifyStage};
use futures_util::{Stream, StreamExt, stream};
use tokio::sync::mpsc;
use tonic::{Request, Status};

use super::call::{ADMIN, Call, Reply, Service};
use super::sending::Sending;
use super::streams::{ALIVE_EVERY, Answers};
use crate::copies::Place;

/// How many events of a check may wait for its client.
const EVENTS_AHEAD: usize = 16;

/// An operator's calls.
#[derive(Clone)]
pub(super) struct AdminService(pub(super) Service);

impl AdminService {
    fn enter_for_all<T>(&self, request: &Request<T>) -> Result<Call, Status> {
        let call = self.0.enter(request, ADMIN)?;
        call.caller.check_all_tables().map_err(|error| from_error(&error))?;
        Ok(call)
    }
}

#[tonic::async_trait]
impl Protocol for AdminService {
    type PeekStream = Answers<ArrowPiece>;
    type VerifyStream = Answers<VerifyEvent>;
    type CompactStream = Answers<WorkEvent>;
    type BackupStream = Answers<WorkEvent>;

    async fn overview(&self, request: Request<OverviewRequest>) -> Reply<OverviewReply> {
        let call = self.enter_for_all(&request)?;
        let reader = self.0.reader(&call);
        let look =
            reader.read(move || Ok(wire::from_overview(AdminCalls::overview(call.session.holder.store())?)));
        look.await.map(tonic::Response::new)
    }

    async fn evict(&self, request: Request<EvictRequest>) -> Reply<EvictReply> {
        let call = self.0.enter(&request, ADMIN)?;
        let EvictRequest { table, rows, reason } = request.into_inner();
        call.caller.check_table(&table).map_err(|error| from_error(&error))?;
        self.0
            .once(call, move |holder| {
                let rows = wire::rows_in(&rows).collect::<Result<Vec<_>, _>>()?;
                AdminCalls::evict(holder.store(), &table, &rows, &reason)?;
                Ok(EvictReply {})
            })
            .await
    }

    async fn peek(&self, request: Request<PeekRequest>) -> Reply<Self::PeekStream> {
        let call = self.0.enter(&request, ADMIN)?;
        let (table, peek) = wire::to_peek(request.into_inner());
        call.caller.check_table(&table).map_err(|error| from_error(&error))?;
        let reader = self.0.reader(&call);
        let room = reader.answers.clone();
        let rows = reader.read(move || {
            let rows = AdminCalls::peek(call.session.holder.store(), &table, &peek)?;
            Sending::with_room(rows, &room)
        });
        self.0.answer(rows.await?.pieces(reader.clone()))
    }

    async fn budgets(&self, request: Request<BudgetsRequest>) -> Reply<BudgetsReply> {
        let call = self.enter_for_all(&request)?;
        let change = wire::to_budget_change(&request.into_inner());
        self.0
            .once(call, move |holder| {
                Ok(wire::from_budgets(AdminCalls::change_budgets(holder.store(), &change)?))
            })
            .await
    }

    async fn retention(&self, request: Request<RetentionRequest>) -> Reply<RetentionReply> {
        let call = self.enter_for_all(&request)?;
        let rule = request.into_inner().rule.as_ref().map(wire::to_retention);
        self.0
            .once(call, move |holder| {
                let rule = AdminCalls::change_retention(holder.store(), rule)?;
                Ok(RetentionReply { rule: Some(wire::from_retention(rule)) })
            })
            .await
    }

    async fn compact(&self, request: Request<CompactRequest>) -> Reply<Self::CompactStream> {
        let call = self.enter_for_all(&request)?;
        self.0
            .worked(call, |store, _| {
                Ok(work_event::Event::Compacted(wire::from_compact_report(AdminCalls::compact(store)?)))
            })
            .await
    }

    async fn backup(&self, request: Request<BackupRequest>) -> Reply<Self::BackupStream> {
        let call = self.enter_for_all(&request)?;
        let (asked, options) = wire::to_backup(request.into_inner());
        let Place { folder, inside } = self.0.copies.place(&asked).map_err(|error| from_error(&error))?;
        self.0
            .worked(call, move |store, teller| {
                let copied = store.backup_beneath(&folder, &inside, options, &mut |far| teller.tell(far))?;
                Ok(work_event::Event::Copied(wire::from_backup_report(&copied)))
            })
            .await
    }

    async fn verify(&self, request: Request<VerifyRequest>) -> Reply<Self::VerifyStream> {
        let call = self.enter_for_all(&request)?;
        let turn = self.0.turn()?;
        let (tell, told) = mpsc::channel(EVENTS_AHEAD);
        tokio::task::spawn_blocking(move || {
            let mut pace = Pace::default();
            let mut progress = |progress| told_to(&tell, &mut pace, progress);
            let outcome = AdminCalls::verify(call.session.holder.store(), &mut progress);
            drop(turn); // before anybody hears of it who may ask for the next
            for event in events(outcome) {
                if tell.blocking_send(event).is_err() {
                    return; // nobody listens any more
                }
            }
        });
        let events = alive(told).map(|event| event.map(|event| VerifyEvent { event: Some(event) }));
        self.0.answer(events.boxed())
    }
}

type Told = Result<Event, Status>;

/// What a check says, and again how far it is where it says nothing for a while: a client takes a server for gone that is silent.
fn alive(told: mpsc::Receiver<Told>) -> impl Stream<Item = Told> + Send {
    let begun =
        wire::from_progress(VerifyProgress { stage: VerifyStage::Checkpoint, done_bytes: 0, total_bytes: 0 });
    stream::unfold((told, Event::Progress(begun)), |(mut told, far)| async move {
        match tokio::time::timeout(ALIVE_EVERY, told.recv()).await {
            Err(_) => Some((Ok(far.clone()), (told, far))),
            Ok(said) => {
                let said = said?;
                let far = match &said {
                    Ok(Event::Progress(progress)) => Event::Progress(progress.clone()),
                    _ => far,
                };
                Some((said, (told, far)))
            }
        }
    })
}

/// Says how far a check is, where somebody is there; else the check is over.
fn told_to(tell: &mpsc::Sender<Told>, pace: &mut Pace, progress: VerifyProgress) -> ControlFlow<()> {
    if pace.is_due(progress) {
        // Whoever reads slowly hears of the next.
        let _ = tell.try_send(Ok(Event::Progress(wire::from_progress(progress))));
    }
    if tell.is_closed() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// What is said at the end of a check.
fn events(outcome: Result<VerifyReport, Error>) -> Vec<Result<Event, Status>> {
    match outcome {
        Ok(mut report) => {
            let faults = std::mem::take(&mut report.faults).into_iter();
            let faults = faults.map(|fault| Ok(Event::Fault(wire::from_fault(fault))));
            faults.chain([Ok(Event::Done(wire::from_report(report)))]).collect()
        }
        Err(error) => vec![Err(from_error(&error))],
    }
}

/// When to say again how far a check is: a hundred times a stage at most.
#[derive(Default)]
struct Pace {
    last: Option<(VerifyStage, u64)>,
}

impl Pace {
    fn is_due(&mut self, progress: VerifyProgress) -> bool {
        let part = progress.done_bytes.saturating_mul(100) / progress.total_bytes.max(1);
        let now = Some((progress.stage, part));
        std::mem::replace(&mut self.last, now) != now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_goes_on_for_a_slow_client_and_ends_with_one_that_has_gone() {
        let (tell, told) = mpsc::channel(1);
        let mut pace = Pace::default();
        let progress = |done_bytes| VerifyProgress { stage: VerifyStage::Log, done_bytes, total_bytes: 1000 };
        for done in 0..500 {
            assert!(told_to(&tell, &mut pace, progress(done)).is_continue(), "{done}");
        }
        drop(told);
        assert!(told_to(&tell, &mut pace, progress(500)).is_break());
    }
}
