//! Rows that are granted: to whoever asks, and to whoever has subscribed ([`pushing`]).

pub(super) mod pushing;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_client::wire::proto::{ClaimReply, ClaimRequest};
use forebay_client::wire::{self, MESSAGE_BYTES_MAX, PIECE_BYTES, from_error};
use forebay_client::{Ask, Epoch, Error, Granted, Role};
use futures_util::Future;
use tokio::time::{sleep, timeout};
use tonic::Status;

use super::call::{Call, Service};
use super::quick;
use super::reading::Reader;
use super::sessions::{Session, check_owner};
use super::streams::{self, Wanted, check_columns};
use super::waits::Waiting;
use crate::gathered::Gathered;

/// How often a subscription that has as many claims as it may looks whether leases have ended, and a wait whether its token has: the
/// clock may be set.
const EXPIRY_LOOK_EVERY: Duration = Duration::from_secs(1);
/// The largest columns that come along with a claim that somebody waits for, in bytes: more is sooner there in pieces of its own.
const ALONG_BYTES_MAX: usize = PIECE_BYTES;
/// The same of a claim that is pushed: it comes while its client does other things.
const PUSHED_BYTES_MAX: usize = MESSAGE_BYTES_MAX / 2;

impl Service {
    /// Waits for rows, for as long as the client does.
    pub(super) async fn granted(&self, call: &Call, request: &ClaimRequest) -> Result<ClaimReply, Status> {
        let session = &call.session;
        if request.give_up {
            self.give_up(call);
            return Ok(ClaimReply::default());
        }
        check_owner(request.owner.as_deref().unwrap_or_default())
            .and_then(|()| check_columns(&request.columns))
            .map_err(|error| from_error(&error))?;
        let reader = self.reader(call);
        let wait = session.waits.begin(call.name); // before the look whether it was given up
        if let Some(noted) = session.replies.noted::<Noted>(call.name) {
            return again(session, request, noted, &reader).await;
        }
        match waited(call, request, &wait).await? {
            Some(Found::Granted(granted)) => {
                session.waits.give_up(call.name);
                Ok(reply(session, request, granted, ALONG_BYTES_MAX, &reader).await)
            }
            Some(Found::Complete) => Ok(ClaimReply { granted: None, complete: true }),
            Some(Found::Before(noted)) => again(session, request, noted, &reader).await,
            None => {
                // Whoever else waits under this name, or did, is answered the same.
                let noted = match wait.is_alone() {
                    true => session.replies.noted::<Noted>(call.name),
                    false => session.replies.note::<Noted>(call.name, None),
                };
                match noted {
                    Some(noted) => again(session, request, noted, &reader).await,
                    None => Ok(ClaimReply::default()),
                }
            }
        }
    }

    /// Ends a wait that nobody waits for any more, whether it has claimed rows or will.
    fn give_up(&self, call: &Call) {
        let noted = call.session.replies.note::<Noted>(call.name, None);
        call.session.waits.give_up(call.name);
        if let Some(Some(epoch)) = noted {
            match call.session.holder.release(epoch) {
                Ok(()) => call.session.settled.notify_waiters(),
                Err(error) => tracing::debug!(%error, "a claim of a wait that was given up had ended before"),
            }
        }
    }
}

/// Refuses who was let in before and may not go on: the session has ended, or the token has expired.
pub(super) fn check_still(call: &Call) -> Result<(), Status> {
    call.session.check_there().and_then(|()| call.caller.check_time()).map_err(|error| from_error(&error))
}

/// Until the caller may not go on, and why.
pub(super) async fn refused(call: &Call) -> Status {
    loop {
        if let Err(status) = check_still(call) {
            return status;
        }
        match call.caller.time_left() {
            Some(left) => _ = timeout(left.min(EXPIRY_LOOK_EVERY), call.session.over()).await,
            None => call.session.over().await,
        }
    }
}

/// Waits for rows. None where the time is over, or the wait was given up.
async fn waited(call: &Call, request: &ClaimRequest, wait: &Waiting<'_>) -> Result<Option<Found>, Status> {
    let fail = |error: Error| from_error(&error);
    let role = match (request.step, request.member) {
        (_, Some(member)) => Role::Member(member),
        (Some(step), None) => Role::Step(step),
        (None, None) => Role::Task,
    };
    let rule = wire::to_micro_batch(request.rule.as_ref()).map_err(fail)?;
    let owner = request.owner.as_deref();
    let ask = Ask { consumer: &request.consumer, rule, role, owner, columns: &[] };
    let mut rows = pin!(call.session.holder.claim_async(&ask).map_err(fail)?);
    let time = request.wait_ms.map_or(Duration::MAX, Duration::from_millis);
    let found = poll_fn(|context| {
        let _one = call.session.finding();
        rows.as_mut().poll(context).map(|claim| found(call, role, claim))
    });
    tokio::select! {
        biased; // rows that are there are had without a wait
        found = found => found.map(Some),
        status = refused(call) => Err(status),
        () = sleep(time) => Ok(None),
        () = wait.given_up() => Ok(None),
    }
}

/// What a wait came to, under the name of its call: a claim, or nothing since it was given up.
type Noted = Option<Epoch>;

/// What a wait found.
enum Found {
    Granted(Granted),
    /// The same call was answered or given up meanwhile.
    Before(Noted),
    /// Nothing more will come.
    Complete,
}

/// Keeps rows under the name of the call that they were claimed for, and lets them go where it has others, or was given up.
///
/// The caller sees to it that nobody looks between the claim and this: of two copies of a call the one would have the rows, and the
/// other find that none are left and say so.
fn found(
    call: &Call,
    role: Role,
    claim: forebay_store::Result<Option<forebay_store::Claim>>,
) -> Result<Found, Status> {
    let (session, fail) = (&call.session, |error: Error| from_error(&error));
    check_still(call)?; // rows that come too late go back
    let Some(claim) = claim.map_err(|error| fail(error.into()))? else {
        return Ok(session.replies.noted::<Noted>(call.name).map_or(Found::Complete, Found::Before));
    };
    let granted = session.keep(claim, role).map_err(fail)?;
    // Kept first: who gives the wait up then finds the claim, or is found here.
    match session.replies.note::<Noted>(call.name, Some(granted.epoch)) {
        None => Ok(Found::Granted(granted)),
        Some(noted) => {
            session.holder.release(granted.epoch).map_err(fail)?;
            Ok(Found::Before(noted))
        }
    }
}

/// What a call is answered that was answered before.
async fn again(
    session: &Arc<Session>,
    request: &ClaimRequest,
    noted: Noted,
    reader: &Reader,
) -> Result<ClaimReply, Status> {
    let Some(epoch) = noted else { return Ok(ClaimReply::default()) };
    let granted = session.holder.look(epoch, |claim| Granted::of(claim, epoch.2));
    let granted = granted.map_err(|error| from_error(&error))?;
    Ok(reply(session, request, granted, ALONG_BYTES_MAX, reader).await)
}

/// What is said of rows that were granted, with the columns that come along if they take no more than that, and if there is a turn to
/// read them now: a claim waits for no reader.
async fn reply(
    session: &Arc<Session>,
    request: &ClaimRequest,
    granted: Granted,
    along_bytes_max: usize,
    reader: &Reader,
) -> ClaimReply {
    let (epoch, rows) = (granted.epoch, granted.rows.len());
    let mut granted = wire::from_granted(granted);
    if !request.columns.is_empty() {
        let (session, room) = (session.clone(), reader.answers.clone());
        let placed = request.placed && session.loans.is_some();
        let wanted = Wanted { names: request.columns.clone(), cells: request.cells, placed };
        let is_quick = quick::tells_places(session.holder.store(), rows, &wanted);
        let along = move || along(&session, epoch, &wanted, along_bytes_max, &room);
        let along = if is_quick { along().ok() } else { reader.read_now(along).await };
        granted.columns = along.unwrap_or_default(); // what is wrong with them, the next call says
    }
    ClaimReply { granted: Some(granted), complete: false }
}

/// Columns that come along with a claim, with their memory until the reply is made; nothing where they are too large.
fn along(
    session: &Session,
    epoch: Epoch,
    wanted: &Wanted,
    bytes_max: usize,
    room: &Gathered,
) -> Result<Bytes, Error> {
    let whole = streams::of_claim(&session.holder, epoch, wanted, bytes_max as u64, room)?;
    Ok(if whole.stream.len() <= PUSHED_BYTES_MAX { whole.into_bytes() } else { Bytes::new() })
}

#[cfg(test)]
mod tests;
