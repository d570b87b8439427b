//! What goes over the wire, and what it stands for: conversions by hand, both ways, for client and server alike.
//!
//! `proto` is made of `proto/forebay/v1/store.proto`, `objects.proto`, `admin.proto` and `history.proto`, which are the protocol's documents. Whatever comes from a peer is
//! looked at here: what cannot be is refused with [`malformed`], before a store hears of it. Row names are believed here and
//! looked up by the server ([`forebay_store::Store::check_rows`]).

mod admin;
mod alike;
mod arrow;
mod arrow_message;
mod begun;
mod cells;
mod changes;
mod claims;
mod codec;
mod consumer;
mod flow;
mod frame;
mod history;
mod lent;
mod list_views;
mod objects;
mod operated;
mod parts;
mod rope;
mod schema;
mod snapshots;
mod status;
mod value;
mod weight;

pub use admin::{
    from_fault, from_overview, from_progress, from_report, to_fault, to_overview, to_progress, to_report,
};
pub use arrow::{Assembler, FRAMED_PIECE_BYTES, PIECE_BYTES, pieces, read_stream, write_stream};
pub use arrow_message::check_message;
pub use begun::{inserted_in, said_of_all};
pub use cells::{SentCell, bytes_of_cells, from_cells, to_cells};
pub use changes::{
    CellOf, Place, RowOf, from_changes, from_changes_placed, name_inserts, placed_bytes, to_changes, unplace,
    values_in,
};
pub use claims::{from_gang, from_granted, from_micro_batch, to_gang, to_granted, to_micro_batch};
pub use codec::{BoundedCodec, BoundedDecoder};
pub use consumer::{from_consumer, from_declared, to_consumer, to_declared};
pub(crate) use flow::change_message;
pub use flow::{FLOW_BYTES_MAX, FLOW_ROWS_MAX, flow_rows_of, from_status, to_status};
pub(crate) use frame::FrameWriter;
pub use frame::{Frame, frame_of, kept_by};
pub use history::{
    FOUND_ROWS_MAX, SHOWN_ROWS_MAX, from_found, from_identity, from_row_shown, from_trained, to_found,
    to_row_shown, to_trained,
};
pub use lent::{Lent, NOT_LENT, framed_bytes, from_slab, not_lent, parts_of_slabs, slab_bytes};
pub(crate) use list_views::as_views;
pub use objects::{
    from_commit, from_expected, from_layout, from_manifest, from_places, from_relocation, from_shown,
    to_commit, to_expected, to_layout, to_manifest, to_places, to_shown, to_version,
};
pub use operated::{
    from_backup, from_backup_report, from_budget_change, from_budgets, from_compact_report, from_peek,
    from_retention, from_work_progress, to_backup, to_backup_report, to_budget_change, to_budgets,
    to_compact_report, to_peek, to_retention, to_work_progress,
};
pub use parts::Parts;
pub use rope::Rope;
pub use schema::{from_column, from_policy, from_schema, to_column, to_policy, to_schema};
pub use snapshots::{
    from_read, from_take, from_taken, from_versions, to_read, to_take, to_taken, to_versions,
};
pub use status::{failure_of, from_error, is_late, to_error};
pub use value::{
    from_cell, from_framed, from_loan, from_placed, from_row, from_rows, from_value, rows_in, to_cell,
    to_loan, to_row, to_rows, to_spot, to_value,
};
pub use weight::{Shape, WEIGHT_MAX, Weighed, decode};

use std::time::Duration;

use forebay_store::{Durability, ObjectRef};

use crate::error::{Error, Result};

/// The messages of the protocol.
#[allow(missing_docs, clippy::all, reason = "made of proto/forebay/v1/store.proto, which documents it")]
#[allow(
    unused_qualifications,
    unreachable_pub,
    clippy::semicolon_if_nothing_returned,
    reason = "made by a program"
)]
pub mod proto {
    tonic::include_proto!("forebay.v1");
}

/// The metadata that names a session.
pub const SESSION: &str = "forebay-session-bin";
/// The metadata that names a call, so that it can be repeated.
pub const CALL: &str = "forebay-call-bin";
/// The largest message either side takes, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// A name for a call that no other call of its session has.
pub fn new_call() -> u128 {
    let mut bytes = [0; 16];
    match getrandom::fill(&mut bytes) {
        Ok(()) => u128::from_le_bytes(bytes),
        // Names only have to differ within a session; the seed of the standard library's maps does for that.
        Err(_) => {
            let random = || forebay_store::Randomness::next_u64(&forebay_store::SystemRandomness);
            u128::from(random()) << 64 | u128::from(random())
        }
    }
}

/// A time as messages say it; one that is longer than they can say is the longest.
pub(crate) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// What a peer sent is none of the protocol's.
pub fn malformed(what: &str) -> Error {
    Error::input(
        "Protocol",
        format!("the message is not one of the protocol: {what}; use a client of the server's release"),
    )
}

/// The level of that name; none for an empty one.
///
/// # Errors
/// `input` for another name.
pub fn to_durability(word: &str) -> Result<Option<Durability>> {
    match Durability::ALL.into_iter().find(|level| level.as_str() == word) {
        None if !word.is_empty() => Err(malformed(&format!("{word:?} is no durability"))),
        level => Ok(level),
    }
}

/// An object's name on the wire.
pub fn from_object(object: &ObjectRef) -> proto::ObjectRef {
    let ObjectRef { key, version, bytes, crc32c } = object.clone();
    proto::ObjectRef { key, version, bytes, crc32c }
}

/// The object that is named.
pub fn to_object(object: proto::ObjectRef) -> ObjectRef {
    let proto::ObjectRef { key, version, bytes, crc32c } = object;
    ObjectRef { key, version, bytes, crc32c }
}
