//! The main job with its trainers in process groups: the same bits as in one process, whatever is killed and whenever.
//!
//! `FOREBAY_KILLS=200 cargo test --test it run_groups` is the long form: so many runs with kills, of ranks and of all.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use forebay::store::host_leftovers;
use rustix::process::Signal;
use serde_json::Value;

use crate::ranks::{beside, kill_run, object_of, parts, ranks_of, signal};
use crate::support::{
    Scratch, forebay, last_json, log_bytes, run_config, run_small, sql, start_config, stderr, weights,
};

/// The small configuration with this section.
pub(crate) fn grouped(scratch: &Scratch, name: &str, section: &str) -> String {
    scratch.config_named(name, &[("[policy]", &format!("[process_groups]\n{section}\n[policy]"))])
}

/// A number of an agent's report, of all agents together.
pub(crate) fn sum(summary: &Value, key: &str) -> u64 {
    let groups = summary["process_groups"].as_array().unwrap().iter();
    groups.map(|group| group[key].as_u64().unwrap_or_else(|| panic!("{key}: {group}"))).sum()
}

/// How many cases a test with kills goes through.
pub(crate) fn kills(few: u64) -> u64 {
    std::env::var("FOREBAY_KILLS").map_or(few, |kills| kills.parse().unwrap())
}

/// Rows, claims and steps agree: a row that was trained on twice would be in two claims.
pub(crate) fn check_books(dir: &str) {
    for table in ["solver", "checker"] {
        let rows = sql(dir, &format!("SELECT count(*) AS n FROM {table} WHERE state = 'consumed'"));
        let claims = format!(
            "SELECT sum(rows) AS n FROM system.claims WHERE consumer = 'train-{table}' AND state = 'consumed'"
        );
        assert_eq!(rows[0]["n"], sql(dir, &claims)[0]["n"], "{table}");
    }
}

/// No state of the store is left in memory.
pub(crate) fn check_memory(dir: &str) {
    let store = fs::canonicalize(dir).unwrap();
    let left = host_leftovers("/dev/shm").unwrap();
    assert!(left.iter().all(|left| left.store != store), "{left:?}");
}

// FX-57, FX-58, FX-59
#[test]
fn weights_are_the_same_with_groups_of_any_size_on_any_number_of_slots() {
    let scratch = Scratch::new();
    let reference = run_small(&scratch.path("reference"), &[]);
    assert!(reference.get("process_groups").is_none());
    for (name, section, is_shared, more) in [
        ("one-rank", "", false, vec![]),
        ("one-slot", "slots = 1", true, vec![]),
        ("two-ranks", "world = 2", false, vec![]),
        ("two-ranks-in-turns", "world = 2\nslots = 3\nturn_ms = 20", true, vec!["--barrier"]),
        ("three-ranks-in-turns", "world = 3\nslots = 3", true, vec!["--workers", "1"]),
    ] {
        let (config, dir) = (grouped(&scratch, name, section), scratch.path(name));
        let summary = run_config(&config, &dir, &more);
        assert_eq!(weights(&summary), weights(&reference), "{name}");
        assert_eq!(summary["samples"], reference["samples"], "{name}");
        assert_eq!((sum(&summary, "lost_ranks"), sum(&summary, "failed_starts")), (0, 0), "{name}");
        // With room for all the ranks are started once and stay; else an agent leaves at least when its step is over.
        match is_shared {
            false => assert_eq!((sum(&summary, "resumes"), sum(&summary, "suspends")), (2, 0), "{name}"),
            true => assert!(sum(&summary, "suspends") >= 12, "{name}: {summary}"),
        }
        check_books(&dir);
        check_memory(&dir);
    }
}

// FX-61, FX-57: rows whose gradients the other ranks or the state have stay accumulated; what is lost comes back by itself
#[test]
fn a_rank_that_is_killed_at_any_time_changes_no_bit() {
    let scratch = Scratch::new();
    let reference = run_small(&scratch.path("reference"), &[]);
    let mut lost = 0;
    for case in 0..kills(3) {
        let section = ["world = 2", "slots = 1", "world = 2\nslots = 3"][case as usize % 3];
        let name = format!("case-{case}");
        let config = grouped(&scratch, &name, &format!("{section}\nlosses_max = 1000"));
        let dir = scratch.path(&name);
        let mut run = start_config(&config, &dir, &[]);
        // Every third rank that comes dies, at some moment of the time that a rank has between two suspensions.
        let (mut seen, mut dying) = (BTreeSet::new(), Vec::new());
        while run.try_wait().unwrap().is_none() {
            for (pid, _) in ranks_of(&run) {
                if seen.insert(pid) && (seen.len() as u64 + case).is_multiple_of(3) {
                    let life = (seen.len() as u64 * 37 + case * 11) % 90;
                    dying.push((Instant::now() + Duration::from_millis(life), pid));
                }
            }
            let due = |(at, _): &mut (Instant, i32)| *at <= Instant::now();
            dying.extract_if(.., due).for_each(|(_, pid)| signal(pid, Signal::KILL));
            std::thread::yield_now();
        }
        let output = run.wait_with_output().unwrap();
        assert!(output.status.success(), "{name}");
        let summary = last_json(&output);
        assert_eq!(weights(&summary), weights(&reference), "{name}");
        assert_eq!(summary["samples"], reference["samples"], "{name}");
        lost += sum(&summary, "lost_ranks") + sum(&summary, "failed_starts");
        let whole = sql(&dir, "SELECT count(*) AS n FROM system.claims WHERE state = 'returned'");
        assert_eq!(whole[0]["n"], 0, "{name}: no cache was dropped as a whole");
        check_books(&dir);
        check_memory(&dir);
    }
    assert!(lost >= kills(3), "only {lost} kills were noticed; the test is to kill ranks at work");
}

#[test]
fn a_run_with_groups_that_is_killed_at_any_moment_goes_on_to_the_same_weights() {
    let scratch = Scratch::new();
    let reference_dir = scratch.path("reference");
    let reference = run_small(&reference_dir, &[]);
    let whole = log_bytes(&reference_dir);
    let (cases, mut killed) = (kills(4), 0);
    for case in 0..cases {
        let section = ["slots = 1", "world = 2\nslots = 2", ""][case as usize % 3];
        let name = format!("case-{case}");
        let (config, dir) = (grouped(&scratch, &name, section), scratch.path(&name));
        for life in 0..3 {
            let more: &[&str] = if Path::new(&dir).join("run.toml").exists() { &["--resume"] } else { &[] };
            let until = log_bytes(&dir) + 1 + whole * ((case * 7 + life * 3) % 12) / 16;
            let mut run = start_config(&config, &dir, more);
            while run.try_wait().unwrap().is_none() && log_bytes(&dir) < until {
                std::thread::yield_now();
            }
            if run.try_wait().unwrap().is_some() {
                break;
            }
            kill_run(run);
            killed += 1;
        }
        let summary = run_config(&config, &dir, &["--resume"]);
        assert_eq!(weights(&summary), weights(&reference), "{name}");
        assert_eq!(summary["samples"], reference["samples"], "{name}");
        check_books(&dir);
        check_memory(&dir);
    }
    assert!(killed >= cases, "only {killed} runs were cut off; the test is to kill them in the middle");
}

/// The window between the update's state and the step's commit: one agent is held up, so that the other's update waits in its state.
#[test]
fn an_update_that_was_saved_and_not_committed_is_not_made_again() {
    let scratch = Scratch::new();
    let reference = run_small(&scratch.path("reference"), &[]);
    let (config, dir) = (grouped(&scratch, "groups", ""), scratch.path("groups"));
    let mut run = start_config(&config, &dir, &[]);
    let reader = beside(&mut run, &dir);
    let (mut held_up, mut first) = (None, None);
    while run.try_wait().unwrap().is_none() {
        if held_up.is_none() {
            held_up = ranks_of(&run).into_iter().find(|(_, agent)| agent == "checker").map(|(pid, _)| pid);
            held_up.into_iter().for_each(|pid| signal(pid, Signal::STOP));
        }
        let trainer = object_of(&parts(&reader, "solver"), "trainer");
        first = first.or_else(|| trainer.clone());
        if trainer != first {
            break;
        }
        std::thread::yield_now();
    }
    let held_up = held_up.expect("the checker has a rank");
    assert!(run.try_wait().unwrap().is_none(), "the run waits for the checker");
    run.kill().unwrap();
    run.wait().unwrap();
    signal(held_up, Signal::KILL);
    let summary = run_config(&config, &dir, &["--resume"]);
    let found = |index: usize| summary["process_groups"][index]["found_applied"].as_u64().unwrap();
    assert_eq!((found(0), found(1)), (4, 0), "four groups of the solver are in its weights");
    assert_eq!(weights(&summary), weights(&reference));
    assert_eq!(summary["samples"], reference["samples"]);
    check_books(&dir);
}

#[test]
fn gradients_in_the_state_of_a_run_that_was_killed_are_not_computed_again() {
    let scratch = Scratch::new();
    let reference = run_small(&scratch.path("reference"), &[]);
    let (config, dir) = (grouped(&scratch, "groups", "slots = 1"), scratch.path("groups"));
    let mut run = start_config(&config, &dir, &[]);
    let reader = beside(&mut run, &dir);
    let is_cached = |(name, _): &(String, String)| name.starts_with("cache.");
    while !["solver", "checker"].iter().any(|agent| parts(&reader, agent).iter().any(is_cached)) {
        assert!(run.try_wait().unwrap().is_none(), "the run ended early");
    }
    kill_run(run);
    let summary = run_config(&config, &dir, &["--resume"]);
    assert!(sum(&summary, "found_accumulated") + sum(&summary, "found_applied") > 0, "{summary}");
    assert_eq!(weights(&summary), weights(&reference));
    check_books(&dir);
}

/// Runs until about half of what a whole run logs is logged, and kills it.
fn half_a_run(config: &str, dir: &str, more: &[&str], whole: u64) {
    let until = log_bytes(dir) + whole / 2;
    let mut run = start_config(config, dir, more);
    while run.try_wait().unwrap().is_none() && log_bytes(dir) < until {
        std::thread::yield_now();
    }
    assert!(run.try_wait().unwrap().is_none(), "the run ended early");
    kill_run(run);
}

#[test]
fn a_run_goes_on_with_groups_or_without() {
    let scratch = Scratch::new();
    let reference = run_small(&scratch.path("reference"), &[]);
    let whole = log_bytes(&scratch.path("reference"));
    let (config, plain) = (grouped(&scratch, "groups", "slots = 1"), scratch.config(&[]));
    let dir = scratch.path("run");
    half_a_run(&config, &dir, &[], whole);
    // The state that is left is of a past that the run leaves without it.
    run_config(&plain, &dir, &["--resume", "--steps", "5"]);
    let summary = run_config(&config, &dir, &["--resume"]);
    assert_eq!(weights(&summary), weights(&reference));
    assert_eq!(sum(&summary, "found_accumulated") + sum(&summary, "found_applied"), 0);
    check_books(&dir);
    check_memory(&dir);
}

#[test]
fn a_run_that_ends_without_groups_leaves_no_states_of_its_life_with_them() {
    let scratch = Scratch::new();
    let reference = run_small(&scratch.path("reference"), &[]);
    check_memory(&scratch.path("reference"));
    let whole = log_bytes(&scratch.path("reference"));
    let (config, plain) = (grouped(&scratch, "groups", "slots = 1"), scratch.config(&[]));
    let dir = scratch.path("run");
    half_a_run(&config, &dir, &[], whole);
    let store = fs::canonicalize(&dir).unwrap();
    assert!(host_leftovers("/dev/shm").unwrap().iter().any(|left| left.store == store), "there are states");
    let summary = run_config(&plain, &dir, &["--resume"]);
    assert_eq!(weights(&summary), weights(&reference));
    check_memory(&dir);
}

/// After the end of the machine memory is gone, states of groups with it.
#[test]
fn a_run_whose_states_are_gone_goes_on_from_its_last_step() {
    let scratch = Scratch::new();
    let reference = run_small(&scratch.path("reference"), &[]);
    let whole = log_bytes(&scratch.path("reference"));
    let (config, dir) = (grouped(&scratch, "groups", "slots = 1"), scratch.path("run"));
    half_a_run(&config, &dir, &[], whole);
    let store = fs::canonicalize(&dir).unwrap();
    let left = host_leftovers("/dev/shm").unwrap().into_iter().filter(|left| left.store == store);
    let removed: Vec<()> = left.map(|left| fs::remove_dir_all(left.path).unwrap()).collect();
    assert_eq!(removed.len(), 1);
    let summary = run_config(&config, &dir, &["--resume"]);
    assert_eq!(weights(&summary), weights(&reference));
    check_books(&dir);
}

#[test]
fn a_directory_that_is_too_long_for_sockets_is_refused_by_name() {
    let scratch = Scratch::new();
    let (config, dir) = (grouped(&scratch, "groups", ""), scratch.path(&"d".repeat(90)));
    let refused = forebay(&["run", &config, "--dir", &dir, "--quiet"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let text = stderr(&refused);
    assert!(
        text.contains("[process_groups] wants sockets") && text.contains("too many for sockets"),
        "{text}"
    );
}

#[test]
fn a_run_whose_ranks_are_lost_too_often_ends_with_the_reason_and_can_be_resumed() {
    let scratch = Scratch::new();
    let reference = run_small(&scratch.path("reference"), &[]);
    let (config, dir) = (grouped(&scratch, "groups", "world = 2\nlosses_max = 0"), scratch.path("run"));
    let base = ["run", &config, "--dir", &dir, "--quiet"];
    let mut run = forebay(&base).stderr(Stdio::piped()).spawn().unwrap();
    let killed = loop {
        assert!(run.try_wait().unwrap().is_none(), "the run ended early");
        match ranks_of(&run).first() {
            Some((pid, agent)) => break (signal(*pid, Signal::KILL), agent.clone()).1,
            None => std::thread::yield_now(),
        }
    };
    let output = run.wait_with_output().unwrap();
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains(&format!("agent {killed:?} could not be trained by its process group")), "{text}");
    let summary = run_config(&config, &dir, &["--resume"]);
    assert_eq!(weights(&summary), weights(&reference));
    check_memory(&dir);
}
