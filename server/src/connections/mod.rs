//! Connections of every door, counted: one beyond the most that are allowed is closed at once, one over which nobody is let
//! in for long is closed too, and the others are not touched.

mod counted;
mod handles;
mod hosts;
mod http;
mod known;
mod listener;
mod traffic;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, stream};
use tokio::sync::Semaphore;
use tokio::time::sleep;

pub(crate) use counted::Counted;
use counted::Patience;
pub(crate) use handles::Handles;
pub use handles::raise_handles;
use hosts::Hosts;
pub(crate) use http::HttpListener;
pub(crate) use known::Known;
pub(crate) use listener::Listener;
pub(crate) use traffic::{Traffic, TrafficCounts};

/// How long after a connection could not be accepted the next is tried.
const PAUSE: Duration = Duration::from_millis(100);

/// What the connections of a door may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    /// At the same time.
    pub(crate) most: usize,
    /// Over TCP, of one host.
    pub(crate) most_of_host: Option<usize>,
    /// How long a connection may be there before somebody is let in over it.
    pub(crate) first_call_time_max: Duration,
    /// How long one over which somebody was let in may carry nothing; none for as long as it likes.
    pub(crate) idle_time_max: Option<Duration>,
}

/// The connections of a door.
#[derive(Clone, Debug)]
pub(crate) struct Connections {
    places: Arc<Semaphore>,
    /// Of all doors.
    handles: Handles,
    hosts: Hosts,
    patience: Patience,
    traffic: Traffic,
}

impl Connections {
    pub(crate) fn new(limits: ConnectionLimits, handles: &Handles, traffic: &Traffic) -> Self {
        let ConnectionLimits { most, most_of_host, first_call_time_max, idle_time_max } = limits;
        let places = Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
        let patience = Patience { first_call_time_max, idle_time_max, piece_time_max: None };
        let (handles, hosts, traffic) = (handles.clone(), Hosts::new(most_of_host), traffic.clone());
        Connections { places, handles, hosts, patience, traffic }
    }

    /// The same, whose peers have to take what is written to them at a pace: so much time for a piece. For doors whose protocol
    /// leaves that to the connection.
    pub(crate) fn taken_at_a_pace(mut self, piece_time_max: Duration) -> Self {
        self.patience.piece_time_max = Some(piece_time_max);
        self
    }

    /// What comes over a listener, for as long as it is asked for more.
    pub(crate) fn of<L: Listener>(
        &self,
        listener: L,
    ) -> impl Stream<Item = io::Result<Counted<L::Stream>>> + use<L> {
        stream::unfold((listener, self.clone()), async |(listener, connections)| {
            let next = connections.next(&listener).await;
            Some((Ok(next), (listener, connections)))
        })
    }

    /// The next that may be.
    async fn next<L: Listener>(&self, listener: &L) -> Counted<L::Stream> {
        loop {
            match listener.next().await {
                Ok((stream, host)) => {
                    if let Some(counted) = self.count(stream, host) {
                        return counted;
                    }
                }
                Err(error) => {
                    // Out of file handles, most often: others have to go before it makes sense to try again.
                    tracing::warn!(%error, "a connection could not be accepted");
                    self.traffic.refused("error");
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// A connection, if one more may be.
    fn count<S>(&self, stream: S, host: Option<IpAddr>) -> Option<Counted<S>> {
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            tracing::warn!("a connection was closed at once: there are as many as may be");
            self.traffic.refused("too_many");
            return None;
        };
        let Ok(handle) = self.handles.0.clone().try_acquire_owned() else {
            tracing::warn!("a connection was closed at once: the files that may be open are for the store");
            self.traffic.refused("handles");
            return None;
        };
        let Ok(of_host) = self.hosts.enter(host) else {
            tracing::warn!(?host, "a connection was closed at once: its host has as many as it may");
            self.traffic.refused("too_many_of_host");
            return None;
        };
        Some(Counted::new(stream, [place, handle], of_host, self.patience, self.traffic.clone()))
    }
}
