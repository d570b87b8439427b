//! What a record names that is gone: a declaration, or a claim.
//!
//! Tables, policies and consumers are numbered by the order of their declarations, and so are the columns of a table. Where
//! a declaration is missing, each record that names what it declared would stop a pass over the log, and so would what is said of claims that
//! went with it: they are told beforehand.

use crate::log::record::{ClaimRecord, Event, Operation};
use crate::state::State;

/// The first thing that the event names and the state does not have, for people.
pub(super) fn named(state: &State, event: &Event) -> Option<String> {
    let named = Named(state);
    match event {
        Event::Written { operations } | Event::Finished { operations, .. } => {
            operations.iter().find_map(|operation| named.operation(operation))
        }
        Event::Claimed(ClaimRecord { consumer, table, .. }) | Event::GroupsForgotten { consumer, table } => {
            named.consumer(*consumer).or(named.table(*table))
        }
        Event::StepBegun { plan, .. } => plan.iter().find_map(|part| named.consumer(part.consumer)),
        Event::StepCommitted { updates, .. } => updates.iter().find_map(|update| named.policy(update.policy)),
        Event::SchemaChanged { table, .. } => named.table(*table),
        Event::Deleted { deletions } => deletions.iter().find_map(|deletion| named.table(deletion.table)),
        Event::Moved { moves } => moves.iter().find_map(|moved| named.column(moved.table, moved.column)),
        Event::Opened { .. }
        | Event::PolicyCreated { .. }
        | Event::TableCreated { .. }
        | Event::ConsumerCreated { .. }
        | Event::Returned { .. }
        | Event::Accumulated { .. }
        | Event::RankAccumulated { .. }
        | Event::Extended { .. }
        | Event::StepAbandoned { .. }
        | Event::Rewound { .. }
        | Event::WentBack { .. }
        | Event::SteppedBack { .. } => None,
    }
}

/// The claim that the event says something of and that does not live: its granting is gone, or its consumer's declaration.
pub(super) fn gone_claim(state: &State, event: &Event) -> Option<u64> {
    let claim = match event {
        Event::Finished { claim, .. }
        | Event::Accumulated { claim }
        | Event::RankAccumulated { claim, .. } => *claim,
        _ => return None,
    };
    let lives = state.claims.get(claim).is_some_and(|found| found.progress.is_live());
    (!lives).then_some(claim)
}

struct Named<'a>(&'a State);

impl Named<'_> {
    fn operation(&self, operation: &Operation) -> Option<String> {
        match operation {
            Operation::Insert(insert) => insert
                .cells
                .iter()
                .find_map(|cell| self.column(insert.table, cell.column))
                .or(self.table(insert.table)),
            Operation::Write { table, cells, .. } => {
                cells.iter().find_map(|cell| self.column(*table, cell.column)).or(self.table(*table))
            }
            Operation::Append { table, column, .. } => self.column(*table, *column),
            Operation::Exclude { table, .. }
            | Operation::Span { table, .. }
            | Operation::Mask { table, .. } => self.table(*table),
            Operation::Group { consumer, table, .. } => self.consumer(*consumer).or(self.table(*table)),
            Operation::Share { .. } => None,
        }
    }

    fn table(&self, number: u32) -> Option<String> {
        (number as usize >= self.0.tables.len()).then(|| format!("table {number}"))
    }

    fn column(&self, table: u32, column: u16) -> Option<String> {
        let Some(there) = self.0.tables.get(table as usize) else { return self.table(table) };
        let is_gone = usize::from(column) >= there.schema.data_columns().len();
        is_gone.then(|| format!("column {column} of table {}", there.name))
    }

    fn consumer(&self, number: u32) -> Option<String> {
        (number as usize >= self.0.consumers.len()).then(|| format!("consumer {number}"))
    }

    fn policy(&self, number: u32) -> Option<String> {
        (number as usize >= self.0.policies.len()).then(|| format!("policy {number}"))
    }
}
