//! `system.settings`: how the store was opened. Limits that are not set are NULL.

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;

use super::Moment;
use super::fields::Fields;

pub(super) fn make(moment: &Moment) -> Result<RecordBatch, ArrowError> {
    let settings = moment.store.settings();
    Fields::default()
        .texts("name", settings.iter().map(|(name, _)| name))
        .optional_texts("value", settings.iter().map(|(_, value)| value.as_ref()))
        .batch(settings.len())
}
