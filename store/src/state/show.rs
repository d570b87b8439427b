//! What people see of the state.

use std::collections::HashMap;

use super::State;
use crate::claim::ClaimInfo;
use crate::policy::PolicyInfo;
use crate::step::StepInfo;

/// A consumer as it is shown to people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerInfo {
    /// Its name.
    pub name: String,
    /// `task` or `trainer`.
    pub kind: &'static str,
    /// One of its tables.
    pub table: String,
    /// Rows that can be claimed now: of the table policy's current version, or within the declared window, and of peers
    /// where it takes those; whole groups only where it takes groups.
    pub ready_rows: u64,
    /// Rows that have all they need and are of a version that the policy has yet to reach.
    pub future_rows: u64,
    /// Rows that were handed out and are neither done nor given back: of claims that are leased or accumulated.
    pub processing_rows: u64,
    /// The version of the table's policy at which these counts were made.
    pub current_version: u64,
    /// How many members a group has that it takes, unless a group was told another number; `None` where it takes rows
    /// one by one.
    pub group_members: Option<u32>,
}

impl State {
    pub(crate) fn show_claims(&self) -> Vec<ClaimInfo> {
        let show = |(number, claim): (u64, &crate::claim::ClaimState)| ClaimInfo {
            claim: number,
            incarnation: claim.incarnation,
            consumer: self.consumers[claim.consumer].name.to_string(),
            table: self.tables[claim.table as usize].name.to_string(),
            owner: self.texts.get(claim.owner).to_owned(),
            progress: claim.progress,
            rows: u64::from(claim.row_count),
            step: (claim.step != 0).then_some(claim.step),
            sequence_in_step: claim.sequence_in_step,
            granted_at: claim.granted_at,
            deadline: claim.deadline,
            accumulated_at: claim.accumulated_at,
            ended_at: claim.ended_at,
        };
        self.claims.iter().map(show).collect()
    }

    pub(crate) fn show_steps(&self) -> Vec<StepInfo> {
        self.steps.iter().map(|(number, step)| StepInfo::new(*number, step, &self.policies)).collect()
    }

    pub(crate) fn show_policies(&self) -> Vec<PolicyInfo> {
        self.policies.iter().map(PolicyInfo::from).collect()
    }

    pub(crate) fn show_consumers(&self) -> Vec<ConsumerInfo> {
        let (mut shown, processing) = (Vec::new(), self.processing_rows());
        for (index, consumer) in self.consumers.iter().enumerate() {
            for consumed in &consumer.tables {
                let versions = self.claimable_versions(index, consumed.table);
                let future = versions.end().saturating_add(1)..=u64::MAX;
                let ready = consumer.ready_rows(consumed.table, versions);
                let external = consumer.external_ready_rows(consumed.table);
                let future = consumer.ready_rows(consumed.table, future);
                shown.push(ConsumerInfo {
                    name: consumer.name.to_string(),
                    kind: consumer.kind.as_str(),
                    table: self.tables[consumed.table as usize].name.to_string(),
                    ready_rows: (ready + external) as u64,
                    future_rows: future as u64,
                    processing_rows: processing.get(&(index, consumed.table)).copied().unwrap_or(0),
                    current_version: self.current_version(consumed.table),
                    group_members: consumer.grouping.map(|grouping| grouping.size),
                });
            }
        }
        shown
    }

    /// Rows of live claims, by consumer and table.
    fn processing_rows(&self) -> HashMap<(usize, u32), u64> {
        let mut rows = HashMap::new();
        for (_, claim) in self.claims.iter().filter(|(_, claim)| claim.progress.is_live()) {
            *rows.entry((claim.consumer, claim.table)).or_default() += claim.rows.len() as u64;
        }
        rows
    }
}
