//! Rows that are granted: to whoever asks, and to whoever has subscribed.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use forebay_client::wire::proto::{self, ClaimReply, ClaimRequest};
use forebay_client::wire::{self, MESSAGE_BYTES_MAX, from_error};
use forebay_client::{Ask, Epoch, Error, Granted, Holder, Role};
use futures_util::{Future, Stream, stream};
use tonic::Status;

use super::call::{Call, Service, blocking};
use super::sessions::Session;
use super::streams;
use crate::gathered::Gathered;

/// How often a subscription that has as many claims as it may looks whether leases have ended.
const EXPIRY_LOOK_EVERY: Duration = Duration::from_secs(1);
/// The largest columns that come along with a claim, in bytes.
const ALONG_BYTES_MAX: usize = MESSAGE_BYTES_MAX / 2;

impl Service {
    /// Waits for rows, for as long as the client does.
    pub(super) async fn granted(&self, call: &Call, request: &ClaimRequest) -> Result<ClaimReply, Status> {
        let fail = |error: Error| from_error(&error);
        let session = &call.session;
        if request.give_up {
            self.give_up(call);
            return Ok(ClaimReply::default());
        }
        let wait = session.waits.begin(call.name); // before the look whether it was given up
        if let Some(noted) = session.replies.noted::<Noted>(call.name) {
            return again(session, request, noted, &self.answers).await;
        }
        let role = match (request.step, request.member) {
            (_, Some(member)) => Role::Member(member),
            (Some(step), None) => Role::Step(step),
            (None, None) => Role::Task,
        };
        let rule = wire::to_micro_batch(request.rule.as_ref()).map_err(fail)?;
        let owner = request.owner.as_deref();
        let ask = Ask { consumer: &request.consumer, rule, role, owner, columns: &[] };
        let mut rows = std::pin::pin!(session.holder.claim_async(&ask).map_err(fail)?);
        let time = request.wait_ms.map_or(Duration::MAX, Duration::from_millis);
        let found = poll_fn(|context| {
            let _one = session.finding();
            rows.as_mut().poll(context).map(|claim| found(session, call.name, role, claim))
        });
        let found = tokio::select! {
            biased; // rows that are there are had without a wait
            found = found => Some(found?),
            () = tokio::time::sleep(time) => None,
            () = wait.given_up() => None,
        };
        match found {
            Some(Found::Granted(granted)) => {
                session.waits.give_up(call.name);
                Ok(reply(session, request, granted, &self.answers).await)
            }
            Some(Found::Complete) => Ok(ClaimReply { granted: None, complete: true }),
            Some(Found::Before(noted)) => again(session, request, noted, &self.answers).await,
            None => {
                // Whoever else waits under this name, or did, is answered the same.
                let noted = match wait.is_alone() {
                    true => session.replies.noted::<Noted>(call.name),
                    false => session.replies.note::<Noted>(call.name, None),
                };
                match noted {
                    Some(noted) => again(session, request, noted, &self.answers).await,
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

    /// Claims as they can be had, for as long as fewer than `outstanding` of them are unsettled.
    pub(super) fn pushed(
        self,
        call: Call,
        ask: ClaimRequest,
        outstanding: usize,
    ) -> impl Stream<Item = Result<proto::Granted, Status>> + Send {
        stream::unfold(Some((self, call, ask, Vec::new())), move |state| async move {
            let (service, mut call, ask, mut unsettled) = state?;
            loop {
                let mut settled = std::pin::pin!(call.session.settled.notified());
                settled.as_mut().enable(); // listen first, then look
                let live = |epoch: &Epoch| call.session.holder.look(*epoch, forebay_store::Claim::is_live);
                unsettled.retain(|epoch| live(epoch).unwrap_or(false));
                if unsettled.len() < outstanding {
                    break;
                }
                // A lease that ends tells nobody here, so it is looked for.
                let _ = tokio::time::timeout(EXPIRY_LOOK_EVERY, settled).await;
            }
            call.name = wire::new_call();
            match service.granted(&call, &ask).await {
                Ok(ClaimReply { granted: Some(granted), .. }) => {
                    unsettled.push((granted.incarnation, granted.claim, granted.member));
                    Some((Ok(granted), Some((service, call, ask, unsettled))))
                }
                Ok(ClaimReply { granted: None, .. }) => None,
                Err(status) => Some((Err(status), None)),
            }
        })
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
    session: &Session,
    name: u128,
    role: Role,
    claim: forebay_store::Result<Option<forebay_store::Claim>>,
) -> Result<Found, Status> {
    let fail = |error: Error| from_error(&error);
    let Some(claim) = claim.map_err(|error| fail(error.into()))? else {
        return Ok(session.replies.noted::<Noted>(name).map_or(Found::Complete, Found::Before));
    };
    let granted = session.holder.keep(claim, role);
    // Kept first: who gives the wait up then finds the claim, or is found here.
    match session.replies.note::<Noted>(name, Some(granted.epoch)) {
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
    room: &Gathered,
) -> Result<ClaimReply, Status> {
    let Some(epoch) = noted else { return Ok(ClaimReply::default()) };
    let granted = session.holder.look(epoch, |claim| Granted::of(claim, epoch.2));
    Ok(reply(session, request, granted.map_err(|error| from_error(&error))?, room).await)
}

/// What is said of rows that were granted, with the columns that come along.
async fn reply(
    session: &Arc<Session>,
    request: &ClaimRequest,
    granted: Granted,
    room: &Gathered,
) -> ClaimReply {
    let (epoch, mut granted) = (granted.epoch, wire::from_granted(granted));
    if !request.columns.is_empty() {
        let (session, names) = (session.clone(), request.columns.clone());
        let (placed, cells) = (request.placed && session.loans.is_some(), request.cells);
        let room = room.clone();
        let along = blocking(move || along(&session.holder, epoch, &names, cells, placed, &room)).await;
        granted.columns = along.unwrap_or_default().into(); // what is wrong with them, the next call says
    }
    ClaimReply { granted: Some(granted), complete: false }
}

fn along(
    holder: &Holder,
    epoch: Epoch,
    names: &[String],
    cells: bool,
    placed: bool,
    room: &Gathered,
) -> Result<Vec<u8>, Error> {
    let stream = streams::of_claim(holder, epoch, names, cells, placed, room)?.stream;
    Ok(if stream.len() <= ALONG_BYTES_MAX { stream } else { Vec::new() })
}
