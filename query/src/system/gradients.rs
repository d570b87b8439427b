//! `system.gradients`: a row a gradient that is in its policy's cache or that a committed step used, with the claim of its rows.

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use forebay_store::ClaimProgress;

use super::Moment;
use super::fields::Fields;

pub(super) fn make(moment: &Moment) -> Result<RecordBatch, ArrowError> {
    let mut gradients = moment.store.gradients();
    gradients.retain(|gradient| moment.sees(&gradient.table));
    Fields::default()
        .texts("gradient", gradients.iter().map(|gradient| gradient.id.to_string()))
        .texts("policy", gradients.iter().map(|gradient| &gradient.id.policy))
        .numbers("step", gradients.iter().map(|gradient| gradient.id.step))
        .texts("consumer", gradients.iter().map(|gradient| &gradient.id.consumer))
        .numbers("sequence_in_step", gradients.iter().map(|gradient| u64::from(gradient.id.sequence)))
        .numbers("cache_epoch", gradients.iter().map(|gradient| u64::from(gradient.id.cache_epoch)))
        .numbers("claim", gradients.iter().map(|gradient| gradient.claim))
        .texts("table_name", gradients.iter().map(|gradient| &gradient.table))
        .optional_texts(
            "state",
            gradients.iter().map(|gradient| gradient.progress.map(ClaimProgress::as_str)),
        )
        .batch(gradients.len())
}
