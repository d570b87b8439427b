//! Starts each peer at each level as a process of its own, and collects what they report.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Outcome;
use crate::machine::Machine;
use crate::peer::{Level, NATIVE, Native};
use crate::report::{Missing, Report, table};
use crate::run::{Plan, measure};
use crate::workload::{Scale, Workload};

/// A peer that has not reported by then is ended.
const DEADLINE: Duration = Duration::from_secs(180);

/// A peer in Python: its script in `python/`, and its own environment, for they do not go together.
struct Scripted {
    name: &'static str,
    script: &'static str,
    environment: &'static str,
    levels: &'static [Level],
}

const SCRIPTED: [Scripted; 3] = [
    Scripted {
        name: "DuckDB",
        script: "duckdb_peer.py",
        environment: "duckdb",
        levels: &[Level::Memory, Level::Synced],
    },
    Scripted {
        name: "TransferQueue",
        script: "transferqueue_peer.py",
        environment: "transferqueue",
        levels: &[Level::Memory],
    },
    Scripted { name: "Reverb", script: "reverb_peer.py", environment: "reverb", levels: &[Level::Memory] },
];

/// Measures one peer of this program, and gives its report as JSON.
pub(crate) fn measure_one(peer: &str, level: &str, plan: Plan) -> Outcome<String> {
    let native = NATIVE.into_iter().find(|native| native.name == peer);
    let native = native.ok_or_else(|| format!("{peer:?} is no peer of this program"))?;
    let report = measure(native, Level::parse(level)?, plan, &workload(plan))?;
    Ok(serde_json::to_string(&report)?)
}

/// Measures all peers whose name contains `only`, and Forebay. Gives the table.
pub(crate) fn measure_all(only: &str, quick: bool, plan: Plan) -> Outcome<String> {
    let wanted = |name: &str| name == "Forebay" || name.to_lowercase().contains(only);
    let directory = tempfile::tempdir()?;
    let pool = directory.path().join("pool");
    let program = std::env::current_exe()?;
    let (machine, load) = (Machine::of_this_run(), Machine::load());
    let mut rows = Vec::new();
    let mut add = |name: &str, level: Level, outcome: Outcome<Report>| {
        eprintln!("{name} {}: {}", level.as_str(), outcome.as_ref().map_or_else(ToString::to_string, told));
        rows.push(outcome.map_err(|error| Missing {
            peer: name.to_owned(),
            level,
            reason: error.to_string(),
        }));
    };
    for Native { name, levels, .. } in NATIVE.into_iter().filter(|native| wanted(native.name)) {
        for &level in *levels {
            let mut command = Command::new(&program);
            command.args(["--measure", name, level.as_str()]).args(quick.then_some("--quick"));
            add(name, level, report(&mut command));
        }
    }
    write_pool(&pool, plan)?;
    for scripted in SCRIPTED.iter().filter(|scripted| wanted(scripted.name)) {
        for &level in scripted.levels {
            let outcome = python(scripted).and_then(|mut command| {
                command.arg(&pool).arg(level.as_str()).arg(serde_json::to_string(&plan)?);
                report(&mut command)
            });
            add(scripted.name, level, outcome);
        }
    }
    Ok(format!("{}\n{machine}; load {load} before, {} after", table(&rows), Machine::load()))
}

fn told(report: &Report) -> String {
    format!("{:.0} samples/s in, {:.0} through", report.ingest_per_second, report.through_per_second)
}

fn workload(plan: Plan) -> Workload {
    Workload::new(Scale { pool: plan.pool, ingest_samples: plan.samples_max, ..Scale::FULL })
}

/// Writes the samples for the peers in Python: of each the tokens of its response as a number of 4 bytes, prompt,
/// response, log-probabilities and reward, little-endian, one after the other.
fn write_pool(path: &Path, plan: Plan) -> Outcome<()> {
    let workload = workload(plan);
    let mut bytes = Vec::new();
    for row in 0..plan.pool {
        let sample = workload.sample(row);
        bytes.extend_from_slice(&u32::try_from(sample.response.len() / 4)?.to_le_bytes());
        sample.lists().iter().for_each(|list| bytes.extend_from_slice(list));
        bytes.extend_from_slice(&sample.reward.to_le_bytes());
    }
    Ok(std::fs::write(path, bytes)?)
}

/// The folder with the environments of the peers in Python, which `install` makes.
fn environments() -> Outcome<PathBuf> {
    if let Some(path) = std::env::var_os("FOREBAY_PEERS") {
        return Ok(path.into());
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    Ok(cache
        .ok_or("neither FOREBAY_PEERS nor HOME says where the peers in Python are")?
        .join("forebay-peers"))
}

fn python(scripted: &Scripted) -> Outcome<Command> {
    let python = environments()?.join(scripted.environment).join("bin/python");
    if !python.exists() {
        return Err(format!("not installed (`benches/peers/install {}`)", scripted.environment).into());
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python").join(scripted.script);
    let mut command = Command::new(python);
    command.arg(script);
    Ok(command)
}

/// The last line of what a peer's process prints.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Told {
    Report(Report),
    Failure { error: String },
}

/// Runs a command that prints a report as its last line. What it prints as errors goes to ours, for only the reason has
/// room in the table.
fn report(command: &mut Command) -> Outcome<Report> {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (mut out, mut err) =
        (child.stdout.take().ok_or("no output")?, child.stderr.take().ok_or("no output")?);
    let (status, told, complaints) = std::thread::scope(|scope| -> Outcome<_> {
        let told = scope.spawn(move || read_all(&mut out));
        let complaints = scope.spawn(move || read_all(&mut err));
        let status = end(&mut child);
        let join = |text: Result<String, _>| text.map_err(|_| "a thread panicked");
        Ok((status?, join(told.join())?, join(complaints.join())?))
    })?;
    let failure = match told.lines().last().map(serde_json::from_str) {
        Some(Ok(Told::Report(report))) => return Ok(report),
        Some(Ok(Told::Failure { error })) => error,
        _ => {
            let last = complaints.lines().rev().find(|line| !line.trim().is_empty());
            format!("{status}: {}", last.unwrap_or("no word why"))
        }
    };
    eprint!("{complaints}");
    Err(failure.into())
}

fn read_all(from: &mut impl Read) -> String {
    let mut bytes = Vec::new();
    if let Err(error) = from.read_to_end(&mut bytes) {
        bytes.extend_from_slice(error.to_string().as_bytes());
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Waits for a process, and ends it when its time is over.
fn end(child: &mut Child) -> Outcome<std::process::ExitStatus> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if start.elapsed() > DEADLINE {
            child.kill()?;
            child.wait()?;
            return Err(format!("not done after {} s", DEADLINE.as_secs()).into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
