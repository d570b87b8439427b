//! The ways into a server, each with its connections.

use crate::connections::Traffic;

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
