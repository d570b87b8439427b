//! What a run tells at its end: for people, and as one JSON object.

mod json;

use std::collections::BTreeMap;
use std::path::PathBuf;

use comfy_table::{Table, presets};

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
        let command = std::env::args().next().unwrap_or_else(|| "forebay".to_owned());
        let SampleReport { written, consumed, excluded, open } = &self.samples;
        let reasons = match excluded.is_empty() {
            true => "none".to_owned(),
            false => excluded
                .iter()
                .map(|(reason, rows)| format!("{rows} {reason}"))
                .collect::<Vec<_>>()
                .join(", "),
        };
        let dir = self.store.display();
        format!(
            "{}\n\
             samples   {written} written, {consumed} consumed, excluded: {reasons}, {open} still open\n\
             overlap   {:.1} s of training, {:.0} % of it while rollouts of the same step were running\n\
             store     {dir}\n\n\
             Look inside:\n  \
             {command} sql --dir {dir} 'SELECT policy_version, count(*), avg(reward) FROM solver GROUP BY 1 ORDER BY 1'\n  \
             {command} sql --dir {dir} \"SELECT sample_id, response_text, reward FROM checker WHERE reward = 0 LIMIT 5\"\n  \
             {command} sql --dir {dir} 'SELECT consumer, state, count(*), sum(rows) FROM system.claims GROUP BY 1, 2'",
            self.accuracy_table(),
            self.overlap.training_s,
            self.overlap.share() * 100.0,
        )
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
            "greedy before",
            "greedy after",
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

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
