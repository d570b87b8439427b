//! The ways into a server, each with its connections.

use std::time::Duration;

use crate::connections::{ConnectionLimits, Traffic};

/// What went through each of a server's doors. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Doors {
    pub(crate) grpc: Traffic,
    pub(crate) flight: Traffic,
    pub(crate) http: Traffic,
}

impl Doors {
    /// Every door by its name.
    pub(crate) fn all(&self) -> [(&'static str, &Traffic); 3] {
        [("grpc", &self.grpc), ("flight", &self.flight), ("http", &self.http)]
    }
}

/// What HTTP and Flight SQL let in by default, each.
pub(crate) const READERS: ConnectionLimits =
    ConnectionLimits { most: 1_000, most_of_host: None, first_call_time_max: Duration::from_secs(10) };
