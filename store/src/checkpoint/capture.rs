//! Takes what a checkpoint needs from the state: references to pages, and images of the small rest.

use std::collections::HashSet;
use std::sync::Arc;

use super::consumers::{self, ConsumerCapture};
use super::manifest::*;
use crate::claim::ClaimState;
use crate::consumer::{GroupBy, GroupName};
use crate::index::Run;
use crate::log::record::{ColumnRecord, ObjectRecord, PlanRecord};
use crate::object::ObjectRef;
use crate::page::CowArc;
use crate::state::State;
use crate::step::{Planned, StepState};
use crate::table::{Chunk, RareRecord, TableCounts, TableState, TallyImage};
use crate::texts::TextPages;

/// The state at one instant, as far as a checkpoint is concerned.
pub(super) struct Capture {
    pub(super) commits: u64,
    pub(super) rewind_floor: u64,
    pub(super) incarnation: u64,
    pub(super) texts: TextPages,
    pub(super) text_count: u32,
    pub(super) text_runs: Vec<Run>,
    pub(super) tables: Vec<TableCapture>,
    pub(super) policies: Vec<PolicyImage>,
    pub(super) consumers: Vec<ConsumerCapture>,
    pub(super) claims: Vec<ClaimImage>,
    pub(super) next_claim: u64,
    pub(super) steps: Vec<StepImage>,
    pub(super) liveness: LivenessImage,
    /// The groups that steps plan.
    pub(super) planned: Vec<Arc<HashSet<GroupName>>>,
}

/// A table at that instant.
pub(super) struct TableCapture {
    pub(super) name: String,
    pub(super) policy: u32,
    pub(super) columns: Vec<ColumnRecord>,
    pub(super) counts: TableCounts,
    pub(super) chunks: Vec<CowArc<Chunk>>,
    pub(super) rows: u32,
    pub(super) runs: Vec<Run>,
    pub(super) partials: Vec<PartialImage>,
    pub(super) rare: RareRecord,
    pub(super) tallies: Vec<TallyImage>,
    pub(super) schema_version: u32,
}

/// Called with the state locked. Copies no page.
pub(super) fn capture(state: &mut State) -> Capture {
    let text_count = state.texts.count();
    state.texts.index.begin_generation(text_count);
    state.texts.watch();
    let tables = state.tables.iter_mut().map(table).collect();
    let consumers = consumers::capture(state);
    let policies = state.policies.iter().map(|policy| PolicyImage {
        name: policy.name.to_string(),
        version: policy.version,
        updated_at: policy.updated_at.0,
        objects: objects(&policy.objects),
        first: (policy.first.version, policy.first.updated_at.0, objects(&policy.first.objects)),
        state_keys: policy.state_keys.iter().map(ToString::to_string).collect(),
    });
    Capture {
        commits: state.commits,
        rewind_floor: state.rewind_floor,
        incarnation: state.incarnation,
        texts: state.texts.pages().clone(),
        text_count,
        text_runs: state.texts.index.runs().to_vec(),
        policies: policies.collect(),
        consumers,
        claims: state.claims.in_order().map(|(number, state)| claim(number, state)).collect(),
        next_claim: state.claims.next_number(),
        steps: state.steps.iter().map(|(number, step)| self::step(*number, step, state)).collect(),
        liveness: state.liveness.image(),
        planned: state
            .steps
            .values()
            .flat_map(|step| &step.membership().planned)
            .map(|p| p.groups.clone())
            .collect(),
        tables,
    }
}

fn objects(objects: &[ObjectRef]) -> Vec<ObjectRecord> {
    objects.iter().map(ObjectRef::record).collect()
}

fn table(table: &mut TableState) -> TableCapture {
    table.index.begin_generation(table.row_count());
    let columns = table.schema.data_columns().iter();
    let mut partials: Vec<PartialImage> = table
        .partials
        .iter()
        .map(|(&(row, column), views)| {
            let views = views.iter().map(|view| view.0).collect();
            PartialImage { row, column, views }
        })
        .collect();
    partials.sort_by_key(|partial| (partial.row, partial.column));
    TableCapture {
        name: table.name.to_string(),
        policy: table.policy as u32,
        columns: columns.map(ColumnRecord::new).collect(),
        counts: table.counts.clone(),
        chunks: table.chunks.clone(),
        rows: table.row_count(),
        runs: table.index.runs().to_vec(),
        partials,
        rare: table.rare.record(),
        tallies: table.tallies.image(),
        schema_version: table.schema.version(),
    }
}

fn claim(number: u64, claim: &ClaimState) -> ClaimImage {
    ClaimImage {
        number,
        consumer: claim.consumer as u32,
        table: claim.table,
        rows: claim.rows.clone(),
        row_count: claim.row_count,
        owner: claim.owner.0,
        incarnation: claim.incarnation,
        granted_at: claim.granted_at.0,
        deadline: claim.deadline.0,
        accumulated_at: claim.accumulated_at.map(|time| time.0),
        ended_at: claim.ended_at.map(|time| time.0),
        step: claim.step,
        sequence_in_step: claim.sequence_in_step,
        gang: claim.gang.clone(),
        ranks_done: claim.ranks_done.clone(),
        progress: claim.progress as u8,
    }
}

fn step(number: u64, step: &StepState, state: &State) -> StepImage {
    let updates = step.updates.iter().map(|update| UpdateImage {
        policy: update.policy as u32,
        version: update.version,
        objects: objects(&update.objects),
    });
    let membership = step.membership();
    let batches = membership.batches.iter().map(|batch| BatchImage {
        claim: batch.claim,
        consumer: batch.consumer as u32,
        table: batch.table,
        sequence: batch.sequence,
    });
    let dropped = membership.caches_dropped.iter().map(|(policy, count)| (*policy as u32, *count));
    StepImage {
        number,
        progress: step.progress as u8,
        begun_at: step.begun_at.0,
        ended_at: step.ended_at.map(|time| time.0),
        planned: membership.planned.iter().map(|entry| planned(entry, state)).collect(),
        claims: membership.claims.clone(),
        batches: batches.collect(),
        first_cache_epoch: membership.first_cache_epoch,
        caches_dropped: dropped.collect(),
        rows: step.rows,
        deleted_rows: step.deleted_rows,
        updates: updates.collect(),
    }
}

fn planned(planned: &Planned, state: &State) -> PlannedImage {
    let by = state.consumers[planned.consumer].grouping.map_or(GroupBy::Input, |grouping| grouping.by);
    let mut groups: Vec<String> =
        planned.groups.iter().map(|name| by.show(*name, state.texts.pages())).collect();
    groups.sort();
    let plan = PlanRecord { consumer: planned.consumer as u32, groups, rows: planned.rows };
    PlannedImage { plan, claims: planned.claims, held: planned.held }
}
