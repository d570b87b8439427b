//! The version rule: one version of each policy in a step.

use std::collections::BTreeMap;

use forebay_store::Store;

use crate::error::{Cause, Result};

/// The version of every policy at one moment: what a step is trained on and what its rollouts run on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionVector(BTreeMap<String, u64>);

impl VersionVector {
    /// The versions that the store's policies have now.
    pub fn current(store: &Store) -> Self {
        VersionVector(store.policies().into_iter().map(|policy| (policy.name, policy.version)).collect())
    }

    /// The version of a policy.
    pub fn of(&self, policy: &str) -> Option<u64> {
        self.0.get(policy).copied()
    }

    /// Policies and their versions.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(policy, version)| (policy.as_str(), *version))
    }
}

/// Checks that every row of a micro-batch has the one version that its policy is at (strict freshness, the default).
///
/// The store hands out nothing else; this is the trainer's own assertion, made where a mistake would change weights.
///
/// # Errors
/// `state` when a row has another version.
pub fn check_fresh(table: &str, current: u64, versions: impl IntoIterator<Item = u64>) -> Result<()> {
    let mut found: Vec<u64> = versions.into_iter().filter(|version| *version != current).collect();
    found.sort_unstable();
    found.dedup();
    if found.is_empty() {
        return Ok(());
    }
    Err(Cause::MixedVersions { table: table.to_owned(), found, current }.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    // FX-34, FX-89
    #[test]
    fn a_micro_batch_of_any_other_version_is_refused() {
        assert!(check_fresh("solver", 3, [3, 3, 3]).is_ok());
        for versions in [[2, 3, 3], [3, 4, 3], [4, 4, 4]] {
            assert!(check_fresh("solver", 3, versions).is_err(), "{versions:?}");
        }
    }
}
