//! Members in random orders, of groups of which some lack members: the weights of whole groups, and the same bits whatever came when.
#![allow(clippy::unwrap_used, reason = "tests")]

use forebay_pipeline::advantage::Grpo;
use forebay_pipeline::plan::Planner;
use forebay_rollout_adapter::columns::{LOGPROBS, PROMPT, RESPONSE, REWARD, rollout_schema};
use forebay_store::{Consumer, Options, Step, StepPlan, Store, Table, Wait};
use forebay_trainer_adapter::{
    AdamW, CpuDevice, EarlyOptions, Objective, Policy, PolicyConfig, PolicyTerm, Trainer, TrainerOptions,
};
use tempfile::TempDir;

use super::*;
use crate::run::local::OnDevice;

const MEMBERS: u32 = 4;
const GROUPS: usize = 6;

/// What rewards look like.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rewards {
    Binary,
    Continuous,
    /// 100 plus or minus 0.005.
    Offset,
    Equal,
}

/// A number below `below` from a splitmix64 state.
fn draw(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (z ^ (z >> 31)) % below
}

impl Rewards {
    fn of(self, number: u64) -> f32 {
        let mut state = number;
        let share = draw(&mut state, 1000) as f32 / 1000.0;
        match self {
            Rewards::Binary => (share > 0.5).into(),
            Rewards::Continuous => share * 3.0 - 1.0,
            Rewards::Offset => 100.0 + (share - 0.5) / 100.0,
            Rewards::Equal => 0.1,
        }
    }
}

/// Whether a member never comes: one of the first group, all but one of the second, all of the third.
fn is_left_out(group: usize, member: u32) -> bool {
    match group {
        0 => member == 2,
        1 => member != 3,
        2 => true,
        _ => false,
    }
}

/// A step that is open, its table, and an agent's feed and trainer.
struct World {
    step: Step,
    table: Table,
    feed: Feed,
    trainer: OnDevice<CpuDevice>,
    membership: Membership,
    rewards: Rewards,
    _dir: TempDir,
}

impl World {
    fn new(rewards: Rewards, objective: Objective) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("store"), Options::default()).unwrap();
        let table = store.create_table("solver", rollout_schema("solver")).unwrap();
        let consumer = Consumer::trainer(["solver"]).ready([RESPONSE, REWARD]);
        let consumer = consumer.group(GroupBy::InputAndTurn, MEMBERS);
        let consumer = store.create_consumer("train-solver", consumer).unwrap();
        let inputs = (0..GROUPS).map(|input| format!("q{input}")).collect();
        let membership = Planner::new(3, inputs, GROUPS, MEMBERS).unwrap().step(1);
        let keys = membership.inputs().iter().map(|input| {
            let member = membership.samples(input, 0).unwrap().swap_remove(0);
            GroupBy::InputAndTurn.key(&member)
        });
        let step = store.begin_step(StepPlan::new().groups(&consumer, keys)).unwrap();
        let needs_behaviour = objective.needs_behaviour();
        let name = "solver".to_owned();
        let feed = Feed { name, consumer, estimator: Grpo::default(), needs_behaviour, reference: None };
        let trainer = trainer(objective);
        World { step, table, feed, trainer, membership, rewards, _dir: dir }
    }

    /// Members in an order that the seed says.
    fn order(&self, seed: u64) -> Vec<(usize, SampleId)> {
        let (mut state, inputs) = (seed, self.membership.inputs());
        let samples = |group: usize| self.membership.samples(&inputs[group], 0).unwrap();
        let mut members: Vec<(usize, SampleId)> =
            (0..GROUPS).flat_map(|group| samples(group).into_iter().map(move |s| (group, s))).collect();
        for at in (1..members.len()).rev() {
            members.swap(at, draw(&mut state, at as u64 + 1) as usize);
        }
        members
    }

    /// The weights that the step's groups lead to when each is trained whole.
    fn whole(mut self) -> Vec<f32> {
        self.order(0).iter().for_each(|(group, sample)| arrive(&self.table, self.rewards, *group, sample));
        while let Some(claim) = self.step.next(&self.feed.consumer, MicroBatch::up_to(8), Wait::No).unwrap() {
            let trainer: &mut dyn LocalTrainer = &mut self.trainer;
            let version = trainer.version();
            let trained =
                self.feed.units(&claim, version, &self.membership, |units| Ok(trainer.accumulate(units)?));
            trained.unwrap();
            claim.accumulated().unwrap();
        }
        self.weights()
    }

    /// The same by members as they come, with the rows and open groups of the seed; and how many micro-batches were early.
    fn early(mut self, seed: u64) -> (Vec<f32>, MicroBatches) {
        let (order, mut state, mut counted) = (self.order(seed), seed, MicroBatches::default());
        let rule = MicroBatch::early(1 + draw(&mut state, 6) as usize, 1 + draw(&mut state, 3) as usize);
        let World { step, table, feed, trainer, membership, rewards, _dir } = &mut self;
        let mut groups = EarlyGroups::new(feed, trainer, membership);
        for (group, sample) in &order {
            arrive(table, *rewards, *group, sample);
            if draw(&mut state, 3) > 0 {
                continue; // the trainer is busy meanwhile
            }
            drain(step, feed, rule, &mut groups, &mut counted);
        }
        drain(step, feed, rule, &mut groups, &mut counted);
        assert!(step.is_complete(&feed.consumer), "seed {seed}");
        groups.close_all().unwrap();
        (self.weights(), counted)
    }

    fn weights(mut self) -> Vec<f32> {
        self.trainer.update(1e-3).unwrap().unwrap();
        self.trainer.policy().values(&CpuDevice::inline())
    }
}

/// A member comes, or says that it never will.
fn arrive(table: &Table, rewards: Rewards, group: usize, sample: &SampleId) {
    let id = sample.to_string();
    if is_left_out(group, sample.trajectory()) {
        let row = table.insert(0, id.as_str(), []).unwrap();
        return table.exclude(row, "failed").unwrap();
    }
    let number = u64::from(MEMBERS) * group as u64 + u64::from(sample.trajectory());
    let mut state = 1000 + number;
    let response: Vec<u32> =
        (0..1 + number % 5).map(|_| draw(&mut state, VOCABULARY as u64) as u32).collect();
    let log_probs: Vec<f32> = response.iter().map(|_| -2.0 - draw(&mut state, 100) as f32 / 100.0).collect();
    let cells = [
        (PROMPT, vec![1 + group as u32, 2].into()),
        (RESPONSE, response.into()),
        (LOGPROBS, log_probs.into()),
        (REWARD, rewards.of(number).into()),
    ];
    table.insert(0, id.as_str(), cells).unwrap();
}

fn drain(
    step: &Step,
    feed: &Feed,
    rule: MicroBatch,
    groups: &mut EarlyGroups<'_>,
    counted: &mut MicroBatches,
) {
    while let Some(claim) = step.next(&feed.consumer, rule, Wait::No).unwrap() {
        counted.add(groups.take(&claim).unwrap());
        claim.accumulated().unwrap();
    }
}

const VOCABULARY: usize = 12;

fn trainer(objective: Objective) -> OnDevice<CpuDevice> {
    let device = CpuDevice::inline();
    let shape = PolicyConfig {
        hidden_size: 16,
        intermediate_size: 32,
        num_hidden_layers: 1,
        num_attention_heads: 2,
        num_key_value_heads: 1,
        head_dim: 8,
        ..PolicyConfig::small(VOCABULARY)
    };
    let policy = Policy::initialise(&device, &shape, 5).unwrap();
    // With a small epsilon the first update says little but the signs of the gradient, be a value ever so near to 0.
    let adamw = AdamW { epsilon: 1e-3, ..AdamW::default() };
    let options = TrainerOptions {
        policy: "solver".into(),
        adamw,
        entropy_coefficient: 0.01,
        ..TrainerOptions::default()
    };
    let trainer = Trainer::new(&device, policy, options).unwrap().with_objective(objective).unwrap();
    // Room for exactly the sums of the groups that may be open, and of one that comes whole.
    let budget_bytes = 4 * trainer.open_group_bytes();
    let early = EarlyOptions { budget_bytes, ..EarlyOptions::default() };
    OnDevice::new(device, trainer.with_early_options(early).unwrap()).unwrap()
}

fn apart(one: &[f32], other: &[f32]) -> f64 {
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>().sqrt();
    let difference = norm(&mut one.iter().zip(other).map(|(a, b)| f64::from(a - b)));
    difference / norm(&mut other.iter().map(|&value| f64::from(value)))
}

fn check(rewards: Rewards, objective: Objective) {
    let whole = World::new(rewards, objective).whole();
    let (first, _) = World::new(rewards, objective).early(0);
    let error = apart(&first, &whole);
    assert!(error < 1e-6, "{rewards:?}: off by {error:.1e}");
    let mut early = 0;
    for seed in 1..12 {
        let (weights, counted) = World::new(rewards, objective).early(seed);
        assert!(weights == first, "{rewards:?}, seed {seed}: other bits");
        early += counted.early;
    }
    assert!(early > 20, "{early} micro-batches were early");
}

// FX-37, FX-35: rewards binary, continuous, offset and equal; members and groups that never come
#[test]
fn members_in_any_order_give_the_weights_of_whole_groups_and_always_the_same_bits() {
    for rewards in [Rewards::Binary, Rewards::Continuous, Rewards::Offset, Rewards::Equal] {
        check(rewards, Objective::default());
    }
}

#[test]
fn a_clipped_loss_does_too_where_rewards_take_two_values_and_is_refused_elsewhere() {
    let clipped = Objective { policy_term: PolicyTerm::CLIP_HIGHER, ..Objective::default() };
    check(Rewards::Binary, clipped);
    let mut world = World::new(Rewards::Continuous, clipped);
    arrive(&world.table, world.rewards, 3, &world.membership.samples("q3", 0).unwrap()[0]);
    let claim = world.step.next(&world.feed.consumer, MicroBatch::early(8, 2), Wait::No).unwrap().unwrap();
    let mut groups = EarlyGroups::new(&world.feed, &mut world.trainer, &world.membership);
    let refused = groups.take(&claim).unwrap_err();
    assert!(refused.to_string().contains("reward"), "{refused:#}");
}
