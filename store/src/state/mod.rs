//! The state of the store: a pure function of its log.
//!
//! [`State::apply`] is the only way in which anything here changes, and it takes nothing but records. A live call
//! checks its arguments against the state, decides, makes a record, and applies it; recovery applies the same records
//! from the log. There is no second path that could differ.
//!
//! Nothing in this folder does I/O, reads a clock or waits. [`mod@decide`] and [`mod@declare`] hold the checks and
//! decisions, [`mod@apply`] the changes, [`mod@show`] what people see.

pub(crate) mod apply;
mod decide;
mod declare;
mod delete;
mod forgetting;
mod fresh;
mod groups;
mod lengths;
mod limit;
mod live;
mod numbering;
mod schema;
mod show;
mod values;
pub use show::ConsumerInfo;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

pub(crate) use decide::{Insertion, Request};
pub(crate) use declare::{check_planned, declare, unknown};
pub(crate) use delete::runs_of;
pub(crate) use forgetting::Forgetting;
pub(crate) use limit::Ask;
pub(crate) use numbering::Numbering;

use crate::claim::ClaimBook;
use crate::consumer::ConsumerState;
use crate::extent::Liveness;
use crate::heap::HeapBytes;
use crate::log::record::{ConsumerRecord, Operation};
use crate::page::CowArc;
use crate::policy::PolicyState;
use crate::sample_id::SampleId;
use crate::step::StepState;
use crate::table::{Chunk, Identity, TableState};
use crate::texts::Texts;

/// Everything that the store knows.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) incarnation: u64,
    pub(crate) policies: Vec<PolicyState>,
    pub(crate) tables: Vec<TableState>,
    pub(crate) consumers: Vec<ConsumerState>,
    /// What each consumer was declared as.
    pub(crate) declarations: Vec<ConsumerRecord>,
    pub(crate) claims: ClaimBook,
    pub(crate) steps: BTreeMap<u64, StepState>,
    /// No rewind goes back to a step before this one.
    pub(crate) rewind_floor: u64,
    tables_by_name: HashMap<Arc<str>, usize>,
    policies_by_name: HashMap<Arc<str>, usize>,
    consumers_by_name: HashMap<Arc<str>, usize>,
    pub(crate) texts: Texts,
    /// What is live in the extents.
    pub(crate) liveness: Liveness,
    /// Records applied: the commit number.
    pub(crate) commits: u64,
}

/// What a change means for those who wait.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// Consumers for whom something may be claimable, a bit each; the last stands for all beyond.
    pub(crate) touched: u64,
    /// Consumers of whom everyone who waits is to look.
    pub(crate) everyone: Vec<usize>,
    /// Consumers that may find something to claim, or whose step may be complete.
    pub(crate) wake: Vec<usize>,
    /// What was applied and is of no use any more, for whoever holds the lock to drop after it.
    pub(crate) spent: Vec<Operation>,
    /// Chunks of which nothing is left, for the same.
    pub(crate) gone: Vec<CowArc<Chunk>>,
}

impl Effects {
    /// Something may be claimable for a consumer that was not before, or no longer.
    pub(crate) fn touch(&mut self, consumer: usize) {
        self.touched |= 1 << consumer.min(63);
    }

    pub(crate) fn touches(&self, consumer: usize) -> bool {
        self.touched >> consumer.min(63) & 1 == 1
    }
}

impl State {
    pub(crate) fn new(claims_kept: usize) -> Self {
        State {
            incarnation: 0,
            policies: Vec::new(),
            tables: Vec::new(),
            consumers: Vec::new(),
            declarations: Vec::new(),
            claims: ClaimBook::new(claims_kept),
            steps: BTreeMap::new(),
            rewind_floor: 0,
            tables_by_name: HashMap::new(),
            policies_by_name: HashMap::new(),
            consumers_by_name: HashMap::new(),
            texts: Texts::new(),
            liveness: Liveness::default(),
            commits: 0,
        }
    }

    /// The latest attempt at a sample.
    pub(crate) fn find_row(&self, table: u32, policy_version: u64, sample: &SampleId) -> Option<u32> {
        self.tables[table as usize].find(self.identity(policy_version, sample)?)
    }

    /// Whether a row of that identity was deleted for good.
    pub(crate) fn is_deleted(&self, table: u32, policy_version: u64, sample: &SampleId) -> bool {
        let identity = self.identity(policy_version, sample);
        identity.is_some_and(|identity| self.tables[table as usize].rare.is_deleted(&identity))
    }

    /// What names a row; `None` while no row has that input.
    fn identity(&self, policy_version: u64, sample: &SampleId) -> Option<Identity> {
        let input = self.texts.find(sample.input())?;
        let (turn, trajectory) = (sample.turn(), sample.trajectory());
        Some(Identity { policy_version, input, turn, trajectory })
    }

    /// Bytes of memory, other than mapped files'.
    pub(crate) fn heap_bytes(&self) -> usize {
        let consumers = self.consumers.iter().map(ConsumerState::heap_bytes);
        let tables = self.tables.iter().map(TableState::heap_bytes);
        let steps = self.steps.values().map(StepState::heap_bytes).sum::<usize>() + self.steps.heap_bytes();
        let rest = self.claims.heap_bytes() + steps + self.liveness.heap_bytes();
        self.texts.heap_bytes() + tables.chain(consumers).sum::<usize>() + rest
    }

    /// Bytes of memory of the pages of full chunks, other than mapped files'.
    pub(crate) fn full_chunk_bytes(&self) -> usize {
        self.tables.iter().map(TableState::full_chunk_bytes).sum()
    }

    /// Takes a policy in.
    pub(crate) fn add_policy(&mut self, policy: PolicyState) {
        self.policies_by_name.insert(policy.name.clone(), self.policies.len());
        self.policies.push(policy);
    }

    /// The sample id of a row.
    pub(crate) fn sample_of(&self, table: u32, row: u32) -> SampleId {
        self.tables[table as usize].meta(row).sample(self.texts.pages()).to_id()
    }

    /// A row as a message shows it: what its writer knows it by.
    pub(crate) fn shown_row(&self, table: u32, row: u32) -> String {
        let version = self.tables[table as usize].meta(row).policy_version;
        format!("{:?} (version {version})", self.sample_of(table, row).to_string())
    }

    pub(crate) fn table_named(&self, name: &str) -> Option<usize> {
        self.tables_by_name.get(name).copied()
    }

    pub(crate) fn policy_named(&self, name: &str) -> Option<usize> {
        self.policies_by_name.get(name).copied()
    }

    pub(crate) fn consumer_named(&self, name: &str) -> Option<usize> {
        self.consumers_by_name.get(name).copied()
    }

    /// The version that rows of a table must have to be fresh.
    pub(crate) fn current_version(&self, table: u32) -> u64 {
        self.policies[self.tables[table as usize].policy].version
    }

    /// The step that is open.
    pub(crate) fn open_step(&self) -> Option<u64> {
        let (number, step) = self.steps.last_key_value()?;
        (step.progress == crate::step::StepProgress::Open).then_some(*number)
    }

    /// The number that the next step gets.
    pub(crate) fn next_step(&self) -> u64 {
        let committed = |step: &StepState| step.progress.was_committed();
        self.steps.iter().rev().find(|(_, step)| committed(step)).map_or(1, |(number, _)| number + 1)
    }
}
