//! What comes along with claims, so that reading it costs no round trip.
//!
//! Columns that a claim was asked for with ([`Ask::columns`](crate::Ask)) wait here until they are taken, once. Where none were
//! named, what was read of a consumer's last claim is what will be read of its next: those cells are asked for with it, and
//! are here for as long as the claim is held. A cell that is not final when it comes is not believed: it is asked for again.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use forebay_store::Hold;

use super::calls::read_cells;
use crate::cell::CellValue;
use crate::connection::Epoch;
use crate::wire::Assembler;

/// The most columns that come along without being named.
const HABIT_MAX: usize = 32;

/// What came along with a claim, as it was sent.
#[derive(Debug)]
struct Along {
    /// In the order of the stream.
    columns: Vec<String>,
    stream: Bytes,
    /// What holds values that are in files.
    hold: Option<Hold>,
}

/// What was asked for to come along.
#[derive(Clone, Debug, Default)]
pub(super) struct AskedAlong {
    pub(super) columns: Vec<String>,
    /// Cell by cell.
    pub(super) cells: bool,
}

impl AskedAlong {
    /// Those that were named; where none were, the cells that are read most likely.
    pub(super) fn of(along: &Alongside, consumer: &str, named: &[String]) -> Self {
        let cells = named.is_empty();
        AskedAlong { columns: if cells { along.habit(consumer) } else { named.to_vec() }, cells }
    }
}

/// What is at hand of one claim.
#[derive(Debug)]
struct Held {
    consumer: String,
    /// The data columns whose cells were read.
    read: BTreeSet<String>,
    columns: Option<Along>,
    cells: HashMap<String, Vec<CellValue>>,
    /// The cells hold space of the store's files, so each is here once.
    once: bool,
}

#[derive(Debug, Default)]
struct State {
    held: HashMap<Epoch, Held>,
    /// By consumer, what was read of its last claim.
    habits: HashMap<String, Habit>,
}

/// What is read of a consumer's claims.
#[derive(Debug, Default)]
struct Habit {
    columns: Vec<String>,
    /// The server does not send these along: they are too large, or gone.
    refused: Vec<String>,
}

/// What is at hand of all claims. Cheap to clone. One lock, for a look-up.
#[derive(Clone, Debug, Default)]
pub(super) struct Alongside(Arc<Mutex<State>>);

impl Alongside {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner) // entries are whole
    }

    /// The columns whose cells are to come along with the next claim of a consumer.
    pub(super) fn habit(&self, consumer: &str) -> Vec<String> {
        let state = self.lock();
        let habit = state.habits.get(consumer).filter(|habit| habit.columns != habit.refused);
        habit.map(|habit| habit.columns.clone()).unwrap_or_default()
    }

    /// These did not come along though they were asked for.
    fn refused(&self, consumer: &str, columns: &[String]) {
        self.lock().habits.entry(consumer.to_owned()).or_default().refused = columns.to_vec();
    }

    /// A claim begins.
    fn begin(&self, claim: Epoch, consumer: &str) {
        let held = Held {
            consumer: consumer.to_owned(),
            read: BTreeSet::new(),
            columns: None,
            cells: HashMap::new(),
            once: false,
        };
        self.lock().held.insert(claim, held);
    }

    /// A claim came, with that stream of what was asked for.
    pub(super) fn came(
        &self,
        consumer: &str,
        claim: Epoch,
        AskedAlong { columns, cells }: &AskedAlong,
        stream: Bytes,
        hold: Option<Hold>,
    ) {
        self.begin(claim, consumer);
        match (stream.is_empty(), cells) {
            (false, false) => self.keep(claim, Along { columns: columns.clone(), stream, hold }),
            (false, true) => match read_cells(Assembler::of(stream), hold.as_ref()) {
                Ok(cells) => self.keep_cells(claim, columns, cells, hold.is_some()),
                Err(error) => {
                    tracing::debug!(%error, "cells that came along are no cells; they are asked for again");
                }
            },
            (true, true) if !columns.is_empty() => self.refused(consumer, columns),
            (true, _) => {}
        }
    }

    /// Columns came along.
    fn keep(&self, claim: Epoch, along: Along) {
        if let Some(held) = self.lock().held.get_mut(&claim) {
            held.columns = Some(along);
        }
    }

    /// Cells came along, a list for each of the columns. `once`: each is given to who asks first, and then let go of.
    fn keep_cells(&self, claim: Epoch, columns: &[String], cells: Vec<Vec<CellValue>>, once: bool) {
        if let Some(held) = self.lock().held.get_mut(&claim) {
            held.cells = columns.iter().cloned().zip(cells).collect();
            held.once = once;
        }
    }

    /// The stream of exactly these columns, once.
    pub(super) fn take(&self, claim: Epoch, names: &[&str]) -> Option<(Bytes, Option<Hold>)> {
        let mut state = self.lock();
        let held = state.held.get_mut(&claim)?;
        let along = held.columns.take_if(|along| along.columns == names)?;
        Some((along.stream, along.hold))
    }

    /// The cells of these columns, where all are here and final. What is asked for is remembered.
    pub(super) fn cells(&self, claim: Epoch, names: &[&str]) -> Option<Vec<Vec<CellValue>>> {
        let mut state = self.lock();
        let held = state.held.get_mut(&claim)?;
        held.read.extend(names.iter().map(|name| (*name).to_owned()));
        let is_final = |cell: &CellValue| !matches!(cell, CellValue::Empty | CellValue::Partial(_));
        let column = |name: &&str| held.cells.get(*name).filter(|cells| cells.iter().all(is_final)).cloned();
        let found = names.iter().map(column).collect();
        if held.once {
            names.iter().for_each(|name| _ = held.cells.remove(*name));
        }
        found
    }

    /// A claim is over.
    pub(super) fn drop(&self, claim: Epoch) {
        let mut state = self.lock();
        let Some(held) = state.held.remove(&claim) else { return };
        let Held { consumer, read, columns, cells, .. } = held;
        state.habits.entry(consumer).or_default().columns = read.into_iter().take(HABIT_MAX).collect();
        drop(state);
        drop((columns, cells)); // with nothing locked: values may be let go of
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLAIM: Epoch = (1, 2, 0);

    fn number(bits: u64) -> Vec<CellValue> {
        vec![CellValue::Inline(bits), CellValue::Null]
    }

    #[test]
    fn what_was_read_of_a_claim_comes_along_with_the_next_of_its_consumer() {
        let along = Alongside::default();
        assert!(along.habit("train").is_empty());
        along.begin(CLAIM, "train");
        assert_eq!(along.cells(CLAIM, &["reward"]), None);
        assert_eq!(along.cells(CLAIM, &["prompt", "reward"]), None);
        assert!(along.habit("train").is_empty(), "while it is held nothing is known");
        along.drop(CLAIM);
        assert_eq!(along.habit("train"), ["prompt", "reward"]);
        assert!(along.habit("score").is_empty());
        along.begin(CLAIM, "train");
        along.drop(CLAIM);
        assert!(along.habit("train").is_empty(), "nothing was read of the last");
    }

    #[test]
    fn cells_are_at_hand_while_the_claim_is_and_those_that_are_not_final_are_not() {
        let along = Alongside::default();
        along.begin(CLAIM, "train");
        let names = ["a", "b", "c"].map(str::to_owned);
        let partial = vec![CellValue::Inline(1), CellValue::Partial(Bytes::from_static(b"so far"))];
        along.keep_cells(CLAIM, &names, vec![number(7), number(8), partial], false);
        for _ in 0..2 {
            assert_eq!(along.cells(CLAIM, &["b", "a"]), Some(vec![number(8), number(7)]));
        }
        assert_eq!(along.cells(CLAIM, &["a", "c"]), None);
        assert_eq!(along.cells(CLAIM, &["d"]), None);
        along.drop(CLAIM);
        assert_eq!(along.cells(CLAIM, &["a"]), None);
        along.keep_cells(CLAIM, &names, vec![number(7)], false); // an answer that comes late
        assert_eq!(along.cells(CLAIM, &["a"]), None);
    }

    #[test]
    fn cells_that_hold_space_are_at_hand_once() {
        let along = Alongside::default();
        along.begin(CLAIM, "train");
        along.keep_cells(CLAIM, &["a".to_owned(), "b".to_owned()], vec![number(7), number(8)], true);
        assert_eq!(along.cells(CLAIM, &["a"]), Some(vec![number(7)]));
        assert_eq!((along.cells(CLAIM, &["a"]), along.cells(CLAIM, &["b"])), (None, Some(vec![number(8)])));
    }

    #[test]
    fn what_the_server_does_not_send_along_is_not_asked_for_until_others_are_read() {
        let along = Alongside::default();
        let read = |names: &[&str]| {
            along.begin(CLAIM, "train");
            along.cells(CLAIM, names);
            along.drop(CLAIM);
        };
        read(&["image"]);
        along.refused("train", &along.habit("train"));
        read(&["image"]);
        assert!(along.habit("train").is_empty());
        read(&["reward"]);
        assert_eq!(along.habit("train"), ["reward"]);
    }

    #[test]
    fn columns_that_were_asked_for_are_taken_once_and_only_as_they_were_asked_for() {
        let along = Alongside::default();
        along.begin(CLAIM, "train");
        let columns = vec!["a".to_owned(), "b".to_owned()];
        along.keep(CLAIM, Along { columns, stream: Bytes::from_static(b"stream"), hold: None });
        assert!(along.take(CLAIM, &["b", "a"]).is_none() && along.take(CLAIM, &["a"]).is_none());
        assert_eq!(
            along.take(CLAIM, &["a", "b"]).map(|(stream, _)| stream),
            Some(Bytes::from_static(b"stream"))
        );
        assert!(along.take(CLAIM, &["a", "b"]).is_none());
    }
}
