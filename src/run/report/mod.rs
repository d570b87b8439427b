//! What a run tells at its end: for people, and as one JSON object.

mod groups;
mod json;

use std::collections::BTreeMap;
use std::path::PathBuf;

use comfy_table::{Table, presets};

pub use groups::{Found, GroupReport};

use super::overlap::Overlap;
use crate::reasoning::evaluation::Accuracy;

/// One policy, from its warm-up to the end of the run.
#[derive(Clone, Debug)]
pub struct PolicyReport {
    /// Its name.
    pub name: String,
    /// How many updates it has had.
    pub version: u64,
    /// Held-out accuracy before the first step.
    pub first: Accuracy,
    /// Held-out accuracy after the last.
    pub last: Accuracy,
    /// SHA-256 of the weights.
    pub weights_sha256: String,
}

/// What became of the samples, over all agents. `written = consumed + excluded + open`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampleReport {
    /// Rows written.
    pub written: u64,
    /// Rows trained on.
    pub consumed: u64,
    /// Rows left out, by reason.
    pub excluded: BTreeMap<String, u64>,
    /// Rows neither trained on nor left out.
    pub open: u64,
}

/// Micro-batches whose gradients were computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MicroBatches {
    /// All of them.
    pub trained: u64,
    /// Those that had rows of groups which were not complete yet.
    pub early: u64,
}

impl MicroBatches {
    /// One more was trained.
    pub(super) fn add(&mut self, is_early: bool) {
        *self = *self + MicroBatches { trained: 1, early: u64::from(is_early) };
    }
}

impl std::ops::Add for MicroBatches {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        MicroBatches { trained: self.trained + other.trained, early: self.early + other.early }
    }
}

/// What a run has done.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The run's seed.
    pub seed: u64,
    /// Steps committed, over all lives of the run.
    pub steps: u64,
    /// Every policy.
    pub policies: Vec<PolicyReport>,
    /// What became of the samples.
    pub samples: SampleReport,
    /// How much of training ran during rollouts, in this life of the run.
    pub overlap: Overlap,
    /// What was trained before its groups were complete, in this life of the run; none where that was not asked for.
    pub micro_batches: Option<MicroBatches>,
    /// Every agent's process group; none where trainers are in the run's process.
    pub process_groups: Vec<GroupReport>,
    /// Where the store lies.
    pub store: PathBuf,
}

impl Summary {
    /// The summary as one JSON object, on one line.
    pub fn to_json(&self) -> String {
        serde_json::to_string(&json::SummaryJson::from(self)).unwrap_or_default()
    }

    /// The summary for people.
    pub fn to_text(&self) -> String {
        let SampleReport { written, consumed, excluded, open } = &self.samples;
        let reasons = match excluded.is_empty() {
            true => "none".to_owned(),
            false => excluded
                .iter()
                .map(|(reason, rows)| format!("{rows} {reason}"))
                .collect::<Vec<_>>()
                .join(", "),
        };
        let early = self.micro_batches.map_or_else(String::new, |MicroBatches { trained, early }| {
            format!("early     {early} of {trained} micro-batches, with rows of groups that were not complete yet\n")
        });
        let dir = self.store.display();
        let groups: String =
            self.process_groups.iter().map(|group| format!("{}\n", group.to_text())).collect();
        format!(
            "{}\n\
             samples   {written} written, {consumed} consumed, excluded: {reasons}, {open} still open\n\
             overlap   {:.1} s of training, {:.0} % of it while rollouts of the same step were running\n\
             {early}{groups}store     {dir}\n\n\
             Look inside:\n{}",
            self.accuracy_table(),
            self.overlap.training_s,
            self.overlap.share() * 100.0,
            self.suggestions(),
        )
    }

    /// Three commands to try next, to be pasted as they are.
    fn suggestions(&self) -> String {
        let command = std::env::args().next().unwrap_or_else(|| "forebay".to_owned());
        let (first, last) = match self.policies.as_slice() {
            [] => return String::new(),
            [first, .., last] => (&first.name, &last.name),
            [only] => (&only.name, &only.name),
        };
        let statements = [
            format!("SELECT policy_version, count(*), avg(reward) FROM \"{first}\" GROUP BY 1 ORDER BY 1"),
            format!("SELECT sample_id, response_text, reward FROM \"{last}\" WHERE reward = 0 LIMIT 5"),
            "SELECT consumer, state, count(*), sum(rows) FROM system.claims GROUP BY 1, 2".to_owned(),
        ];
        let dir = quoted(&self.store.display().to_string());
        statements.map(|sql| format!("  {} sql --dir {dir} '{sql}'", quoted(&command))).join("\n")
    }

    fn accuracy_table(&self) -> Table {
        let mut table = Table::new();
        table.load_preset(presets::UTF8_BORDERS_ONLY);
        table.set_header([
            "policy",
            "held-out family",
            "items",
            "before",
            "after",
            "greedy",
            "after",
            "majority",
        ]);
        for policy in &self.policies {
            let name = format!("{} v{}", policy.name, policy.version);
            for (first, last) in policy.first.families.iter().zip(&policy.last.families) {
                let shares = [first.mean, last.mean, first.greedy, last.greedy, first.majority].map(percent);
                let start = [name.clone(), first.family.clone(), first.items.to_string()];
                table.add_row(start.into_iter().chain(shares));
            }
            let (first, last) = (&policy.first, &policy.last);
            let means = [first.mean, last.mean, first.greedy, last.greedy].map(percent);
            table
                .add_row([name, "all".into(), String::new()].into_iter().chain(means).chain([String::new()]));
        }
        table
    }
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
