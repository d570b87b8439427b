//! How much one call may make.

use datafusion::error::{DataFusionError, Result as PlanResult};

use crate::options::Options;

/// The most that one call may make, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Limits {
    /// Of all rows of a batch: the next function holds what this one made beside what it makes itself.
    batch: u64,
    /// Of a constant: it may come to stand in every row of a batch.
    constant: u64,
}

impl Limits {
    /// Those of a session whose batches have so many rows.
    pub(crate) fn of(options: &Options, batch_rows: usize) -> Self {
        let memory = options.memory_bytes_max as u64;
        Limits { batch: memory / 2, constant: memory / batch_rows.max(1) as u64 }
    }

    /// The most bytes of so many rows, or of a constant.
    pub(super) fn most(self, is_constant: bool) -> u64 {
        if is_constant { self.constant } else { self.batch }
    }

    /// Refuses what would be more.
    pub(super) fn check(self, name: &str, bytes: u64, rows: usize, is_constant: bool) -> PlanResult<()> {
        let most = self.most(is_constant);
        if bytes <= most {
            return Ok(());
        }
        let of = match is_constant {
            true => "a constant, which may stand in every row of a batch".to_owned(),
            false => format!("a batch of {rows} rows"),
        };
        Err(DataFusionError::ResourcesExhausted(format!(
            "{name} would make {bytes} bytes of {of}; {most} are the most"
        )))
    }
}
