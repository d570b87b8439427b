//! That what is trained is learned: the signs are right from end to end.

use crate::{TestDevice, device};
use forebay_trainer_adapter::{
    AdamW, GenerateOptions, GenerateRequest, Generation, Policy, PolicyConfig, SampleKey, Sequence, Trainer,
    TrainerOptions, Unit, generate,
};

const STOP: u32 = 1;

fn trainer(learning_rate: f64) -> Trainer<TestDevice> {
    let config = PolicyConfig {
        hidden_size: 64,
        initializer_range: 0.1,
        intermediate_size: 128,
        head_dim: 16,
        max_position_embeddings: 32,
        ..PolicyConfig::small(16)
    };
    let policy = Policy::initialise(&device(1), &config, 5).unwrap();
    let options =
        TrainerOptions { adamw: AdamW { learning_rate, ..AdamW::default() }, ..TrainerOptions::default() };
    Trainer::new(&device(1), policy, options).unwrap()
}

/// Three tokens and the answer: the same in reverse, then the stop token.
fn problem(index: u64) -> ([u32; 3], [u32; 4]) {
    let key = SampleKey { seed: 77, sample: index, ..SampleKey::default() };
    let prompt = [0, 1, 2].map(|position| 2 + (key.uniform(position) * 6.0) as u32);
    (prompt, [prompt[2], prompt[1], prompt[0], STOP])
}

fn answer(trainer: &Trainer<TestDevice>, prompt: &[u32], samples: u64, temperature: f32) -> Vec<Generation> {
    let policy = trainer.policy();
    let key = |sample| SampleKey { seed: 3, version: policy.version(), sample, attempt: 0 };
    let requests: Vec<_> = (0..samples).map(|sample| GenerateRequest { prompt, key: key(sample) }).collect();
    let options = GenerateOptions { temperature, max_new_tokens: 6, stop_token: Some(STOP) };
    generate(&device(1), &policy, &requests, &options).unwrap()
}

#[test]
fn supervised_rows_are_learned_and_held_out_ones_answered() {
    let mut trainer = trainer(3e-3);
    for step in 0..500 {
        let problems: Vec<_> = (0..32).map(|row| problem(step * 32 + row)).collect();
        let rows: Vec<_> =
            problems.iter().map(|(prompt, response)| Sequence { prompt, response, advantage: 1.0 }).collect();
        trainer.accumulate(&Unit { position: 0, policy: "policy", version: step, rows: &rows }).unwrap();
        trainer.apply().unwrap();
    }
    let right = (0..100)
        .map(|index| problem(1_000_000 + index))
        .filter(|(prompt, response)| answer(&trainer, prompt, 1, 0.0)[0].tokens == response)
        .count();
    assert!(right >= 90, "{right} of 100");
}

#[test]
fn rewarded_answers_become_likelier() {
    let mut trainer = trainer(3e-3);
    let prompt = [2, 3, 4];
    let reward = |made: &Generation| if made.tokens[0] == 9 { 1.0_f32 } else { 0.0 };
    let mean = |made: &[Generation]| made.iter().map(reward).sum::<f32>() / made.len() as f32;
    let before = mean(&answer(&trainer, &prompt, 64, 1.0));
    for step in 0..60 {
        let made = answer(&trainer, &prompt, 32, 1.0);
        let baseline = mean(&made);
        let rows: Vec<_> = made
            .iter()
            .map(|made| Sequence {
                prompt: &prompt,
                response: &made.tokens,
                advantage: reward(made) - baseline,
            })
            .collect();
        trainer.accumulate(&Unit { position: 0, policy: "policy", version: step, rows: &rows }).unwrap();
        trainer.apply().unwrap();
    }
    let after = mean(&answer(&trainer, &prompt, 64, 1.0));
    assert!(before < 0.3 && after > 0.9, "reward went from {before} to {after}");
}
