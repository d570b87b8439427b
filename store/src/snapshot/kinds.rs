//! Rows by kind: for whoever wants to know what there is in which state, and not row by row.
//!
//! Rows are told apart by what pages hold of them: bits of their status and numbers of their record, never a value or a text.
//! Neighbours are mostly of one kind, so a row is compared with the one before, and looked up only where the two differ. A
//! kind is shown by its first row: whoever wants its columns reads that one.

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::TableSnapshot;
use super::columns::{Column, ColumnSet};
use super::gather::Source;
use super::numbers::has_numbers;
use super::parts::ScanColumn;
use crate::error::{Cause, Result};
use crate::schema::META_COLUMNS;
use crate::table::Chunk;

/// The most columns, other than status columns, by which rows are told apart.
const LANES_MAX: usize = 4;

/// What tells rows apart: the bits of final cells, then a number a column, zeros behind.
type Key = [u64; LANES_MAX + 1];

/// Some rows by kind: see [`TableSnapshot::kinds`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kinds {
    firsts: Vec<u32>,
    /// Kind and length of each stretch of rows of one kind.
    stretches: Vec<(usize, usize)>,
}

impl Kinds {
    /// The first row of each kind.
    pub fn firsts(&self) -> &[u32] {
        &self.firsts
    }

    /// How many rows each kind has.
    pub fn counts(&self) -> Vec<u64> {
        let mut counts = vec![0; self.firsts.len()];
        self.stretches.iter().for_each(|(kind, rows)| counts[*kind] += *rows as u64);
        counts
    }

    /// The kind of each row, as its place in [`firsts`](Self::firsts).
    pub fn of_rows(&self) -> Vec<usize> {
        let mut kinds = Vec::with_capacity(self.stretches.iter().map(|(_, rows)| rows).sum());
        self.stretches.iter().for_each(|(kind, rows)| kinds.resize(kinds.len() + rows, *kind));
        kinds
    }
}

/// By what rows are told apart.
struct Marks {
    /// A bit a status column.
    finals: u64,
    metas: Vec<&'static str>,
}

/// One column of the keys of some neighbours.
enum Lane {
    Same(u64),
    Each(Vec<u64>),
}

impl TableSnapshot {
    /// Whether [`kinds`](Self::kinds) tells rows apart by these columns: status columns, and at most four of numbers of texts,
    /// `policy_version`, `turn`, `trajectory_id`, `attempt`, `purpose` and `step`.
    pub fn has_kinds(&self, columns: &[ScanColumn]) -> bool {
        self.marks(columns).is_ok_and(|marks| marks.is_some())
    }

    /// Rows, which [`rows_of`](Self::rows_of) named, by kind: all that are equal in `columns` are of one. No value is touched.
    ///
    /// # Errors
    /// `input` for a column that is not there or is not one of those that [`has_kinds`](Self::has_kinds) names, and for a row
    /// that the table never had.
    ///
    /// ```
    /// # use forebay_store::*;
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = Store::open(dir.path().join("store"), Options::default())?;
    /// # let solver = store.create_table("solver", Schema::new().data("reward", DataType::Float32))?;
    /// for at in 0..6 {
    ///     let reward = (at % 3 == 0).then_some(("reward", 1.0.into()));
    ///     solver.insert(0, &format!("q{at}_0_0"), reward)?;
    /// }
    /// let snapshot = store.snapshot();
    /// let table = snapshot.table("solver")?;
    /// let rows: Vec<u32> = table.parts().flat_map(|part| table.rows_of(&part)).collect();
    /// let status = table.arrow_schema().index_of("reward_status").unwrap();
    /// let kinds = table.kinds(&rows, &[ScanColumn::Value(status)])?;
    /// assert_eq!((kinds.firsts(), kinds.counts()), (&[0, 1][..], vec![2, 4]));
    /// assert_eq!(kinds.of_rows(), [0, 1, 1, 0, 1, 1]);
    /// # Ok::<(), forebay_store::Error>(())
    /// ```
    pub fn kinds(&self, rows: &[u32], columns: &[ScanColumn]) -> Result<Kinds> {
        self.check_numbers(rows)?;
        let refused = || {
            let reason = "rows are told apart by status columns and at most four numbers of their records";
            Cause::Argument { what: "columns", reason: reason.to_owned() }
        };
        let marks = self.marks(columns)?.ok_or_else(refused)?;
        let source = self.source();
        let (mut places, mut kinds) = (HashMap::<Key, usize, RandomState>::default(), Kinds::default());
        for (chunk, run) in source.runs(rows) {
            let lanes = marks.lanes(&source, chunk, run);
            for (from, to) in stretches(&lanes, run.len()) {
                let kind = *places.entry(key(&lanes, from)).or_insert_with(|| {
                    kinds.firsts.push(run[from]);
                    kinds.firsts.len() - 1
                });
                kinds.stretches.push((kind, to - from));
            }
        }
        Ok(kinds)
    }

    fn marks(&self, columns: &[ScanColumn]) -> Result<Option<Marks>> {
        let picked =
            ColumnSet::all(&self.schema, &self.arrow_schema).picked(&self.schema, columns.iter().copied())?;
        let mut marks = Marks { finals: 0, metas: Vec::new() };
        for (column, _) in picked.0 {
            match column {
                Column::Status(index) => marks.finals |= 1 << index,
                Column::Meta(index) if is_number(META_COLUMNS[index]) => {
                    marks.metas.push(META_COLUMNS[index]);
                }
                Column::Number(index) if has_numbers(META_COLUMNS[index], self.group_by) => {
                    marks.metas.push(META_COLUMNS[index]);
                }
                _ => return Ok(None),
            }
        }
        Ok((marks.metas.len() <= LANES_MAX).then_some(marks))
    }
}

/// Whether the values of a meta column are numbers, or few words that each stand for one.
fn is_number(name: &str) -> bool {
    matches!(name, "policy_version" | "turn" | "trajectory_id" | "attempt" | "purpose" | "step")
}

impl Marks {
    fn lanes(&self, source: &Source<'_>, chunk: &Chunk, run: &[u32]) -> Vec<Lane> {
        let finals = match self.finals {
            0 => Lane::Same(0),
            wanted => Lane::Each(source.statuses(run, |status| status.finals & wanted)),
        };
        let metas = self.metas.iter().map(|name| {
            same(name, chunk).map_or_else(|| Lane::Each(numbers_of(name, source, run)), Lane::Same)
        });
        std::iter::once(finals).chain(metas).collect()
    }
}

/// What a chunk knows to be the same in all its rows.
fn same(name: &str, chunk: &Chunk) -> Option<u64> {
    match name {
        "policy_version" => chunk.only_version(),
        "agent" => chunk.only_agent().map(|agent| agent.0.into()),
        _ => None,
    }
}

/// A number for each row of a run, equal where the column of that name is.
fn numbers_of(name: &str, source: &Source<'_>, run: &[u32]) -> Vec<u64> {
    match name {
        "policy_version" => source.versions(run),
        "turn" => source.metas(run, |meta| meta.turn.into()),
        "trajectory_id" => source.metas(run, |meta| meta.trajectory.into()),
        "attempt" => source.metas(run, |meta| meta.attempt().into()),
        "purpose" => source.metas(run, |meta| meta.purpose() as u64),
        "step" => source.statuses(run, |status| status.step.into()),
        _ => {
            let numbers = source.numbers(name, run);
            numbers.into_iter().map(u64::from).collect()
        }
    }
}

/// From where to where rows that follow each other have the same key.
fn stretches(lanes: &[Lane], rows: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut differs = vec![false; rows];
    for lane in lanes {
        let Lane::Each(numbers) = lane else { continue };
        let pairs = numbers.iter().zip(numbers.iter().skip(1));
        differs
            .iter_mut()
            .skip(1)
            .zip(pairs)
            .for_each(|(differs, (before, after))| *differs |= before != after);
    }
    let mut from = 0;
    let ends = (1..=rows).filter(move |at| *at == rows || differs[*at]);
    ends.map(move |to| (std::mem::replace(&mut from, to), to))
}

fn key(lanes: &[Lane], at: usize) -> Key {
    let mut key = Key::default();
    for (mark, lane) in key.iter_mut().zip(lanes) {
        *mark = match lane {
            Lane::Same(number) => *number,
            Lane::Each(numbers) => numbers[at],
        };
    }
    key
}
