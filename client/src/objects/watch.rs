//! News of a key.

use forebay_store::{Wait, Which};

use super::handle::{GetObject, Objects};
use super::held::HeldObject;
use crate::error::Result;

/// New versions of a key, the newest each time. Versions that came and were followed by others before somebody looked are passed
/// over.
#[derive(Debug)]
pub struct ObjectWatch {
    objects: Objects,
    key: String,
    seen: u64,
}

impl ObjectWatch {
    /// From now on.
    pub(super) fn begin(objects: Objects, key: &str) -> Result<Self> {
        let of_key = objects.list()?.into_iter().filter(|shown| shown.key == key && !shown.once);
        let seen = of_key.map(|shown| shown.version).max().unwrap_or(0);
        Ok(ObjectWatch { objects, key: key.to_owned(), seen })
    }

    /// The newest version, once it is newer than the last that was told; `None` when the wait is over.
    ///
    /// # Errors
    /// `retry` when whoever was to fill it gave up; `closed` when the store is.
    pub fn next(&mut self, wait: Wait) -> Result<Option<HeldObject>> {
        match self.objects.get(&self.key, Which::AtLeast(self.seen.saturating_add(1), wait)) {
            Ok(held) => {
                self.seen = held.version();
                Ok(Some(held))
            }
            Err(error) if error.is_not_yet() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The same to come, on any async runtime. There is no time-out in it.
    ///
    /// # Errors
    /// As for [`next`](Self::next).
    pub async fn next_async(&mut self) -> Result<HeldObject> {
        let get = GetObject::default();
        let held = self.objects.get_async(&self.key, self.seen.saturating_add(1), &get)?.await?;
        self.seen = held.version();
        Ok(held)
    }
}
