//! When groups of peers' rows are forgotten.
//!
//! Which ones can go is found by a look at all rows of peers, so it is looked when there are twice as many groups as were
//! left by the time before. How many that were is a hint, and gone with the process.

use std::collections::HashMap;

use super::State;
use crate::error::Result;
use crate::log::record::Event;
use crate::shared::Shared;
use crate::sync::Mutex;

/// So few groups are not looked through.
const GROUPS_KEPT: usize = 16;

/// By consumer and table: from how many groups on they are looked through.
#[derive(Debug, Default)]
pub(crate) struct Forgetting(Mutex<HashMap<(usize, u32), usize>>);

impl Shared {
    /// Forgets groups of peers of which no row is left, where that is worth it: a background duty.
    pub(crate) fn forget_groups_when_due(&self) -> Result<()> {
        while let Some((consumer, table)) = self.groups_due() {
            let event = Event::GroupsForgotten { consumer: consumer as u32, table };
            self.submit_if(|state| {
                let is_due = state.groups_to_forget(consumer, table).0 > 0;
                Ok((is_due.then_some(event), ()))
            })?;
        }
        Ok(())
    }

    /// A consumer, and a table of which it has groups of peers, half of which can go.
    fn groups_due(&self) -> Option<(usize, u32)> {
        let state = self.state.lock();
        let mut looked = self.forgetting.0.lock();
        for (number, consumer) in state.consumers.iter().enumerate() {
            for table in consumer.tables.iter().map(|consumed| consumed.table) {
                let look_at = looked.entry((number, table)).or_insert(GROUPS_KEPT);
                if consumer.groups_of_peers(table) < *look_at {
                    continue;
                }
                let (can_go, all) = state.groups_to_forget(number, table);
                *look_at = GROUPS_KEPT.max(2 * (all - can_go));
                if 2 * can_go >= all {
                    return Some((number, table));
                }
            }
        }
        None
    }
}

impl State {
    /// How many groups of peers' rows a consumer can forget of a table, and how many there are.
    fn groups_to_forget(&self, consumer: usize, table: u32) -> (usize, usize) {
        let (state, of) = (&self.consumers[consumer], &self.tables[table as usize]);
        (state.groups_to_forget(of), state.groups_of_peers(table))
    }

    /// Applies that they were forgotten.
    pub(super) fn groups_forgotten(&mut self, consumer: u32, table: u32) -> std::result::Result<(), String> {
        let (consumer, table) = (self.consumers.get_mut(consumer as usize), self.tables.get(table as usize));
        match (consumer, table) {
            (Some(consumer), Some(table)) => consumer.forget_groups_of_peers(table),
            _ => return Err("groups are forgotten of a consumer or a table that does not exist".to_owned()),
        }
        Ok(())
    }
}
