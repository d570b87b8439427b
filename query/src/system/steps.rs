//! `system.steps`: a row a step, with the policies that it moved.

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;

use super::Moment;
use super::fields::Fields;

pub(super) fn make(moment: &Moment) -> Result<RecordBatch, ArrowError> {
    let steps = moment.store.steps();
    let updates = || steps.iter().flat_map(|step| &step.updates);
    let moved = Fields::default()
        .texts("policy", updates().map(|(policy, _)| policy))
        .numbers("version", updates().map(|(_, version)| *version));
    Fields::default()
        .numbers("step", steps.iter().map(|step| step.step))
        .texts("state", steps.iter().map(|step| step.progress.as_str()))
        .numbers("rows", steps.iter().map(|step| step.rows))
        .numbers("planned_rows", steps.iter().map(|step| step.planned_rows))
        .numbers("planned_groups", steps.iter().map(|step| step.planned_groups))
        .times("begun_at", steps.iter().map(|step| step.begun_at))
        .optional_times("ended_at", steps.iter().map(|step| step.ended_at))
        .lists("updates", steps.iter().map(|step| step.updates.len()), moved)?
        .batch(steps.len())
}
