//! Changes.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use forebay_store::{NewRow, Origin, Purpose, Row, Value, Wait};

use super::alike;
use super::begun::check_inserts;
use super::history::{from_span, to_span};
use super::lent::Lent;
use super::value::{self, from_row, from_value, to_row, to_value};
use super::{malformed, milliseconds, proto, to_durability};
use crate::changes::{Cells, Change, Changes, GroupChange, What};
use crate::error::Result;

/// Puts a value where its receiver finds it, and says where; none to have it sent.
pub type Place<'p> = dyn FnMut(CellOf<'_>, &Value<'_>) -> Option<proto::Value> + 'p;

/// The cell that a value of a change is for.
#[derive(Clone, Copy, Debug)]
pub struct CellOf<'c> {
    /// The name of the table.
    pub table: &'c Arc<str>,
    /// The row.
    pub row: RowOf<'c>,
    /// The name of the column.
    pub column: &'c str,
}

/// The row that a value of a change is for.
#[derive(Clone, Copy, Debug)]
pub enum RowOf<'c> {
    /// One that is inserted.
    New(&'c NewRow),
    /// That and its replicas.
    Several(&'c NewRow),
    /// One that is there.
    There(Row),
}

impl RowOf<'_> {
    /// The policy version that its rollout started under.
    pub fn policy_version(&self) -> u64 {
        match self {
            RowOf::New(row) | RowOf::Several(row) => row.policy_version,
            RowOf::There(row) => row.policy_version(),
        }
    }
}

/// The row of a change that brings cells, and these.
pub(super) fn row_and_cells<'c, 'v>(what: &'c What<'v>) -> Option<(RowOf<'c>, &'c Cells<'v>)> {
    match what {
        What::Insert { row, rollouts: 1, cells } => Some((RowOf::New(row), cells)),
        What::Insert { row, cells, .. } => Some((RowOf::Several(row), cells)),
        What::Write { row, cells } => Some((RowOf::There(*row), cells)),
        _ => None,
    }
}

/// The values of a change as they go, in the order of its cells.
pub(super) fn values_of<'c>(
    change: &'c Change<'_>,
    place: &'c mut Place<'_>,
) -> impl Iterator<Item = proto::Value> + 'c {
    let found = row_and_cells(&change.what).into_iter();
    let cells = found.flat_map(|(row, cells)| cells.iter().map(move |(column, value)| (row, *column, value)));
    cells.map(move |(row, column, value)| {
        place(CellOf { table: &change.table, row, column }, value).unwrap_or_else(|| from_value(value))
    })
}

/// Changes on the wire. They borrow nothing: values are copied once.
pub fn from_changes(changes: &Changes<'_>) -> proto::Changes {
    from_changes_placed(changes, &mut |_, _| None)
}

/// The same, with the values that `place` takes where it puts them.
pub fn from_changes_placed(changes: &Changes<'_>, place: &mut Place<'_>) -> proto::Changes {
    let durability = changes.durability.map_or(String::new(), |level| level.as_str().to_owned());
    let wait_ms = changes.wait.map(|wait| match wait {
        Wait::No => 0,
        Wait::For(time) => milliseconds(time),
        Wait::Forever => u64::MAX,
    });
    let (mut rest, mut list) = (&changes.list[..], Vec::new());
    while let Some(first) = rest.first() {
        let (run, behind) = rest.split_at(alike::run_of(rest));
        list.push(alike::from_run(run, place).unwrap_or_else(|| from_change(first, place)));
        rest = behind;
    }
    proto::Changes { changes: list, durability, wait_ms }
}

/// Gives every insert without a token one that follows from `call`, so that the whole can be sent again.
pub fn name_inserts(changes: &mut proto::Changes, call: u128) {
    use proto::change::Change as Wire;
    let mut token = call;
    let bytes = |token: u128| token.to_le_bytes().to_vec().into();
    for change in &mut changes.changes {
        match &mut change.change {
            Some(Wire::Insert(proto::Insert { row: Some(row), .. })) => {
                if row.token.is_empty() {
                    row.token = bytes(token.max(1));
                }
                token = token.wrapping_add(1);
            }
            Some(Wire::InsertRows(rows)) => {
                rows.first_token = bytes(token);
                token = token.wrapping_add(rows.sample_ids.len() as u128);
            }
            _ => {}
        }
    }
}

/// Puts values into a message of which it says where they lie. `find` gives the bytes.
///
/// # Errors
/// As `find`; `input` for bytes that are no text where they should be.
pub fn unplace(
    changes: &mut proto::Changes,
    find: &mut dyn FnMut(&proto::Placed) -> Result<Vec<u8>>,
) -> Result<()> {
    use proto::change::Change as Wire;
    for change in &mut changes.changes {
        match &mut change.change {
            Some(
                Wire::Insert(proto::Insert { cells, .. }) | Wire::Write(proto::WriteCells { cells, .. }),
            ) => {
                cells
                    .iter_mut()
                    .filter_map(|cell| cell.value.as_mut())
                    .try_for_each(|v| value::unplace(v, find))?;
            }
            Some(
                Wire::InsertRows(proto::InsertRows { values, .. })
                | Wire::WriteRows(proto::WriteRows { values, .. }),
            ) => {
                values.iter_mut().try_for_each(|v| value::unplace(v, find))?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// The changes that are meant, with values borrowed from the message, or lying in what was `lent` to its sender.
///
/// # Errors
/// `input` for what is no change; `state` for values that lie in what is others'.
pub fn to_changes<'v>(wire: &'v proto::Changes, lent: &'v Lent) -> Result<Changes<'v>> {
    let wait = wire.wait_ms.map(|ms| match ms {
        0 => Wait::No,
        u64::MAX => Wait::Forever,
        ms => Wait::For(Duration::from_millis(ms)),
    });
    check_inserts(&wire.changes)?;
    let mut list: Vec<Change<'_>> = Vec::with_capacity(wire.changes.len());
    for change in &wire.changes {
        to_change(change, lent, &mut list)?;
    }
    Ok(Changes { list, durability: to_durability(&wire.durability)?, wait })
}

/// The values that a change brings.
pub fn values_in(change: &proto::Change) -> impl Iterator<Item = &proto::Value> {
    use proto::change::Change as Wire;
    let (cells, values): (&[proto::Cell], &[proto::Value]) = match &change.change {
        Some(Wire::Insert(proto::Insert { cells, .. }) | Wire::Write(proto::WriteCells { cells, .. })) => {
            (cells, &[])
        }
        Some(Wire::InsertRows(proto::InsertRows { values, .. })) => (&[], values),
        Some(Wire::WriteRows(proto::WriteRows { values, .. })) => (&[], values),
        _ => (&[], &[]),
    };
    cells.iter().filter_map(|cell| cell.value.as_ref()).chain(values)
}

/// How many bytes of values lie elsewhere, which a message would hold if they lay in it.
pub fn placed_bytes(changes: &proto::Changes) -> u64 {
    use proto::value::Value as Wire;
    let bytes = |value: &proto::Value| match &value.value {
        Some(Wire::Placed(placed) | Wire::InSlab(placed)) => u64::from(placed.length),
        _ => 0,
    };
    changes.changes.iter().flat_map(values_in).map(bytes).sum()
}

fn from_change(change: &Change<'_>, place: &mut Place<'_>) -> proto::Change {
    use proto::change::Change as Wire;
    let wire = match &change.what {
        What::Insert { row, rollouts, cells } => Wire::Insert(proto::Insert {
            row: Some(from_new_row(row)),
            rollouts: Some(*rollouts),
            cells: from_cells(change, cells, place),
        }),
        What::Write { row, cells } => {
            Wire::Write(proto::WriteCells { row: from_row(*row), cells: from_cells(change, cells, place) })
        }
        What::Span { row, start, version } => {
            Wire::Span(proto::Span { row: from_row(*row), start: *start, version: *version })
        }
        What::TrainableFrom { row, start } => {
            Wire::TrainableFrom(proto::Mask { row: from_row(*row), start: *start })
        }
        What::Exclude { row, reason } => {
            Wire::Exclude(proto::Exclude { row: from_row(*row), reason: reason.to_string() })
        }
        What::Group { consumer, policy_version, key, change } => {
            use proto::group_change::Change as Said;
            let said = match change {
                GroupChange::Expected(members) => Said::Expected(*members),
                GroupChange::Closed => Said::Closed(true),
                GroupChange::TrajectoryClosed(trajectory) => Said::TrajectoryClosed(*trajectory),
            };
            Wire::Group(proto::GroupChange {
                consumer: consumer.to_string(),
                policy_version: *policy_version,
                key: key.to_string(),
                change: Some(said),
            })
        }
    };
    proto::Change { table: change.table.to_string(), change: Some(wire) }
}

fn to_change<'v>(wire: &'v proto::Change, lent: &'v Lent, list: &mut Vec<Change<'v>>) -> Result<()> {
    use proto::change::Change as Wire;
    let none = || malformed("a change that changes nothing");
    let what = match wire.change.as_ref().ok_or_else(none)? {
        Wire::InsertRows(rows) => return alike::to_inserts(&wire.table, rows, lent, list),
        Wire::WriteRows(rows) => return alike::to_writes(&wire.table, rows, lent, list),
        Wire::Insert(insert) => What::Insert {
            row: Box::new(to_new_row(insert.row.as_ref().ok_or_else(none)?)?),
            rollouts: insert.rollouts.unwrap_or(1),
            cells: to_cells(&insert.cells, lent)?,
        },
        Wire::Write(write) => What::Write { row: to_row(&write.row)?, cells: to_cells(&write.cells, lent)? },
        Wire::Span(span) => What::Span { row: to_row(&span.row)?, start: span.start, version: span.version },
        Wire::TrainableFrom(mask) => What::TrainableFrom { row: to_row(&mask.row)?, start: mask.start },
        Wire::Exclude(exclude) => {
            What::Exclude { row: to_row(&exclude.row)?, reason: Cow::Borrowed(&exclude.reason) }
        }
        Wire::Group(group) => {
            use proto::group_change::Change as Said;
            let change = match group.change.ok_or_else(none)? {
                Said::Expected(members) => GroupChange::Expected(members),
                Said::Closed(_) => GroupChange::Closed,
                Said::TrajectoryClosed(trajectory) => GroupChange::TrajectoryClosed(trajectory),
            };
            let (consumer, key) = (Arc::from(&*group.consumer), Cow::Borrowed(&*group.key));
            What::Group { consumer, policy_version: group.policy_version, key, change }
        }
    };
    list.push(Change { table: Arc::from(&*wire.table), what });
    Ok(())
}

fn from_cells(change: &Change<'_>, cells: &Cells<'_>, place: &mut Place<'_>) -> Vec<proto::Cell> {
    let columns = cells.iter().map(|(column, _)| (*column).to_owned());
    let cell = |(column, value)| proto::Cell { column, value: Some(value) };
    columns.zip(values_of(change, place)).map(cell).collect()
}

fn to_cells<'v>(cells: &'v [proto::Cell], lent: &'v Lent) -> Result<Cells<'v>> {
    cells.iter().map(|cell| Ok((&*cell.column, to_value(cell.value.as_ref(), lent)?))).collect()
}

/// A row's sample id, with `?` where the store gives the trajectory its number.
pub(super) fn sample_id_of(row: &NewRow) -> String {
    match row.numbered {
        true => format!("{}_{}_?", row.sample.input(), row.sample.turn()),
        false => row.sample.to_string(),
    }
}

pub(super) fn from_new_row(row: &NewRow) -> proto::NewRow {
    proto::NewRow {
        sample_id: sample_id_of(row),
        policy_version: row.policy_version,
        agent: row.agent.clone(),
        purpose: if row.purpose == Purpose::Train { String::new() } else { row.purpose.as_str().to_owned() },
        origin: row.origin.as_ref().map(ToString::to_string),
        parent: row.parent.clone(),
        weights: row.weights.clone(),
        token: if row.token == 0 { Default::default() } else { row.token.to_le_bytes().to_vec().into() },
        next_attempt: row.next_attempt,
        late: row.late,
        excluded: row.excluded.clone(),
        spans: row.spans.iter().copied().map(from_span).collect(),
        trainable_from: row.trainable_from,
    }
}

pub(super) fn to_new_row(wire: &proto::NewRow) -> Result<NewRow> {
    let mut row = NewRow::new(wire.policy_version, &wire.sample_id)?;
    row.agent = wire.agent.clone();
    row.purpose = match Purpose::ALL.into_iter().find(|purpose| purpose.as_str() == wire.purpose) {
        Some(purpose) => purpose,
        None if wire.purpose.is_empty() => Purpose::Train,
        None => return Err(malformed(&format!("{:?} is no purpose", wire.purpose))),
    };
    if let Some(origin) = &wire.origin {
        let parsed =
            Origin::parse(origin).ok_or_else(|| malformed(&format!("{origin:?} is not PEER/ROUND")))?;
        row.origin = Some(parsed);
    }
    if !wire.token.is_empty() {
        let token = (&*wire.token).try_into().map_err(|_| malformed("a token has 16 bytes"))?;
        row.token = u128::from_le_bytes(token);
    }
    row.parent.clone_from(&wire.parent);
    row.weights.clone_from(&wire.weights);
    (row.next_attempt, row.late) = (wire.next_attempt, wire.late);
    row.excluded.clone_from(&wire.excluded);
    row.spans = wire.spans.iter().copied().map(to_span).collect();
    row.trainable_from = wire.trainable_from;
    Ok(row)
}

#[cfg(test)]
mod tests {
    use forebay_store::{Durability, Row};

    use super::*;

    #[test]
    fn changes_come_back_as_they_went() {
        let row = Row::from_bytes([7; 24]);
        let origin = Origin { peer: "berlin/3".to_owned(), round: 17 };
        let new = NewRow::new(3, "q_1_2").unwrap();
        let full =
            new.clone().agent("a").purpose(Purpose::Eval).external(&origin).parent("t/q_0_0").weights("w");
        let full = full.token(u128::MAX).late().excluded("why").next_attempt().span(4, 9).trainable_from(2);
        let mut changes = Changes::new();
        changes.durability(Durability::Synced).wait(Wait::For(Duration::from_millis(17)));
        changes.insert("solver", new, [("reward", 1.0.into()), ("text", "t".into())]);
        changes.insert_rollouts("solver", full, 8, [("reward", Value::Null)]);
        changes.insert("solver", NewRow::new(0, "in_put_0_?").unwrap(), [("reward", 1_i64.into())]);
        changes.write("solver", row, [("reward", 0.5.into())]).span("solver", row, 4, 2);
        changes.trainable_from("solver", row, 9).exclude("solver", row, "bad");
        changes.expect_group("train", "solver", 1, "q", 4).close_group("train", "solver", 1, "q");
        changes.close_trajectory("train", "solver", 1, "q", 2);
        let wire = from_changes(&changes);
        assert_eq!(to_changes(&wire, &Lent::default()).unwrap(), changes);
        for wait in [Wait::No, Wait::Forever] {
            changes.wait(wait);
            assert_eq!(to_changes(&from_changes(&changes), &Lent::default()).unwrap().wait, Some(wait));
        }
    }

    #[test]
    fn inserts_are_named_by_their_call_unless_they_have_a_token() {
        let mut changes = Changes::new();
        changes.insert("solver", NewRow::new(0, "q_0_0").unwrap(), []);
        changes.insert("solver", NewRow::new(0, "q_0_1").unwrap().token(9), []);
        changes.insert("solver", NewRow::new(0, "q_0_2").unwrap(), []);
        let tokens = |call: u128| {
            let mut wire = from_changes(&changes);
            name_inserts(&mut wire, call);
            let nothing = Lent::default();
            let named = to_changes(&wire, &nothing).unwrap().list;
            let token = |change: Change<'_>| match change.what {
                What::Insert { row, .. } => row.token,
                _ => 0,
            };
            named.into_iter().map(token).collect::<Vec<_>>()
        };
        assert_eq!(tokens(100), [100, 9, 102]);
        assert_eq!(tokens(u128::MAX), [u128::MAX, 9, 1], "none is no token");
    }

    #[test]
    fn what_is_no_change_is_refused() {
        let insert = |row: proto::NewRow| {
            let insert = proto::Insert { row: Some(row), rollouts: None, cells: vec![] };
            Some(proto::change::Change::Insert(insert))
        };
        let row = from_new_row(&NewRow::new(0, "q_0_0").unwrap());
        let write = proto::WriteCells { row: vec![1, 2].into(), cells: vec![] };
        for change in [
            None,
            Some(proto::change::Change::Insert(proto::Insert::default())),
            Some(proto::change::Change::Group(proto::GroupChange::default())),
            Some(proto::change::Change::Write(write)),
            insert(proto::NewRow { sample_id: "q".to_owned(), ..row.clone() }),
            insert(proto::NewRow { purpose: "fun".to_owned(), ..row.clone() }),
            insert(proto::NewRow { origin: Some("nowhere".to_owned()), ..row.clone() }),
            insert(proto::NewRow { token: vec![1; 15].into(), ..row }),
        ] {
            let wire = proto::Change { table: "solver".to_owned(), change };
            assert!(
                to_changes(
                    &proto::Changes { changes: vec![wire.clone()], ..Default::default() },
                    &Lent::default()
                )
                .is_err(),
                "{wire:?}"
            );
        }
        let mut many = Changes::new();
        for _ in 0..2 {
            many.insert_rollouts("solver", NewRow::new(0, "q_0_?").unwrap(), u32::MAX, []);
        }
        assert_eq!(to_changes(&from_changes(&many), &Lent::default()).unwrap_err().cause(), "TooLarge");
        let wire = proto::Changes { durability: "forever".to_owned(), ..Default::default() };
        assert!(to_changes(&wire, &Lent::default()).is_err());
    }
}
