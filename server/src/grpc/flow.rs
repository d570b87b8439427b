//! Changes that follow each other in one call: `Flow`.
//!
//! A change costs two frames of the transport and no task, where a call of its own has its headers, its trailers and a task each
//! way. What is done soon is done by whoever reads the stream and in its order; what may wait for room or for a disk is done beside it, and its
//! answer comes when it is there.
//!
//! # Bounds
//! Nothing is read while answers wait for their client to take them, so what is held for it is what is under way: so many changes
//! ([`UNDER_WAY_MAX`]) of so many rows ([`FLOW_ROWS_MAX`]). Whoever has more is told `Busy` at once and not held back, for a change may
//! wait for another that comes behind it; as a call of its own it has the turns that those have. What was to be done soon and has to wait
//! all the same, for a budget that was lowered in that moment, holds up its own flow, for five minutes at most. A session has
//! [`FLOWS_MAX`] such calls, for what they hold is held for each.
//!
//! # How it ends
//! When nothing more is asked, or its session or the server ends: all that is under way is answered first. So it is after a message that
//! cannot be read, or is too long, for what comes behind that has no beginning; then the call fails as that message does.

use std::sync::Arc;

use forebay_client::Error;
use forebay_client::wire::proto::change_reply::Outcome;
use forebay_client::wire::proto::change_request::Change;
use forebay_client::wire::proto::flow_server::Flow;
use forebay_client::wire::proto::settle_request::How;
use forebay_client::wire::proto::{ChangeReply, ChangeRequest, Changes};
use forebay_client::wire::{FLOW_ROWS_MAX, failure_of, flow_rows_of, from_error, from_status, malformed};
use forebay_store::Kind;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, FuturesUnordered, StreamExt};
use tokio::sync::OwnedSemaphorePermit;
use tonic::{Code, Request, Response, Status, Streaming};

use super::bulk::Brought;
use super::call::{Call, Reply, Service, WORK, WRITE};
use super::granting::{check_still, refused};
use super::streams::Answers;
use super::tally::UNKNOWN;

/// How many changes of one call may be under way.
const UNDER_WAY_MAX: usize = 256;
/// How many such calls a session may have. A client has one, and another when it has lost that.
pub(super) const FLOWS_MAX: usize = 4;

/// The calls of `Flow`.
#[derive(Clone)]
pub(super) struct FlowService(pub(super) Service);

#[tonic::async_trait]
impl Flow for FlowService {
    type ChangeStream = Answers<ChangeReply>;

    async fn change(&self, request: Request<Streaming<ChangeRequest>>) -> Reply<Self::ChangeStream> {
        let call = Arc::new(self.0.enter(&request, WORK)?);
        let place = call.session.flows.clone().try_acquire_owned();
        let place = place.map_err(|_| from_error(&too_many()))?;
        let (service, of) = (self.0.clone(), call.clone());
        let told = service.stopper.told();
        let until = async move {
            tokio::select! {
                () = told => {}
                _ = refused(&call) => {} // who asks once more hears why
            }
        };
        let (asked, under_way) = (request.into_inner(), FuturesUnordered::new());
        let until: Option<BoxFuture<'static, ()>> = Some(Box::pin(until));
        let flowing = Flowing { service, of, asked, until, under_way, failed: None, _place: place };
        let answers = stream::unfold(flowing, |mut flowing| async move {
            let reply = flowing.next().await?;
            Some((reply, flowing))
        });
        Ok(Response::new(answers.boxed()))
    }
}

/// One such call.
struct Flowing {
    service: Service,
    of: Arc<Call>,
    asked: Streaming<ChangeRequest>,
    /// Until nothing more is read; none once that is so.
    until: Option<BoxFuture<'static, ()>>,
    under_way: FuturesUnordered<BoxFuture<'static, ChangeReply>>,
    /// What was wrong with the last message, which is said once all is answered.
    failed: Option<Status>,
    _place: OwnedSemaphorePermit,
}

impl Flowing {
    /// The next answer; none when nothing more is asked and all is answered.
    async fn next(&mut self) -> Option<Result<ChangeReply, Status>> {
        loop {
            let Some(until) = &mut self.until else {
                let reply = self.under_way.next().await.map(Ok);
                return reply.or_else(|| self.failed.take().map(Err));
            };
            tokio::select! {
                biased; // nothing is read while there are answers, or once nothing more is to be
                Some(reply) = self.under_way.next() => return Some(Ok(reply)),
                () = until => self.until = None,
                asked = self.asked.message() => match asked {
                    Ok(Some(request)) if self.under_way.len() < UNDER_WAY_MAX => {
                        self.under_way.push(Box::pin(answer(self.service.clone(), self.of.clone(), request)));
                    }
                    Ok(Some(request)) => return Some(Ok(self.sent_away(request))),
                    Ok(None) => self.until = None,
                    Err(status) => self.fail(status),
                },
            }
        }
    }

    /// The answer to one change too many.
    fn sent_away(&self, request: ChangeRequest) -> ChangeReply {
        let status = from_error(&busy());
        self.service.tally.call(method_of(request.change.as_ref())).ended(Some(&status));
        reply(request.name, Err(status))
    }

    /// Reads no more: a message could not be read, or the client is gone, which is nobody's fault and is not counted as one.
    fn fail(&mut self, status: Status) {
        if failure_of(&status).is_some() || status.code() == Code::OutOfRange {
            self.service.tally.call(UNKNOWN).ended(Some(&status));
        }
        (self.until, self.failed) = (None, Some(status));
    }
}

fn too_many() -> Error {
    let message =
        format!("{FLOWS_MAX} such calls of this session are under way already; go on with one of them");
    Error::new(Kind::Retry, "Busy", message)
}

fn busy() -> Error {
    let message = format!(
        "{UNDER_WAY_MAX} changes of this call are under way already; wait for some of them, or make this one by a call of its own"
    );
    Error::new(Kind::Retry, "Busy", message)
}

fn reply(name: bytes::Bytes, outcome: Result<Outcome, Status>) -> ChangeReply {
    let outcome = outcome.unwrap_or_else(|status| Outcome::Failed(from_status(&status)));
    ChangeReply { name, outcome: Some(outcome) }
}

/// The call that a change would be.
fn method_of(change: Option<&Change>) -> &'static str {
    match change {
        Some(Change::Write(_)) => "Write",
        Some(Change::Settle(_)) => "Settle",
        None => UNKNOWN,
    }
}

/// Does what is asked once under its name, as a call of its own would, and counts it as one.
async fn answer(service: Service, of: Arc<Call>, request: ChangeRequest) -> ChangeReply {
    let ChangeRequest { name, change } = request;
    let counted = service.tally.call(method_of(change.as_ref()));
    let outcome = made(&service, &of, &name, change).await;
    counted.ended(outcome.as_ref().err());
    reply(name, outcome)
}

async fn made(service: &Service, of: &Call, name: &[u8], change: Option<Change>) -> Result<Outcome, Status> {
    check_still(of)?;
    let call = of.named(name)?;
    match change.ok_or_else(|| from_error(&malformed("a change of nothing")))? {
        Change::Write(message) => {
            call.caller.check(WRITE).map_err(|error| from_error(&error))?;
            check_rows(message.changes.as_ref())?;
            Ok(Outcome::Write(service.written(call, message, Brought::default()).await?.into_inner()))
        }
        Change::Settle(message) => {
            check_rows(match &message.how {
                Some(How::Finish(changes)) => Some(changes),
                _ => None,
            })?;
            Ok(Outcome::Settle(service.settled(call, message).await?.into_inner()))
        }
    }
}

/// Refuses more than is done here.
fn check_rows(changes: Option<&Changes>) -> Result<(), Status> {
    let rows = changes.map_or(0, flow_rows_of);
    if rows <= FLOW_ROWS_MAX {
        return Ok(());
    }
    let message = format!(
        "{rows} changes or rows are more than the {FLOW_ROWS_MAX} of one message here; make them by a call of their own"
    );
    Err(from_error(&Error::new(Kind::Input, "TooLarge", message)))
}
