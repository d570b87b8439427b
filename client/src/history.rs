//! What became of rows: plain data, wherever the store is, and the calls for it.

use forebay_store::{
    GradientId, Origin, Purpose, ReplayedBatch, Row, RowInfo, SampleId, Store, Timestamp, VersionSpan,
};

use crate::error::Result;

/// A row at the moment of the call, without its cells: as [`RowInfo`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowShown {
    /// The row, to write to.
    pub row: Row,
    /// Its identity, with the version.
    pub sample_id: SampleId,
    /// The version that it started under.
    pub policy_version: u64,
    /// From which token on it was made under which version, beginning with its own.
    pub version_spans: Vec<VersionSpan>,
    /// The first of its tokens that is trained on.
    pub trainable_from: u32,
    /// How many attempts there were before this one.
    pub attempt: u32,
    /// What it is for.
    pub purpose: Purpose,
    /// When it was inserted.
    pub created_at: Timestamp,
    /// The agent that it belongs to.
    pub agent: String,
    /// Where it comes from, when not from this run.
    pub origin: Option<Origin>,
    /// The row that it continues.
    pub parent: Option<String>,
    /// The fingerprint of the weights that it was made with.
    pub weights: Option<String>,
    /// Why it was left out.
    pub excluded: Option<String>,
    /// The step that trained on it.
    pub step: Option<u64>,
    /// The gradient that it is part of; none before the step is committed, or once the store has forgotten what the step was made of.
    pub gradient: Option<GradientId>,
}

/// One micro-batch of a committed step, as its trainer had it: as [`ReplayedBatch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrainedBatch {
    /// The name of the gradient that it made.
    pub gradient: GradientId,
    /// The table of the rows.
    pub table: String,
    /// The rows, in sample-id order. What they hold is read with [`Table::cells`](crate::Table::cells).
    pub rows: Vec<Row>,
    /// The rows' sample ids, in the same order.
    pub samples: Vec<SampleId>,
}

/// Calls for who wants to know what became of rows. They change nothing.
#[allow(missing_docs, reason = "each is as its namesake of `Client` and `Table`")]
pub trait HistoryCalls: Send + Sync {
    fn get(&self, table: &str, policy_version: u64, sample: &SampleId) -> Result<Option<RowShown>>;
    fn show(&self, table: &str, rows: &[Row]) -> Result<Vec<RowShown>>;
    fn replay(&self, step: u64) -> Result<Vec<TrainedBatch>>;
}

/// The calls of a store of this process.
impl HistoryCalls for Store {
    fn get(&self, table: &str, policy_version: u64, sample: &SampleId) -> Result<Option<RowShown>> {
        self.check_process()?;
        let info = self.table(table)?.get(policy_version, sample);
        Ok(info.map(|info| RowShown::of(self, info)))
    }

    fn show(&self, table: &str, rows: &[Row]) -> Result<Vec<RowShown>> {
        self.check_process()?;
        let table = self.table(table)?;
        let show = |row: &Row| {
            self.check_rows(&[*row])?; // of no table at all, before it is of another
            Ok(RowShown::of(self, table.show(*row)?))
        };
        rows.iter().map(show).collect()
    }

    fn replay(&self, step: u64) -> Result<Vec<TrainedBatch>> {
        Ok(Store::replay(self, step)?.iter().map(TrainedBatch::from).collect())
    }
}

impl RowShown {
    fn of(store: &Store, info: RowInfo) -> Self {
        // A rewind may have come in between: then it is part of none.
        let gradient = store.gradient_of(info.row).filter(|gradient| Some(gradient.step) == info.step);
        RowShown {
            row: info.row,
            sample_id: info.sample_id,
            policy_version: info.policy_version,
            version_spans: info.version_spans,
            trainable_from: info.trainable_from,
            attempt: info.attempt,
            purpose: info.purpose,
            created_at: info.created_at,
            agent: info.agent,
            origin: info.origin,
            parent: info.parent,
            weights: info.weights,
            excluded: info.excluded,
            step: info.step,
            gradient,
        }
    }
}

impl From<&ReplayedBatch> for TrainedBatch {
    fn from(batch: &ReplayedBatch) -> Self {
        TrainedBatch {
            gradient: batch.gradient_id().clone(),
            table: batch.table().to_owned(),
            rows: batch.rows().to_vec(),
            samples: batch.sample_ids().to_vec(),
        }
    }
}
