//! What a row is called by those who write and claim it.

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::error::{Cause, Result};
use crate::extent::{Lifetime, ValueOwner};
use crate::sample_id::{SampleId, SampleKey};
use crate::state::State;
use crate::store::Store;
use crate::table::RowMeta;

/// What is hashed of a row: where its input begins, and how long it may be to be laid in a row.
const KEY_INPUT: usize = 16;
const KEY_BYTES_MAX: usize = 128;

/// A row, as its writers and claimers name it. Valid for the life of the store; made by inserts and claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    pub(crate) table: u32,
    pub(crate) index: u32,
    key: u64,
    /// The policy version, which says how long its values will live.
    pub(super) version: u64,
}

impl Row {
    pub(crate) fn new(table: u32, index: u32, policy_version: u64, sample: &SampleId) -> Self {
        Row::with_key(table, index, policy_version, Row::key(policy_version, sample.key()))
    }

    /// As [`new`](Self::new), of a sample whose [key](Self::key) is known.
    pub(crate) fn with_key(table: u32, index: u32, policy_version: u64, key: u64) -> Self {
        Row { table, index, key, version: policy_version }
    }

    /// The policy version that its rollout started under.
    pub fn policy_version(self) -> u64 {
        self.version
    }

    /// The name of the row for another process: 24 bytes that [`from_bytes`](Row::from_bytes) reads.
    pub fn to_bytes(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..4].copy_from_slice(&self.table.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.index.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.key.to_le_bytes());
        bytes[16..].copy_from_slice(&self.version.to_le_bytes());
        bytes
    }

    /// The row that another process names. Whoever takes names from somebody who is not trusted asks
    /// [`Store::check_rows`](crate::Store::check_rows) whether they are rows at all.
    ///
    /// ```
    /// # use forebay_store::*;
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = Store::open(dir.path().join("store"), Options::default())?;
    /// # let solver = store.create_table("solver", Schema::new().data("reward", DataType::Float32))?;
    /// let row = solver.insert(0, "q17_0_0", [])?;
    /// assert_eq!(Row::from_bytes(row.to_bytes()), row);
    /// store.check_rows(&[row])?;
    /// let mut forged = row.to_bytes();
    /// forged[20] ^= 1;
    /// assert_eq!(store.check_rows(&[Row::from_bytes(forged)]).unwrap_err().kind(), Kind::Input);
    /// # Ok::<(), forebay_store::Error>(())
    /// ```
    pub fn from_bytes(bytes: [u8; 24]) -> Self {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        let places = word(0);
        Row { table: places as u32, index: (places >> 32) as u32, key: word(8), version: word(16) }
    }

    /// The number of the row in its table, as messages name it.
    pub fn number(self) -> u32 {
        self.index
    }

    /// The hash that a value's trailer carries: known before the row has a number. Of the version, the turn, the trajectory and the
    /// input in a row, which most names are short enough to be laid in: a hasher that is fed takes longer to make than to use.
    pub(crate) fn key(policy_version: u64, sample: SampleKey<'_>) -> u64 {
        let mut bytes = [0; KEY_BYTES_MAX];
        bytes[..8].copy_from_slice(&policy_version.to_le_bytes());
        bytes[8..12].copy_from_slice(&sample.turn.to_le_bytes());
        bytes[12..KEY_INPUT].copy_from_slice(&sample.trajectory.to_le_bytes());
        let input = sample.input.as_bytes();
        let Some(place) = bytes.get_mut(KEY_INPUT..KEY_INPUT + input.len()) else {
            let mut hasher = Xxh3::new();
            hasher.update(&bytes[..KEY_INPUT]);
            hasher.update(input);
            return hasher.digest();
        };
        place.copy_from_slice(input);
        xxh3_64(&bytes[..KEY_INPUT + input.len()])
    }

    /// How long values of the row are expected to live.
    pub(crate) fn lifetime(self) -> Lifetime {
        Lifetime::Version(self.version)
    }

    pub(crate) fn owner(self, column: u32) -> ValueOwner {
        ValueOwner { row_key: self.key, table: self.table, column }
    }
}

impl Store {
    /// Refuses rows that are none: names that came from somebody who may have made them up.
    ///
    /// # Errors
    /// `input` for the first that was never inserted, or is another row than its name says; `state` for one that was
    /// deleted.
    pub fn check_rows(&self, rows: &[Row]) -> Result<()> {
        let state = self.0.state.lock();
        rows.iter().try_for_each(|row| state.check_row(*row))
    }
}

impl State {
    /// Refuses a row that is none, or is deleted.
    pub(super) fn check_row(&self, row: Row) -> Result<()> {
        let table = self.tables.get(row.table as usize).filter(|table| row.index < table.row_count());
        let unknown = || {
            let name = format!("{} of table {}", row.index, row.table);
            Cause::Unknown { what: "row", name, close: None }
        };
        let table = table.ok_or_else(unknown)?;
        let meta = table.meta(row.index);
        let (version, sample) = (meta.policy_version, meta.sample(self.texts.pages()));
        let is_meant = row.version == version && row.key == Row::key(version, sample);
        match table.is_removed(row.index) {
            false if is_meant => Ok(()),
            // Of a chunk that is gone nobody knows what its rows were.
            true if is_meant || meta == RowMeta::NONE => {
                let sample_id = sample.to_id().to_string();
                Err(Cause::RowDeleted { table: table.name.to_string(), sample_id, version }.into())
            }
            // What is not its own name tells nothing of a row.
            _ => Err(unknown().into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Trailers on disk carry it, so it may not change.
    #[test]
    fn a_key_is_the_hash_of_version_turn_trajectory_and_input_however_long() {
        for length in [0, 1, 7, 111, 112, 113, 240, 300] {
            let input = "q".repeat(length);
            let mut bytes =
                [7_u64.to_le_bytes().as_slice(), &2_u32.to_le_bytes(), &9_u32.to_le_bytes()].concat();
            bytes.extend_from_slice(input.as_bytes());
            let sample = SampleKey { input: &input, turn: 2, trajectory: 9 };
            assert_eq!(Row::key(7, sample), xxh3_64(&bytes), "an input of {length} bytes");
        }
    }
}
