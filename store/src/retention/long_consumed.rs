//! Rows that steps trained on long ago.
//!
//! They lie anywhere in their table, so whoever looks for them looks at every row. That is done before their deletion is decided, and a chunk
//! at a time, for everybody waits while the state is locked. Steps that no rewind undoes take no more rows and give none back, so all that
//! are to go are among those that were found; which of them still are is asked when that is decided, of these alone.

use std::time::Duration;

use crate::clock::Timestamp;
use crate::log::record::DeleteRecord;
use crate::state::{State, runs_of};
use crate::step::StepProgress;
use crate::store::Store;

/// Rows of a table that steps have trained on, up to one.
#[derive(Debug)]
pub(super) struct Consumed {
    up_to: u64,
    rows: Vec<u32>,
}

impl Store {
    /// The rows that have been kept for long enough after they were trained on, by table; `None` where all of those are gone.
    pub(super) fn find_consumed(&self, time: Duration, kept: usize, now: Timestamp) -> Vec<Option<Consumed>> {
        let tables = self.0.state.lock().tables.len() as u32;
        (0..tables).map(|table| self.find_consumed_of(table, (time, kept, now))).collect()
    }

    fn find_consumed_of(
        &self,
        table: u32,
        (time, kept, now): (Duration, usize, Timestamp),
    ) -> Option<Consumed> {
        let (up_to, chunks) = {
            let state = self.0.state.lock();
            let (of, up_to) = (&state.tables[table as usize], state.last_step_due(time, kept, now)?);
            if of.rare.consumed_deleted_up_to() >= up_to {
                return None;
            }
            (up_to, of.chunks_where(|_| true).collect::<Vec<u32>>())
        };
        let mut rows = Vec::new();
        for chunk in chunks {
            let state = self.0.state.lock();
            let of = &state.tables[table as usize];
            rows.extend(of.rows_of_chunk(chunk).filter(|&row| of.is_consumed_in(row, &(1..=up_to))));
        }
        Some(Consumed { up_to, rows })
    }
}

impl State {
    /// The last step whose rows have been kept for long enough.
    pub(super) fn last_step_due(&self, time: Duration, kept: usize, now: Timestamp) -> Option<u64> {
        let oldest = self.oldest_rewind(kept);
        let over = self.steps.range(..=oldest).rev().find(|(_, step)| {
            step.progress == StepProgress::Committed && step.ended_at.is_some_and(|at| at.after(time) <= now)
        });
        over.map(|(number, _)| *number)
    }

    /// The deletion of those of the rows that were found which nobody holds, of steps up to the last that is due.
    pub(super) fn consumed_due(&self, table: u32, found: &Consumed, last: u64) -> Option<DeleteRecord> {
        let (state, last) = (&self.tables[table as usize], last.min(found.up_to));
        let there = found.rows.iter().copied().filter(|&row| state.is_consumed_in(row, &(1..=last)));
        let (rows, held): (Vec<u32>, Vec<u32>) = there.partition(|&row| self.holder_of(table, row).is_none());
        let done = if held.is_empty() { last } else { 0 };
        let record = DeleteRecord { table, rows: runs_of(&rows), consumed_up_to: done, retired: None };
        (!rows.is_empty() || done > state.rare.consumed_deleted_up_to()).then_some(record)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use crate::*;

    #[test]
    fn what_became_of_rows_since_they_were_found_counts_when_they_are_to_go() {
        let options = Options::default().disk(Arc::new(SimulatedDisk::default())).object_versions_kept(1);
        let store = Store::open("/store", options).unwrap();
        let schema = Schema::new().data("reward", DataType::Float32);
        let table = store.create_table("solver", schema).unwrap();
        let train = store.create_consumer("train", Consumer::trainer(["solver"]).ready(["reward"])).unwrap();
        let task = store.create_consumer("task", Consumer::task(["solver"])).unwrap();
        let insert = |at| table.insert(0, &format!("q_0_{at}"), [("reward", 1.0.into())]).unwrap();
        let rows: Vec<Row> = (0..3).map(insert).collect();
        let held = task.claim(MicroBatch::of(1), "me", Wait::No).unwrap().unwrap();
        assert_eq!(held.rows(), &rows[..1]);
        let step = store.begin_step(StepPlan::new().rows(&train, 3)).unwrap();
        step.next(&train, MicroBatch::of(3), Wait::No).unwrap().unwrap().accumulated().unwrap();
        step.commit([("solver", vec![])]).unwrap();
        let found = store.find_consumed(Duration::ZERO, 1, store.clock().now()).remove(0).unwrap();
        assert_eq!((found.up_to, found.rows.as_slice()), (1, &[0, 1, 2][..]));
        let due = |last| {
            let record = store.0.state.lock().consumed_due(0, &found, last);
            record.map(|record| (record.rows, record.consumed_up_to))
        };
        table.delete(&Delete::rows([rows[1]]).force()).unwrap();
        assert_eq!(due(1), Some((vec![(2, 2)], 0)), "of the others one is gone, and one is held");
        drop(held);
        assert_eq!(due(1), Some((vec![(0, 0), (2, 2)], 1)));
        assert_eq!(due(0), None, "their step is not due any more");
        assert_eq!(due(2), due(1), "those of a later one were not looked for");
        store.change_retention(Retention::default().consumed_for(Duration::ZERO)).unwrap();
        store.run_once().unwrap();
        assert!(due(1).is_none() && store.find_consumed(Duration::ZERO, 1, store.clock().now())[0].is_none());
    }
}
