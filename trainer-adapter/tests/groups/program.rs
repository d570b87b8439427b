//! What the processes of these tests run: a rank, and a coordinator that trains one agent through suspensions and losses.
//!
//! A folder is all that the processes of a case share: `states`, `sockets`, `devices`, `trace` (who reached which boundary), `records`
//! (what the caller of a group writes down of its claims), and `kill.WHO.BOUNDARY` (WHO dies there, once, after as many times as the
//! file says).

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_trainer_adapter::process_group::{
    BatchRow, BatchUnit, Boundary, ClaimId, GroupOptions, LocalLauncher, MicroBatch, Observer, ProcessGroup,
    RankPlace, Recipe, RecipeError, serve_local_rank,
};
use forebay_trainer_adapter::scheduler::{DeviceId, Placement};
use forebay_trainer_adapter::states::{FileStates, States, Which};
use forebay_trainer_adapter::{CpuDevice, Trainer, TrainerOptions};
use rustix::process::{Signal, getpid, kill_process};

use crate::budget::{self, Taken};
use crate::common::{full_rows, ragged_config, random_groups, shaken_policy};
use crate::open_groups::{EARLY, add_in_process};
use crate::training::Training;

pub(crate) const FOLDER: &str = "FOREBAY_TEST_FOLDER";
pub(crate) const WORLD: &str = "FOREBAY_TEST_WORLD";
/// Bytes that a rank takes of its device; no devices are counted without it.
pub(crate) const RANK_BYTES: &str = "FOREBAY_TEST_RANK_BYTES";

/// The devices that a rank sees, where its launcher says so.
pub(crate) const VISIBLE: &str = "FOREBAY_TEST_VISIBLE";
/// In a file that orders a death: not to die, but to do nothing any more.
pub(crate) const HANG: u32 = u32::MAX;

/// The program of a rank.
pub(crate) const RANK: &str = "program::rank";

pub(crate) const STEPS: u64 = 2;
pub(crate) const BATCHES: usize = 5;

/// Tells the trace, and dies where a file says so.
pub(crate) fn observer(folder: &Path, who: &str) -> Observer {
    let (folder, who) = (folder.to_owned(), who.to_owned());
    Observer::new(move |boundary| {
        let line = format!("{who} {boundary:?} {}\n", std::process::id());
        let trace = OpenOptions::new().append(true).create(true).open(folder.join("trace"));
        trace.unwrap().write_all(line.as_bytes()).unwrap();
        let order = folder.join(format!("kill.{who}.{boundary:?}"));
        let Ok(times) = fs::read_to_string(&order) else { return };
        match times.parse().unwrap() {
            HANG => loop {
                std::thread::park();
            },
            0 => {
                fs::remove_file(order).unwrap();
                kill_process(getpid(), Signal::KILL).unwrap();
            }
            times => fs::write(order, (times - 1_u32).to_string()).unwrap(),
        }
    })
}

/// Orders a death.
pub(crate) fn order_kill(folder: &Path, who: &str, boundary: Boundary, after: u32) -> PathBuf {
    let path = folder.join(format!("kill.{who}.{boundary:?}"));
    fs::write(&path, after.to_string()).unwrap();
    path
}

#[derive(Default)]
pub(crate) struct TestRecipe {
    folder: PathBuf,
    taken: Taken,
}

impl Recipe for TestRecipe {
    type Device = CpuDevice;

    fn open_device(&mut self, place: &RankPlace) -> Result<CpuDevice, RecipeError> {
        if let Ok(bytes) = std::env::var(RANK_BYTES) {
            let visible = std::env::var(VISIBLE).unwrap_or_else(|_| place.device.0.clone());
            let visible: Vec<&str> = visible.split(',').collect();
            let ordinal = place.device.ordinal_among(&visible).ok_or("the device is not visible")?;
            self.taken = budget::take(&self.folder.join("devices"), visible[ordinal], bytes.parse()?)?;
        }
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
        Ok(Trainer::restore_from(device, &ragged_config(), TrainerOptions::default(), state)?)
    }
}

pub(crate) fn new_trainer() -> Trainer<CpuDevice> {
    Trainer::new(&CpuDevice::inline(), shaken_policy(&ragged_config(), 3), TrainerOptions::default()).unwrap()
}

#[test]
#[ignore = "is the program of a rank"]
fn rank() {
    let folder = PathBuf::from(std::env::var_os(FOLDER).unwrap());
    let who = format!("rank{}", std::env::var("FOREBAY_RANK").unwrap());
    let observer = observer(&folder, &who);
    let states = FileStates::open(folder.join("states")).unwrap().observed(observer.clone());
    let mut recipe = TestRecipe { folder, ..TestRecipe::default() };
    // A coordinator that is gone is no failure of the rank.
    let _ = serve_local_rank(&states, &mut recipe, &observer);
}

/// Starts ranks of this test binary's program of that name.
pub(crate) fn launcher(folder: &Path, program: &str) -> LocalLauncher {
    LocalLauncher::new(std::env::current_exe().unwrap(), folder.join("sockets"))
        .unwrap()
        .arguments(["--exact", program, "--ignored"])
        .variable(FOLDER, folder)
}

pub(crate) fn states(folder: &Path) -> Arc<FileStates> {
    Arc::new(FileStates::open(folder.join("states")).unwrap())
}

pub(crate) fn group(folder: &Path, agent: &str, world: usize) -> ProcessGroup {
    let options = GroupOptions { world, ..GroupOptions::default() };
    ProcessGroup::create(agent, options, Arc::new(launcher(folder, RANK)), states(folder)).unwrap()
}

pub(crate) fn placement(node: &str, world: usize) -> Placement {
    let devices = (0..world).map(|rank| DeviceId(format!("{node}-{rank}"))).collect();
    Placement { node: node.into(), devices }
}

/// The micro-batches of a step, of one, two or three units each; each agent has rows of its own.
pub(crate) fn batches(agent: &str, step: u64) -> Vec<MicroBatch> {
    let seed = agent.bytes().map(u64::from).sum::<u64>() * 1_000 + step;
    let groups = random_groups(seed, 2 * BATCHES, 3, 37);
    let mut position = 0;
    let batch = |index: usize| {
        let mut unit = || {
            let rows = full_rows(&groups[position]).into_iter().map(BatchRow::from).collect();
            position += 1;
            BatchUnit { position: position - 1, policy: "policy".into(), version: step, rows }
        };
        let units = (0..1 + index % 3).map(|_| unit()).collect();
        MicroBatch { claim: ClaimId(format!("{agent}-{step}-{index}")), units }
    };
    (0..BATCHES).map(batch).collect()
}

/// The weights' checksum after all steps, made in one process without groups.
pub(crate) fn expected_sha256(agent: &str) -> String {
    let mut trainer = new_trainer();
    for step in 0..STEPS {
        for batch in batches(agent, step) {
            for unit in &batch.units {
                let rows: Vec<_> = unit.rows.iter().map(BatchRow::row).collect();
                let (position, policy) = (unit.position, unit.policy.as_str());
                let unit = forebay_trainer_adapter::Unit { position, policy, version: step, rows: &rows };
                trainer.accumulate(&unit).unwrap();
            }
        }
        add_in_process(&mut trainer, agent, step);
        trainer.apply().unwrap();
    }
    trainer.weights_sha256()
}

/// The weights' checksum in the newest state, every part of which is read.
pub(crate) fn kept_sha256(folder: &Path, agent: &str) -> Option<String> {
    let states = states(folder);
    let version = states.find(agent, Which::Latest).unwrap()?;
    for part in &version.parts {
        states.read(agent, Which::Exact(version.number), &part.name).unwrap();
    }
    let state = states.read(agent, Which::Latest, "trainer").unwrap();
    let device = CpuDevice::inline();
    let trainer = Trainer::restore(&device, &ragged_config(), TrainerOptions::default(), &state).unwrap();
    Some(trainer.weights_sha256())
}

#[test]
#[ignore = "is the program of a coordinator"]
fn coordinator() {
    let folder = PathBuf::from(std::env::var_os(FOLDER).unwrap());
    let world = std::env::var(WORLD).unwrap().parse().unwrap();
    let observer = observer(&folder, "coordinator");
    let states = FileStates::open(folder.join("states")).unwrap().observed(observer.clone());
    let options = GroupOptions { world, ..GroupOptions::default() };
    let group = ProcessGroup::create(EARLY, options, Arc::new(launcher(&folder, RANK)), Arc::new(states));
    Training::new(group.unwrap().observed(observer), &folder, EARLY).run();
}
