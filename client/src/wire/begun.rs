//! The rows that changes begin: how many, and how much is said of each. A short message can ask for much.

use super::{WEIGHT_MAX, proto};
use crate::error::{Error, Result};

/// The most rows that one call may insert.
const ROWS_MAX: u64 = 1 << 20;
/// What a span takes on its way: in the message, in the row, as an operation, in the log's buffer, and where it is kept.
const SPAN_BYTES: u64 = 160;

/// How many rows changes insert.
pub fn inserted_in(changes: &proto::Changes) -> u64 {
    changes.changes.iter().map(inserted_by).fold(0, u64::saturating_add)
}

/// How many rows a change inserts.
fn inserted_by(change: &proto::Change) -> u64 {
    match &change.change {
        Some(proto::change::Change::Insert(insert)) => insert.rollouts.unwrap_or(1).max(1).into(),
        Some(proto::change::Change::InsertRows(rows)) => rows.sample_ids.len() as u64,
        _ => 0,
    }
}

/// Refuses more rows than one call may insert, and those that are said in a few bytes and take more memory than a message may.
///
/// # Errors
/// `input`: `TooLarge`.
pub(super) fn check_inserts(changes: &[proto::Change]) -> Result<()> {
    let rows: u64 = changes.iter().map(inserted_by).sum();
    if rows > ROWS_MAX {
        let message = format!("{rows} rows are more than the {ROWS_MAX} of one call; make several");
        return Err(Error::input("TooLarge", message));
    }
    let bytes = changes.iter().map(said_of_all).fold(0, u64::saturating_add);
    if bytes > WEIGHT_MAX as u64 {
        let message = format!(
            "what is said once of all rows of a change (id, parent, origin, weights, agent, reason and spans) takes {bytes} bytes in \
             {rows} rows, more than the {WEIGHT_MAX} of one call; make several"
        );
        return Err(Error::input("TooLarge", message));
    }
    Ok(())
}

/// How many bytes a change's rows take of what the message has once for all of them.
pub fn said_of_all(change: &proto::Change) -> u64 {
    let common = match &change.change {
        Some(proto::change::Change::Insert(insert)) => insert.row.as_ref(),
        Some(proto::change::Change::InsertRows(rows)) => rows.common.as_ref(),
        _ => None,
    };
    let said = |row: &proto::NewRow| {
        let optional = [&row.agent, &row.origin, &row.excluded];
        let texts = optional.into_iter().flatten().chain([&row.parent, &row.weights, &row.sample_id]);
        texts.map(|text| text.len() as u64).sum::<u64>() + row.spans.len() as u64 * SPAN_BYTES
    };
    common.map_or(0, said).saturating_mul(inserted_by(change))
}

#[cfg(test)]
mod tests {
    use forebay_store::NewRow;

    use super::super::from_changes;
    use super::*;
    use crate::Changes;

    fn check(changes: &Changes<'_>) -> Result<()> {
        check_inserts(&from_changes(changes).changes)
    }

    #[test]
    fn what_a_short_message_says_of_many_rows_has_a_bound() {
        let new = || NewRow::new(0, "q_0_?").unwrap();
        let text = "x".repeat(1 << 10);
        let said = [
            new().parent(&text),
            new().weights(&text),
            new().agent(&text),
            new().excluded(&text),
            new().external(&forebay_store::Origin { peer: text.clone(), round: 1 }),
        ];
        let most = (WEIGHT_MAX >> 10) as u32; // of a kibibyte each
        let spans = (0..7).fold(new(), |row, at| row.span(at + 1, u64::from(at) + 1)); // a little more than that
        let mut cut = Changes::new();
        assert!(check(cut.insert_rollouts("solver", spans, most, [])).is_err());
        for row in said {
            let rollouts = |rows| {
                let mut changes = Changes::new();
                changes.insert_rollouts("solver", row.clone(), rows, []);
                check(&changes)
            };
            rollouts(most - most / 64).unwrap(); // there is an id, and an origin has its round beside the peer
            let refused = rollouts(most + 1).unwrap_err();
            assert_eq!(refused.cause(), "TooLarge");
            assert!(refused.to_string().contains(&format!("in {} rows", most + 1)), "{refused}");
        }
    }

    #[test]
    fn so_many_rows_are_inserted_by_one_call() {
        let mut changes = Changes::new();
        for rows in [ROWS_MAX as u32 - 1, 1] {
            changes.insert_rollouts("solver", NewRow::new(0, "q_0_?").unwrap(), rows, []);
        }
        check(&changes).unwrap();
        changes.insert("solver", NewRow::new(0, "q_0_0").unwrap(), []);
        assert_eq!(check(&changes).unwrap_err().cause(), "TooLarge");
    }
}
