//! How good a policy is on problems that nobody trains on.
//!
//! Two measures: the mean over a few samples at temperature 1, which is what training works on, and the greedy answer.
//! For the solver the share of the commonest answer is shown beside them: what one gets without reading the question.

use std::collections::HashMap;

use forebay_trainer_adapter::generation::Generator;
use forebay_trainer_adapter::{CpuDevice, Error, GenerateOptions, GenerateRequest, Policy, SampleKey};

use super::problem::{CheckedAnswer, Problem, families};
use super::vocabulary::Vocabulary;

/// A prompt, and which responses to it are right.
#[derive(Clone, Debug)]
pub struct Item {
    family: String,
    prompt: Vec<u32>,
    answer: Vec<u8>,
    /// What a checker was shown; `None` for a solver.
    shown: Option<Vec<u8>>,
}

impl Item {
    /// A solver is right when it says the answer. A checker's verdict is *right* when it repeats what it was shown, and it
    /// is right when that verdict is true: so neither copying nor writing anything else is worth more than half.
    fn judges(&self, said: Option<&[u8]>) -> bool {
        match &self.shown {
            None => said == Some(&self.answer),
            Some(shown) => (said == Some(shown)) == (*shown == self.answer),
        }
    }
}

/// The solver's items: held-out problems, at most `limit` of each family.
pub fn solver_items(vocabulary: &Vocabulary, problems: &[Problem], limit: usize) -> Vec<Item> {
    let items = problems.iter().map(|problem| Item {
        family: problem.family.clone(),
        prompt: vocabulary.solver_prompt(&problem.question),
        answer: problem.answer.clone().into_bytes(),
        shown: None,
    });
    limited(items, limit)
}

/// The checker's items: the fixed, balanced set of answers, at most `limit` problems of each family. A problem's right
/// and wrong answer stand together, so the balance is kept.
pub fn checker_items(vocabulary: &Vocabulary, answers: &[CheckedAnswer], limit: usize) -> Vec<Item> {
    let right_answers: HashMap<&str, &str> =
        answers.iter().filter(|a| a.right).map(|a| (a.question.as_str(), a.answer.as_str())).collect();
    let items = answers.iter().filter_map(|checked| {
        Some(Item {
            family: checked.family.clone(),
            prompt: vocabulary.checker_prompt(&checked.question, checked.answer.as_bytes()),
            answer: right_answers.get(checked.question.as_str())?.as_bytes().to_vec(),
            shown: Some(checked.answer.clone().into_bytes()),
        })
    });
    limited(items, limit.saturating_mul(2))
}

fn limited(items: impl Iterator<Item = Item>, limit: usize) -> Vec<Item> {
    let mut taken: HashMap<String, usize> = HashMap::new();
    items
        .filter(|item| {
            let count = taken.entry(item.family.clone()).or_default();
            *count += 1;
            *count <= limit
        })
        .collect()
}

/// Shares of right responses, from 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Accuracy {
    /// Over all families alike.
    pub mean: f64,
    /// The same for greedy responses.
    pub greedy: f64,
    /// One family after the other.
    pub families: Vec<FamilyAccuracy>,
}

/// Shares of right responses in one family.
#[derive(Clone, Debug, PartialEq)]
pub struct FamilyAccuracy {
    /// The family.
    pub family: String,
    /// Mean over samples at temperature 1.
    pub mean: f64,
    /// Greedy.
    pub greedy: f64,
    /// What the commonest answer alone would get; for a checker, what a constant verdict would get.
    pub majority: f64,
    /// How many items it has.
    pub items: usize,
}

/// How responses are drawn for an evaluation.
#[derive(Clone, Copy, Debug)]
pub struct EvaluationOptions {
    /// Names the random numbers; fixed, so that two evaluations of the same weights agree.
    pub seed: u64,
    /// Samples of each item at temperature 1.
    pub samples: usize,
    /// Most tokens of a response.
    pub max_new_tokens: usize,
}

/// Measures a policy on some items.
///
/// # Errors
/// As for generation: a prompt that is too long, for instance.
pub fn evaluate(
    policy: &Policy<CpuDevice>,
    vocabulary: &Vocabulary,
    items: &[Item],
    options: EvaluationOptions,
) -> Result<Accuracy, Error> {
    let mut generator = Generator::new(&CpuDevice::inline());
    let sampled = shares(&mut generator, policy, vocabulary, items, options, 1.0)?;
    let greedy =
        shares(&mut generator, policy, vocabulary, items, EvaluationOptions { samples: 1, ..options }, 0.0)?;
    let names = families(items.iter().map(|item| item.family.as_str()));
    let families: Vec<FamilyAccuracy> =
        names.into_iter().map(|family| summarize(family, items, &sampled, &greedy)).collect();
    let over_families =
        |share: fn(&FamilyAccuracy) -> f64| families.iter().map(share).sum::<f64>() / families.len() as f64;
    Ok(Accuracy { mean: over_families(|f| f.mean), greedy: over_families(|f| f.greedy), families })
}

/// The share of right responses of each item.
fn shares(
    generator: &mut Generator<CpuDevice>,
    policy: &Policy<CpuDevice>,
    vocabulary: &Vocabulary,
    items: &[Item],
    options: EvaluationOptions,
    temperature: f32,
) -> Result<Vec<f64>, Error> {
    const ITEMS_AT_ONCE: usize = 16;
    let settings = GenerateOptions {
        temperature,
        max_new_tokens: options.max_new_tokens,
        stop_token: Some(vocabulary.end),
    };
    let mut shares = Vec::with_capacity(items.len());
    for (chunk_index, chunk) in items.chunks(ITEMS_AT_ONCE).enumerate() {
        let mut requests = Vec::with_capacity(chunk.len() * options.samples);
        for (offset, item) in chunk.iter().enumerate() {
            for sample in 0..options.samples {
                let number = (chunk_index * ITEMS_AT_ONCE + offset) * options.samples + sample;
                // Version 0 whatever the policy's: first and last evaluation draw the same numbers.
                let key =
                    SampleKey { seed: options.seed, version: 0, sample: number as u64, attempt: u32::MAX };
                requests.push(GenerateRequest { prompt: &item.prompt, key });
            }
        }
        let responses = generator.generate(policy, &requests, &settings)?;
        for (item, drawn) in chunk.iter().zip(responses.chunks(options.samples)) {
            let right =
                drawn.iter().filter(|drawn| item.judges(vocabulary.said(&drawn.tokens).as_deref())).count();
            shares.push(right as f64 / options.samples as f64);
        }
    }
    Ok(shares)
}

fn summarize(family: &str, items: &[Item], sampled: &[f64], greedy: &[f64]) -> FamilyAccuracy {
    let of_family = || items.iter().enumerate().filter(|(_, item)| item.family == family);
    let count = of_family().count();
    let mean = |shares: &[f64]| of_family().map(|(index, _)| shares[index]).sum::<f64>() / count as f64;
    let mut answers: HashMap<&[u8], usize> = HashMap::new();
    of_family()
        .filter(|(_, item)| item.shown.is_none())
        .for_each(|(_, item)| *answers.entry(&item.answer).or_default() += 1);
    let commonest = answers.values().max().map_or(0.5, |&times| times as f64 / count as f64);
    FamilyAccuracy {
        family: family.to_owned(),
        mean: mean(sampled),
        greedy: mean(greedy),
        majority: commonest,
        items: count,
    }
}
