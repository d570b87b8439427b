//! What can be wrong with the keys of early training.

use super::error::ConfigError;
use super::file;
use super::resolve::check;

/// Refuses what cannot be trained early, what was said and would have no effect, and numbers of samples that no step has.
pub(super) fn check_early(file: &file::File) -> Result<(), ConfigError> {
    let (trainer, batch) = (&file.trainer, &file.batch);
    let idle = "groups are trained whole, and no sums are kept; say trainer.early = true, or leave it out";
    let bytes = trainer.early_budget_bytes.unwrap_or_default();
    check(trainer.early || trainer.early_budget_bytes.is_none(), "trainer.early_budget_bytes", &bytes, idle)?;
    let at_once = file.rollout.at_once.unwrap_or(1);
    let few = format!("give 1 to batch.global_batch = {}", batch.global_batch);
    let is_some = (1..=batch.global_batch).contains(&(at_once as usize));
    check(is_some, "rollout.at_once", &at_once, &few)
}
