//! `system.objects`: a row an object that a policy's present version rests on, with its size.

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;

use super::Moment;
use super::fields::Fields;

pub(super) fn make(moment: &Moment) -> Result<RecordBatch, ArrowError> {
    let policies = moment.store.policies();
    let rows: Vec<_> = policies
        .iter()
        .flat_map(|policy| policy.objects.iter().map(move |object| (&policy.name, object)))
        .collect();
    Fields::default()
        .texts("key", rows.iter().map(|(_, object)| &object.key))
        .numbers("version", rows.iter().map(|(_, object)| object.version))
        .numbers("bytes", rows.iter().map(|(_, object)| object.bytes))
        .texts("crc32c", rows.iter().map(|(_, object)| format!("{:08x}", object.crc32c)))
        .texts("policy", rows.iter().map(|(policy, _)| policy))
        .batch(rows.len())
}
