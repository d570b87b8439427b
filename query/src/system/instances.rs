//! `system.instances`: a row for each that does rollouts, as far as the store is told of them.
//!
//! The store knows who claims the rows of *tasks*, by the name that comes with each claim: a rollout worker, or the
//! inference server itself where that claims on its own. Of claims it remembers the live ones and the last that ended, so
//! who has been idle for long is not shown. Where an instance runs, its device and its load are not told to the store; the
//! weights that a rollout ran on are in the column `weights` of its rows.

use std::collections::{BTreeMap, BTreeSet};

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use forebay_store::{ClaimInfo, ClaimProgress, Timestamp};

use super::Moment;
use super::fields::Fields;

/// What consumers are that hand out rollouts.
const TASK: &str = "task";

/// What is remembered of the claims of one owner.
struct Instance {
    tasks: BTreeSet<String>,
    claims: u64,
    rows: u64,
    finished: u64,
    given_up: u64,
    first_claim_at: Timestamp,
    last_seen_at: Timestamp,
    /// Of its live claims, the first to come.
    deadline: Option<Timestamp>,
}

impl Instance {
    fn first_seen(claim: &ClaimInfo) -> Self {
        Instance {
            tasks: BTreeSet::new(),
            claims: 0,
            rows: 0,
            finished: 0,
            given_up: 0,
            first_claim_at: claim.granted_at,
            last_seen_at: claim.granted_at,
            deadline: None,
        }
    }

    fn add(&mut self, claim: &ClaimInfo) {
        self.tasks.insert(claim.consumer.clone());
        self.first_claim_at = self.first_claim_at.min(claim.granted_at);
        match claim.progress {
            ClaimProgress::Leased | ClaimProgress::Accumulated => {
                self.claims += 1;
                self.rows += claim.rows;
                self.deadline = Some(self.deadline.map_or(claim.deadline, |first| first.min(claim.deadline)));
                self.last_seen_at = self.last_seen_at.max(claim.granted_at);
            }
            ended => {
                match ended {
                    ClaimProgress::Finished => self.finished += 1,
                    _ => self.given_up += 1,
                }
                // A claim that expired or was lost is ended by others; its holder was last seen when it took it.
                let by_holder = matches!(ended, ClaimProgress::Finished | ClaimProgress::Released);
                let seen = claim.ended_at.filter(|_| by_holder).unwrap_or(claim.granted_at);
                self.last_seen_at = self.last_seen_at.max(seen);
            }
        }
    }
}

pub(super) fn make(moment: &Moment) -> Result<RecordBatch, ArrowError> {
    let consumers = moment.store.consumers();
    let tasks: BTreeSet<&str> =
        consumers.iter().filter(|consumer| consumer.kind == TASK).map(|task| task.name.as_str()).collect();
    let mut found: BTreeMap<String, Instance> = BTreeMap::new();
    for claim in moment.store.claims().iter().filter(|claim| tasks.contains(claim.consumer.as_str())) {
        found.entry(claim.owner.clone()).or_insert_with(|| Instance::first_seen(claim)).add(claim);
    }
    let instances = || found.values();
    let taken = Fields::default().texts("task", instances().flat_map(|instance| &instance.tasks));
    Fields::default()
        .texts("instance", found.keys())
        .lists("tasks", instances().map(|instance| instance.tasks.len()), taken)?
        .numbers("claims", instances().map(|instance| instance.claims))
        .numbers("processing_rows", instances().map(|instance| instance.rows))
        .numbers("finished_claims", instances().map(|instance| instance.finished))
        .numbers("unfinished_claims", instances().map(|instance| instance.given_up))
        .times("first_claim_at", instances().map(|instance| instance.first_claim_at))
        .times("last_seen_at", instances().map(|instance| instance.last_seen_at))
        .optional_times("deadline", instances().map(|instance| instance.deadline))
        .batch(found.len())
}
