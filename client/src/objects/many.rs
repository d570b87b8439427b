//! Many keys in one call: each has a result of its own, and a call in which every one failed fails.
//!
//! Behind a server each key is a call of its own, one after the other; where the server is lost on the way, the keys behind the one
//! that met it fail as that did, without waiting for it again.

use std::time::Instant;

use forebay_store::{Cause, Kind, OBJECT_KEYS_MAX, TensorBytes, Wait, Which};

use super::handle::{GetObject, Objects};
use super::held::{HeldObject, ReceivedObject};
use crate::error::{Error, Result};

impl Objects {
    /// Sets the next version of each key; which of them failed stands where they do.
    ///
    /// # Errors
    /// `input` for more than [`OBJECT_KEYS_MAX`] keys; the first error when every key failed.
    pub fn set_many(&self, objects: &[(&str, &[TensorBytes<'_>])]) -> Result<Vec<Result<u64>>> {
        each(objects, |(key, tensors)| self.set(key, tensors))
    }

    /// Gets a version of each key, in their order; which of them failed stands where they do. A wait for a version is each key's
    /// own.
    ///
    /// # Errors
    /// As for [`set_many`](Self::set_many).
    pub fn get_many(&self, keys: &[&str], which: Which, get: &GetObject) -> Result<Vec<Result<HeldObject>>> {
        each(keys, |key| self.get_with(key, which, get))
    }

    /// Removes the given versions; false for those that were not there.
    ///
    /// # Errors
    /// As for [`set_many`](Self::set_many).
    pub fn delete_many(&self, versions: &[(&str, u64)]) -> Result<Vec<Result<bool>>> {
        each(versions, |(key, version)| self.delete(key, *version))
    }

    /// Takes what was published under each key; which of them failed stands where they do. All share one wait.
    ///
    /// # Errors
    /// As for [`set_many`](Self::set_many).
    pub fn receive_many(&self, keys: &[&str], wait: Wait) -> Result<Vec<Result<ReceivedObject>>> {
        let until = match wait {
            Wait::For(time) => Instant::now().checked_add(time),
            Wait::No | Wait::Forever => None,
        };
        let left = || until.map_or(wait, |until| Wait::For(until.saturating_duration_since(Instant::now())));
        each(keys, |key| self.receive(key, left()))
    }
}

fn each<K, T>(keys: &[K], mut call: impl FnMut(&K) -> Result<T>) -> Result<Vec<Result<T>>> {
    if keys.len() > OBJECT_KEYS_MAX {
        let reason = format!("{} in one call; take {OBJECT_KEYS_MAX} at most", keys.len());
        return Err(forebay_store::Error::from(Cause::Argument { what: "keys", reason }).into());
    }
    let mut results: Vec<Result<T>> = Vec::with_capacity(keys.len());
    for key in keys {
        let result = match results.last() {
            Some(Err(error)) if is_of_all(error) => Err(same(error)),
            _ => call(key),
        };
        results.push(result);
    }
    if results.is_empty() || results.iter().any(Result::is_ok) {
        return Ok(results);
    }
    results.into_iter().collect::<Result<Vec<T>>>().map(|_| Vec::new())
}

/// Whether every key would meet it: the store is closed, or its server is away. One call that took too long says nothing of the next.
fn is_of_all(error: &Error) -> bool {
    error.kind() == Kind::Closed || error.cause() == "Connection"
}

fn same(error: &Error) -> Error {
    Error::new(error.kind(), error.cause(), error.to_string()).retry_after(error.wait_before_retry())
}

#[cfg(test)]
mod tests {
    use super::*;

    // FX-B21
    #[test]
    fn a_key_behind_a_server_that_is_lost_is_not_tried() {
        for (kind, cause) in [(Kind::Closed, "Closed"), (Kind::Retry, "Connection")] {
            let mut tried = 0;
            let lost = |key: &u32| {
                tried += 1;
                if *key < 2 { Ok(*key) } else { Err(Error::new(kind, cause, "it is away")) }
            };
            let results = each(&[0, 1, 2, 3, 4], lost).map_err(|error| error.to_string());
            let results = results.unwrap_or_default();
            assert_eq!(tried, 3, "{cause}");
            let said: Vec<_> = results.iter().map(|result| result.as_ref().err().map(Error::cause)).collect();
            assert_eq!(said, [None, None, Some(cause), Some(cause), Some(cause)]);
        }
    }

    #[test]
    fn a_key_behind_one_that_is_not_there_or_took_too_long_is_tried() {
        for cause in ["ObjectNotYet", "Deadline"] {
            let mut tried = 0;
            let all = each(&[0, 1], |_| {
                tried += 1;
                Err::<(), _>(Error::new(Kind::Retry, cause, "it did not come"))
            });
            assert!(all.is_err_and(|error| error.cause() == cause));
            assert_eq!(tried, 2, "{cause}");
        }
    }
}
