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
//! all the same, for a budget that was lowered in that moment, holds up its own flow, for five minutes at most.

use std::sync::Arc;

use forebay_client::Error;
use forebay_client::wire::proto::change_reply::Outcome;
use forebay_client::wire::proto::change_request::Change;
use forebay_client::wire::proto::flow_server::Flow;
use forebay_client::wire::proto::settle_request::How;
use forebay_client::wire::proto::{ChangeReply, ChangeRequest, Changes};
use forebay_client::wire::{FLOW_ROWS_MAX, from_error, from_status, inserted_in, malformed};
use forebay_store::Kind;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, FuturesUnordered, StreamExt};
use tonic::{Request, Response, Status, Streaming};

use super::bulk::Brought;
use super::call::{Call, Reply, Service, WORK, WRITE};
use super::granting::{check_still, refused};
use super::streams::Answers;
use super::tally::UNKNOWN;

/// How many changes of one call may be under way.
const UNDER_WAY_MAX: usize = 256;

/// The calls of `Flow`.
#[derive(Clone)]
pub(super) struct FlowService(pub(super) Service);

#[tonic::async_trait]
impl Flow for FlowService {
    type ChangeStream = Answers<ChangeReply>;

    async fn change(&self, request: Request<Streaming<ChangeRequest>>) -> Reply<Self::ChangeStream> {
        let call = Arc::new(self.0.enter(&request, WORK)?);
        let (service, of) = (self.0.clone(), call.clone());
        let told = service.stopper.told();
        let until = async move {
            tokio::select! {
                () = told => {}
                _ = refused(&call) => {} // who asks once more hears why
            }
        };
        let (asked, under_way) = (request.into_inner(), FuturesUnordered::new());
        let flowing = Flowing { service, of, asked, until: Some(Box::pin(until)), under_way };
        let answers = stream::unfold(flowing, |mut flowing| async move {
            let reply = flowing.next().await?;
            Some((Ok(reply), flowing))
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
}

impl Flowing {
    /// The next answer; none when nothing more is asked and all is answered.
    async fn next(&mut self) -> Option<ChangeReply> {
        loop {
            let Some(until) = &mut self.until else { return self.under_way.next().await };
            tokio::select! {
                biased; // nothing is read while there are answers
                Some(reply) = self.under_way.next() => return Some(reply),
                asked = self.asked.message() => match asked {
                    Ok(Some(request)) if self.under_way.len() < UNDER_WAY_MAX => {
                        self.under_way.push(Box::pin(answer(self.service.clone(), self.of.clone(), request)));
                    }
                    Ok(Some(request)) => return Some(reply(request.name, Err(from_error(&busy())))),
                    Ok(None) | Err(_) => self.until = None, // its client is gone, or hears of it by what is not answered
                },
                () = until => self.until = None,
            }
        }
    }
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

/// Does what is asked once under its name, as a call of its own would, and counts it as one.
async fn answer(service: Service, of: Arc<Call>, request: ChangeRequest) -> ChangeReply {
    let ChangeRequest { name, change } = request;
    let counted = service.tally.call(match &change {
        Some(Change::Write(_)) => "Write",
        Some(Change::Settle(_)) => "Settle",
        None => UNKNOWN,
    });
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

/// Refuses more rows than are answered here.
fn check_rows(changes: Option<&Changes>) -> Result<(), Status> {
    let rows = changes.map_or(0, inserted_in);
    if rows <= FLOW_ROWS_MAX {
        return Ok(());
    }
    let message = format!(
        "{rows} rows are more than the {FLOW_ROWS_MAX} of one change here; make it by a call of its own"
    );
    Err(from_error(&Error::new(Kind::Input, "TooLarge", message)))
}
