//! The columns of the rows that were taken, and the proof that they are the right ones.

use crate::Outcome;
use crate::workload::Workload;

/// The columns of some rows as a trainer wants them: the values of all rows in one buffer a column.
pub(crate) struct Columns<'a> {
    /// The numbers of the rows.
    pub(crate) rows: &'a [u64],
    /// Prompts, responses, log-probabilities: 32-bit numbers, row after row.
    pub(crate) lists: [&'a [u8]; 3],
    pub(crate) rewards: &'a [f32],
}

/// The buffers of one taker, for stores that give single values: filled anew for each 16 rows.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    pub(crate) rows: Vec<u64>,
    pub(crate) lists: [Vec<u8>; 3],
    pub(crate) rewards: Vec<f32>,
}

impl Buffers {
    pub(crate) fn clear(&mut self) {
        self.rows.clear();
        self.lists.iter_mut().for_each(Vec::clear);
        self.rewards.clear();
    }

    /// Adds a row, which costs a copy of each value.
    pub(crate) fn push(&mut self, row: u64, lists: [&[u8]; 3], reward: f32) {
        self.rows.push(row);
        self.lists.iter_mut().zip(lists).for_each(|(column, list)| column.extend_from_slice(list));
        self.rewards.push(reward);
    }

    pub(crate) fn columns(&self) -> Columns<'_> {
        let [prompts, responses, logprobs] = &self.lists;
        Columns { rows: &self.rows, lists: [prompts, responses, logprobs], rewards: &self.rewards }
    }
}

/// Reads every number that was taken, and holds it against what was written.
pub(crate) struct Check {
    /// What each sample of the pool adds up to.
    sums: Vec<u32>,
    taken: Vec<bool>,
}

impl Check {
    pub(crate) fn new(workload: &Workload, pool: usize, rows: usize) -> Self {
        let sum = |row| {
            let sample = workload.sample(row);
            let lists = sample.lists().map(words).into_iter().fold(0, u32::wrapping_add);
            lists.wrapping_add(sample.reward.to_bits())
        };
        Check { sums: (0..pool).map(sum).collect(), taken: vec![false; rows] }
    }

    /// # Errors
    /// A row that was never written, that was given before, or whose columns are not what was written.
    pub(crate) fn see(&mut self, columns: &Columns<'_>) -> Outcome<()> {
        let rewards = columns.rewards.iter().map(|reward| reward.to_bits());
        let seen = columns.lists.iter().map(|list| words(list)).chain(rewards).fold(0, u32::wrapping_add);
        let mut wanted = 0_u32;
        for &row in columns.rows {
            let taken =
                self.taken.get_mut(row as usize).ok_or_else(|| format!("row {row} was never written"))?;
            if std::mem::replace(taken, true) {
                return Err(format!("row {row} was given twice").into());
            }
            wanted = wanted.wrapping_add(self.sums[row as usize % self.sums.len()]);
        }
        if seen != wanted || columns.rewards.len() != columns.rows.len() {
            return Err(format!("rows {:?} came with other values than were written", columns.rows).into());
        }
        Ok(())
    }
}

/// The sum of the 32-bit numbers, whatever they stand for: cheap enough not to be what is measured.
fn words(bytes: &[u8]) -> u32 {
    let words = bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
    words.fold(0, u32::wrapping_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Scale;

    #[test]
    fn other_values_second_gifts_and_unknown_rows_are_seen() {
        let workload = Workload::new(Scale { pool: 4, ..Scale::QUICK });
        let mut check = Check::new(&workload, 4, 8);
        let of = |rows: &[usize]| {
            let mut buffers = Buffers::default();
            for &row in rows {
                let sample = workload.sample(row);
                buffers.push(row as u64, sample.lists(), sample.reward);
            }
            buffers
        };
        check.see(&of(&[5, 0]).columns()).expect("these were written");
        assert!(check.see(&of(&[0]).columns()).is_err());
        assert!(check.see(&of(&[8]).columns()).is_err());
        let mut other = of(&[1]);
        other.lists[2][0] ^= 1;
        assert!(check.see(&other.columns()).is_err());
    }
}
