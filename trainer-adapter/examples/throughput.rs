//! How fast the reference policy samples and trains on one core, and how that compares with a plain product.
//!
//! `cargo run --release -p forebay-trainer-adapter --example throughput`
//!
//! A round is one GRPO step of 8 groups of 8: 64 responses are sampled, and their gradients computed and applied. The
//! last column counts the multiplications that the model needs without padding or shared prompts (2 per weight and
//! token forward, 6 with the backward pass) and divides by the time and by the peak of a 768 x 768 x 768 product.

use std::time::Instant;

use forebay_trainer_adapter::device::{Matrix, MatrixMut};
use forebay_trainer_adapter::generation::Generator;
use forebay_trainer_adapter::{
    CpuDevice, Device, GenerateOptions, GenerateRequest, Policy, PolicyConfig, SampleKey, Sequence, Trainer,
    TrainerOptions, Unit,
};

const GROUPS: usize = 8;
const GROUP_SIZE: usize = 8;
const VOCABULARY: usize = 300;
const RESPONSE: usize = 12;
const ROUNDS: usize = 20;

fn peak(device: &CpuDevice) -> f64 {
    const SIZE: usize = 768;
    let values: Vec<f32> = (0..SIZE * SIZE).map(|index| (index % 17) as f32 - 8.0).collect();
    let mut left = device.allocate(SIZE * SIZE);
    let mut output = device.allocate(SIZE * SIZE);
    device.upload(&values, &mut left, 0);
    let best = (0..20).map(|_| {
        let start = Instant::now();
        let matrix = Matrix::new(&left, 0, SIZE, SIZE);
        device.multiply(1.0, matrix, matrix, 0.0, MatrixMut::new(&mut output, 0, SIZE, SIZE));
        start.elapsed().as_secs_f64()
    });
    2.0 * (SIZE as f64).powi(3) / best.fold(f64::INFINITY, f64::min)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = CpuDevice::inline();
    let config = PolicyConfig::small(VOCABULARY);
    let policy = Policy::initialise(&device, &config, 7)?;
    let parameters = policy.layout().length();
    let mut trainer = Trainer::new(&device, policy, TrainerOptions::default())?;
    let mut generator = Generator::new(&device);
    let prompts: Vec<Vec<u32>> = (0..GROUPS)
        .map(|group| (0..20 + 4 * group).map(|at| ((at * 31 + group * 7) % VOCABULARY) as u32).collect())
        .collect();
    let options = GenerateOptions { max_new_tokens: RESPONSE, ..GenerateOptions::default() };
    let (mut sampling, mut training, mut applying) = (f64::INFINITY, f64::INFINITY, f64::INFINITY);
    let mut tokens = 0;
    for _ in 0..ROUNDS {
        let policy = trainer.policy();
        let version = policy.version();
        let start = Instant::now();
        let mut groups = Vec::new();
        for (group, prompt) in prompts.iter().enumerate() {
            let key = |member| SampleKey {
                seed: 1,
                version,
                sample: (group * GROUP_SIZE + member) as u64,
                attempt: 0,
            };
            let requests: Vec<_> =
                (0..GROUP_SIZE).map(|member| GenerateRequest { prompt, key: key(member) }).collect();
            groups.push(generator.generate(&policy, &requests, &options)?);
        }
        sampling = sampling.min(start.elapsed().as_secs_f64());
        let start = Instant::now();
        tokens = 0;
        for (position, (prompt, group)) in prompts.iter().zip(&groups).enumerate() {
            let advantage = |member: usize| if member.is_multiple_of(2) { 1.0 } else { -1.0 };
            let rows: Vec<_> = group
                .iter()
                .enumerate()
                .map(|(member, made)| Sequence {
                    prompt,
                    response: &made.tokens,
                    advantage: advantage(member),
                })
                .collect();
            tokens += rows.iter().map(|row| row.prompt.len() + row.response.len()).sum::<usize>();
            trainer.accumulate(&Unit { position, policy: "policy", version, rows: &rows })?;
        }
        training = training.min(start.elapsed().as_secs_f64());
        let start = Instant::now();
        trainer.apply()?;
        applying = applying.min(start.elapsed().as_secs_f64());
    }
    let peak = peak(&device);
    println!("{parameters} parameters, {} rows, {tokens} tokens, one thread", GROUPS * GROUP_SIZE);
    println!("peak of a product     {:8.1} GFLOP/s", peak / 1e9);
    let share = |per_token: usize, seconds: f64| (per_token * parameters * tokens) as f64 / seconds / peak;
    println!("sample 64 responses   {:8.2} ms   {:.2} of peak", sampling * 1e3, share(2, sampling));
    println!("forward and backward  {:8.2} ms   {:.2} of peak", training * 1e3, share(6, training));
    println!("update and publish    {:8.2} ms", applying * 1e3);
    println!("weights {}", trainer.weights_sha256());
    Ok(())
}
