//! Many keys in one call: each has a result of its own, and a call in which every one failed fails.

use super::catalog::{Catalog, Incoming};
use super::filling::Filling;
use super::held::Held;
use super::moves::check_count;
use super::objects::{Get, Objects, Which};
use super::set::TensorBytes;
use crate::error::Result;

/// The most keys that one call takes.
pub const OBJECT_KEYS_MAX: usize = 10_000;

/// The results, unless all of them are errors: the first of these then.
pub(super) fn unless_all_failed<T>(results: Vec<Result<T>>) -> Result<Vec<Result<T>>> {
    if results.is_empty() || results.iter().any(Result::is_ok) {
        return Ok(results);
    }
    results.into_iter().collect::<Result<Vec<T>>>().map(|_| Vec::new())
}

impl Objects {
    /// Gets a version of each key, in their order; which of them failed stands where they do.
    ///
    /// # Errors
    /// `input` for more than [`OBJECT_KEYS_MAX`] keys; the first error when every key failed.
    pub fn get_many(&self, keys: &[&str], which: Which, get: &Get) -> Result<Vec<Result<Held>>> {
        check_count(keys.len())?;
        unless_all_failed(keys.iter().map(|key| self.get_with(key, which, get)).collect())
    }

    /// Sets the next version of each key; which of them failed stands where they do.
    ///
    /// # Errors
    /// `input` for more than [`OBJECT_KEYS_MAX`] keys; the first error when every key failed.
    pub fn set_many(&self, objects: &[(&str, &[TensorBytes<'_>])]) -> Result<Vec<Result<u64>>> {
        check_count(objects.len())?;
        unless_all_failed(objects.iter().map(|(key, tensors)| self.set(key, tensors)).collect())
    }

    /// Removes the given versions; false for those that were not there.
    ///
    /// # Errors
    /// `input` for more than [`OBJECT_KEYS_MAX`]; the first error when every one failed.
    pub fn delete_many(&self, versions: &[(&str, u64)]) -> Result<Vec<Result<bool>>> {
        check_count(versions.len())?;
        unless_all_failed(versions.iter().map(|(key, version)| self.delete(key, *version)).collect())
    }

    /// Commits fillings of different keys under one number, all or none: the shards of one state, one a rank. A reader that gets
    /// them [together](Self::get_together) sees all of a number or nothing of it, after a crash too.
    ///
    /// # Errors
    /// As for [`Filling::commit`]; the fillings stay then, and nothing of any is seen.
    pub fn commit_together(&self, fillings: &[&Filling]) -> Result<u64> {
        check_count(fillings.len())?;
        let mut incoming: Vec<Incoming> = Vec::with_capacity(fillings.len());
        let mut outcome = Ok(0);
        for filling in fillings {
            match filling.prepare(None) {
                Ok(member) => incoming.push(member),
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        let prepared = incoming.len();
        if outcome.is_ok() {
            outcome = self.commit_by(incoming, Catalog::commit_as_one);
        }
        fillings[..prepared].iter().for_each(|filling| filling.concluded(&outcome));
        outcome
    }

    /// Gets the versions of these keys that were [committed together](Self::commit_together), alone or with others: the newest of
    /// which all are there. What a key was set to by itself is passed over, whatever its number. Of one key it is the newest.
    ///
    /// # Errors
    /// As for [`get`](Self::get); `state` when the keys have versions, and none that were committed together.
    pub fn get_together(&self, keys: &[&str], get: &Get) -> Result<Vec<Held>> {
        check_count(keys.len())?;
        self.lease_together(keys)?.into_iter().map(|leased| leased.hold(get)).collect()
    }
}
