//! Rows as runs, the first and the last of each: how a record names them.

use crate::table::{CHUNK_ROWS, chunk_of};

/// Rows in their order as runs.
pub(crate) fn runs_of(rows: &[u32]) -> Vec<(u32, u32)> {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &row in rows {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == row => *last = row,
            _ => runs.push((row, row)),
        }
    }
    runs
}

/// How many rows some runs have.
pub(super) fn length(runs: &[(u32, u32)]) -> usize {
    runs.iter().map(|(first, last)| (last - first) as usize + 1).sum()
}

/// The rows of some runs, apart for each chunk that they lie in, in their order. A log may name them in any, and more than once.
pub(super) fn by_chunk(runs: &[(u32, u32)]) -> impl Iterator<Item = Vec<u32>> {
    let mut parts = runs.iter().flat_map(|&(first, last)| parts_by_chunk(first, last)).peekable();
    std::iter::from_fn(move || {
        let first = parts.next()?;
        let number = chunk_of(first.0);
        let mut rows: Vec<u32> = (first.0..=first.1).collect();
        while let Some(part) = parts.next_if(|part| chunk_of(part.0) == number) {
            let follows = rows.last().is_some_and(|last| *last < part.0);
            rows.extend(part.0..=part.1);
            if !follows {
                rows.sort();
                rows.dedup();
            }
        }
        Some(rows)
    })
}

/// A run cut where a chunk ends.
fn parts_by_chunk(first: u32, last: u32) -> impl Iterator<Item = (u32, u32)> {
    (chunk_of(first)..=chunk_of(last)).map(move |chunk| {
        let start = (chunk * CHUNK_ROWS) as u32;
        (start.max(first), (start + (CHUNK_ROWS as u32 - 1)).min(last))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_follow_on_each_other_are_one_run() {
        assert_eq!(runs_of(&[]), []);
        let runs = runs_of(&[3, 4, 5, 7, 9, 10]);
        assert_eq!((runs.as_slice(), length(&runs)), ([(3, 5), (7, 7), (9, 10)].as_slice(), 6));
    }

    #[test]
    fn rows_come_a_chunk_at_a_time_and_each_of_them_once() {
        type Runs = &'static [(u32, u32)];
        let cases: [(Runs, &[Runs]); 6] = [
            (&[], &[]),
            (&[(3, 3)], &[&[(3, 3)]]),
            (
                &[(4000, 4001), (4095, 4096), (4098, 4099)],
                &[&[(4000, 4001), (4095, 4095)], &[(4096, 4096), (4098, 4099)]],
            ),
            (&[(4000, 8192)], &[&[(4000, 4095)], &[(4096, 8191)], &[(8192, 8192)]]),
            (&[(7, 9), (3, 8), (9, 9)], &[&[(3, 9)]]),
            (&[(u32::MAX - 1, u32::MAX)], &[&[(u32::MAX - 1, u32::MAX)]]),
        ];
        for (runs, expected) in cases {
            let parts: Vec<_> = by_chunk(runs).map(|rows| runs_of(&rows)).collect();
            assert_eq!(parts, expected, "of {runs:?}");
        }
    }
}
