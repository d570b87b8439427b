//! What is done on the thread that has read it: little, that waits for nobody and for no disk.
//!
//! A change of threads takes as long as the rest of a small write, and those threads are few and others need them. So what is
//! large goes to a thread for that, and so does everything where the store may have it wait. Whether it has may be another by the
//! time when it is asked: an operator lowers a budget, somebody declares a consumer with a limiter. So what waits all the same does
//! that [`aside`].

use forebay_client::wire::proto::*;
use forebay_client::wire::{Frame, parts_of_slabs, rows_in, said_of_all, values_in};
use forebay_store::{Durability, Store};

use super::streams::Wanted;

/// The largest changes that are made on a thread that others need, in bytes: more than a batch of 64 samples of 10 KB.
const QUICK_BYTES_MAX: usize = 1 << 20;
/// What a row counts for beside its values, and what is said of all rows of a change at once.
const ROW_BYTES: usize = 256;

/// The most cells whose places are looked up on such a thread.
const QUICK_PLACES_MAX: usize = 4096;

/// Whether what is asked for of so many rows is told soon: to a neighbour, who hears where values lie, they are few, and nobody reads them
/// here.
pub(super) fn tells_places(store: &Store, rows: usize, wanted: &Wanted) -> bool {
    let reads = wanted.cells && store.checks_values();
    wanted.placed && !reads && rows.saturating_mul(wanted.names.len()) <= QUICK_PLACES_MAX
}

/// About how large a change is.
fn bytes_in(change: &Change, frames: &[Frame]) -> usize {
    let framed = |framed: &Framed| frames.get(framed.frame as usize)?.content(framed.at as usize);
    let value = |value: &Value| match &value.value {
        Some(value::Value::Text(text)) => text.len(),
        Some(value::Value::Binary(bytes)) => bytes.len(),
        Some(value::Value::Numbers(numbers)) => numbers.bytes.len(),
        Some(value::Value::Placed(placed) | value::Value::InSlab(placed)) => placed.length as usize,
        Some(value::Value::Framed(of)) => framed(of).map_or(0, <[u8]>::len),
        _ => 8,
    };
    let (rows, rollouts, texts) = match &change.change {
        Some(change::Change::Insert(insert)) => (1, insert.rollouts.unwrap_or(1).max(1) as usize, 0),
        Some(change::Change::InsertRows(rows)) => {
            (rows.sample_ids.len(), 1, rows.sample_ids.iter().map(String::len).sum())
        }
        Some(change::Change::WriteRows(rows)) => (rows_in(&rows.rows).len(), 1, 0),
        Some(change::Change::Exclude(exclude)) => (1, 1, exclude.reason.len()),
        _ => (1, 1, 0),
    };
    let bytes = rows * ROW_BYTES + texts + values_in(change).map(value).sum::<usize>();
    rollouts.saturating_mul(bytes).saturating_add(said_of_all(change) as usize)
}

/// Whether changes are made soon: they are small, with what they name of frames, and wait for nobody and for no disk.
pub(super) fn is_quick(store: &Store, changes: &Changes, frames: &[Frame]) -> bool {
    let named = changes.changes.iter().map(|change| bytes_in(change, frames));
    // Of a slab all is copied between the first value that is named and the last.
    let copied = parts_of_slabs(changes).into_values().map(|part| (part.end - part.start) as usize);
    let bytes = named.fold(0, usize::saturating_add).max(copied.fold(0, usize::saturating_add));
    bytes <= QUICK_BYTES_MAX && !waits_for_disk(store, &changes.durability) && !store.holds_writers_back()
}

/// Runs a wait: what else the thread has to do goes to another first, if it is one that others need.
pub(super) fn aside(wait: &mut dyn FnMut()) {
    tokio::task::block_in_place(wait);
}

/// Whether a record of that level, or of the store's own where it is empty, waits for stable storage.
pub(super) fn waits_for_disk(store: &Store, level: &str) -> bool {
    match level {
        "" => store.durability() == Durability::Synced,
        level => level == Durability::Synced.as_str(),
    }
}

#[cfg(test)]
mod tests {
    use forebay_client::wire::{self, from_changes};
    use forebay_store::{Consumer, DataType, NewRow, Options, PlacedKind, RateLimiter, Schema, Spot};

    use super::*;

    fn store(options: Options) -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("store"), options).unwrap();
        store.create_table("solver", Schema::new().data("prompt", DataType::Utf8)).unwrap();
        (dir, store)
    }

    /// A row, so often, with a prompt of so many bytes.
    fn insert(rollouts: u32, bytes: usize) -> Changes {
        let mut changes = forebay_client::Changes::new();
        let row = NewRow::new(0, "q_0_?").unwrap();
        changes.insert_rollouts("solver", row, rollouts, [("prompt", "x".repeat(bytes).into())]);
        from_changes(&changes)
    }

    #[test]
    fn what_is_large_is_not_quick_however_it_is_said() {
        let (_dir, store) = store(Options::default());
        let alike = |rows: usize| {
            let mut changes = forebay_client::Changes::new();
            let row = |at: usize| NewRow::new(0, &format!("q_0_{at}")).unwrap();
            (0..rows).for_each(|at| _ = changes.insert("solver", row(at), [("prompt", "?".into())]));
            from_changes(&changes)
        };
        let of_long_texts = |bytes: usize| {
            let (mut changes, text) = (forebay_client::Changes::new(), "x".repeat(bytes));
            for at in 0..2 {
                changes.insert("solver", NewRow::new(0, &format!("{text}_0_{at}")).unwrap(), []);
            }
            changes.exclude("solver", forebay_store::Row::from_bytes([7; 24]), text);
            from_changes(&changes)
        };
        let said = |row: NewRow, rollouts: u32| {
            let mut changes = forebay_client::Changes::new();
            changes.insert_rollouts("solver", row, rollouts, []);
            from_changes(&changes)
        };
        let excludes = |rows: usize| {
            let (mut changes, row) =
                (forebay_client::Changes::new(), forebay_store::Row::from_bytes([7; 24]));
            (0..rows).for_each(|_| _ = changes.exclude("solver", row, "bad"));
            from_changes(&changes)
        };
        let cases = [
            (insert(1, 100), true),
            (insert(1, 1 << 20), false),
            (insert(8, 100 << 10), true),
            (insert(16, 100 << 10), false),
            (insert(u32::MAX, 0), false),
            (said(NewRow::new(0, "q_0_?").unwrap().span(1, 1), 4_000), false),
            (said(NewRow::new(0, "q_0_?").unwrap().span(1, 1), 2_000), true),
            (said(NewRow::new(0, "q_0_?").unwrap().parent(&"p".repeat(1 << 10)), 1_000), false),
            (alike(3_000), true),
            (alike(5_000), false),
            (excludes(4_000), true),
            (excludes(5_000), false),
            (of_long_texts(100), true),
            (of_long_texts(400 << 10), false),
        ];
        for (at, (changes, expected)) in cases.iter().enumerate() {
            assert_eq!(is_quick(&store, changes, &[]), *expected, "case {at}");
        }
    }

    #[test]
    fn what_lies_in_frames_counts_once_for_each_rollout() {
        let (_dir, store) = store(Options::default());
        let framed = |rollouts: usize, bytes: usize| {
            let mut changes = forebay_client::Changes::new();
            let row = NewRow::new(0, "q_0_?").unwrap();
            changes.insert_rollouts("solver", row, rollouts as u32, [("prompt", "?".into())]);
            let frame = Frame::read(&wire::frame_of(&[&vec![b'p'; bytes]], false), u64::MAX).unwrap();
            let message = wire::from_changes_placed(&changes, &mut |_, _| {
                Some(wire::from_framed(0, 0, PlacedKind::Utf8))
            });
            is_quick(&store, &message, &[frame])
        };
        let most = QUICK_BYTES_MAX - ROW_BYTES - "q_0_?".len();
        assert_eq!([most, most + 1].map(|bytes| framed(1, bytes)), [true, false]);
        assert_eq!([most, most + 1].map(|bytes| framed(1024, bytes / 1024)), [false, false]);
        assert_eq!([763, 764].map(|bytes| framed(1024, bytes)), [true, false]);
    }

    #[test]
    fn what_lies_in_a_slab_counts_once_for_each_rollout_and_so_does_what_is_copied_with_it() {
        let (_dir, store) = store(Options::default());
        let in_slab = |rollouts: u32, spots: &[(u32, u32)]| {
            let mut changes = forebay_client::Changes::new();
            for _ in spots {
                let row = NewRow::new(0, "q_0_?").unwrap();
                changes.insert_rollouts("solver", row, rollouts, [("prompt", "?".into())]);
            }
            let mut spots = spots.iter().map(|&(offset, length)| Spot { offset, length, crc32c: 0 });
            let message = wire::from_changes_placed(&changes, &mut |_, _| {
                spots.next().map(|spot| wire::from_slab(1, PlacedKind::Utf8, spot))
            });
            is_quick(&store, &message, &[])
        };
        assert_eq!([1, 2].map(|rollouts| in_slab(rollouts, &[(0, 700 << 10)])), [true, false]);
        assert_eq!([1 << 10, 2 << 20].map(|offset| in_slab(1, &[(0, 64), (offset, 64)])), [true, false]);
    }

    #[test]
    fn what_may_have_to_wait_is_not_quick() {
        let small = insert(1, 100);
        let waits = |options| !is_quick(&store(options).1, &small, &[]);
        assert!(!waits(Options::default().durability(Durability::Memory)));
        assert!(waits(Options::default().durability(Durability::Synced)));
        assert!(waits(Options::default().disk_bytes_max(1 << 30)));
        assert!(waits(Options::default().memory_bytes_max(1 << 30)));
        let (_dir, store) = store(Options::default());
        let mut synced = small.clone();
        synced.durability = Durability::Synced.as_str().to_owned();
        assert!(is_quick(&store, &small, &[]) && !is_quick(&store, &synced, &[]));
        let limited =
            Consumer::task(["solver"]).ready(["prompt"]).rate_limiter(RateLimiter::new(1.0, 1, 2.0));
        store.create_consumer("read", limited).unwrap();
        assert!(!is_quick(&store, &small, &[]));
    }
}
