//! A real process, killed at random moments.
//!
//! The test runs itself again as a child: several threads write, claim and train on a store in a real directory, and tell
//! over a pipe what was acknowledged, line by line. After a number of lines that the seed chooses the child is killed
//! (`kill -9`). What was told must be there for the next process, which is here; then the next child goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use forebay_store::*;

use crate::support::*;

const WRITERS: u64 = 3;
const CLAIMERS: u64 = 2;
/// After so many rounds a new directory is begun, so that looking at all of it stays cheap.
const ROUNDS_IN_A_DIRECTORY: u64 = 20;

fn words(id: &str, times: usize) -> String {
    format!("what was said of {id} ").repeat(times)
}

fn length_of(id: &str) -> usize {
    id.bytes().map(usize::from).sum::<usize>() % 40
}

fn reward_of(id: &str) -> f64 {
    length_of(id) as f64 / 4.0
}

/// Says that a call was acknowledged. The line is in the pipe when this returns, whatever happens to the process.
fn tell(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

fn options(level: Durability) -> Options {
    Options::default().extent_bytes(1 << 16, 1 << 20).segment_bytes_max(1 << 16).durability(level)
}

fn declare(store: &Store) -> Result<()> {
    let exists = |result: Result<()>| match result {
        Err(error) if !matches!(error.cause(), Cause::Exists { .. }) => Err(error),
        _ => Ok(()),
    };
    for table in ["asked", "trained"] {
        exists(store.create_table(table, solver_schema()).map(drop))?;
    }
    let task = Consumer::task(["asked"]).ready(["response"]);
    exists(store.create_consumer("score", task).map(drop))?;
    let trainer = Consumer::trainer(["trained"]).ready(["reward"]);
    exists(store.create_consumer("train", trainer).map(drop))
}

/// Writes rows in three stages. Every fourth call is made at `logged`, whatever the store's level is, and every ninth at
/// `synced`; each of them brings along what this thread was told before.
fn write(store: &Store, writer: u64, round: u64) -> Result<()> {
    let table = store.table("asked")?;
    for i in 0.. {
        let id = format!("r{round}w{writer}_0_{i}");
        let mut batch = store.batch();
        if i % 4 == 0 {
            batch.durability(Durability::Logged);
        }
        if i % 9 == 0 {
            batch.durability(Durability::Synced);
        }
        batch.insert(&table, NewRow::new(0, &id)?, [("prompt", (&*words(&id, length_of(&id))).into())])?;
        let row = batch.commit()?[0];
        tell(&format!("{} {writer} inserted {id}", if i % 4 == 0 || i % 9 == 0 { "kept" } else { "told" }));
        table.append(row, "response", vec![i; length_of(&id)].into())?;
        table.append(row, "response", vec![-1_i32; 3].into())?;
        if i % 10 == 7 {
            table.exclude(row, "every tenth")?;
            tell(&format!("told {writer} excluded {id}"));
            continue;
        }
        table.finalize(row, "response")?;
        tell(&format!("told {writer} finalized {id}"));
    }
    Ok(())
}

/// Finishes claims, and drops every fifth.
fn claim(store: &Store, claimer: u64) -> Result<()> {
    let (table, task) = (store.table("asked")?, store.consumer("score")?);
    for turn in 0.. {
        let Some(claim) = task.claim(MicroBatch::up_to(4), "a claimer", Wait::Forever)? else { continue };
        if turn % 5 == 4 {
            continue;
        }
        let rows: Vec<(Row, String)> = claim.rows().iter().copied().zip(ids(&claim)).collect();
        claim.finish(|batch| {
            rows.iter()
                .try_for_each(|(row, id)| batch.write(&table, *row, [("reward", reward_of(id).into())]))
        })?;
        rows.iter().for_each(|(_, id)| tell(&format!("told {claimer} finished {id}")));
    }
    Ok(())
}

/// Makes rows and trains on them, with the weights of each version as an object.
fn train(store: &Store, trainer: u64, round: u64) -> Result<()> {
    let (table, train) = (store.table("trained")?, store.consumer("train")?);
    for turn in 0.. {
        let version = store.policy("trained")?.version;
        let batch = ["a", "b", "c"].map(|part| format!("r{round}t{turn}{part}_0_0"));
        for id in &batch {
            table.insert(version, id, [("prompt", (&**id).into()), ("reward", 1.0.into())])?;
        }
        let step = store.begin_step(StepPlan::new().rows(&train, 3))?;
        let mut trained = Vec::new();
        while let Some(claim) = step.next(&train, MicroBatch::up_to(2), Wait::No)? {
            trained.extend(ids(&claim));
            claim.accumulated()?;
        }
        let weights = store.put_object("trained", version + 1, words("weights", 50 + turn % 7).as_bytes())?;
        let number = step.commit([("trained", vec![weights])])?.step;
        tell(&format!("told {trainer} trained {number} {} {}", version + 1, trained.join(" ")));
    }
    Ok(())
}

fn duties(store: &Store) -> Result<()> {
    loop {
        store.run_once()?;
        std::thread::yield_now();
    }
}

/// The child: works until it is killed.
#[test]
#[ignore = "the process that the other tests here kill"]
fn child() {
    let Ok(directory) = std::env::var("FOREBAY_CHILD") else { return };
    let number = |name: &str| std::env::var(name).unwrap().parse::<u64>().unwrap();
    let (level, round) = (LEVELS[number("FOREBAY_LEVEL") as usize], number("FOREBAY_ROUND"));
    let store = Store::open(directory, options(level)).unwrap();
    declare(&store).unwrap();
    tell(""); // ends the line that the test harness began
    std::thread::scope(|scope| {
        for thread in 0..WRITERS {
            let store = &store;
            scope.spawn(move || write(store, thread, round).unwrap());
        }
        for thread in WRITERS..WRITERS + CLAIMERS {
            let store = &store;
            scope.spawn(move || claim(store, thread).unwrap());
        }
        scope.spawn(|| train(&store, WRITERS + CLAIMERS, round).unwrap());
        scope.spawn(|| duties(&store).unwrap());
    });
}

const LEVELS: [Durability; 3] = [Durability::Memory, Durability::Logged, Durability::Synced];

/// What a directory must hold.
#[derive(Default)]
struct Promised {
    inserted: BTreeSet<String>,
    finalized: BTreeSet<String>,
    excluded: BTreeSet<String>,
    finished: BTreeSet<String>,
    step_of: BTreeMap<String, u64>,
    version: u64,
}

impl Promised {
    /// Takes the lines of one life in. At `memory` a thread's line counts once a later call of that thread was made at a
    /// higher level.
    fn hear(&mut self, lines: &[String], level: Durability) {
        for (at, line) in lines.iter().enumerate() {
            let words: Vec<&str> = line.split(' ').collect();
            let [_, thread, ..] = words[..] else { panic!("{line:?}") };
            let brought = |later: &String| later.starts_with(&format!("kept {thread} "));
            if level == Durability::Memory && !lines[at..].iter().any(brought) {
                continue;
            }
            match words[2..] {
                ["inserted", id] => _ = self.inserted.insert(id.to_owned()),
                ["finalized", id] => _ = self.finalized.insert(id.to_owned()),
                ["excluded", id] => _ = self.excluded.insert(id.to_owned()),
                ["finished", id] => _ = self.finished.insert(id.to_owned()),
                ["trained", step, version, ref rows @ ..] => {
                    self.version = self.version.max(version.parse().unwrap());
                    self.step_of.extend(rows.iter().map(|id| (id.to_string(), step.parse().unwrap())));
                }
                _ => panic!("{line:?}"),
            }
        }
    }

    fn check(&self, store: &Store, seed: u64) {
        let shown = pick(store, "asked", &["sample_id", "prompt", "response", "reward", "excluded_reason"]);
        let rows: BTreeMap<&str, &Vec<String>> = shown.iter().map(|row| (&*row[0], row)).collect();
        for row in &shown {
            let id = &row[0];
            assert_eq!(row[1], words(id, length_of(id)), "seed {seed}: {id} is not whole");
            let number = id.rsplit('_').next().unwrap();
            let parts = [vec![number; length_of(id)], vec!["-1"; 3]].concat();
            assert!(row[2] == "null" || row[2] == parts.join(" "), "seed {seed}: {id} is {}", row[2]);
            assert!(row[3] == "null" || row[3] == format!("{:?}", reward_of(id)), "seed {seed}: {row:?}");
        }
        let promises = [(&self.inserted, 1), (&self.finalized, 2), (&self.finished, 3), (&self.excluded, 4)];
        for (promised, column) in promises {
            for id in promised {
                let row = rows.get(&**id).unwrap_or_else(|| panic!("seed {seed}: {id} is gone"));
                assert!(
                    column == 1 || row[column] != "null",
                    "seed {seed}: {id} lost what was told: {row:?}"
                );
            }
        }
        let steps: BTreeMap<String, String> = pick(store, "trained", &["sample_id", "step"])
            .into_iter()
            .map(|row| (row[0].clone(), row[1].clone()))
            .collect();
        for (id, step) in &self.step_of {
            assert_eq!(steps.get(id), Some(&step.to_string()), "seed {seed}: {id}");
        }
        let policy = store.policy("trained").unwrap();
        assert!(policy.version >= self.version, "seed {seed}: version {} was told", self.version);
        policy.objects.iter().for_each(|object| _ = store.object(object).unwrap());
        self.check_claims(store, seed);
    }

    /// What was finished is handed out to nobody, everything else that is ready to one.
    fn check_claims(&self, store: &Store, seed: u64) {
        let task = store.consumer("score").unwrap();
        let mut handed_out = BTreeSet::new();
        let mut claims = Vec::new();
        while let Some(claim) = task.claim(MicroBatch::up_to(1000), "the parent", Wait::No).unwrap() {
            ids(&claim)
                .into_iter()
                .for_each(|id| assert!(handed_out.insert(id.clone()), "seed {seed}: {id} twice"));
            claims.push(claim);
        }
        let again: Vec<&String> = handed_out.intersection(&self.finished).collect();
        assert!(again.is_empty(), "seed {seed}: finished, and handed out again: {again:?}");
    }
}

/// Lets a child live for `lines` lines, and gives all that it told.
fn live(directory: &Path, level: usize, round: u64, lines: u64) -> Vec<String> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed::child", "--ignored", "--nocapture"])
        .env("FOREBAY_CHILD", directory)
        .env("FOREBAY_LEVEL", level.to_string())
        .env("FOREBAY_ROUND", round.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        if line.starts_with("told ") || line.starts_with("kept ") {
            told.push(line);
        }
        if told.len() as u64 == lines {
            child.kill().unwrap(); // what is in the pipe is still read
        }
    }
    let status = child.wait().unwrap();
    assert!(told.len() as u64 >= lines, "the child ended by itself: {status}");
    told
}

fn kill_again_and_again(level: usize, seed: u64, rounds: u64) {
    let dice = SeededRandomness::new(seed);
    let (mut told, mut directory, mut promised) = (0, None, Promised::default());
    for round in 0..rounds {
        if round % ROUNDS_IN_A_DIRECTORY == 0 {
            directory = Some(tempfile::tempdir().unwrap());
            promised = Promised::default();
        }
        let path = directory.as_ref().unwrap().path().join("store");
        let lines = live(&path, level, round, 1 + dice.next_u64() % 400);
        told += lines.len();
        promised.hear(&lines, LEVELS[level]);
        let open =
            || Store::open(&path, options(LEVELS[level])).unwrap_or_else(|e| panic!("seed {seed}: {e:?}"));
        let store = open();
        check_counts(&store);
        declare(&store).unwrap(); // what was told at `memory` may be gone, the tables among it
        let before = scan_content(&store);
        promised.check(&store, seed);
        drop(store);
        assert_eq!(scan_content(&open()), before, "seed {seed}, round {round}");
    }
    eprintln!("{:?}: {rounds} processes killed, {told} acknowledgements, seed {seed}", LEVELS[level]);
}

// FX-91
#[test]
fn what_a_killed_process_was_told_at_memory_is_there_as_far_as_a_later_call_brought_it() {
    kill_again_and_again(0, 11, 10);
}

#[test]
fn what_a_killed_process_was_told_at_logged_is_there() {
    kill_again_and_again(1, 12, 10);
}

#[test]
fn what_a_killed_process_was_told_at_synced_is_there() {
    kill_again_and_again(2, 13, 10);
}

/// `FOREBAY_ROUNDS` processes on each level.
#[test]
#[ignore = "takes minutes"]
fn killed_long() {
    let from = |name: &str, otherwise| std::env::var(name).map_or(otherwise, |text| text.parse().unwrap());
    for level in 0..LEVELS.len() {
        kill_again_and_again(level, from("FOREBAY_SEED", 100), from("FOREBAY_ROUNDS", 200));
    }
}
