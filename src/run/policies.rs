//! The weights that rollouts run on.

use std::collections::HashMap;
use std::sync::Arc;

use forebay_trainer_adapter::{CpuDevice, Policy};
use parking_lot::RwLock;

/// The published weights of every policy: one version of each at a time, replaced whole.
#[derive(Clone, Default)]
pub(super) struct Published(Arc<RwLock<HashMap<String, Weights>>>);

/// One version of a policy.
#[derive(Clone)]
pub(super) struct Weights {
    pub(super) policy: Arc<Policy<CpuDevice>>,
    /// The store's version of the policy.
    pub(super) version: u64,
    /// The first sixteen digits of the weights' hash: enough to tell versions apart.
    pub(super) fingerprint: String,
}

impl Published {
    /// Replaces the weights of a policy. Rollouts that began on the old ones end on them.
    pub(super) fn publish(&self, name: &str, weights: Weights) {
        self.0.write().insert(name.to_owned(), weights);
    }

    /// The weights of a policy at exactly this version.
    ///
    /// # Errors
    /// When the policy is not there, or at another version: a rollout may not run on weights that its row does not name.
    pub(super) fn at(&self, name: &str, version: u64) -> Result<Weights, String> {
        match self.0.read().get(name) {
            Some(weights) if weights.version == version => Ok(weights.clone()),
            Some(weights) => {
                Err(format!("policy {name:?} is published at version {}, not {version}", weights.version))
            }
            None => Err(format!("policy {name:?} is not published")),
        }
    }
}
