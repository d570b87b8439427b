//! Rows that are inserted, written and left out, and what becomes of their groups.

use super::super::{Effects, State};
use super::SUPERSEDED;
use crate::clock::Timestamp;
use crate::consumer::{GroupBy, GroupChange, GroupName, KeyParts};
use crate::extent::View;
use crate::log::record::*;
use crate::origin::EXTERNAL_VERSION;
use crate::table::{ATTEMPT_MAX, Purpose, RowMeta, TableState, VersionSpan};
use crate::texts::TextId;

impl State {
    pub(super) fn written(
        &mut self,
        operations: Vec<Operation>,
        now: Timestamp,
        effects: &mut Effects,
    ) -> Result<(), String> {
        for operation in &operations {
            self.changed(operation, now, effects)?;
        }
        effects.spent = operations;
        Ok(())
    }

    fn changed(
        &mut self,
        operation: &Operation,
        now: Timestamp,
        effects: &mut Effects,
    ) -> Result<(), String> {
        match *operation {
            Operation::Insert(ref insert) => self.insert(insert, now, effects)?,
            Operation::Write { table, row, ref cells } => {
                self.table(table)?;
                self.cells_turn_final(table, row, cells)?;
                self.table(table)?.write(row, cells, now)?;
                self.change_consumers(table, effects, |consumer, table, fallout| {
                    consumer.row_changed(table, row, fallout);
                });
            }
            Operation::Append { table, row, column, view } => {
                let state = self.table(table)?;
                if row >= state.row_count() || usize::from(column) >= state.schema.data_columns().len() {
                    return Err(format!("append to cell {column} of row {row}, which does not exist"));
                }
                state.append(row, column, View(view));
                self.fragment_lives(table, column, View(view));
            }
            Operation::Share { view, hash } => self.liveness.share(View(view), hash),
            Operation::Exclude { table, row, ref reason } => {
                if row >= self.table(table)?.row_count() {
                    return Err(format!("row {row} is excluded but does not exist"));
                }
                self.exclude(table, row, reason, effects);
            }
            Operation::Group { consumer, table, policy_version, ref key, change } => {
                let group = (policy_version, &**key);
                self.group_changed(consumer, table, group, change, effects)?;
            }
            Operation::Span { table, row, start, version } => {
                let state = self.table(table)?;
                if row >= state.row_count() {
                    return Err(format!("row {row} goes on under version {version} but does not exist"));
                }
                let current = state.freshness.current;
                state.rare.add_span(row, VersionSpan { start, version }, current);
                self.change_consumers(table, effects, |consumer, table, _| {
                    consumer.hold_back(table, row);
                });
            }
            Operation::Mask { table, row, start } => {
                let state = self.table(table)?;
                if row >= state.row_count() {
                    return Err(format!("row {row} is masked up to token {start} but does not exist"));
                }
                state.rare.mask(row, start);
            }
        }
        Ok(())
    }

    pub(super) fn table(&mut self, table: u32) -> Result<&mut TableState, String> {
        self.tables.get_mut(table as usize).ok_or_else(|| format!("no table {table}"))
    }

    pub(super) fn insert(
        &mut self,
        insert: &InsertRecord,
        now: Timestamp,
        effects: &mut Effects,
    ) -> Result<(), String> {
        let table = insert.table;
        let state = self.table(table)?;
        let (expected, name) = (state.row_count(), state.name.clone());
        let agent = if insert.agent.is_empty() { &*name } else { &*insert.agent };
        if insert.row != expected || insert.supersedes > expected {
            return Err(format!("row {} is inserted where {expected} should be", insert.row));
        }
        let mut meta = RowMeta {
            policy_version: insert.policy_version,
            created_at: now.0,
            input: self.texts.intern(&insert.input),
            turn: insert.turn,
            trajectory: insert.trajectory,
            agent: self.texts.intern(agent),
            origin: self.texts.intern(&insert.origin),
            parent: self.texts.intern(&insert.parent),
            weights: self.texts.intern(&insert.weights),
            ..RowMeta::default()
        };
        if meta.policy_version == EXTERNAL_VERSION {
            return Err(format!("row {} is of a version that no policy reaches", insert.row));
        }
        if insert.attempt > ATTEMPT_MAX {
            return Err(format!("row {} is attempt {}, beyond {ATTEMPT_MAX}", insert.row, insert.attempt));
        }
        meta.set_attempt(insert.attempt, Purpose::from_tag(insert.purpose).ok_or("unknown purpose")?);
        meta.set_token(insert.token);
        let superseded = insert.supersedes.checked_sub(1);
        if let Some(old) = superseded {
            let reason = self.texts.intern(SUPERSEDED);
            self.tables[table as usize].exclude(old, reason, &self.texts);
            self.change_consumers(table, effects, |consumer, table, fallout| {
                consumer.row_superseded(table, old, fallout);
            });
        }
        self.cells_turn_final(table, insert.row, &insert.cells)?;
        let state = self.table(table)?;
        if insert.numbered && insert.token != 0 {
            state.rare.note_token(insert.token, insert.row);
        }
        let row = state.insert(meta);
        state.write(row, &insert.cells, now)?;
        self.change_consumers(table, effects, |consumer, table, fallout| {
            consumer.row_inserted(table, row, fallout);
        });
        if let Some(old) = superseded {
            self.change_consumers(table, effects, |consumer, table, fallout| {
                consumer.row_replaced(table, old, fallout);
            });
        }
        Ok(())
    }

    /// Leaves a row out for good.
    pub(crate) fn exclude(&mut self, table: u32, row: u32, reason: &str, effects: &mut Effects) {
        if !self.tables[table as usize].status(row).is_open() {
            return;
        }
        let word = self.texts.intern(reason);
        let state = &mut self.tables[table as usize];
        if !state.exclude(row, word, &self.texts) {
            return;
        }
        effects.wake.extend(&state.consumers); // a group may be complete, or a step have nothing left to wait for
        self.change_consumers(table, effects, |consumer, table, fallout| {
            consumer.row_excluded(table, row, reason, fallout);
        });
    }

    /// Something was said of a group as a whole.
    pub(super) fn group_changed(
        &mut self,
        consumer: u32,
        table: u32,
        (version, key): (u64, &str),
        change: GroupChangeRecord,
        effects: &mut Effects,
    ) -> Result<(), String> {
        let state = self.consumers.get(consumer as usize);
        let by = state.and_then(|state| state.grouping).map(|grouping| grouping.by);
        let name = by.and_then(|by| self.group_name(by, key));
        let name = name.ok_or_else(|| format!("{key:?} is no group of consumer {consumer}"))?;
        self.table(table)?;
        let what = match change {
            GroupChangeRecord::Expected(members) => GroupChange::Expect(members),
            GroupChangeRecord::Closed => GroupChange::Close,
            GroupChangeRecord::TrajectoryClosed(number) => GroupChange::CloseTrajectory(number),
        };
        self.change_consumer(consumer as usize, table, effects, |consumer, table, fallout| {
            consumer.group_changed(table, (version, name), what, fallout);
        });
        effects.wake.push(consumer as usize);
        Ok(())
    }

    /// The name of the group with that key, known or new.
    pub(super) fn group_name(&mut self, by: GroupBy, key: &str) -> Option<GroupName> {
        let KeyParts { text, turn, agent, origin } = by.parse(key)?;
        let agent = agent.map_or(TextId::EMPTY, |agent| self.texts.intern(agent));
        Some(GroupName { text: self.texts.intern(text), turn, agent, origin: self.texts.intern(origin) })
    }
}
