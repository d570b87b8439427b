//! `system.pins`: a row a holder that keeps space from being used again, so that who fills the disk can be found.

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;

use super::Moment;
use super::fields::Fields;

pub(super) fn make(moment: &Moment) -> Result<RecordBatch, ArrowError> {
    let pins = moment.store.pins();
    Fields::default()
        .texts("owner", pins.iter().map(|pin| &pin.owner))
        .optional_times("since", pins.iter().map(|pin| pin.since))
        .numbers("commit", pins.iter().map(|pin| pin.commit))
        .numbers("bytes", pins.iter().map(|pin| pin.bytes))
        .numbers("memory_bytes", pins.iter().map(|pin| pin.memory_bytes))
        .bools("overdue", pins.iter().map(|pin| pin.overdue))
        .batch(pins.len())
}
