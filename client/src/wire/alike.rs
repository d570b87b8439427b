//! Changes that are alike, said once: rows of one table that are inserted or written with cells of the same columns.
//!
//! A batch of rollouts is mostly that. What its rows have in common is in the message once, and what is left of a row is its
//! id and its values, so neither side makes an object and three strings for each.

use std::sync::Arc;

use forebay_store::NewRow;

use super::changes::{self, Place, from_new_row, sample_id_of, to_new_row};
use super::lent::Lent;
use super::value::{from_rows, rows_in, to_value};
use super::{malformed, proto};
use crate::changes::{Cells, Change, What};
use crate::error::Result;

/// How many of the changes, from the first on, are alike.
pub(super) fn run_of(changes: &[Change<'_>]) -> usize {
    let alike = |pair: &&[Change<'_>]| {
        let [before, change] = pair else { return false };
        before.table == change.table && are_alike(&before.what, &change.what)
    };
    1 + changes.windows(2).take_while(alike).count()
}

fn are_alike(a: &What<'_>, b: &What<'_>) -> bool {
    let columns = |a: &Cells<'_>, b: &Cells<'_>| a.iter().map(|cell| cell.0).eq(b.iter().map(|cell| cell.0));
    match (a, b) {
        (
            What::Insert { row: a, rollouts: 1, cells: of_a },
            What::Insert { row: b, rollouts: 1, cells: of_b },
        ) => columns(of_a, of_b) && differ_by_id_alone(a, b),
        (What::Write { cells: of_a, .. }, What::Write { cells: of_b, .. }) => columns(of_a, of_b),
        _ => false,
    }
}

fn differ_by_id_alone(a: &NewRow, b: &NewRow) -> bool {
    let common = |row: &NewRow| (row.policy_version, row.purpose, row.next_attempt, row.late);
    (a.token, b.token) == (0, 0)
        && common(a) == common(b)
        && (&a.agent, &a.origin, &a.parent) == (&b.agent, &b.origin, &b.parent)
        && (&a.weights, &a.excluded) == (&b.weights, &b.excluded)
        && (&a.spans, a.trainable_from) == (&b.spans, b.trainable_from)
}

/// Changes that are alike as one.
pub(super) fn from_run(run: &[Change<'_>], place: &mut Place<'_>) -> Option<proto::Change> {
    use proto::change::Change as Wire;
    let [first, _, ..] = run else { return None };
    let wire = match &first.what {
        What::Insert { row, cells, .. } => {
            let common = proto::NewRow { sample_id: String::new(), ..from_new_row(row) };
            let sample_ids = run.iter().filter_map(|change| match &change.what {
                What::Insert { row, .. } => Some(sample_id_of(row)),
                _ => None,
            });
            Wire::InsertRows(proto::InsertRows {
                common: Some(common),
                sample_ids: sample_ids.collect(),
                first_token: Default::default(),
                columns: columns_of(cells),
                values: values_of(run, place),
            })
        }
        What::Write { cells, .. } => {
            let rows = from_rows(run.iter().filter_map(|change| match change.what {
                What::Write { row, .. } => Some(row),
                _ => None,
            }));
            let (columns, values) = (columns_of(cells), values_of(run, place));
            Wire::WriteRows(proto::WriteRows { rows, columns, values })
        }
        _ => return None,
    };
    Some(proto::Change { table: first.table.to_string(), change: Some(wire) })
}

fn columns_of(cells: &Cells<'_>) -> Vec<String> {
    cells.iter().map(|(column, _)| (*column).to_owned()).collect()
}

fn values_of(run: &[Change<'_>], place: &mut Place<'_>) -> Vec<proto::Value> {
    let mut values = Vec::new();
    for change in run {
        values.extend(changes::values_of(change, place));
    }
    values
}

/// The inserts that are meant.
///
/// # Errors
/// `input` where ids, columns and values do not go together.
pub(super) fn to_inserts<'v>(
    table: &str,
    wire: &'v proto::InsertRows,
    lent: &'v Lent,
    list: &mut Vec<Change<'v>>,
) -> Result<()> {
    let mut values = Values::of(&wire.columns, &wire.values, wire.sample_ids.len(), lent)?;
    let (table, mut common) = (Arc::from(table), wire.common.clone().unwrap_or_default());
    let token = match &*wire.first_token {
        [] => None,
        bytes => {
            let bytes = bytes.try_into().map_err(|_| malformed("a token has 16 bytes"))?;
            Some(u128::from_le_bytes(bytes))
        }
    };
    for (at, id) in wire.sample_ids.iter().enumerate() {
        common.sample_id.clone_from(id);
        let mut row = Box::new(to_new_row(&common)?);
        if let Some(token) = token {
            row.token = token.wrapping_add(at as u128).max(1);
        }
        let what = What::Insert { row, rollouts: 1, cells: values.next()? };
        list.push(Change { table: Arc::clone(&table), what });
    }
    Ok(())
}

/// The writes that are meant.
///
/// # Errors
/// `input` where rows, columns and values do not go together.
pub(super) fn to_writes<'v>(
    table: &str,
    wire: &'v proto::WriteRows,
    lent: &'v Lent,
    list: &mut Vec<Change<'v>>,
) -> Result<()> {
    let rows = rows_in(&wire.rows);
    let mut values = Values::of(&wire.columns, &wire.values, rows.len(), lent)?;
    let table: Arc<str> = Arc::from(table);
    for row in rows {
        let what = What::Write { row: row?, cells: values.next()? };
        list.push(Change { table: table.clone(), what });
    }
    Ok(())
}

/// The values of rows, one row after the other.
struct Values<'v> {
    columns: &'v [String],
    values: &'v [proto::Value],
    lent: &'v Lent,
}

impl<'v> Values<'v> {
    fn of(columns: &'v [String], values: &'v [proto::Value], rows: usize, lent: &'v Lent) -> Result<Self> {
        if columns.len().checked_mul(rows) != Some(values.len()) {
            let (columns, values) = (columns.len(), values.len());
            return Err(malformed(&format!("{values} values for {rows} rows of {columns} columns")));
        }
        Ok(Values { columns, values, lent })
    }

    /// The cells of the next row.
    fn next(&mut self) -> Result<Cells<'v>> {
        let (values, rest) = self.values.split_at(self.columns.len());
        self.values = rest;
        let cell = |(column, value): (&'v String, &'v proto::Value)| {
            Ok((&**column, to_value(Some(value), self.lent)?))
        };
        self.columns.iter().zip(values).map(cell).collect()
    }
}

#[cfg(test)]
mod tests {
    use forebay_store::{Purpose, Row};

    use super::*;
    use crate::changes::Changes;
    use crate::wire::{from_changes, to_changes};

    fn new(id: &str) -> NewRow {
        NewRow::new(3, id).unwrap()
    }

    #[test]
    fn changes_that_are_alike_are_said_once_and_all_others_as_they_are() {
        let row = |at| Row::from_bytes([at; 24]);
        let mut changes = Changes::new();
        for id in ["q_0_0", "q_0_1", "q_0_?"] {
            changes.insert("solver", new(id).purpose(Purpose::Eval), [("a", 1.0.into()), ("b", id.into())]);
        }
        changes.insert("solver", new("r_0_0"), [("a", 1.0.into()), ("b", "r".into())]); // for training
        let cut = |id| new(id).span(4, 5);
        for row in [cut("c_0_0"), cut("c_0_1"), cut("c_0_2").trainable_from(4), new("c_0_3").span(4, 6)] {
            changes.insert("solver", row, [("a", 1.0.into()), ("b", "c".into())]);
        }
        changes.insert("solver", new("r_0_1"), [("b", "r".into()), ("a", 1.0.into())]); // the other way round
        changes.insert("checker", new("r_0_1"), [("b", "r".into()), ("a", 1.0.into())]);
        changes.insert("checker", new("r_0_2").token(7), [("b", "r".into()), ("a", 1.0.into())]);
        changes.insert_rollouts("checker", new("s_0_?"), 8, []);
        changes.insert_rollouts("checker", new("t_0_?"), 8, []);
        changes.insert("checker", new("u_0_0"), []);
        changes.insert("checker", new("u_0_1"), []);
        changes.write("solver", row(1), [("a", 2.0.into())]).write("solver", row(2), [("a", 3.0.into())]);
        changes.write("solver", row(1), [("c", 2.0.into())]).exclude("solver", row(2), "bad");
        changes.write("solver", row(2), [("c", 2.0.into())]);
        let wire = from_changes(&changes);
        let runs: Vec<usize> = wire.changes.iter().map(rows_of).collect();
        assert_eq!(runs, [3, 1, 2, 1, 1, 1, 1, 1, 1, 1, 2, 2, 1, 1, 1]);
        assert_eq!(to_changes(&wire, &Lent::default()).unwrap(), changes);
    }

    fn rows_of(change: &proto::Change) -> usize {
        match &change.change {
            Some(proto::change::Change::InsertRows(rows)) => rows.sample_ids.len(),
            Some(proto::change::Change::WriteRows(rows)) => rows_in(&rows.rows).len(),
            _ => 1,
        }
    }

    #[test]
    fn rows_whose_parts_do_not_go_together_are_refused() {
        let mut changes = Changes::new();
        changes.insert("solver", new("q_0_0"), [("a", 1.0.into())]);
        changes.insert("solver", new("q_0_1"), [("a", 2.0.into())]);
        let row = Row::from_bytes([7; 24]);
        changes.write("solver", row, [("a", 2.0.into())]).write("solver", row, [("a", 3.0.into())]);
        let refused = |spoil: &dyn Fn(&mut proto::InsertRows, &mut proto::WriteRows)| {
            let mut wire = from_changes(&changes);
            let [insert, write] = &mut wire.changes[..] else { panic!("{wire:?}") };
            let (
                Some(proto::change::Change::InsertRows(insert)),
                Some(proto::change::Change::WriteRows(write)),
            ) = (&mut insert.change, &mut write.change)
            else {
                panic!("they are alike")
            };
            spoil(insert, write);
            to_changes(&wire, &Lent::default()).is_err()
        };
        assert!(!refused(&|_, _| {}));
        assert!(refused(&|insert, _| _ = insert.values.pop()), "a value too few");
        assert!(refused(&|insert, _| _ = insert.sample_ids.pop()), "a row too few");
        assert!(refused(&|insert, _| insert.columns.push("b".to_owned())), "a column too many");
        assert!(refused(&|insert, _| insert.first_token = vec![1; 15].into()), "half a token");
        assert!(refused(&|insert, _| insert.sample_ids[1].clear()), "no id");
        assert!(refused(&|_, write| write.rows = write.rows.slice(..47)), "half a row");
        assert!(refused(&|_, write| write.values.clear()), "no values");
    }
}
