//! `system.claims`: a row a claim, live or lately ended, with its times.

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;

use super::Moment;
use super::fields::Fields;

pub(super) fn make(moment: &Moment) -> Result<RecordBatch, ArrowError> {
    let mut claims = moment.store.claims();
    claims.retain(|claim| moment.sees(&claim.table));
    Fields::default()
        .numbers("claim", claims.iter().map(|claim| claim.claim))
        .numbers("incarnation", claims.iter().map(|claim| claim.incarnation))
        .texts("consumer", claims.iter().map(|claim| &claim.consumer))
        .texts("table_name", claims.iter().map(|claim| &claim.table))
        .texts("owner", claims.iter().map(|claim| &claim.owner))
        .texts("state", claims.iter().map(|claim| claim.progress.as_str()))
        .numbers("rows", claims.iter().map(|claim| claim.rows))
        .optional_numbers("step", claims.iter().map(|claim| claim.step))
        .numbers("sequence_in_step", claims.iter().map(|claim| u64::from(claim.sequence_in_step)))
        .times("granted_at", claims.iter().map(|claim| claim.granted_at))
        .times("deadline", claims.iter().map(|claim| claim.deadline))
        .optional_times("accumulated_at", claims.iter().map(|claim| claim.accumulated_at))
        .optional_times("ended_at", claims.iter().map(|claim| claim.ended_at))
        .batch(claims.len())
}
