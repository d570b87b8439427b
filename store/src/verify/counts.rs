//! Numbers that have to agree.
//!
//! They do after a replay, or the program is wrong; a checkpoint may say otherwise. Counting again costs one look at
//! every row.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use super::fault::FaultKind;
use super::report::VerifyReport;
use crate::claim::ClaimProgress;
use crate::state::State;
use crate::step::StepProgress;
use crate::table::{Progress, Purpose, TableCounts, TableState};
use crate::texts::Texts;

pub(super) fn check_counts(path: &Path, report: &mut VerifyReport, state: &State) {
    let folder = path.join("log");
    let mut differ = |reason: String| report.fault(FaultKind::Count, &folder, 0, reason);
    for table in &state.tables {
        check_table(table, &state.texts, &mut differ);
        for (slot, &consumer) in table.consumers.iter().enumerate() {
            check_words(state, table, slot, consumer, &mut differ);
        }
    }
    check_steps(state, &mut differ);
    let checked = &mut report.checked;
    checked.tables = state.tables.len() as u64;
    checked.rows = state.tables.iter().map(|table| u64::from(table.row_count())).sum();
    checked.claims = state.claims.iter().count() as u64;
    checked.steps = state.steps.len() as u64;
    checked.policies = state.policies.len() as u64;
    checked.consumers = state.consumers.len() as u64;
}

/// `written = consumed + excluded + open`, counted again from the rows.
fn check_table(table: &TableState, texts: &Texts, differ: &mut impl FnMut(String)) {
    let mut counted = TableCounts::default();
    let mut excluded: BTreeMap<String, u64> = BTreeMap::new();
    let (mut open, mut removed) = (0, false);
    for row in 0..table.row_count() {
        let (meta, status) = (table.meta(row), table.status(row));
        if table.is_removed(row) {
            removed = true;
            continue;
        }
        if meta.purpose() != Purpose::Train {
            continue;
        }
        counted.written += 1;
        if status.step != 0 {
            counted.consumed += 1;
        } else if status.is_excluded() {
            *excluded.entry(texts.get(status.excluded).to_owned()).or_default() += 1;
        } else {
            open += 1;
        }
    }
    counted.excluded = excluded;
    // Rows that were removed stay counted as what they were; none of them is open.
    if (!removed && counted != table.counts) || open != table.counts.open() {
        differ(format!(
            "table {} counts {:?} and {} open, its rows are {counted:?} and {open} open",
            table.name,
            table.counts,
            table.counts.open()
        ));
    }
}

/// A row that is in somebody's hands is in the hands of exactly one live claim, which lists it. Rows that were removed are in
/// nobody's, whoever lists them.
fn check_words(
    state: &State,
    table: &TableState,
    slot: usize,
    consumer: usize,
    differ: &mut impl FnMut(String),
) {
    let mut held: HashSet<(u32, u64)> = HashSet::new();
    for (number, claim) in state.claims.iter().filter(|(_, claim)| claim.progress.is_live()) {
        if claim.consumer == consumer && claim.table == table.id {
            for &row in claim.rows.iter().filter(|row| !table.is_removed(**row)) {
                let word = table.word(slot, row);
                let expected = match claim.progress {
                    ClaimProgress::Accumulated => Progress::Accumulated,
                    _ => Progress::Leased,
                };
                // A row that was left out while it was held is out; the claim that lists it is told when it goes on.
                if word.progress != Progress::Out
                    && (word.progress, word.ticket_or_claim) != (expected, number)
                {
                    differ(format!(
                        "claim {number} lists row {row} of table {}, which is {word:?}",
                        table.name
                    ));
                }
                held.insert((row, number));
            }
        }
    }
    let mut ready = 0;
    for row in (0..table.row_count()).filter(|row| !table.is_removed(*row)) {
        let word = table.word(slot, row);
        let over = state.consumers[consumer].is_over(table.id, table.meta(row).lane());
        ready += usize::from(word.progress == Progress::Ready && !over);
        let in_hands = matches!(word.progress, Progress::Leased | Progress::Accumulated);
        if in_hands && !held.contains(&(row, word.ticket_or_claim)) {
            differ(format!("row {row} of table {} is {word:?}, no live claim lists it", table.name));
        }
    }
    let state = &state.consumers[consumer];
    let queued = state.ready_rows(table.id, 0..=u64::MAX) + state.external_ready_rows(table.id);
    if state.grouping.is_none() && queued != ready {
        differ(format!("consumer {} has {queued} rows queued, {ready} are ready", state.name));
    }
}

/// A step lists claims that were granted, and its policies are not ahead of what it moved them to.
fn check_steps(state: &State, differ: &mut impl FnMut(String)) {
    for (number, step) in &state.steps {
        if let Some(claim) =
            step.membership().claims.iter().find(|&&claim| claim >= state.claims.next_number())
        {
            differ(format!("step {number} lists claim {claim}, which was never granted"));
        }
        if step.progress == StepProgress::Rewound {
            continue;
        }
        for update in &step.updates {
            let (policy, version) = (&state.policies[update.policy], update.version);
            if policy.version < version {
                let name = &policy.name;
                differ(format!("step {number} moved policy {name} to {version}, which it is behind of"));
            }
        }
    }
}
