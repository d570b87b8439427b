//! Policies: trained weights, counted in versions.
//!
//! A policy is *durable* or *volatile*. Every commit that moves a durable one names the objects that hold what its
//! trainer needs to go on from there: weights, master weights, moments, random state, data cursor. A volatile one may
//! move with none: its trainer starts again from what it has.

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
    /// What the policy was before any step.
    pub(crate) first: PolicyMoment,
    /// Keys of which every commit that moves the policy names one object each; empty for a volatile policy.
    pub(crate) state_keys: Vec<Arc<str>>,
}

/// Where a policy stood at some time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PolicyMoment {
    pub(crate) version: u64,
    pub(crate) updated_at: Timestamp,
    pub(crate) objects: Vec<ObjectRef>,
}

/// The declaration of a policy.
///
/// ```
/// use forebay_store::Policy;
/// let solver = Policy::durable(["solver.weights", "solver.moments", "solver.random", "solver.cursor"]).version(3);
/// let scratch = Policy::volatile();
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Policy {
    /// The version that it stands at.
    pub version: u64,
    /// The objects that hold its state at that version.
    pub objects: Vec<ObjectRef>,
    /// Keys of which every commit names one object each; none for a volatile policy.
    pub state_keys: Vec<String>,
}

impl Policy {
    /// A policy whose trainer keeps nothing that would have to outlive it: a commit may name any objects, or none.
    pub fn volatile() -> Self {
        Policy::default()
    }

    /// A policy whose state lies in objects of these keys: every commit that moves it names one of each.
    pub fn durable<'a>(keys: impl IntoIterator<Item = &'a str>) -> Self {
        Policy { state_keys: keys.into_iter().map(str::to_owned).collect(), ..Policy::default() }
    }

    /// The version that it stands at. Default: 0.
    pub fn version(mut self, version: u64) -> Self {
        self.version = version;
        self
    }

    /// The objects that hold it at that version. Default: none.
    pub fn objects(mut self, objects: &[ObjectRef]) -> Self {
        self.objects = objects.to_vec();
        self
    }
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
        let PolicyState { name, version, updated_at, objects, .. } = policy.clone();
        PolicyInfo { name: name.to_string(), version, updated_at, objects }
    }
}
