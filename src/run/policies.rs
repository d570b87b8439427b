//! The weights that rollouts run on.

use std::collections::HashMap;
use std::sync::Arc;

use forebay_trainer_adapter::{CpuDevice, Policy};
use parking_lot::RwLock;

/// The published weights of every policy: the newest version, and the one before it, which rollouts may still be at.
///
/// A version is here before the store stands at it: rows of it may be there already, which a rewind has kept, and are handed out as soon
/// as it does. No rollout runs on it sooner, for the store hands out no row of a version that it does not stand at.
#[derive(Clone, Default)]
pub(super) struct Published(Arc<RwLock<HashMap<String, Versions>>>);

struct Versions {
    newest: Weights,
    before: Option<Weights>,
}

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
    /// Adds the next weights of a policy. Rollouts that began on others end on them.
    ///
    /// # Errors
    /// When they are not of a later version than those that are there: an update is published once, and no other weights ever have its
    /// number.
    pub(super) fn publish(&self, name: &str, weights: Weights) -> Result<(), String> {
        let mut published = self.0.write();
        match published.get_mut(name) {
            Some(Versions { newest, .. }) if newest.version >= weights.version => {
                let (found, given) = (newest.version, weights.version);
                Err(format!("policy {name:?} is published at version {found}, and {given} is no later one"))
            }
            Some(versions) => {
                versions.before = Some(std::mem::replace(&mut versions.newest, weights));
                Ok(())
            }
            None => {
                published.insert(name.to_owned(), Versions { newest: weights, before: None });
                Ok(())
            }
        }
    }

    /// The weights of a policy at exactly this version.
    ///
    /// # Errors
    /// When the policy is not there, or at other versions: a rollout may not run on weights that its row does not name.
    pub(super) fn at(&self, name: &str, version: u64) -> Result<Weights, String> {
        let published = self.0.read();
        let Some(Versions { newest, before }) = published.get(name) else {
            return Err(format!("policy {name:?} is not published"));
        };
        let mut there = std::iter::once(newest).chain(before);
        let found = there.find(|weights| weights.version == version).cloned();
        found.ok_or_else(|| {
            format!("policy {name:?} is published at version {}, not {version}", newest.version)
        })
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
        let fingerprint = |version| published.at("solver", version).map(|weights| weights.fingerprint);
        assert_eq!(
            (fingerprint(4), fingerprint(3)),
            (Ok("4".into()), Ok("3".into())),
            "who is at it ends on it"
        );
        published.publish("solver", weights(5)).unwrap();
        assert!(fingerprint(3).is_err_and(|refused| refused.contains("at version 5, not 3")));
        assert!(published.at("judge", 3).is_err());
    }
}
