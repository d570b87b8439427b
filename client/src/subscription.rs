//! Claims that come by themselves, wherever the store is.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};

use forebay_store::{Cause, ConsumerKind, Kind, MicroBatch, Wait};
use futures_util::Stream;

use crate::claim::Claim;
use crate::client::Client;
use crate::connection::{Ask, Pushing, Role};
use crate::error::{Error, Result};

/// How a consumer is subscribed to.
#[derive(Clone, Debug)]
#[must_use = "options subscribe to nothing"]
pub struct SubscribeOptions {
    outstanding: usize,
    columns: Vec<String>,
    owner: Option<String>,
}

impl Default for SubscribeOptions {
    fn default() -> Self {
        SubscribeOptions { outstanding: 2, columns: Vec::new(), owner: None }
    }
}

impl SubscribeOptions {
    /// How many claims may be unsettled at a time: those that were taken, and those that wait to be. Default: 2, the one that is
    /// worked on and the next.
    pub fn outstanding(mut self, claims: usize) -> Self {
        self.outstanding = claims;
        self
    }

    /// Columns that come along with each claim where that saves a round trip; [`Claim::columns`] for the same columns has them at
    /// hand then. Default: what is read of the consumer's claims as a rule.
    pub fn columns<C: Into<String>>(mut self, names: impl IntoIterator<Item = C>) -> Self {
        self.columns = names.into_iter().map(Into::into).collect();
        self
    }

    /// Whom `system.claims` shows as the holder. Default: this client.
    pub fn owner(mut self, owner: &str) -> Self {
        self.owner = Some(owner.to_owned());
        self
    }
}

/// The micro-batches of a task, as they become ready. Also a [`Stream`], which ends after the first error.
///
/// At most [`outstanding`](SubscribeOptions::outstanding) claims are unsettled at a time; more come as these end. A server claims ahead,
/// so what is next is here when it is asked for; a store in this process claims when it is asked.
///
/// After a short outage a subscription goes on by itself: what was on its way comes again, and nothing comes twice. After one that was
/// longer than the server's grace it goes on, too, but what was held has gone back: its claims are refused, and their rows come again. It
/// ends with an error when the server was away for [`outage_time_max`](crate::ConnectOptions::outage_time_max), when the token expires,
/// and when the client is closed; every later call has that error.
///
/// Dropping it gives back what nobody has taken, and ends the waits of futures that are left with `state`, `SubscriptionOver`. Claims
/// that were taken are held on.
#[must_use = "a subscription that is dropped is over"]
pub struct Subscription {
    pushed: Box<dyn Pushing>, // before the client, which may end with it
    client: Client,
    /// What the stream waits for.
    coming: Mutex<Option<NextClaim>>,
    /// The stream has ended.
    is_over: bool,
}

/// A claim to come, on any async runtime. Where it is dropped the claim is the next one's.
pub type NextClaim = Pin<Box<dyn Future<Output = Result<Claim>> + Send>>;

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").field("pushed", &self.pushed).finish_non_exhaustive()
    }
}

impl Subscription {
    pub(crate) fn begin(
        client: &Client,
        consumer: &str,
        kind: ConsumerKind,
        rule: MicroBatch,
        options: &SubscribeOptions,
    ) -> Result<Self> {
        check(consumer, kind, rule, options)?;
        let columns: Vec<&str> = options.columns.iter().map(String::as_str).collect();
        let owner = options.owner.as_deref();
        let ask = Ask { consumer, rule, role: Role::Task, owner, columns: &columns };
        let pushed = client.connection.subscribe(&ask, options.outstanding)?;
        Ok(Subscription { client: client.clone(), pushed, coming: Mutex::default(), is_over: false })
    }

    /// What the stream waits for. A lock so that threads may share a subscription; whoever has it alone waits for nobody.
    fn waited(&mut self) -> &mut Option<NextClaim> {
        self.coming.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next claim; `None` when the wait is over. Without a wait: what a server has pushed by now.
    ///
    /// # Errors
    /// `closed` when the client or the store is; over a connection `retry` when the server was away for too long, and `input` when the
    /// token has expired.
    pub fn next(&self, wait: Wait) -> Result<Option<Claim>> {
        let granted = self.pushed.next(wait)?;
        Ok(granted.map(|granted| Claim::granted(&self.client, granted)))
    }

    /// The same without blocking a thread, on any async runtime. There is no time-out in it; race it against a timer of the runtime.
    ///
    /// # Errors
    /// The future's are those of [`next`](Subscription::next).
    pub fn next_async(&self) -> NextClaim {
        let (granted, client) = (self.pushed.next_async(), self.client.clone());
        Box::pin(async move { Ok(Claim::granted(&client, granted.await?)) })
    }
}

/// What whoever waits on hears of a subscription that was dropped.
pub(crate) fn dropped() -> Error {
    Error::new(Kind::State, "SubscriptionOver", "the subscription was dropped; subscribe again")
}

/// Refuses what no subscription can be, the same on every way to a store.
fn check(consumer: &str, kind: ConsumerKind, rule: MicroBatch, options: &SubscribeOptions) -> Result<()> {
    if kind == ConsumerKind::Trainer {
        let hint = "begin a step and take its micro-batches";
        let cause = Cause::ConsumerKind { consumer: consumer.to_owned(), found: kind.as_str(), hint };
        return Err(forebay_store::Error::from(cause).into());
    }
    if rule.rows() == 0 {
        return Err(Error::input("Argument", "a micro-batch of 0 rows never comes; ask for at least 1"));
    }
    match options.outstanding {
        0 => Err(Error::input(
            "Argument",
            "a subscription of 0 outstanding claims gives none; allow at least 1",
        )),
        _ => Ok(()),
    }
}

impl Stream for Subscription {
    type Item = Result<Claim>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let waited = self.waited().take();
        let mut coming = waited.unwrap_or_else(|| self.next_async());
        let Poll::Ready(claim) = coming.as_mut().poll(context) else {
            *self.waited() = Some(coming);
            return Poll::Pending;
        };
        self.is_over = claim.is_err();
        Poll::Ready(Some(claim))
    }
}
