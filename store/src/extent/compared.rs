//! Whether two stored values are equal, where finding that out takes longer than the state may be locked for.
//!
//! A decision that meets such a pair stops; the pair is compared with nothing locked, its extents held, and the decision is
//! made again. Views carry the generation, so what was found of a pair stays true.

use std::collections::HashMap;

use super::bytes::ValueBytes;
use super::registry::Extents;
use super::view::View;
use crate::error::{Cause, Result};
use crate::log::record::StoredValue;
use crate::schema::StorageClass;
use crate::state::Request;
use crate::sync::Mutex;

/// Values of this size and above are not compared while the state is locked.
const BULK_BYTES_MIN: usize = 64 << 10;

/// What was found of pairs of values, and the pair at which a decision stopped.
#[derive(Debug, Default)]
pub(crate) struct Compared {
    known: Mutex<HashMap<(View, View), bool>>,
    stopped_at: Mutex<Option<Pair>>,
}

#[derive(Debug)]
struct Pair {
    views: (View, View),
    bytes: (ValueBytes, ValueBytes),
}

impl Compared {
    /// Whether a decision on these requests may stop.
    pub(crate) fn may_stop(requests: &[Request]) -> bool {
        let is_bulk =
            |value| matches!(value, StoredValue::View(view) if View(view).length() >= BULK_BYTES_MIN);
        requests.iter().any(|request| match request {
            Request::Write { cells, .. } => cells.iter().any(|cell| is_bulk(cell.value)),
            _ => false,
        })
    }

    /// Whether two values of one length are equal. Both views must come from the state as it is now, with its lock held, or
    /// be held otherwise.
    ///
    /// # Errors
    /// A large pair that is not known yet stops the decision: [`go_on`](Self::go_on) finds it out.
    pub(crate) fn are_equal(&self, extents: &Extents, class: StorageClass, a: View, b: View) -> Result<bool> {
        if let Some(known) = self.known.lock().get(&(a, b)) {
            return Ok(*known);
        }
        let bytes = (extents.resolve(a, class)?, extents.resolve(b, class)?);
        if a == b || a.length() < BULK_BYTES_MIN {
            return Ok(a == b || *bytes.0 == *bytes.1);
        }
        *self.stopped_at.lock() = Some(Pair { views: (a, b), bytes });
        Err(Cause::Stopped { what: "decision" }.into())
    }

    /// Compares the pair at which a decision stopped. False when it did not: then what it gave is final.
    pub(crate) fn go_on(&self) -> bool {
        let Some(Pair { views, bytes }) = self.stopped_at.lock().take() else { return false };
        let equal = *bytes.0 == *bytes.1;
        self.known.lock().insert(views, equal);
        true
    }
}

#[cfg(test)]
mod tests {
    use crate::{Cause, DataType, Kind, Options, Schema, Store};

    use super::*;

    #[test]
    fn large_values_are_compared_with_the_state_unlocked() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("store"), Options::default()).unwrap();
        let table = store.create_table("solver", Schema::new().data("prompt", DataType::Utf8)).unwrap();
        let text = "x".repeat(BULK_BYTES_MIN);
        let insert = |id: &str, text: &str| table.insert(0, id, [("prompt", text.into())]).unwrap();
        let rows = [insert("q_0_0", &text), insert("q_0_1", &text), insert("q_0_2", &text.replace('x', "y"))];
        let compared = Compared::default();
        let ask = |other: u32| {
            let state = store.0.state.lock();
            let view = |row: u32| match state.tables[0].cell(0, row) {
                Some(StoredValue::View(view)) => View(view),
                other => panic!("{other:?}"),
            };
            compared.are_equal(&store.0.extents, StorageClass::View, view(0), view(other))
        };
        for (other, equal) in [(1, true), (2, false)] {
            let stopped = ask(other).unwrap_err();
            assert!(
                matches!(stopped.cause(), Cause::Stopped { .. }),
                "nothing is read with the state locked"
            );
            assert!(compared.go_on() && !compared.go_on());
            assert_eq!(ask(other).unwrap(), equal);
        }
        table.write(rows[0], [("prompt", (&*text).into())]).unwrap();
        let refused = table.write(rows[0], [("prompt", (&*text.replace('x', "y")).into())]).unwrap_err();
        assert!(
            matches!(refused.cause(), Cause::CellFinal { .. }) && refused.kind() == Kind::State,
            "{refused}"
        );
    }
}
