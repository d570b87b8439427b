//! What a swap costs: from the command to suspend up to the first micro-batch accumulated in a newly created process.
//!
//! `cargo bench -p forebay-trainer-adapter --bench swap -- [--json] [--quick] [--ranks N] [--folder DIR]`
//!
//! A swap is split into what it is made of; the parts are medians of their own, so they need not add up. Rows that begin with
//! `limit` are the same machine doing nothing but that: a child process that returns at once, one copy of as many bytes. `resident`
//! sets and gets the same state with the same code in a process that stays, and is no swap: its device memory is never free.
//!
//! States lie in files of DIR, by default in shared memory (`/dev/shm`), where a store's host tier lies too. The device is the
//! processor: opening one costs next to nothing, and there is nothing to register.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_trainer_adapter::process_group::{
    BatchRow, BatchUnit, ClaimId, GroupOptions, LocalLauncher, MicroBatch, Observer, ProcessGroup, RankPlace,
    Recipe, RecipeError, serve_local_rank,
};
use forebay_trainer_adapter::scheduler::{DeviceId, Placement};
use forebay_trainer_adapter::states::{FileStates, States, Which};
use forebay_trainer_adapter::{
    CachePayload, CpuDevice, Policy, PolicyConfig, Row, Trainer, TrainerOptions, Unit,
};

const USAGE: &str = "usage: cargo bench -p forebay-trainer-adapter --bench swap -- [--json] [--quick] [--ranks N] [--folder DIR]
  --json        one JSON object a line instead of a table
  --quick       a tiny model and few rounds: shows that every row runs, says nothing of speed
  --ranks N     ranks of the group; default 1
  --folder DIR  where states lie; default /dev/shm if it is there";

const SIZE: &str = "FOREBAY_SWAP_SIZE";
const FOLDER: &str = "FOREBAY_SWAP_FOLDER";
/// Makes this program return at once.
const NOTHING: &str = "FOREBAY_SWAP_NOTHING";

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> ExitCode {
    if std::env::var_os(NOTHING).is_some() {
        return ExitCode::SUCCESS;
    }
    match serve().and_then(|served| if served { Ok(()) } else { measure() }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What is measured.
struct Scale {
    is_json: bool,
    /// Each with its rounds.
    sizes: &'static [(&'static str, usize)],
    ranks: usize,
    folder: PathBuf,
}

impl Scale {
    fn of_arguments() -> Outcome<Self> {
        let shared = Path::new("/dev/shm");
        let folder = if shared.is_dir() { shared.into() } else { std::env::temp_dir() };
        let mut scale = Self { is_json: false, sizes: &[("small", 21), ("large", 5)], ranks: 1, folder };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value\n{USAGE}"));
            match word.as_str() {
                "--json" => scale.is_json = true,
                "--quick" => scale.sizes = &[("tiny", 2)],
                "--ranks" => scale.ranks = value()?.parse()?,
                "--folder" => scale.folder = value()?.into(),
                "--bench" => {} // what cargo adds
                other => return Err(format!("unknown argument {other:?}\n{USAGE}").into()),
            }
        }
        Ok(scale)
    }
}

fn config(size: &str) -> PolicyConfig {
    let small = PolicyConfig::small(300);
    match size {
        "large" => PolicyConfig {
            hidden_size: 512,
            intermediate_size: 1_536,
            num_hidden_layers: 6,
            num_attention_heads: 8,
            num_key_value_heads: 4,
            head_dim: 64,
            vocab_size: 4_096,
            ..small
        },
        "tiny" => PolicyConfig { num_hidden_layers: 1, ..small },
        _ => small,
    }
}

struct BenchRecipe(PolicyConfig);

impl Recipe for BenchRecipe {
    type Device = CpuDevice;

    fn open_device(&mut self, _place: &RankPlace) -> Result<CpuDevice, RecipeError> {
        Ok(CpuDevice::inline())
    }

    fn create(&mut self, device: &CpuDevice) -> Result<Trainer<CpuDevice>, RecipeError> {
        let policy = Policy::initialise(device, &self.0, 7)?;
        Ok(Trainer::new(device, policy, TrainerOptions::default())?)
    }

    fn restore(
        &mut self,
        device: &CpuDevice,
        state: &mut dyn Read,
    ) -> Result<Trainer<CpuDevice>, RecipeError> {
        Ok(Trainer::restore_from(device, &self.0, TrainerOptions::default(), state)?)
    }
}

/// Serves if this process is a rank.
fn serve() -> Outcome<bool> {
    let Some(folder) = std::env::var_os(FOLDER) else { return Ok(false) };
    let size = std::env::var(SIZE).unwrap_or_default();
    let states = FileStates::open(folder)?;
    Ok(serve_local_rank(&states, &mut BenchRecipe(config(&size)), &Observer::default())?)
}

/// A group of four rows at a place.
fn batch(position: usize) -> MicroBatch {
    let row = |member: u32| {
        let response: Vec<u32> = (0..16).map(|at| (at * 7 + member * 3 + position as u32) % 290).collect();
        let advantage = f32::from(member as u16) - 1.5;
        BatchRow { prompt: (10..42).collect(), response, advantage, weight: 1.0, ..BatchRow::default() }
    };
    let unit = BatchUnit { position, policy: "policy".into(), version: 0, rows: (0..4).map(row).collect() };
    MicroBatch { claim: ClaimId(format!("claim-{position}")), units: vec![unit] }
}

/// Durations by the name of what took them.
#[derive(Default)]
struct Rows(BTreeMap<&'static str, Vec<Duration>>);

impl Rows {
    fn add(&mut self, name: &'static str, took: Duration) {
        self.0.entry(name).or_default().push(took);
    }

    fn timed<T>(&mut self, name: &'static str, call: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let made = call();
        self.add(name, start.elapsed());
        made
    }

    fn print(&mut self, scale: &Scale, size: &str, state_bytes: u64) {
        let ranks = scale.ranks;
        for (name, took) in &mut self.0 {
            took.sort_unstable();
            let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
            let (min, p50, max) = (ms(took[0]), ms(took[took.len() / 2]), ms(took[took.len() - 1]));
            if scale.is_json {
                let rounds = took.len();
                let row = serde_json::json!({
                    "bench": "swap", "size": size, "ranks": ranks, "state_bytes": state_bytes, "row": name,
                    "rounds": rounds, "min_ms": min, "p50_ms": p50, "max_ms": max,
                });
                println!("{row}");
            } else {
                println!(
                    "{size:>6} {state_bytes:>11} {ranks:>2}  {name:<32} {min:>9.3} {p50:>9.3} {max:>9.3}"
                );
            }
        }
    }
}

fn measure() -> Outcome<()> {
    let scale = Scale::of_arguments()?;
    if !scale.is_json {
        println!("  size       bytes ranks row{:31}  min ms    p50 ms    max ms", "");
    }
    for &(size, rounds) in scale.sizes {
        let folder = tempfile::tempdir_in(&scale.folder)?;
        let mut rows = Rows::default();
        let state_bytes = swap(&scale, (size, rounds), folder.path(), &mut rows)?;
        resident((size, rounds), folder.path(), &mut rows)?;
        limits(rounds, state_bytes, &mut rows)?;
        rows.print(&scale, size, state_bytes);
    }
    Ok(())
}

/// Swaps: suspended in the middle of a step, resumed in new processes. Gives the bytes of a state.
fn swap(scale: &Scale, (size, rounds): (&str, usize), folder: &Path, rows: &mut Rows) -> Outcome<u64> {
    let launcher = LocalLauncher::new(std::env::current_exe()?, folder.join("sockets"))?
        .variable(FOLDER, folder)
        .variable(SIZE, size);
    let states = Arc::new(FileStates::open(folder)?);
    let options = GroupOptions { world: scale.ranks, ..GroupOptions::default() };
    let mut group = ProcessGroup::create("solver", options, Arc::new(launcher), states.clone())?;
    let devices = (0..scale.ranks).map(|rank| DeviceId(format!("cpu-{rank}"))).collect();
    let placement = Placement { node: "here".into(), devices };
    group.activate(&placement)?;
    group.accumulate(&[batch(0)])?;
    for round in 1..=rounds {
        let start = Instant::now();
        let suspended = group.suspend()?;
        let resumed = group.resume(&placement)?;
        let began = Instant::now();
        group.accumulate(&[batch(round)])?;
        rows.add("7 accumulate", began.elapsed());
        rows.add("0 swap: all of it", start.elapsed());
        rows.add("1 set", suspended.set);
        rows.add("2 exit", suspended.end);
        rows.add("3 spawn", resumed.spawn);
        rows.add("4 context", Duration::from_micros(resumed.slowest.context_us));
        rows.add("5 get", Duration::from_micros(resumed.slowest.get_us));
        rows.add("6 copy", Duration::from_micros(resumed.slowest.copy_us));
    }
    group.suspend()?;
    let version = states.find("solver", Which::Latest)?.ok_or("no state was set")?;
    Ok(version.parts.iter().map(|part| part.bytes).sum())
}

/// The same state set and got in one process that stays.
fn resident((size, rounds): (&str, usize), folder: &Path, rows: &mut Rows) -> Outcome<()> {
    let states = FileStates::open(folder)?;
    let (device, mut recipe) = (CpuDevice::inline(), BenchRecipe(config(size)));
    let mut trainer = recipe.create(&device)?;
    accumulate(&mut trainer, 0)?;
    let first = states.stage("resident", "trainer", &trainer.state())?;
    states.commit("resident", 0, &[first])?;
    for round in 1..=rounds {
        let start = Instant::now();
        // As in a swap: the trainer has not moved since it was set, the cache has.
        let newest = states.find("resident", Which::Latest)?.ok_or("no state was set")?;
        let kept = newest.part("trainer").ok_or("no trainer was set")?.staged.clone();
        let cache = states.stage("resident", "cache", &trainer.export_cache().to_bytes())?;
        states.commit("resident", newest.number, &[kept, cache])?;
        trainer = recipe.restore(&device, &mut *states.open("resident", Which::Latest, "trainer")?)?;
        trainer.import_cache(&CachePayload::from_bytes(&states.read(
            "resident",
            Which::Latest,
            "cache",
        )?)?)?;
        accumulate(&mut trainer, round)?;
        rows.add("8 resident: set, get, accumulate", start.elapsed());
    }
    Ok(())
}

fn accumulate(trainer: &mut Trainer<CpuDevice>, position: usize) -> Outcome<()> {
    let batch = batch(position);
    for unit in &batch.units {
        let rows: Vec<Row<'_>> = unit.rows.iter().map(BatchRow::row).collect();
        trainer.accumulate(&Unit { position, policy: "policy", version: 0, rows: &rows })?;
    }
    Ok(())
}

/// The machine doing nothing else.
fn limits(rounds: usize, state_bytes: u64, rows: &mut Rows) -> Outcome<()> {
    let program = std::env::current_exe()?;
    let source = vec![7_u8; usize::try_from(state_bytes)?];
    let mut target = vec![0_u8; source.len()];
    for _ in 0..rounds {
        rows.timed("9 limit: fork, exec, exit", || {
            Command::new(&program).env(NOTHING, "1").stdout(Stdio::null()).status()
        })?;
        rows.timed("9 limit: copy of the state", || target.copy_from_slice(&source));
        std::hint::black_box(&target);
    }
    Ok(())
}
