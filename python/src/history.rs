//! What became of rows, as Python sees it: dicts, whose types are in `forebay.reports`.

use forebay::client::{RowShown, TrainedBatch};
use forebay::store::GradientId;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMapping};

use crate::batch::Batch;
use crate::failure::Result;
use crate::options::wrong;
use crate::rows::Rows;

/// The epoch of a claim: incarnation of the store, and number in it.
pub(crate) type Epoch = (u64, u64);

/// A row at the moment of the call: `forebay.reports.RowShown`.
pub(crate) fn shown<'py>(py: Python<'py>, table: &str, row: RowShown) -> Result<Bound<'py, PyDict>> {
    let shown = PyDict::new(py);
    shown.set_item("row", Bound::new(py, Rows::new(table, vec![row.row]))?)?;
    shown.set_item("sample_id", row.sample_id.to_string())?;
    shown.set_item("policy_version", row.policy_version)?;
    let spans: Vec<(u32, u64)> = row.version_spans.iter().map(|span| (span.start, span.version)).collect();
    shown.set_item("version_spans", spans)?;
    shown.set_item("trainable_from", row.trainable_from)?;
    shown.set_item("attempt", row.attempt)?;
    shown.set_item("purpose", row.purpose.as_str())?;
    shown.set_item("created_at", row.created_at.0 as f64 / 1e6)?;
    shown.set_item("agent", row.agent)?;
    shown.set_item("origin", row.origin.map(|origin| origin.to_string()))?;
    shown.set_item("parent", row.parent)?;
    shown.set_item("weights", row.weights)?;
    shown.set_item("excluded", row.excluded)?;
    shown.set_item("step", row.step)?;
    shown.set_item("gradient", row.gradient.map(|id| gradient(py, &id)).transpose()?)?;
    Ok(shown)
}

/// A micro-batch of a committed step: `forebay.reports.TrainedBatch`.
pub(crate) fn trained(py: Python<'_>, batch: TrainedBatch) -> Result<Bound<'_, PyDict>> {
    let shown = PyDict::new(py);
    shown.set_item("gradient", gradient(py, &batch.gradient)?)?;
    shown.set_item("rows", Bound::new(py, Rows::new(&batch.table, batch.rows))?)?;
    shown.set_item("table", batch.table)?;
    shown.set_item("sample_ids", batch.samples.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    Ok(shown)
}

/// The name of a gradient and its parts: `forebay.reports.Gradient`.
fn gradient<'py>(py: Python<'py>, id: &GradientId) -> Result<Bound<'py, PyDict>> {
    let shown = PyDict::new(py);
    shown.set_item("name", id.to_string())?;
    shown.set_item("policy", &id.policy)?;
    shown.set_item("step", id.step)?;
    shown.set_item("consumer", &id.consumer)?;
    shown.set_item("sequence", id.sequence)?;
    shown.set_item("cache_epoch", id.cache_epoch)?;
    Ok(shown)
}

/// Micro-batches that are named by themselves, by their epochs, or by what a cache lists of them.
pub(crate) fn epochs(given: &Bound<'_, PyAny>) -> Result<Vec<Epoch>> {
    let expected = "a list of micro-batches, of their epochs, or of what a cache lists of them";
    let each = given.try_iter().map_err(|_| wrong("claims", expected, given))?;
    each.map(|claim| {
        let claim = claim?;
        epoch(&claim)
            .ok_or_else(|| wrong("a claim", "a micro-batch, its epoch, or what a cache lists of it", &claim))
    })
    .collect()
}

fn epoch(claim: &Bound<'_, PyAny>) -> Option<Epoch> {
    if let Ok(batch) = claim.cast::<Batch>() {
        return Some(batch.get().epoch());
    }
    let pair = match claim.cast::<PyMapping>() {
        Ok(record) => record.get_item("epoch").ok()?,
        Err(_) => claim.clone(),
    };
    pair.extract().ok().map(|[incarnation, number]: [u64; 2]| (incarnation, number))
}
