//! `system.consumers`: a row for each consumer and each of its tables: its queue, what it works on, and at which version.
//! All counts of all rows are of one instant.

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;

use super::Moment;
use super::fields::Fields;

pub(super) fn make(moment: &Moment) -> Result<RecordBatch, ArrowError> {
    let mut consumers = moment.store.consumers();
    consumers.retain(|consumer| moment.sees(&consumer.table));
    Fields::default()
        .texts("consumer", consumers.iter().map(|consumer| &consumer.name))
        .texts("kind", consumers.iter().map(|consumer| consumer.kind))
        .texts("table_name", consumers.iter().map(|consumer| &consumer.table))
        .numbers("ready_rows", consumers.iter().map(|consumer| consumer.ready_rows))
        .numbers("processing_rows", consumers.iter().map(|consumer| consumer.processing_rows))
        .numbers("future_rows", consumers.iter().map(|consumer| consumer.future_rows))
        .numbers("current_version", consumers.iter().map(|consumer| consumer.current_version))
        .optional_numbers(
            "group_members",
            consumers.iter().map(|consumer| consumer.group_members.map(u64::from)),
        )
        .batch(consumers.len())
}
