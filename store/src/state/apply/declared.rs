//! What is declared: policies, tables and consumers.

use std::sync::Arc;

use super::super::{Effects, State};
use crate::clock::Timestamp;
use crate::consumer::{ConsumedTable, ConsumerState, Fallout, GroupBy};
use crate::log::record::*;
use crate::object::ObjectRef;
use crate::policy::{PolicyMoment, PolicyState};
use crate::schema::Schema;
use crate::table::TableState;

impl State {
    pub(super) fn policy_created(
        &mut self,
        name: &str,
        version: u64,
        objects: Vec<ObjectRecord>,
        state_keys: Vec<String>,
        now: Timestamp,
    ) {
        let name: Arc<str> = name.into();
        let objects: Vec<ObjectRef> = objects.into_iter().map(ObjectRef::from_record).collect();
        let state_keys = state_keys.iter().map(|key| Arc::from(key.as_str())).collect();
        let first = PolicyMoment { version, updated_at: now, objects: objects.clone() };
        self.add_policy(PolicyState { name, version, updated_at: now, objects, first, state_keys });
    }

    pub(crate) fn table_created(
        &mut self,
        name: &str,
        policy: u32,
        columns: Vec<ColumnRecord>,
    ) -> Result<(), String> {
        if policy as usize >= self.policies.len() {
            return Err(format!("table {name:?} names policy {policy}, which does not exist"));
        }
        let mut schema = Schema::new().policy(&self.policies[policy as usize].name);
        for column in columns {
            schema = schema.with(column.column()?);
        }
        schema.validate().map_err(|error| error.to_string())?;
        let (id, name) = (self.tables.len() as u32, Arc::<str>::from(name));
        self.tables_by_name.insert(name.clone(), self.tables.len());
        let version = self.policies[policy as usize].version;
        let mut table = TableState::new(id, name, schema, policy as usize);
        table.set_current_version(version);
        self.tables.push(table);
        Ok(())
    }

    pub(crate) fn consumer_created(
        &mut self,
        name: &str,
        declaration: ConsumerRecord,
        effects: &mut Effects,
    ) -> Result<(), String> {
        let index = self.consumers.len();
        if declaration.tables.len() != declaration.required.len() {
            return Err(format!("consumer {name:?} names other tables than it requires columns of"));
        }
        let mut consumed = Vec::new();
        for (&table, &required) in declaration.tables.iter().zip(&declaration.required) {
            let state = self.tables.get_mut(table as usize).ok_or_else(|| format!("no table {table}"))?;
            if state.consumers.contains(&index) || (declaration.trainer && state.trainer.is_some()) {
                return Err(format!("table {table} is named twice, or has a trainer already"));
            }
            let slot = state.add_consumer(index, declaration.trainer, declaration.limiter.is_some());
            if declaration.trainer {
                state.freshness.window = declaration.staleness;
                state.group_by =
                    declaration.grouping.as_ref().and_then(|grouping| GroupBy::from_tag(grouping.by));
            }
            let floor = state.oldest_own_version();
            consumed.push(ConsumedTable { table, required, slot, floor });
        }
        let name: Arc<str> = name.into();
        let consumer = ConsumerState::new(name.clone(), &declaration, consumed)?;
        self.consumers_by_name.insert(name, index);
        self.consumers.push(consumer);
        for &table in &declaration.tables {
            self.change_consumer(index, table, effects, |consumer, table, fallout| {
                consumer.index(table, fallout);
            });
            if declaration.staleness.is_some() {
                self.open_window(table, index, effects);
            }
        }
        self.declarations.push(declaration);
        Ok(())
    }

    /// Changes what a consumer holds of a table, and does what follows from it.
    pub(crate) fn change_consumer(
        &mut self,
        consumer: usize,
        table: u32,
        effects: &mut Effects,
        change: impl FnOnce(&mut ConsumerState, &mut TableState, &mut Fallout),
    ) {
        let mut fallout = Fallout::default();
        change(&mut self.consumers[consumer], &mut self.tables[table as usize], &mut fallout);
        effects.touch(consumer);
        if fallout.wake {
            effects.wake.push(consumer);
        }
        for (row, reason) in fallout.left_out {
            self.exclude(table, row, &reason, effects);
        }
    }

    /// The same for every consumer of a table: what follows is done when all of them know.
    pub(in crate::state) fn change_consumers(
        &mut self,
        table: u32,
        effects: &mut Effects,
        mut change: impl FnMut(&mut ConsumerState, &mut TableState, &mut Fallout),
    ) {
        let mut left_out = Vec::new();
        for slot in 0..self.tables[table as usize].consumers.len() {
            let state = &mut self.tables[table as usize];
            let consumer = state.consumers[slot];
            let mut fallout = Fallout::default();
            change(&mut self.consumers[consumer], state, &mut fallout);
            effects.touch(consumer);
            if fallout.wake {
                effects.wake.push(consumer);
            }
            left_out.append(&mut fallout.left_out);
        }
        for (row, reason) in left_out {
            self.exclude(table, row, &reason, effects);
        }
    }
}
