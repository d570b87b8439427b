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
        let (table, version) = (insertion.table, insertion.policy_version);
        let identity = self.identity(version, &insertion.sample);
        let there = identity.and_then(|identity| self.state.tables[table as usize].find(identity));
        if let Some(row) = self.inserted_before(&insertion, there) {
            return Ok(row);
        }
        self.check_version(&mut insertion, identity)?;
        self.check_identity(&insertion, there)?;
        self.state.check_columns(table, &insertion.cells)?;
        self.state.check_lengths(table, &insertion.cells, |_| None)?;
        if let Some(old) = there {
            self.check_can_leave(table, old, "superseded")?;
            self.check_attempt(&insertion, old)?;
            self.left_out.insert((table, old), SUPERSEDED.to_owned());
        }
        let row = self.next_row(table)?;
        let handle = Row::new(table, row, version, &insertion.sample);
        let excluded = insertion.excluded.take();
        let told = self.told(handle, &insertion)?;
        if insertion.numbered && insertion.token != 0 {
            self.tokens.insert((table, insertion.token), handle);
        }
        operations.push(Operation::Insert(Box::new(self.record(insertion, row, there))));
        operations.extend(told);
        operations.extend(excluded.map(|reason| Operation::Exclude { table, row, reason }));
        Ok(handle)
    }

    /// What is said of a new row's rollout beside what its record holds.
    fn told(&self, row: Row, insertion: &Insertion) -> Result<Vec<Operation>> {
        let (Insertion { spans, trainable_from, .. }, table) = (insertion, row.table);
        let mut told = Vec::new();
        let mut last = VersionSpan { start: 0, version: insertion.policy_version };
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
        let Insertion { table, sample, policy_version, token, .. } = insertion;
        let state = &self.state.tables[*table as usize];
        let same = there.filter(|row| *token != 0 && state.meta(*row).token() == *token);
        let same = same.map(|row| Row::new(*table, row, *policy_version, sample));
        same.or_else(|| self.numbered_before(insertion))
    }

    /// A row is of a version that may still come; one that comes late is left out from the start, where that is wanted.
    fn check_version(&self, insertion: &mut Insertion, identity: Option<Identity>) -> Result<()> {
        let state = &self.state.tables[insertion.table as usize];
        let (table, version) = (|| state.name.to_string(), insertion.policy_version);
        if state.rare.is_retired(version) {
            return Err(Cause::Retired { table: table(), version }.into());
        }
        if identity.is_some_and(|identity| state.rare.is_deleted(&identity)) {
            let sample_id = insertion.sample.to_string();
            return Err(Cause::RowDeleted { table: table(), sample_id, version }.into());
        }
        if insertion.origin.is_empty() && version < state.freshness.oldest() {
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
    fn numbered_before(&self, insertion: &Insertion) -> Option<Row> {
        let Insertion { table, token, numbered: true, .. } = insertion else { return None };
        let state = &self.state.tables[*table as usize];
        let known = state.rare.row_of_token(*token).map(|row| {
            let meta = state.meta(row);
            Row::new(*table, row, meta.policy_version, &self.state.sample_of(*table, row))
        });
        known.or_else(|| self.tokens.get(&(*table, *token)).copied().filter(|_| *token != 0))
    }

    /// A new row has an identity of its own; a next attempt has that of a row that is there.
    fn check_identity(&mut self, insertion: &Insertion, there: Option<u32>) -> Result<()> {
        let Insertion { table, sample, policy_version: version, next_attempt, .. } = insertion;
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
    fn check_attempt(&self, insertion: &Insertion, old: u32) -> Result<()> {
        let meta = self.state.tables[insertion.table as usize].meta(old);
        if meta.attempt() == ATTEMPT_MAX {
            return Err(Cause::NumbersUsedUp { what: "attempts at a row", left: 0, wanted: 1 }.into());
        }
        let (purpose, origin) = (meta.purpose(), self.state.texts.get(meta.origin));
        if origin != insertion.origin {
            let reason = "the row that it takes the place of has another one".to_owned();
            return Err(Cause::Argument { what: "origin", reason }.into());
        }
        if purpose as u8 == insertion.purpose {
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

    fn record(&self, insertion: Insertion, row: u32, supersedes: Option<u32>) -> InsertRecord {
        let table = &self.state.tables[insertion.table as usize];
        InsertRecord {
            table: insertion.table,
            row,
            policy_version: insertion.policy_version,
            input: insertion.sample.input().to_owned(),
            turn: insertion.sample.turn(),
            trajectory: insertion.sample.trajectory(),
            attempt: supersedes.map_or(0, |old| table.meta(old).attempt() + 1),
            supersedes: supersedes.map_or(0, |old| old + 1),
            agent: insertion.agent.filter(|agent| **agent != *table.name).unwrap_or_default(),
            purpose: insertion.purpose,
            origin: insertion.origin,
            parent: insertion.parent,
            weights: insertion.weights,
            token: insertion.token,
            numbered: insertion.numbered,
            cells: insertion.cells,
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
