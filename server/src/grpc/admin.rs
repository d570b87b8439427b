//! What an operator asks: calls that need the scope `admin`, and, where they are about more than one table, a token of all.

use forebay_client::wire::proto::admin_server::Admin as Protocol;
use forebay_client::wire::proto::verify_event::Event;
use forebay_client::wire::proto::*;
use forebay_client::wire::{self, from_error};
use forebay_client::{AdminCalls, Error};
use forebay_store::{Kind, VerifyProgress, VerifyReport, VerifyStage};
use futures_util::{StreamExt, stream};
use tokio::sync::mpsc;
use tonic::{Request, Status};

use super::call::{ADMIN, Call, Reply, Service, blocking};
use super::streams::Answers;

/// How many events of a check may wait for its client.
const EVENTS_AHEAD: usize = 16;
/// Bytes of a row's name.
const ROW_BYTES: usize = 24;

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
    type VerifyStream = Answers<VerifyEvent>;

    async fn overview(&self, request: Request<OverviewRequest>) -> Reply<OverviewReply> {
        let call = self.enter_for_all(&request)?;
        let look =
            blocking(move || Ok(wire::from_overview(AdminCalls::overview(call.session.holder.store())?)));
        look.await.map(tonic::Response::new)
    }

    async fn evict(&self, request: Request<EvictRequest>) -> Reply<EvictReply> {
        let call = self.0.enter(&request, ADMIN)?;
        let EvictRequest { table, rows, reason } = request.into_inner();
        call.caller.check_table(&table).map_err(|error| from_error(&error))?;
        self.0
            .once(call, move |holder| {
                let rows = rows.chunks(ROW_BYTES).map(wire::to_row).collect::<Result<Vec<_>, _>>()?;
                AdminCalls::evict(holder.store(), &table, &rows, &reason)?;
                Ok(EvictReply {})
            })
            .await
    }

    async fn verify(&self, request: Request<VerifyRequest>) -> Reply<Self::VerifyStream> {
        let call = self.enter_for_all(&request)?;
        // One at a time reads the disk.
        let turn = self.0.checks.clone().try_acquire_owned().map_err(|_| {
            let message = "another check is under way; ask again when it is over";
            from_error(&Error::new(Kind::Retry, "Busy", message))
        })?;
        let (tell, told) = mpsc::channel(EVENTS_AHEAD);
        tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let mut pace = Pace::default();
            let mut progress = |progress: VerifyProgress| {
                if pace.is_due(progress) {
                    // Whoever reads slowly hears of the next.
                    let _ = tell.try_send(Ok(Event::Progress(wire::from_progress(progress))));
                }
            };
            let outcome = AdminCalls::verify(call.session.holder.store(), &mut progress);
            for event in events(outcome) {
                if tell.blocking_send(event).is_err() {
                    return; // nobody listens any more
                }
            }
        });
        let told = stream::unfold(told, |mut told| async move { Some((told.recv().await?, told)) });
        let events = told.map(|event| event.map(|event| VerifyEvent { event: Some(event) }));
        self.0.answer(events.boxed())
    }
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
