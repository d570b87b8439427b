//! `system.policies`: a row a policy, with the objects that hold its present version.

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;

use super::Moment;
use super::fields::Fields;

pub(super) fn make(moment: &Moment) -> Result<RecordBatch, ArrowError> {
    let policies = moment.store.policies();
    let objects = || policies.iter().flat_map(|policy| &policy.objects);
    let held = Fields::default()
        .texts("key", objects().map(|object| &object.key))
        .numbers("version", objects().map(|object| object.version))
        .numbers("bytes", objects().map(|object| object.bytes))
        .texts("crc32c", objects().map(|object| format!("{:08x}", object.crc32c)));
    Fields::default()
        .texts("policy", policies.iter().map(|policy| &policy.name))
        .numbers("version", policies.iter().map(|policy| policy.version))
        .times("updated_at", policies.iter().map(|policy| policy.updated_at))
        .lists("objects", policies.iter().map(|policy| policy.objects.len()), held)?
        .batch(policies.len())
}
