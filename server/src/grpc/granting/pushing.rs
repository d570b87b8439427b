//! Rows that are granted to whoever has subscribed: as they can be had, for as long as fewer than so many claims are unsettled.
//!
//! A claim is counted in the moment that it is kept, so a stream that breaks anywhere after that leaves it with its subscription, from
//! where it comes again.

use std::collections::HashSet;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;

use forebay_client::wire::proto::{self, ClaimName, ClaimRequest};
use forebay_client::wire::{self, from_error};
use forebay_client::{Ask, Epoch, Error, Granted, Role};
use futures_util::{Stream, stream};
use tokio::time::sleep;
use tonic::Status;

use super::{EXPIRY_LOOK_EVERY, PUSHED_BYTES_MAX, check_still, refused, reply};
use crate::grpc::call::{Call, Service};
use crate::grpc::sessions::Session;
use crate::grpc::subscriptions::Turn;

/// What a subscription is asked for.
#[derive(Clone, Debug)]
pub(in crate::grpc) struct Pushing {
    pub(in crate::grpc) ask: ClaimRequest,
    /// How many claims may be unsettled.
    pub(in crate::grpc) outstanding: usize,
}

/// Claims by their names.
pub(in crate::grpc) fn named(claims: &[ClaimName]) -> HashSet<Epoch> {
    claims.iter().map(|name| (name.incarnation, name.claim, name.member)).collect()
}

impl Session {
    /// Whether a claim is held and its lease has not ended.
    pub(in crate::grpc) fn is_live(&self, claim: Epoch) -> bool {
        self.holder.look(claim, forebay_store::Claim::is_live).unwrap_or(false)
    }

    /// Ends a subscription whose client has `held` of what was pushed; the rest goes back.
    pub(in crate::grpc) fn give_up_subscription(&self, name: u128, held: &HashSet<Epoch>) {
        for claim in self.subscriptions.give_up(name, held) {
            if let Err(error) = self.holder.release(claim) {
                tracing::debug!(%error, "a claim of a subscription that was given up had ended before");
            }
        }
        self.settled.notify_waiters();
    }
}

impl Service {
    /// The claims of one stream of a subscription.
    pub(in crate::grpc) fn pushed(
        self,
        call: Call,
        pushing: Pushing,
        turn: Turn,
    ) -> impl Stream<Item = Result<proto::Granted, Status>> + Send {
        stream::unfold(Some((self, call, pushing, turn)), |state| async move {
            let (service, call, pushing, mut turn) = state?;
            match service.next_pushed(&call, &pushing, &mut turn).await {
                Ok(Some(granted)) => Some((Ok(granted), Some((service, call, pushing, turn)))),
                Ok(None) => None,
                Err(status) => Some((Err(status), None)),
            }
        })
    }

    /// The next claim, with the columns that come along; none where the subscription is over.
    async fn next_pushed(
        &self,
        call: &Call,
        Pushing { ask, outstanding }: &Pushing,
        turn: &mut Turn,
    ) -> Result<Option<proto::Granted>, Status> {
        let granted = match lost(&call.session, turn) {
            Some(granted) => Some(granted),
            None => {
                until_fewer(call, turn, *outstanding).await?;
                claimed(call, ask, turn).await?
            }
        };
        match granted {
            Some(granted) => {
                let reader = self.reader(call);
                Ok(reply(&call.session, ask, granted, PUSHED_BYTES_MAX, &reader).await.granted)
            }
            None => turn.goes_on().map(|_| None).map_err(|error| from_error(&error)),
        }
    }
}

/// The next of what was lost on the way and is held yet.
fn lost(session: &Arc<Session>, turn: &mut Turn) -> Option<Granted> {
    std::iter::from_fn(|| turn.next_lost())
        .find_map(|claim| session.holder.look(claim, |found| Granted::of(found, claim.2)).ok())
}

/// Waits until fewer than `outstanding` claims are unsettled, or the turn is over, for as long as the caller may.
pub(super) async fn until_fewer(call: &Call, turn: &Turn, outstanding: usize) -> Result<(), Status> {
    let session = &call.session;
    loop {
        let mut settled = pin!(session.settled.notified());
        settled.as_mut().enable(); // listen first, then look
        check_still(call)?;
        if turn.unsettled(|claim| session.is_live(claim)) < outstanding {
            return Ok(());
        }
        tokio::select! {
            () = settled => {}
            () = session.over() => {}
            () = turn.over() => return Ok(()),
            // A lease or a token that ends tells nobody here, so it is looked for.
            () = sleep(EXPIRY_LOOK_EVERY) => {}
        }
    }
}

/// Waits for rows. None where the turn is over.
async fn claimed(call: &Call, ask: &ClaimRequest, turn: &Turn) -> Result<Option<Granted>, Status> {
    let fail = |error: Error| from_error(&error);
    let rule = wire::to_micro_batch(ask.rule.as_ref()).map_err(fail)?;
    let owner = ask.owner.as_deref();
    let ask = Ask { consumer: &ask.consumer, rule, role: Role::Task, owner, columns: &[] };
    let mut rows = pin!(call.session.holder.claim_async(&ask).map_err(fail)?);
    let keep = |claim: forebay_store::Result<Option<forebay_store::Claim>>| {
        check_still(call)?; // rows that come too late go back
        match claim.map_err(|error| fail(error.into()))? {
            Some(claim) => turn.keep(|| call.session.keep(claim, Role::Task)).map_err(fail),
            None => Ok(None),
        }
    };
    let claimed = poll_fn(|context| rows.as_mut().poll(context).map(keep));
    tokio::select! {
        biased; // rows that are there are had without a wait
        claimed = claimed => claimed,
        status = refused(call) => Err(status),
        () = turn.over() => Ok(None),
    }
}
