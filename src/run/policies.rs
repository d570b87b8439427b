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
    ///
    /// # Errors
    /// When they are not of a later version than those that are there: an update is published once, and no other weights ever have its
    /// number.
    pub(super) fn publish(&self, name: &str, weights: Weights) -> Result<(), String> {
        let mut published = self.0.write();
        if let Some(there) = published.get(name).filter(|there| there.version >= weights.version) {
            let (found, given) = (there.version, weights.version);
            return Err(format!(
                "policy {name:?} is published at version {found}, and {given} is no later one"
            ));
        }
        published.insert(name.to_owned(), weights);
        Ok(())
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use forebay_trainer_adapter::PolicyConfig;

    use super::*;

    fn weights(version: u64) -> Weights {
        let config = PolicyConfig { num_hidden_layers: 1, ..PolicyConfig::small(8) };
        let policy = Policy::initialise(&CpuDevice::inline(), &config, version).unwrap();
        Weights { policy: Arc::new(policy), version, fingerprint: version.to_string() }
    }

    // PL-08: exactly once an update
    #[test]
    fn a_version_is_published_once_and_never_again_by_an_older_one() {
        let published = Published::default();
        published.publish("solver", weights(3)).unwrap();
        for version in [3, 2] {
            let refused = published.publish("solver", weights(version)).unwrap_err();
            assert!(refused.contains("version 3") && refused.contains(&version.to_string()), "{refused}");
            assert_eq!(published.at("solver", 3).unwrap().fingerprint, "3");
        }
        published.publish("checker", weights(3)).unwrap();
        published.publish("solver", weights(4)).unwrap();
        assert_eq!(published.at("solver", 4).unwrap().fingerprint, "4");
        assert!(published.at("solver", 3).is_err(), "one version at a time");
    }
}
