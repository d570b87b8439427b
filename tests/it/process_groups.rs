//! A trainer in processes of its own, its state among a store's objects, its micro-batches from the store's claims: suspended, killed,
//! and resumed, it comes to the weights of a trainer that was never disturbed.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use forebay::ObjectStates;
use forebay::client::{CellValue, Claim, Client, ConnectOptions, Plan, Step};
use forebay::store::*;
use forebay::trainer::process_group::{
    BatchOutcome, BatchRow, BatchUnit, Boundary, ClaimId, GroupError, GroupOptions, Life, LocalLauncher,
    MicroBatch as Batch, Observer, ProcessGroup, RankPlace, Recipe, RecipeError, serve_local_rank,
};
use forebay::trainer::scheduler::{DeviceId, Placement};
use forebay::trainer::states::{States, StatesError, Which as Asked};
use forebay::trainer::{CpuDevice, ModelType, Policy as Model, PolicyConfig, Trainer, TrainerOptions, Unit};

use crate::support::World;

const SOCKET: &str = "FOREBAY_TEST_SOCKET";
/// A folder: who reaches a boundary that a file there is named for dies.
const DEATHS: &str = "FOREBAY_TEST_DEATHS";
const GROUPS: usize = 6;
const MEMBERS: usize = 4;
/// Races for one version of a state.
const ROUNDS: usize = 50;

fn config() -> PolicyConfig {
    PolicyConfig {
        model_type: ModelType::Qwen3,
        vocab_size: 20,
        hidden_size: 12,
        intermediate_size: 16,
        num_hidden_layers: 2,
        num_attention_heads: 2,
        num_key_value_heads: 1,
        head_dim: 6,
        rope_theta: 100.0,
        rms_norm_eps: 1e-6,
        max_position_embeddings: 32,
        initializer_range: 0.3,
    }
}

fn new_trainer() -> Trainer<CpuDevice> {
    let device = CpuDevice::inline();
    let policy = Model::initialise(&device, &config(), 7).unwrap();
    Trainer::new(&device, policy, TrainerOptions::default()).unwrap()
}

struct Small;

impl Recipe for Small {
    type Device = CpuDevice;

    fn open_device(&mut self, _place: &RankPlace) -> Result<CpuDevice, RecipeError> {
        Ok(CpuDevice::inline())
    }

    fn create(&mut self, _device: &CpuDevice) -> Result<Trainer<CpuDevice>, RecipeError> {
        Ok(new_trainer())
    }

    fn restore(
        &mut self,
        device: &CpuDevice,
        state: &mut dyn Read,
    ) -> Result<Trainer<CpuDevice>, RecipeError> {
        Ok(Trainer::restore_from(device, &config(), TrainerOptions::default(), state)?)
    }
}

#[test]
#[ignore = "is the program of a rank"]
fn rank() {
    let address = std::env::var(SOCKET).unwrap();
    let order = std::env::var_os(DEATHS).map(std::path::PathBuf::from);
    let observer = Observer::new(move |boundary| {
        // Whoever can remove the order carries it out.
        let ordered = order.as_ref().map(|folder| folder.join(format!("{boundary:?}")));
        if ordered.is_some_and(|order| std::fs::remove_file(order).is_ok()) {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
        }
    });
    let states = ObjectStates::new(Client::connect(&address, &ConnectOptions::default()).unwrap().objects());
    let states = states.observed(observer.clone());
    // A coordinator that is gone is no failure of the rank.
    let _ = serve_local_rank(&states, &mut Small, &observer);
}

fn states(world: &World) -> Arc<ObjectStates> {
    Arc::new(ObjectStates::new(world.embedded()))
}

fn group(world: &World, ranks: usize) -> ProcessGroup {
    let launcher = LocalLauncher::new(std::env::current_exe().unwrap(), world.dir.path().join("sockets"))
        .unwrap()
        .arguments(["--exact", "process_groups::rank", "--ignored"])
        .variable(DEATHS, world.dir.path())
        .variable(SOCKET, world.address());
    let options = GroupOptions { world: ranks, ..GroupOptions::default() };
    ProcessGroup::create("solver", options, Arc::new(launcher), states(world)).unwrap()
}

/// Writes the rows of a step: groups of answers, with advantages.
fn fill(world: &World) -> ConsumerHandle {
    let schema = Schema::new()
        .data("prompt", DataType::list(Element::Int32))
        .data("response", DataType::list(Element::Int32))
        .data("advantage", DataType::Float32);
    let table = world.store.create_table("solver", schema).unwrap();
    let ready = Consumer::trainer(["solver"]).ready(["response", "advantage"]);
    let train = world.store.create_consumer("train", ready.group(GroupBy::Input, MEMBERS as u32)).unwrap();
    for (group, member) in (0..GROUPS).flat_map(|group| (0..MEMBERS).map(move |member| (group, member))) {
        let row = NewRow::new(0, &format!("{group}_0_{member}")).unwrap();
        let prompt: Vec<i32> = (0..3 + group as i32).map(|at| (at * 7 + group as i32) % 20).collect();
        let response: Vec<i32> = (0..1 + member as i32).map(|at| (at * 3 + group as i32) % 20).collect();
        let advantage = (group * 5 + member * 3) as f64 / 7.0 - 1.5;
        let cells =
            [("prompt", prompt.into()), ("response", response.into()), ("advantage", advantage.into())];
        table.insert_row(row, cells).unwrap();
    }
    train
}

fn tokens(cell: &CellValue) -> Vec<u32> {
    let CellValue::Bytes(bytes) = cell else { panic!("{cell:?}") };
    bytes.as_chunks::<4>().0.iter().map(|number| i32::from_le_bytes(*number) as u32).collect()
}

/// A claim of whole groups, as a trainer takes it.
fn batch_of(claim: &Claim) -> Batch {
    let cells = claim.cells(["prompt", "response", "advantage"]).unwrap();
    let mut units: Vec<BatchUnit> = Vec::new();
    for (at, sample) in claim.sample_ids().iter().enumerate() {
        let CellValue::Inline(bits) = &cells[2][at] else { panic!("{:?}", cells[2][at]) };
        let row = BatchRow {
            prompt: tokens(&cells[0][at]),
            response: tokens(&cells[1][at]),
            advantage: f32::from_bits(*bits as u32),
            loss_mask: None,
            behaviour_log_probs: None,
            reference_log_probs: None,
            weight: 1.0,
        };
        let position = sample.to_string().split('_').next().unwrap().parse().unwrap();
        match units.last_mut().filter(|unit| unit.position == position) {
            Some(unit) => unit.rows.push(row),
            None => units.push(BatchUnit { position, policy: "policy".into(), version: 0, rows: vec![row] }),
        }
    }
    let (incarnation, number, _) = claim.epoch();
    Batch { claim: ClaimId(format!("{incarnation}-{number}")), units }
}

fn placement(node: usize, world: usize) -> Placement {
    let devices = (0..world).map(|rank| DeviceId(format!("{node}-{rank}"))).collect();
    Placement { node: format!("node{node}"), devices }
}

/// One step of an agent whose ranks are processes. `disturb` is called before each micro-batch.
struct Training {
    group: ProcessGroup,
    starts: usize,
    /// Claims whose gradient is in no state that was set; they are held until it is.
    held: Vec<(ClaimId, Claim)>,
}

impl Training {
    fn start(&mut self) -> Result<(), GroupError> {
        let place = placement(self.starts % 2, self.group.world());
        self.starts += 1;
        match self.group.life() {
            Life::Absent => self.group.activate(&place).map(drop),
            Life::Suspended => self.group.resume(&place).map(drop),
            _ => Ok(()),
        }
    }

    /// What is in a state that was set is accumulated.
    fn state_was_set(&mut self) {
        for (id, claim) in self.held.drain(..) {
            assert!(self.group.ledger().has(&id));
            claim.accumulated().unwrap();
        }
    }

    fn suspend(&mut self) {
        let pids = self.group.pids();
        self.group.suspend().unwrap();
        // FX-56: shown by the processes, which are not there any more.
        assert!(pids.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists()), "{pids:?}");
        self.state_was_set();
    }

    fn train(&mut self, batch: Batch, claim: Claim) -> Result<(), GroupError> {
        self.start()?;
        self.held.push((batch.claim.clone(), claim));
        let outcomes = self.group.accumulate(&[batch])?;
        assert!(matches!(&*outcomes, [BatchOutcome::Accumulated { .. }]), "{outcomes:?}");
        Ok(())
    }

    /// Rows whose gradient was lost go back; those of the state are accumulated.
    fn recover(&mut self, error: &GroupError) {
        assert!(!error.lost().is_empty(), "{error}");
        self.held.retain(|(id, _)| !error.lost().contains(id));
        self.state_was_set();
    }
}

fn next(step: &mut Step, train: &forebay::client::ConsumerHandle) -> Option<Claim> {
    step.next(train, MicroBatch::up_to(MEMBERS), Wait::For(std::time::Duration::from_secs(30))).unwrap()
}

// FX-53, FX-57, FX-58, FX-61
#[test]
fn a_trainer_that_is_suspended_killed_and_resumed_ends_with_the_same_weights() {
    for (world, suspends, kills) in [(1, true, false), (2, true, true), (1, false, true)] {
        let here = World::new();
        fill(&here);
        let client = Client::embedded(here.store.clone());
        let consumer = client.consumer("train").unwrap();
        let mut step = client.begin_step(&Plan::new().rows("train", (GROUPS * MEMBERS) as u64)).unwrap();
        let mut training = Training { group: group(&here, world), starts: 0, held: Vec::new() };
        let (mut calls, mut killed) = (0, false);
        while let Some(claim) = next(&mut step, &consumer) {
            if kills && !killed && calls == 3 {
                training.start().unwrap();
                let pid = rustix::process::Pid::from_raw(training.group.pids()[0] as i32).unwrap();
                rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
                killed = true;
            }
            if let Err(error) = training.train(batch_of(&claim), claim) {
                training.recover(&error);
            }
            calls += 1;
            if suspends && calls % 2 == 0 && training.group.life() == Life::Active {
                training.suspend();
            }
        }
        assert_eq!(killed, kills);
        training.start().unwrap();
        training.group.save().unwrap();
        training.state_was_set();
        training.group.apply().unwrap();
        training.group.save().unwrap();
        let committed = step.commit([("solver", vec![])]).unwrap();
        assert_eq!(committed.rows, (GROUPS * MEMBERS) as u64);
        training.group.settle().unwrap();
        training.suspend();
        let state = states(&here).read("solver", Asked::Latest, "trainer").unwrap();
        let kept =
            Trainer::restore(&CpuDevice::inline(), &config(), TrainerOptions::default(), &state).unwrap();
        assert_eq!(kept.weights_sha256(), undisturbed(), "world {world}, suspends {suspends}, kills {kills}");
    }
}

// FX-58, FX-61: a rank is killed at each boundary between the first byte of a part that it sets and the last of one that it gets.
#[test]
fn a_rank_killed_while_its_state_is_an_object_half_set_or_half_got_loses_and_repeats_nothing() {
    let (expected, batches) = (undisturbed(), all_batches());
    let boundaries = [
        Boundary::Staging,
        Boundary::HalfWritten,
        Boundary::PartWritten,
        Boundary::PartsStaged,
        Boundary::DeviceOpened,
        Boundary::Got,
        Boundary::Restored,
    ];
    for boundary in boundaries {
        let here = World::new();
        let mut group = group(&here, 1);
        group.activate(&placement(0, 1)).unwrap();
        let order = here.dir.path().join(format!("{boundary:?}"));
        for (at, batch) in batches.iter().enumerate() {
            if at == 2 {
                std::fs::write(&order, "").unwrap();
            }
            group.accumulate(std::slice::from_ref(batch)).unwrap();
            let lost = match group.suspend() {
                Ok(_) => Vec::new(),
                Err(error) => error.lost().to_vec(),
            };
            // One version is there at any time, whole, and says what it has.
            let states = states(&here);
            let newest = states.find("solver", Asked::Latest).unwrap().unwrap();
            for part in &newest.parts {
                states.read("solver", Asked::Exact(newest.number), &part.name).unwrap();
            }
            assert_eq!(group.ledger().has(&batch.claim), lost.is_empty(), "{boundary:?}, batch {at}");
            while let Err(error) = group.resume(&placement(at % 2, 1)) {
                assert!(matches!(error, GroupError::NotStarted { .. }), "{boundary:?}: {error}");
            }
            if !lost.is_empty() {
                assert_eq!(lost, std::slice::from_ref(&batch.claim), "{boundary:?}");
                group.accumulate(std::slice::from_ref(batch)).unwrap();
            }
        }
        assert!(!order.exists(), "nobody came to {boundary:?}");
        assert_eq!(group.apply().unwrap().weights_sha256, expected, "{boundary:?}");
    }
}

// FX-58: one changed byte in shared memory, and the state is not gone on with.
#[test]
fn a_byte_that_changed_in_a_states_object_is_found_before_anybody_trains_on_it() {
    let here = World::new();
    let mut group = group(&here, 1);
    group.activate(&placement(0, 1)).unwrap();
    group.suspend().unwrap();
    let states = states(&here);
    let trainer = states.read("solver", Asked::Latest, "trainer").unwrap();
    let (segment, at) = found_in(&here.dir.path().join("host"), &trainer[..64]);
    let flip = |by: u8| {
        use std::os::unix::fs::FileExt;
        let file = std::fs::File::options().read(true).write(true).open(&segment).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ by], at).unwrap();
    };
    flip(4);
    let damaged = states.read("solver", Asked::Latest, "trainer").unwrap_err();
    assert!(matches!(damaged, StatesError::Damaged { .. }), "{damaged}");
    assert!(damaged.to_string().contains("does not match its checksum"), "{damaged}");
    let refused = group.resume(&placement(1, 1)).unwrap_err();
    assert!(refused.to_string().contains("does not match its checksum"), "{refused}");
    assert!(group.pids().is_empty());
    flip(4);
    group.resume(&placement(1, 1)).unwrap();
}

/// The file below a folder that has these bytes, and where.
fn found_in(folder: &Path, bytes: &[u8]) -> (std::path::PathBuf, u64) {
    let entries = || std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    for path in entries().filter(|path| path.is_file()) {
        let all = std::fs::read(&path).unwrap();
        if let Some(at) = all.windows(bytes.len()).position(|window| window == bytes) {
            return (path, at as u64);
        }
    }
    let folders: Vec<_> = entries().filter(|path| path.is_dir()).collect();
    let [folder] = &folders[..] else { panic!("the state is in no segment: {folders:?}") };
    found_in(folder, bytes)
}

/// The micro-batches of a step as they come of claims.
fn all_batches() -> Vec<Batch> {
    let here = World::new();
    fill(&here);
    let client = Client::embedded(here.store.clone());
    let consumer = client.consumer("train").unwrap();
    let mut step = client.begin_step(&Plan::new().rows("train", (GROUPS * MEMBERS) as u64)).unwrap();
    let mut batches = Vec::new();
    while let Some(claim) = next(&mut step, &consumer) {
        batches.push(batch_of(&claim));
        claim.accumulated().unwrap();
    }
    batches
}

/// The weights of one trainer in this process that takes all rows at once.
fn undisturbed() -> String {
    let here = World::new();
    fill(&here);
    let client = Client::embedded(here.store.clone());
    let consumer = client.consumer("train").unwrap();
    let mut step = client.begin_step(&Plan::new().rows("train", (GROUPS * MEMBERS) as u64)).unwrap();
    let mut trainer = new_trainer();
    while let Some(claim) = next(&mut step, &consumer) {
        for unit in batch_of(&claim).units {
            let rows: Vec<_> = unit.rows.iter().map(BatchRow::row).collect();
            trainer
                .accumulate(&Unit { position: unit.position, policy: "policy", version: 0, rows: &rows })
                .unwrap();
        }
        claim.accumulated().unwrap();
    }
    trainer.apply().unwrap();
    trainer.weights_sha256()
}

#[test]
fn states_among_objects_hold_what_is_asked_of_states() {
    let here = World::new();
    let neighbour = Client::connect(&here.address(), &ConnectOptions::default()).unwrap();
    let (states, other) = (states(&here), ObjectStates::new(neighbour.objects()).spills(true));
    assert!(states.find("solver", Asked::Latest).unwrap().is_none());
    let parts =
        [states.stage("solver", "trainer", b"one").unwrap(), other.stage("solver", "cache", b"").unwrap()];
    assert_eq!(states.commit("solver", 0, &parts).unwrap(), 1);
    let conflict = other.commit("solver", 0, &parts).unwrap_err();
    assert!(matches!(conflict, StatesError::Conflict { expected: 0, found: 1, .. }), "{conflict}");
    let first = other.find("solver", Asked::Latest).unwrap().unwrap();
    assert_eq!(
        first.parts.iter().map(|part| (part.name.as_str(), part.bytes)).collect::<Vec<_>>(),
        [("trainer", 3), ("cache", 0)]
    );
    // A part is named again; what a rank left that was killed goes with the next commit.
    let abandoned = other.stage("solver", "cache", b"nobody").unwrap();
    let cache = other.stage("solver", "cache", b"two").unwrap();
    let again = first.part("trainer").unwrap().staged.clone();
    assert_eq!(other.commit("solver", 1, &[again.clone(), cache]).unwrap(), 2);
    assert_eq!(states.read("solver", Asked::Latest, "trainer").unwrap(), b"one");
    assert_eq!(states.read("solver", Asked::Exact(1), "cache").unwrap(), b"");
    let gone = other.commit("solver", 2, &[again.clone(), abandoned]).unwrap_err();
    assert!(matches!(gone, StatesError::NotStaged { .. }), "{gone}");
    let twice = other.commit("solver", 2, &[again.clone(), again]).unwrap_err();
    assert!(matches!(twice, StatesError::NotStaged { .. }), "{twice}");
    for name in ["", ".hidden", "a/b"] {
        assert!(matches!(states.stage(name, "part", b"").unwrap_err(), StatesError::Name { .. }));
    }
    let missing = states.read("solver", Asked::Exact(9), "cache").unwrap_err();
    assert!(matches!(missing, StatesError::Missing { .. }), "{missing}");
    // Of a key that is forgotten nothing is left; others stay.
    let kept = states.stage("kept", "trainer", b"kept").unwrap();
    states.commit("kept", 0, &[kept]).unwrap();
    states.stage("solver", "cache", b"nobody").unwrap();
    other.forget("solver").unwrap();
    assert!(states.find("solver", Asked::Latest).unwrap().is_none());
    assert_eq!(states.read("kept", Asked::Latest, "trainer").unwrap(), b"kept");
    states.forget("kept").unwrap();
    states.forget("kept").unwrap();
    assert!(here.embedded().list().unwrap().is_empty());
    // It may begin again: its numbers go on.
    let anew = states.stage("kept", "trainer", b"anew").unwrap();
    let first = states.commit("kept", 0, &[anew]).unwrap();
    let next = states.stage("kept", "trainer", b"next").unwrap();
    assert_eq!((first, states.commit("kept", first, &[next]).unwrap()), (2, 3));
    assert_eq!(states.read("kept", Asked::Latest, "trainer").unwrap(), b"next");
}

#[test]
fn of_those_who_expect_the_same_version_one_commits() {
    let here = World::new();
    let neighbour = Client::connect(&here.address(), &ConnectOptions::default()).unwrap();
    let (states, other) = (states(&here), ObjectStates::new(neighbour.objects()).spills(true));
    // Whoever is late may find its part removed by then: staging it is no error, committing it is.
    let race = |states: &ObjectStates, key: &str| {
        let part = states.stage(key, "trainer", b"mine").unwrap();
        states.commit(key, 0, &[part])
    };
    for round in 0..ROUNDS {
        let key = format!("race{round}");
        let commits = std::thread::scope(|scope| {
            let racers =
                [&*states, &other, &*states, &other].map(|states| scope.spawn(|| race(states, &key)));
            racers.map(|racer| racer.join().unwrap())
        });
        let (won, lost): (Vec<_>, Vec<_>) = commits.into_iter().partition(Result::is_ok);
        assert_eq!(won.len(), 1, "{key}: {lost:?}");
        let is_told = |error: &StatesError| {
            matches!(error, StatesError::Conflict { .. } | StatesError::NotStaged { .. })
        };
        assert!(lost.into_iter().all(|lost| is_told(&lost.unwrap_err())), "{key}");
        assert_eq!(states.read(&key, Asked::Latest, "trainer").unwrap(), b"mine");
    }
}
