//! How much of a table a scan takes at a time.

/// Rows that a plan above is given before it has advised anything, where they carry values: each may cost a page of a file.
const ADVISED_ROWS: usize = 128;
/// The most rows that are tried at once where few of them are let through.
const PIECE_ROWS_MAX: usize = 8_192;
/// Few: at most one of so many.
const FEW: usize = 8;

/// How many rows are tried at once, and how many of those that were let through make a batch.
///
/// The sooner a plan above has a batch, the sooner its advice spares the next rows: so batches with values begin small where
/// it advises, and stay small while it refuses nearly everything. Where nearly everything is refused more rows are tried
/// at once, for each trial has its price too.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    piece_rows: usize,
    enough: usize,
    batch_rows: usize,
    piece_rows_max: usize,
    advised_rows: Option<usize>,
}

impl Pace {
    /// For batches of at most `batch_rows`, and trials of at most `tried_rows_max`.
    pub(super) fn new(batch_rows: usize, tried_rows_max: usize, advised: bool, heavy: bool) -> Self {
        let advised_rows = advised.then_some(if heavy { ADVISED_ROWS } else { batch_rows.div_ceil(2) });
        let advised_rows = advised_rows.map(|rows| rows.min(batch_rows));
        Pace {
            piece_rows: advised_rows.unwrap_or(batch_rows).min(tried_rows_max),
            enough: advised_rows.unwrap_or(batch_rows),
            batch_rows,
            piece_rows_max: PIECE_ROWS_MAX.min(tried_rows_max),
            advised_rows,
        }
    }

    /// How many rows to try next.
    pub(super) fn piece_rows(&self) -> usize {
        self.piece_rows
    }

    /// With how many rows a batch is made.
    pub(super) fn enough(&self) -> usize {
        self.enough
    }

    /// So many rows were tried, and so many of them let through.
    pub(super) fn tried(&mut self, rows: usize, kept: usize) {
        let few = kept.saturating_mul(FEW) <= rows;
        let piece_rows_max = if few { self.piece_rows_max } else { self.batch_rows.min(self.piece_rows_max) };
        self.piece_rows = (self.piece_rows * 2).min(piece_rows_max);
        if let Some(advised_rows) = self.advised_rows {
            let most = self.batch_rows.div_ceil(2).max(advised_rows);
            self.enough = if few { advised_rows } else { (self.enough * 2).min(most) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_begin_small_where_advice_comes_and_trials_grow_where_little_passes() {
        let mut pace = Pace::new(1_024, usize::MAX, true, true);
        assert_eq!((pace.piece_rows(), pace.enough()), (128, 128));
        pace.tried(128, 128);
        assert_eq!((pace.piece_rows(), pace.enough()), (256, 256));
        for _ in 0..9 {
            pace.tried(pace.piece_rows(), 3);
        }
        assert_eq!((pace.piece_rows(), pace.enough()), (8_192, 128));
        for _ in 0..9 {
            pace.tried(pace.piece_rows(), pace.piece_rows());
        }
        assert_eq!((pace.piece_rows(), pace.enough()), (1_024, 512), "all that passes comes as it did");
    }

    #[test]
    fn without_advice_a_batch_is_full_and_values_bound_what_is_tried() {
        let mut pace = Pace::new(1_024, usize::MAX, false, true);
        pace.tried(1_024, 0);
        assert_eq!((pace.piece_rows(), pace.enough()), (2_048, 1_024));
        let mut bounded = Pace::new(8_192, 1_024, false, false);
        bounded.tried(1_024, 0);
        assert_eq!((bounded.piece_rows(), bounded.enough()), (1_024, 8_192));
        let light = Pace::new(8_192, usize::MAX, true, false);
        assert_eq!((light.piece_rows(), light.enough()), (4_096, 4_096));
    }
}
