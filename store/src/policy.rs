//! Policies: trained weights, counted in versions.

use std::sync::Arc;

use crate::clock::Timestamp;
use crate::object::ObjectRef;

/// One policy as the engine holds it.
#[derive(Clone, Debug)]
pub(crate) struct PolicyState {
    pub(crate) name: Arc<str>,
    pub(crate) version: u64,
    pub(crate) updated_at: Timestamp,
    pub(crate) objects: Vec<ObjectRef>,
}

/// A policy as it is shown to people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyInfo {
    /// Its name.
    pub name: String,
    /// How many updates it has had, plus the version that it began with.
    pub version: u64,
    /// When the version was committed.
    pub updated_at: Timestamp,
    /// The objects that hold its weights and the trainer's state at this version.
    pub objects: Vec<ObjectRef>,
}

impl From<&PolicyState> for PolicyInfo {
    fn from(policy: &PolicyState) -> Self {
        let PolicyState { name, version, updated_at, objects } = policy.clone();
        PolicyInfo { name: name.to_string(), version, updated_at, objects }
    }
}
