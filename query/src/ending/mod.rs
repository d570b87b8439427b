//! When a statement is over: its time is up, or nobody wants the rest.
//!
//! Whoever polls a query ends it by not polling it any more, and that is enough where it comes back to him. Three kinds of work do
//! not for long: joins that make batch after batch for a plan that takes them all (an aggregate), joins whose condition refuses all
//! that they make, and scans whose filters refuse nearly all rows. So joins go through a rule of the planner: what they give is
//! counted, so that other work of the thread gets its turn, and their conditions look at the [`Ending`] each time that they are
//! tried; and a scan looks before each piece of its table. A sort, or a window over very many rows, computes to its next batch.
//!
//! Planning comes back to nobody before it is done, so it looks by itself: at each table of the statement, before each rule of the
//! planner, and at each node that most rules come to. Whoever waits for it on another thread leaves word when he goes ([`ASKER`]).

mod condition;
mod planning;
mod rule;
mod turns;

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use datafusion::common::config::{ConfigEntry, ConfigExtension, ConfigOptions, ExtensionOptions};
use datafusion::common::config_err;
use datafusion::error::Result as PlanResult;
use tokio::time::Instant;

use crate::error::{Cause, Result};

pub(crate) use self::planning::looking;
pub(crate) use self::rule::EndableJoins;

tokio::task_local! {
    /// Of work that is done for somebody on another thread: whether he has left.
    pub(crate) static ASKER: Arc<AtomicBool>;
}

/// Shared by a statement's stream and all that computes for it, on whatever thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ending {
    stopped: Arc<AtomicBool>,
    /// Whether whoever it was planned for has left before it was.
    left: Option<Arc<AtomicBool>>,
    /// When its time is up, and how long it had.
    until: Option<(Instant, Duration)>,
}

impl Ending {
    /// Its time runs from now on; `None` for no limit.
    pub(crate) fn after(limit: Option<Duration>) -> Self {
        let until = limit.and_then(|limit| Some((Instant::now().checked_add(limit)?, limit)));
        Ending { until, left: ASKER.try_with(Arc::clone).ok(), ..Ending::default() }
    }

    /// That of the statement whose plan is run with these options; one that never comes where there is none.
    pub(crate) fn of(options: &ConfigOptions) -> Self {
        options.extensions.get().cloned().unwrap_or_default()
    }

    /// Nobody wants the rest.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// An error once the statement is over.
    pub(crate) fn check(&self) -> Result<()> {
        let has_left = self.left.as_ref().is_some_and(|left| left.load(Ordering::Relaxed));
        if has_left || self.stopped.load(Ordering::Relaxed) {
            let reason = "the statement was ended by whoever asked it".to_owned();
            return Err(Cause::Query { reason }.into());
        }
        match self.until {
            Some((until, limit)) if Instant::now() >= until => Err(Cause::Time { limit }.into()),
            _ => Ok(()),
        }
    }

    /// Comes when its time is up, and says so. Needs a runtime with a clock where there is a limit.
    pub(crate) async fn expired(self) -> Cause {
        match self.until {
            Some((until, limit)) => {
                tokio::time::sleep_until(until).await;
                Cause::Time { limit }
            }
            None => std::future::pending().await,
        }
    }

    /// The work, or the end of its time.
    pub(crate) async fn bound<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        if self.until.is_none() {
            return work.await;
        }
        tokio::select! {
            biased;
            cause = self.clone().expired() => Err(cause.into()),
            done = work => done,
        }
    }
}

/// How rules of the planner come by it.
impl ConfigExtension for Ending {
    const PREFIX: &'static str = "forebay_ending";
}

impl ExtensionOptions for Ending {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    /// The same: all copies are of one statement.
    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, _value: &str) -> PlanResult<()> {
        config_err!("{}.{key} is nothing to be set", Self::PREFIX)
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        Vec::new()
    }
}
