//! A trainer whose state is a version of an object that the step names: it dies at a chosen moment, falls back, and goes on.

use std::io::BufRead;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use forebay::client::{Client, Objects};
use forebay::pipeline::advantage::Grpo;
use forebay::pipeline::plan::{Membership, Planner};
use forebay::pipeline::version::check_fresh;
use forebay::rollout::columns::{PROMPT, RESPONSE, REWARD, rewards, rollout_schema, token_lists};
use forebay::store::*;
use forebay::trainer::{CpuDevice, Policy, PolicyConfig, Sequence, Trainer, TrainerOptions, Unit};
use rustix::process::{Signal, getpid, kill_process};

use super::take_back;

const STEPS: u64 = 6;
const GROUPS: usize = 2;
const GROUP: u32 = 4;
const KEY: &str = "solver.state";
/// Moments of one step at which the process can die: see [`Life`].
const MOMENTS: u64 = 2 + 2 * GROUPS as u64 + 4;

/// A trainer of one policy whose state is a version of an object, which the step names.
struct Life {
    store: Store,
    objects: Objects,
    device: CpuDevice,
    dies_at: u64,
    at: u64,
}

impl Life {
    fn new(dir: &Path, dies_at: u64) -> Self {
        let store = open(dir);
        let objects = Client::embedded(store.clone()).objects();
        Life { store, objects, device: CpuDevice::inline(), dies_at, at: 0 }
    }

    /// Dies here if this is the moment to: as `kill -9` has it, with nothing said or closed.
    fn moment(&mut self) {
        if self.at == self.dies_at {
            kill_process(getpid(), Signal::KILL).unwrap();
        }
        self.at += 1;
    }

    /// Sets a state as the next version of the object, on stable storage.
    fn set(&mut self, state: &[u8]) -> ObjectRef {
        let shape = [state.len() as u64];
        let tensor =
            TensorBytes { class: "state", name: "bytes", dtype: Dtype::U8, shape: &shape, bytes: state };
        let version = self.objects.set(KEY, &[tensor]).unwrap();
        self.moment();
        self.objects.spill(KEY, Which::Exact(version)).unwrap();
        self.moment();
        self.objects.reference(KEY, version).unwrap()
    }

    /// The trainer of the newest step that stands.
    fn restored(&mut self) -> Trainer<CpuDevice> {
        let Ok(policy) = self.store.policy("solver") else { return self.created() };
        let held = self.objects.get(KEY, Which::Exact(policy.objects[0].version)).unwrap();
        let state = held.tensor("bytes").unwrap().to_vec().unwrap();
        let trainer = Trainer::restore(&self.device, &shape(), options(), &state).unwrap();
        assert_eq!(trainer.version(), policy.version, "trainer and store agree");
        trainer
    }

    fn created(&mut self) -> Trainer<CpuDevice> {
        let policy = Policy::initialise(&self.device, &shape(), 7).unwrap();
        let trainer = Trainer::new(&self.device, policy, options()).unwrap();
        let state = self.set(&trainer.state());
        self.store.create_policy("solver", 0, &[state]).unwrap();
        trainer
    }

    fn consumer(&self) -> ConsumerHandle {
        if self.store.table("solver").is_err() {
            self.store.create_table("solver", rollout_schema("solver")).unwrap();
        }
        let train =
            Consumer::trainer(["solver"]).ready([RESPONSE, REWARD]).group(GroupBy::InputAndTurn, GROUP);
        self.store.consumer("train").or_else(|_| self.store.create_consumer("train", train)).unwrap()
    }

    /// Makes every step that is missing, and gives the weights.
    fn live(&mut self) -> String {
        let (mut trainer, consumer) = (self.restored(), self.consumer());
        let inputs = (0..10).map(|input| format!("p{input}")).collect();
        let planner = Planner::new(5, inputs, GROUPS, GROUP).unwrap();
        let steps = self.store.steps();
        let made = steps.iter().filter(|step| step.progress == StepProgress::Committed).count() as u64;
        for number in made + 1..=STEPS {
            self.step(&mut trainer, &consumer, &planner.step(number));
        }
        trainer.weights_sha256()
    }

    fn step(&mut self, trainer: &mut Trainer<CpuDevice>, consumer: &ConsumerHandle, membership: &Membership) {
        roll_out(&self.store, membership, trainer);
        self.moment();
        let step = self.store.begin_step(StepPlan::new().rows(consumer, membership.rows() as u64)).unwrap();
        self.moment();
        while let Some(claim) = step.next(consumer, MicroBatch::of(GROUP as usize), Wait::Forever).unwrap() {
            accumulate(trainer, &claim, membership);
            self.moment();
            claim.accumulated().unwrap();
            self.moment();
        }
        let version = trainer.apply().unwrap().version;
        self.moment();
        let state = self.set(&trainer.state());
        step.commit([("solver", vec![state])]).unwrap();
        assert_eq!(self.store.policy("solver").unwrap().version, version);
        self.moment();
    }
}

fn open(dir: &Path) -> Store {
    let objects = ObjectOptions::default().host_folder(HostFolder::At(dir.join("host")));
    let options = Options::default().objects(objects).object_versions_kept(4);
    Store::open(dir.join("store"), options).unwrap()
}

fn shape() -> PolicyConfig {
    let small = PolicyConfig::small(40);
    PolicyConfig { hidden_size: 16, intermediate_size: 24, num_hidden_layers: 1, head_dim: 4, ..small }
}

fn options() -> TrainerOptions {
    TrainerOptions { policy: "solver".into(), ..TrainerOptions::default() }
}

/// Writes the rows of a step: what they say follows from the weights, as that of a rollout does.
fn roll_out(store: &Store, membership: &Membership, trainer: &Trainer<CpuDevice>) {
    let (table, weights) = (store.table("solver").unwrap(), trainer.weights_sha256());
    let digit = |at: usize| u32::from(weights.as_bytes()[at % weights.len()]) % 40;
    let mut batch = store.batch();
    for (place, input) in membership.inputs().iter().enumerate() {
        for (member, sample) in membership.samples(input, 0).unwrap().into_iter().enumerate() {
            let at = place * 8 + member;
            let token = u128::from(trainer.version()) << 64 | at as u128 | 1 << 32;
            let row = NewRow::of(trainer.version(), sample).token(token);
            let prompt: Vec<u32> = vec![1, place as u32];
            let response: Vec<u32> = (0..3 + member).map(|token| digit(at + token)).collect();
            let reward = (digit(at) % 3) as f32;
            let cells = [(PROMPT, (&prompt).into()), (RESPONSE, (&response).into()), (REWARD, reward.into())];
            batch.insert(&table, row, cells).unwrap();
        }
    }
    batch.commit().unwrap();
}

fn accumulate(trainer: &mut Trainer<CpuDevice>, claim: &Claim, membership: &Membership) {
    let batch = claim.columns([PROMPT, RESPONSE, REWARD]).unwrap();
    let prompts = token_lists("solver", &batch, PROMPT).unwrap();
    let responses = token_lists("solver", &batch, RESPONSE).unwrap();
    let advantages = Grpo::default().advantages(&rewards("solver", &batch).unwrap()).unwrap();
    let row = |row: usize| Sequence {
        prompt: prompts[row],
        response: responses[row],
        advantage: advantages[row] as f32,
    };
    let rows: Vec<Sequence<'_>> = (0..claim.len()).map(row).collect();
    let position = membership.position(claim.sample_ids()[0].input()).unwrap();
    let unit = Unit { position, policy: "solver", version: trainer.version(), rows: &rows };
    trainer.accumulate(&unit).unwrap();
}

/// Lives until it dies, or to the last step. Says the weights then.
#[test]
#[ignore = "the process that dies"]
fn trainer_process() {
    let Ok(dir) = std::env::var("FOREBAY_FALL_BACK_DIR") else { return };
    let dies_at = std::env::var("FOREBAY_FALL_BACK_DIES").unwrap().parse().unwrap();
    println!("\nweights {}", Life::new(Path::new(&dir), dies_at).live());
}

fn life(dir: &Path, dies_at: u64) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "rewound::lives::trainer_process", "--ignored", "--nocapture"])
        .env("FOREBAY_FALL_BACK_DIR", dir)
        .env("FOREBAY_FALL_BACK_DIES", dies_at.to_string())
        .output()
        .unwrap()
}

/// A life to the last step.
fn whole_life(dir: &Path) -> String {
    let output = life(dir, u64::MAX);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    let said = output.stdout.lines().map_while(Result::ok);
    said.filter_map(|line| line.strip_prefix("weights ").map(str::to_owned)).last().unwrap()
}

// FX-57, FX-61: states are objects that steps name; killed at every moment of a step, taken back up to three steps
#[test]
fn wherever_a_trainer_dies_and_however_far_it_falls_back_its_weights_are_the_same() {
    let scratch = tempfile::tempdir().unwrap();
    let meant = whole_life(&scratch.path().join("undisturbed"));
    let mut undone = 0;
    for moment in 0..MOMENTS {
        let (back, dir) = (moment % 4, scratch.path().join(moment.to_string()));
        let first = 2 + MOMENTS * (2 + moment % 3) + moment; // behind the two of the first state
        for (dies_at, back) in [(first, back), (moment, (back + 1) % 4)] {
            let killed = life(&dir, dies_at);
            assert_eq!(killed.status.signal(), Some(9), "{}", String::from_utf8_lossy(&killed.stderr));
            undone += take_back(&open(&dir), back as usize);
        }
        assert_eq!(whole_life(&dir), meant, "killed at moment {moment}, taken back {back} steps");
        let store = open(&dir);
        let counts = store.table("solver").unwrap().counts();
        let rows = STEPS * GROUPS as u64 * u64::from(GROUP);
        assert_eq!((counts.written, counts.consumed), (rows, rows), "moment {moment}");
    }
    assert!(undone >= MOMENTS, "only {undone} steps were taken back");
}

// FX-34: what was not taken back does not agree, and says so
#[test]
fn a_trainer_that_falls_back_alone_is_refused_its_rows() {
    let scratch = tempfile::tempdir().unwrap();
    let mut life = Life::new(scratch.path(), u64::MAX);
    let older = life.restored();
    let (consumer, inputs) = (life.consumer(), (0..10).map(|input| format!("p{input}")).collect());
    let planner = Planner::new(5, inputs, GROUPS, GROUP).unwrap();
    let mut trainer = life.restored();
    life.step(&mut trainer, &consumer, &planner.step(1));
    roll_out(&life.store, &planner.step(2), &trainer);
    let step = life.store.begin_step(StepPlan::new().rows(&consumer, u64::from(GROUP))).unwrap();
    let claim = step.next(&consumer, MicroBatch::of(GROUP as usize), Wait::No).unwrap().unwrap();
    let versions = claim.columns(["policy_version"]).unwrap();
    let versions = versions.column(0).as_primitive::<UInt64Type>().values().to_vec();
    let refused = check_fresh("solver", older.version(), versions).unwrap_err().to_string();
    assert!(refused.contains("solver"), "{refused}");
}
