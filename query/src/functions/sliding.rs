//! Aggregates over a frame whose start moves: `spread(reward) OVER (ORDER BY created_at ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)`.
//!
//! What has left a frame cannot be taken back out of an extreme, nor exactly out of a sum. So the frame is kept, and gone through
//! for each of its ends.

use std::collections::VecDeque;

use arrow_array::{Array, ArrayRef};
use datafusion::common::{ScalarValue, internal_err};
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::Accumulator;

/// An aggregate of what is in the frame.
#[derive(Debug)]
pub(super) struct Sliding<A> {
    /// Of no rows.
    empty: A,
    /// The rows of the frame, as they came, the oldest first.
    frame: VecDeque<Vec<ArrayRef>>,
}

impl<A: Accumulator + Clone> Sliding<A> {
    pub(super) fn new(empty: A) -> Self {
        Sliding { empty, frame: VecDeque::new() }
    }

    fn of_frame(&self) -> PlanResult<A> {
        let mut all = self.empty.clone();
        self.frame.iter().try_for_each(|rows| all.update_batch(rows))?;
        Ok(all)
    }
}

/// How many rows these columns have.
fn count(columns: &[ArrayRef]) -> usize {
    columns.first().map_or(0, Array::len)
}

impl<A: Accumulator + Clone + 'static> Accumulator for Sliding<A> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        self.frame.push_back(values.to_vec());
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        let mut leaving = count(values);
        while leaving > 0 {
            let Some(oldest) = self.frame.front_mut() else {
                return internal_err!("more rows leave a frame than came into it");
            };
            let rows = count(oldest);
            if rows <= leaving {
                self.frame.pop_front();
            } else {
                oldest.iter_mut().for_each(|column| *column = column.slice(leaving, rows - leaving));
            }
            leaving -= leaving.min(rows);
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> PlanResult<ScalarValue> {
        self.of_frame()?.evaluate()
    }

    fn size(&self) -> usize {
        let rows = self.frame.iter().flatten().map(Array::get_array_memory_size);
        self.empty.size() + rows.sum::<usize>()
    }

    fn state(&mut self) -> PlanResult<Vec<ScalarValue>> {
        self.of_frame()?.state()
    }

    fn merge_batch(&mut self, _states: &[ArrayRef]) -> PlanResult<()> {
        internal_err!("frames are not merged")
    }
}
