//! The summary in the form that programs read.

use std::collections::BTreeMap;

use serde::Serialize;

use super::groups::milliseconds;
use super::{GroupReport, MicroBatches, PolicyReport, SampleReport, Summary};
use crate::run::Overlap;

#[derive(Serialize)]
pub(super) struct SummaryJson<'a> {
    seed: u64,
    steps: u64,
    policies: Vec<PolicyJson<'a>>,
    samples: SamplesJson<'a>,
    overlap: OverlapJson,
    #[serde(skip_serializing_if = "Option::is_none")]
    micro_batches: Option<MicroBatchesJson>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    process_groups: Vec<GroupJson<'a>>,
    store: String,
}

#[derive(Serialize)]
struct PolicyJson<'a> {
    name: &'a str,
    version: u64,
    held_out_first: f64,
    held_out_last: f64,
    held_out_first_greedy: f64,
    held_out_last_greedy: f64,
    families: BTreeMap<&'a str, FamilyJson>,
    weights_sha256: &'a str,
}

#[derive(Serialize)]
struct GroupJson<'a> {
    agent: &'a str,
    world: usize,
    resumes: u64,
    resume_ms: f64,
    resume_ms_longest: f64,
    suspends: u64,
    suspend_ms: f64,
    suspend_ms_longest: f64,
    lost_ranks: u64,
    failed_starts: u64,
    found_accumulated: u64,
    found_applied: u64,
}

#[derive(Serialize)]
struct FamilyJson {
    first: f64,
    last: f64,
    majority: f64,
}

#[derive(Serialize)]
struct SamplesJson<'a> {
    written: u64,
    consumed: u64,
    excluded: &'a BTreeMap<String, u64>,
    open: u64,
}

#[derive(Serialize)]
struct MicroBatchesJson {
    trained: u64,
    early: u64,
}

#[derive(Serialize)]
struct OverlapJson {
    training_s: f64,
    training_during_rollout_s: f64,
}

impl<'a> From<&'a Summary> for SummaryJson<'a> {
    fn from(summary: &'a Summary) -> Self {
        let SampleReport { written, consumed, excluded, open } = &summary.samples;
        let Overlap { training_s, training_during_rollout_s } = summary.overlap;
        SummaryJson {
            seed: summary.seed,
            steps: summary.steps,
            policies: summary.policies.iter().map(PolicyJson::from).collect(),
            samples: SamplesJson { written: *written, consumed: *consumed, excluded, open: *open },
            overlap: OverlapJson {
                training_s: round(training_s),
                training_during_rollout_s: round(training_during_rollout_s),
            },
            micro_batches: summary.micro_batches.map(MicroBatchesJson::from),
            process_groups: summary.process_groups.iter().map(GroupJson::from).collect(),
            store: summary.store.display().to_string(),
        }
    }
}

impl From<MicroBatches> for MicroBatchesJson {
    fn from(MicroBatches { trained, early }: MicroBatches) -> Self {
        MicroBatchesJson { trained, early }
    }
}

impl<'a> From<&'a PolicyReport> for PolicyJson<'a> {
    fn from(policy: &'a PolicyReport) -> Self {
        let pairs = policy.first.families.iter().zip(&policy.last.families);
        let families = pairs.map(|(first, last)| {
            let [first_mean, last_mean, majority] = [first.mean, last.mean, first.majority].map(round);
            (first.family.as_str(), FamilyJson { first: first_mean, last: last_mean, majority })
        });
        PolicyJson {
            name: &policy.name,
            version: policy.version,
            held_out_first: round(policy.first.mean),
            held_out_last: round(policy.last.mean),
            held_out_first_greedy: round(policy.first.greedy),
            held_out_last_greedy: round(policy.last.greedy),
            families: families.collect(),
            weights_sha256: &policy.weights_sha256,
        }
    }
}

impl<'a> From<&'a GroupReport> for GroupJson<'a> {
    fn from(group: &'a GroupReport) -> Self {
        let GroupReport { agent, world, counts, found } = group;
        let (resumes, suspends) = (counts.starts, counts.suspends);
        GroupJson {
            agent,
            world: *world,
            resumes: resumes.times,
            resume_ms: round(milliseconds(resumes.mean())),
            resume_ms_longest: round(milliseconds(resumes.longest)),
            suspends: suspends.times,
            suspend_ms: round(milliseconds(suspends.mean())),
            suspend_ms_longest: round(milliseconds(suspends.longest)),
            lost_ranks: counts.lost_ranks,
            failed_starts: counts.failed_starts,
            found_accumulated: found.accumulated,
            found_applied: found.applied,
        }
    }
}

fn round(value: f64) -> f64 {
    (value * 10_000.0).round() / 10_000.0
}
