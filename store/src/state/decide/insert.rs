//! New rows: whether their names are free, and what becomes of rows whose place they take.

use super::{Decision, Insertion};
use crate::error::{Cause, Result};
use crate::log::record::{InsertRecord, Operation};
use crate::origin::EXTERNAL_VERSION;
use crate::sample_id::SampleId;
use crate::state::State;
use crate::state::apply::{STALE, SUPERSEDED};
use crate::table::{ATTEMPT_MAX, Identity, Row, VersionSpan};

/// The texts of an insert: input, agent, origin, parent, weights, and why it is left out.
const TEXTS_PER_REQUEST_MAX: usize = 6;

impl Decision<'_> {
    pub(super) fn insert(
        &mut self,
        mut insertion: Insertion,
        operations: &mut Vec<Operation>,
    ) -> Result<Row> {
        let (table, version) = (insertion.record.table, insertion.record.policy_version);
        let identity = self.identity(version, &insertion.sample);
        let there = identity.and_then(|identity| self.state.tables[table as usize].find(identity));
        if let Some(row) = self.inserted_before(&insertion, there) {
            return Ok(row);
        }
        self.check_version(&mut insertion, identity)?;
        self.check_identity(&insertion, there)?;
        self.state.check_columns(table, &insertion.record.cells)?;
        self.state.check_lengths(table, &insertion.record.cells, |_| None)?;
        if let Some(old) = there {
            self.take_place_of(&mut insertion.record, old)?;
        }
        insertion.record.row = self.next_row(table)?;
        let row = Row::with_key(table, insertion.record.row, version, insertion.key);
        let told = self.told(row, &insertion)?;
        let Insertion { record, excluded, .. } = insertion;
        if record.numbered && record.token != 0 {
            self.tokens.insert((table, record.token), row);
        }
        let index = record.row;
        operations.push(Operation::Insert(record));
        operations.extend(told);
        operations.extend(excluded.map(|reason| Operation::Exclude { table, row: index, reason }));
        Ok(row)
    }

    /// Makes a new row the next attempt of one that is there.
    fn take_place_of(&mut self, record: &mut InsertRecord, old: u32) -> Result<()> {
        self.check_can_leave(record.table, old, "superseded")?;
        self.check_attempt(record, old)?;
        self.left_out.insert((record.table, old), SUPERSEDED.to_owned());
        record.attempt = self.state.tables[record.table as usize].meta(old).attempt() + 1;
        record.supersedes = old + 1;
        Ok(())
    }

    /// What is said of a new row's rollout beside what its record holds.
    fn told(&self, row: Row, insertion: &Insertion) -> Result<Vec<Operation>> {
        let (Insertion { spans, trainable_from, .. }, table) = (insertion, row.table);
        let mut told = Vec::new();
        let mut last = VersionSpan { start: 0, version: insertion.record.policy_version };
        for &span in spans {
            told.extend(self.next_span(row, last, span, || format!("the new row {}", insertion.sample))?);
            last = span;
        }
        if *trainable_from > 0 {
            told.push(Operation::Mask { table, row: row.index, start: *trainable_from });
        }
        Ok(told)
    }

    /// The row that the same call, made before, led to.
    fn inserted_before(&self, insertion: &Insertion, there: Option<u32>) -> Option<Row> {
        let InsertRecord { table, policy_version, token, .. } = *insertion.record;
        let state = &self.state.tables[table as usize];
        let same = there.filter(|row| token != 0 && state.meta(*row).token() == token);
        let same = same.map(|row| Row::with_key(table, row, policy_version, insertion.key));
        same.or_else(|| self.numbered_before(&insertion.record))
    }

    /// A row is of a version that may still come; one that comes late is left out from the start, where that is wanted.
    ///
    /// A row of a peer is of no version of the policy, and is never stale; here the version is part of its name, and no name is given twice.
    /// Which names there were in a version that is retired is forgotten with its rows, so it takes in none, whoever they are of.
    fn check_version(&self, insertion: &mut Insertion, identity: Option<Identity>) -> Result<()> {
        let state = &self.state.tables[insertion.record.table as usize];
        let (table, version) = (|| state.name.to_string(), insertion.record.policy_version);
        if state.rare.is_retired(version) {
            return Err(Cause::Retired { table: table(), version }.into());
        }
        if identity.is_some_and(|identity| state.rare.is_deleted(&identity)) {
            let sample_id = insertion.sample.to_string();
            return Err(Cause::RowDeleted { table: table(), sample_id, version }.into());
        }
        if insertion.record.origin.is_empty() && version < state.freshness.oldest() {
            let policy = &self.state.policies[state.policy];
            if !insertion.late {
                let (policy, current) = (policy.name.to_string(), policy.version);
                return Err(Cause::Stale { policy, version, current }.into());
            }
            insertion.excluded.get_or_insert_with(|| STALE.to_owned());
        }
        if version == EXTERNAL_VERSION {
            let reason = format!("{version} is above every version that a policy can reach");
            return Err(Cause::Argument { what: "version", reason }.into());
        }
        Ok(())
    }

    /// What names a row; `None` while no row has that input.
    fn identity(&mut self, policy_version: u64, sample: &SampleId) -> Option<Identity> {
        let known = self.input.as_ref().filter(|(last, _)| last.input() == sample.input());
        let input = match known {
            Some((_, text)) => *text,
            None => {
                let text = self.state.texts.find(sample.input());
                self.input = Some((sample.clone(), text));
                text
            }
        };
        let (turn, trajectory) = (sample.turn(), sample.trajectory());
        Some(Identity { policy_version, input: input?, turn, trajectory })
    }

    /// The row that was given a number for the same token before.
    fn numbered_before(&self, record: &InsertRecord) -> Option<Row> {
        let InsertRecord { table, token, numbered: true, .. } = record else { return None };
        let state = &self.state.tables[*table as usize];
        let known = state.rare.row_of_token(*token).map(|row| {
            let meta = state.meta(row);
            Row::new(*table, row, meta.policy_version, &self.state.sample_of(*table, row))
        });
        known.or_else(|| self.tokens.get(&(*table, *token)).copied().filter(|_| *token != 0))
    }

    /// A new row has an identity of its own; a next attempt has that of a row that is there.
    fn check_identity(&mut self, insertion: &Insertion, there: Option<u32>) -> Result<()> {
        let Insertion { sample, next_attempt, record, .. } = insertion;
        let (table, version) = (&record.table, &record.policy_version);
        let again = !self.fresh.insert((*table, *version, sample.clone()));
        if !again && there.is_some() == *next_attempt {
            return Ok(());
        }
        let (sample_id, version) = (sample.to_string(), *version);
        if *next_attempt && !again {
            let name = format!("{sample_id} of version {version}");
            return Err(Cause::Unknown { what: "row", name, close: None }.into());
        }
        let table = self.state.tables[*table as usize].name.to_string();
        Err(Cause::DuplicateRow { table, sample_id, version }.into())
    }

    /// A next attempt takes the place of the one before, so it is for the same purpose and of the same origin. There are only
    /// so many.
    fn check_attempt(&self, record: &InsertRecord, old: u32) -> Result<()> {
        let meta = self.state.tables[record.table as usize].meta(old);
        if meta.attempt() == ATTEMPT_MAX {
            return Err(Cause::NumbersUsedUp { what: "attempts at a row", left: 0, wanted: 1 }.into());
        }
        let (purpose, origin) = (meta.purpose(), self.state.texts.get(meta.origin));
        if origin != record.origin {
            let reason = "the row that it takes the place of has another one".to_owned();
            return Err(Cause::Argument { what: "origin", reason }.into());
        }
        if purpose as u8 == record.purpose {
            return Ok(());
        }
        let reason = format!("the row's next attempt is for another one than {}", purpose.as_str());
        Err(Cause::Argument { what: "purpose", reason }.into())
    }

    /// The number of the next row that this batch inserts. Numbers are never used again.
    fn next_row(&mut self, table: u32) -> Result<u32> {
        let (there, before) = (self.state.tables[table as usize].row_count(), self.count_insert(table));
        let row = there.checked_add(before).filter(|row| *row < u32::MAX);
        let used_up = || {
            let (left, wanted) = (u64::from(u32::MAX - there), u64::from(before) + 1);
            Cause::NumbersUsedUp { what: "rows of a table", left, wanted }.into()
        };
        row.ok_or_else(used_up)
    }

    fn count_insert(&mut self, table: u32) -> u32 {
        match self.inserted.iter_mut().find(|(t, _)| *t == table) {
            Some((_, count)) => {
                *count += 1;
                *count - 1
            }
            None => {
                self.inserted.push((table, 1));
                0
            }
        }
    }
}

impl State {
    /// Numbers of texts are never used again, and nobody counts them before they are given.
    pub(super) fn check_texts_left(&self, requests: usize) -> Result<()> {
        let (left, wanted) = (self.texts.numbers_left().into(), (requests * TEXTS_PER_REQUEST_MAX) as u64);
        if wanted > left {
            return Err(Cause::NumbersUsedUp { what: "texts of a store", left, wanted }.into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::table::ATTEMPT_MAX;
    use crate::{Cause, DataType, Kind, NewRow, Options, Schema, SimulatedDisk, Store};

    #[test]
    fn rows_whose_numbers_would_begin_again_are_refused() {
        let options = Options::default().disk(Arc::new(SimulatedDisk::default()));
        let store = Store::open("/store", options).unwrap();
        let table = store.create_table("solver", Schema::new().data("reward", DataType::Float32)).unwrap();
        store.0.state.lock().tables[0].pretend_rows(u32::MAX - 2);
        let mut batch = store.batch();
        for i in 0..3 {
            batch.insert(&table, NewRow::new(0, &format!("q_0_{i}")).unwrap(), []).unwrap();
        }
        let refused = batch.commit().unwrap_err();
        let Cause::NumbersUsedUp { left: 2, wanted: 3, .. } = refused.cause() else { panic!("{refused}") };
        assert_eq!(refused.kind(), Kind::Capacity);
        assert_eq!(store.closed(), None);
    }

    #[test]
    fn an_attempt_whose_number_would_begin_again_is_refused() {
        let options = Options::default().disk(Arc::new(SimulatedDisk::default()));
        let store = Store::open("/store", options).unwrap();
        let table = store.create_table("solver", Schema::new().data("reward", DataType::Float32)).unwrap();
        let again = || NewRow::new(0, "q_0_0").unwrap().next_attempt();
        table.insert(0, "q_0_0", []).unwrap();
        table.insert_row(again(), []).unwrap();
        store.0.state.lock().tables[0].pretend_attempts(ATTEMPT_MAX);
        let refused = table.insert_row(again(), []).unwrap_err();
        assert!(
            matches!(refused.cause(), Cause::NumbersUsedUp { what: "attempts at a row", .. }),
            "{refused}"
        );
        assert_eq!((refused.kind(), store.closed()), (Kind::Capacity, None));
    }

    #[test]
    fn texts_whose_numbers_would_begin_again_are_refused() {
        let options = Options::default().disk(Arc::new(SimulatedDisk::default()));
        let store = Store::open("/store", options).unwrap();
        let table = store.create_table("solver", Schema::new().data("reward", DataType::Float32)).unwrap();
        table.insert(0, "first_0_0", []).unwrap();
        store.0.state.lock().texts.pretend_pages(1 << 20);
        let refused = table.insert(0, "second_0_0", []).unwrap_err();
        assert!(
            matches!(refused.cause(), Cause::NumbersUsedUp { what: "texts of a store", .. }),
            "{refused}"
        );
        assert_eq!((refused.kind(), store.closed()), (Kind::Capacity, None));
        assert!(table.find(0, &"first_0_0".parse().unwrap()).is_some());
    }
}
