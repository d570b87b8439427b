//! Sampling: what is sampled, from which distribution, and what it does not depend on.

use super::common::{naive::Naive, ragged_config, ragged_configs, shaken_policy};
use crate::{TestDevice, device};
use forebay_trainer_adapter::{
    Error, GenerateOptions, GenerateRequest, Generation, Policy, PolicyConfig, SampleKey, Sequence, Trainer,
    TrainerOptions, Unit, generate,
};

fn key(sample: u64) -> SampleKey {
    SampleKey { seed: 21, version: 4, sample, attempt: 0 }
}

fn run(policy: &Policy<TestDevice>, prompts: &[&[u32]], options: &GenerateOptions) -> Vec<Generation> {
    let request = |(sample, prompt)| GenerateRequest { prompt, key: key(sample) };
    let requests: Vec<_> = (0..).zip(prompts.iter().copied()).map(request).collect();
    generate(&device(1), policy, &requests, options).unwrap()
}

const PROMPTS: [&[u32]; 4] =
    [&[1, 2, 3], &[7], &[1, 2, 3], &[9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 11, 12, 13, 14, 15, 16, 17, 18]];

/// Log-probabilities are those of the distribution that was sampled from, by the naive model in 64 bits.
#[test]
fn log_probs_are_those_of_the_model() {
    ragged_configs().iter().for_each(check_log_probs);
}

fn check_log_probs(config: &PolicyConfig) {
    let policy = shaken_policy(config, 3);
    let values: Vec<f64> = policy.values(&device(1)).iter().map(|&value| f64::from(value)).collect();
    let naive = Naive::new(&policy, &values);
    let options = GenerateOptions { max_new_tokens: 30, ..GenerateOptions::default() };
    for (prompt, made) in PROMPTS.iter().zip(run(&policy, &PROMPTS, &options)) {
        let all: Vec<u32> = prompt.iter().chain(&made.tokens).copied().collect();
        let expected = naive.log_probs(&all);
        for (index, (&token, &found)) in made.tokens.iter().zip(&made.log_probs).enumerate() {
            let expected = expected[prompt.len() + index - 1][token as usize];
            assert!(
                (f64::from(found) / expected - 1.0).abs() < 1e-5,
                "token {index}: {found} against {expected}"
            );
        }
    }
}

/// What training sees for a response is what sampling reported, up to rounding.
#[test]
fn training_and_sampling_agree_on_log_probs() {
    ragged_configs().iter().for_each(check_agreement);
}

fn check_agreement(config: &PolicyConfig) {
    let policy = shaken_policy(config, 3);
    let made = run(&policy, &PROMPTS, &GenerateOptions::default());
    let mut trainer = Trainer::new(&device(1), policy, TrainerOptions::default()).unwrap();
    for (position, (prompt, made)) in PROMPTS.iter().zip(&made).enumerate() {
        let rows = [Sequence { prompt, response: &made.tokens, advantage: 1.0 }];
        let report =
            trainer.accumulate(&Unit { position, policy: "policy", version: 0, rows: &rows }).unwrap();
        let sum: f64 = made.log_probs.iter().map(|&value| f64::from(value)).sum();
        assert!(
            (report.loss_numerator / -sum - 1.0).abs() < 1e-5,
            "{} against {}",
            report.loss_numerator,
            -sum
        );
        assert!((report.mean_log_prob * made.tokens.len() as f64 / sum - 1.0).abs() < 1e-5);
    }
}

#[test]
fn greedy_takes_the_likeliest_token_whatever_the_key() {
    let policy = shaken_policy(&ragged_config(), 3);
    let values: Vec<f64> = policy.values(&device(1)).iter().map(|&value| f64::from(value)).collect();
    let options = GenerateOptions { temperature: 0.0, max_new_tokens: 10, stop_token: None };
    let made = run(&policy, &PROMPTS, &options);
    assert_eq!(made[0], made[2], "equal prompts, other keys");
    let naive = Naive::new(&policy, &values);
    let all: Vec<u32> = PROMPTS[0].iter().chain(&made[0].tokens).copied().collect();
    for (index, distribution) in naive.log_probs(&all)[PROMPTS[0].len() - 1..].iter().take(10).enumerate() {
        let best = (0..37).max_by(|&a: &usize, &b| distribution[a].total_cmp(&distribution[b])).unwrap();
        assert_eq!(made[0].tokens[index] as usize, best);
    }
}

#[test]
fn a_response_ends_with_its_stop_token_or_at_its_limit() {
    let policy = shaken_policy(&ragged_config(), 3);
    let free = run(
        &policy,
        &[PROMPTS[0]; 40],
        &GenerateOptions { max_new_tokens: 12, ..GenerateOptions::default() },
    );
    let stop = free[0].tokens[3];
    let options =
        GenerateOptions { max_new_tokens: 12, stop_token: Some(stop), ..GenerateOptions::default() };
    for (free, stopped) in free.iter().zip(run(&policy, &[PROMPTS[0]; 40], &options)) {
        let end = free.tokens.iter().position(|&token| token == stop);
        let length = end.map_or(12, |end| end + 1);
        assert_eq!(stopped.tokens, free.tokens[..length]);
        assert_eq!(stopped.log_probs, free.log_probs[..length]);
        assert_eq!(stopped.finished, end.is_some());
    }
}

/// Frequencies of the first token over many samples: the distribution, up to four standard deviations.
#[test]
fn samples_follow_the_distribution() {
    let policy = shaken_policy(&ragged_config(), 3);
    let values: Vec<f64> = policy.values(&device(1)).iter().map(|&value| f64::from(value)).collect();
    let expected = Naive::new(&policy, &values).log_probs(PROMPTS[0]).pop().unwrap();
    let count = 20_000;
    let options = GenerateOptions { max_new_tokens: 1, ..GenerateOptions::default() };
    let mut counts = [0.0; 37];
    for made in run(&policy, &vec![PROMPTS[0]; count], &options) {
        counts[made.tokens[0] as usize] += 1.0;
    }
    for (token, (found, expected)) in counts.iter().zip(expected).enumerate() {
        let p = expected.exp();
        let deviation = (p * (1.0 - p) * count as f64).sqrt().max(1.0);
        assert!((found - p * count as f64).abs() < 4.0 * deviation, "token {token}: {found}, p {p}");
    }
}

#[test]
fn a_generator_with_used_buffers_gives_the_same() {
    let policy = shaken_policy(&ragged_config(), 3);
    let small = Policy::initialise(&device(1), &ragged_config(), 8).unwrap();
    let mut generator = forebay_trainer_adapter::generation::Generator::new(&device(1));
    let requests: Vec<_> =
        (0..).zip(PROMPTS).map(|(sample, prompt)| GenerateRequest { prompt, key: key(sample) }).collect();
    let options = GenerateOptions::default();
    let expected = generator.generate(&policy, &requests, &options).unwrap();
    generator.generate(&small, &requests[1..], &options).unwrap();
    assert_eq!(generator.generate(&policy, &requests, &options).unwrap(), expected);
}

#[test]
fn requests_that_cannot_be_generated_are_refused() {
    let policy = shaken_policy(&ragged_config(), 3);
    let refused = |prompt: &[u32], options: GenerateOptions| {
        let requests =
            [GenerateRequest { prompt: &[1], key: key(0) }, GenerateRequest { prompt, key: key(1) }];
        generate(&device(1), &policy, &requests, &options).unwrap_err()
    };
    let options = GenerateOptions::default();
    assert_eq!(refused(&[], options), Error::EmptyPrompt { row: 1 });
    assert_eq!(refused(&[1, 99], options), Error::Token { row: 1, token: 99, vocab_size: 37 });
    assert_eq!(refused(&[1; 33], options), Error::TooLong { row: 1, length: 65, limit: 64 });
    for temperature in [f32::NAN, -0.5, f32::INFINITY, 1e-40, 9e-7] {
        let hot = GenerateOptions { temperature, ..options };
        assert!(matches!(refused(&[1], hot), Error::Config { field: "temperature", .. }), "{temperature}");
    }
    assert!(generate(&device(1), &policy, &[], &options).unwrap().is_empty());
    let none = GenerateOptions { max_new_tokens: 0, ..options };
    assert_eq!(run(&policy, &PROMPTS, &none), vec![Generation::default(); 4]);
}
