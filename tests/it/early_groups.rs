//! Members trained by process groups before their groups are complete: the bits of one process, whatever is killed and whenever.
//!
//! `FOREBAY_KILLS=200 cargo test --test it early_groups` is the long form.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::early::{ATTEMPTS, copied, has_early, leave_out, parameters};
use crate::ranks::{beside, kill_run, parts, ranks_of, signal};
use crate::run_groups::{check_books, check_memory, kills, sum};
use crate::support::{Scratch, last_json, log_bytes, run_config, sql, start_config, weights};

const THREE_STEPS: [&str; 2] = ["--steps", "3"];

/// The warmed-up configuration that trains early, with a budget and a section of process groups.
fn config(scratch: &Scratch, name: &str, budget: &str, section: Option<&str>) -> String {
    let groups = section.map_or_else(String::new, |section| format!("[process_groups]\n{section}\n"));
    let text = format!("{groups}[rollout]\nat_once = 1\n[trainer]\nearly = true\n{budget}");
    scratch.warm_config(name, &text, "")
}

/// The same run in one process.
fn reference(scratch: &Scratch) -> Value {
    run_config(&config(scratch, "reference", "", None), &scratch.path("reference"), &THREE_STEPS)
}

/// A budget for the sums of so many groups, as the configuration says it.
fn room_for(scratch: &Scratch, groups: usize) -> String {
    let bytes = 3 * 8 * parameters(&scratch.path("reference"), "solver").len();
    format!("early_budget_bytes = {}", groups * bytes)
}

// FX-37, FX-57, FX-58
#[test]
fn ranks_train_members_as_they_come_to_the_bits_of_one_process() {
    let scratch = Scratch::new();
    let reference = reference(&scratch);
    let little = room_for(&scratch, 2);
    for (name, budget, section, more) in [
        ("one-rank", "", "", vec![]),
        ("in-turns", "", "slots = 1", vec![]),
        ("two-ranks", "", "world = 2", vec!["--workers", "4"]),
        ("little-room", little.as_str(), "world = 2\nslots = 3\nturn_ms = 20", vec![]),
        ("barrier", "", "world = 3\nslots = 3", vec!["--barrier"]),
    ] {
        let config = config(&scratch, name, budget, Some(section));
        let trains_early = |attempt| {
            let dir = scratch.path(&format!("{name}-{attempt}"));
            let summary = run_config(&config, &dir, &[&THREE_STEPS[..], &more].concat());
            assert_eq!(weights(&summary), weights(&reference), "{name}");
            assert_eq!(summary["samples"], reference["samples"], "{name}");
            assert_eq!((sum(&summary, "lost_ranks"), sum(&summary, "failed_starts")), (0, 0), "{name}");
            check_books(&dir);
            check_memory(&dir);
            has_early(&summary)
        };
        // In a single run all groups may be whole before a rank is up; behind a barrier they always are.
        let attempts = if name == "barrier" { 1 } else { ATTEMPTS };
        assert_eq!((0..attempts).any(trains_early), name != "barrier", "{name}: members trained early");
    }
}

// FX-61: what the sums of other ranks and of the state have stays; what is lost comes back by itself
#[test]
fn a_rank_that_is_killed_with_open_groups_changes_no_bit() {
    let scratch = Scratch::new();
    let reference = reference(&scratch);
    let mut lost = 0;
    for case in 0..kills(3) {
        let section = ["world = 2", "slots = 1", "world = 2\nslots = 3"][case as usize % 3];
        let budget = if case % 2 == 0 { String::new() } else { room_for(&scratch, 2) };
        let (name, section) = (format!("case-{case}"), format!("{section}\nlosses_max = 1000"));
        let (config, dir) = (config(&scratch, &name, &budget, Some(&section)), scratch.path(&name));
        let mut run = start_config(&config, &dir, &THREE_STEPS);
        // Every third rank that comes dies, at some moment of the time that a rank has between two suspensions.
        let (mut seen, mut dying) = (BTreeSet::new(), Vec::new());
        while run.try_wait().unwrap().is_none() {
            for (pid, _) in ranks_of(&run) {
                if seen.insert(pid) && (seen.len() as u64 + case).is_multiple_of(3) {
                    let life = (seen.len() as u64 * 97 + case * 31) % 400;
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
        check_books(&dir);
        check_memory(&dir);
    }
    assert!(lost > 0, "no kill was noticed; the test is to kill ranks at work");
}

/// Runs until so many bytes more are logged, and kills the run and its ranks; false when it had ended before.
fn kill_after(config: &str, dir: &str, more: &[&str], bytes: u64) -> bool {
    let until = if Path::new(dir).exists() { log_bytes(dir) + bytes } else { bytes };
    let mut run = start_config(config, dir, more);
    while run.try_wait().unwrap().is_none() && log_bytes(dir) < until {
        std::thread::yield_now();
    }
    let is_cut = run.try_wait().unwrap().is_none();
    kill_run(run);
    is_cut
}

// FX-39, FX-57: sums outlive the job; of those whose groups come in another order some make room
#[test]
fn a_run_with_open_groups_in_ranks_that_is_killed_goes_on_to_the_same_weights() {
    let scratch = Scratch::new();
    let reference = reference(&scratch);
    let whole = log_bytes(&scratch.path("reference"));
    let mut killed = 0;
    for case in 0..kills(3) {
        let section = ["slots = 1", "world = 2\nslots = 2", ""][case as usize % 3];
        let budget = if case % 2 == 0 { room_for(&scratch, 2) } else { String::new() };
        let name = format!("case-{case}");
        let (config, dir) = (config(&scratch, &name, &budget, Some(section)), scratch.path(&name));
        for life in 0..3 {
            let more: &[&str] = if life > 0 { &["--resume"] } else { &[] };
            let bytes = 1 + whole * ((case * 7 + life * 3) % 12) / 40;
            if !kill_after(&config, &dir, &[more, &THREE_STEPS].concat(), bytes) {
                break;
            }
            killed += 1;
        }
        let summary = run_config(&config, &dir, &[&["--resume"], &THREE_STEPS[..]].concat());
        assert_eq!(weights(&summary), weights(&reference), "{name}");
        assert_eq!(summary["samples"], reference["samples"], "{name}");
        check_books(&dir);
        check_memory(&dir);
    }
    assert!(killed >= kills(3), "only {killed} runs were cut off; the test is to kill them in the middle");
}

/// Runs until the state of an agent has a cache, and kills the run and its ranks.
fn kill_when_cached(config: &str, dir: &str, more: &[&str]) {
    let mut run = start_config(config, dir, more);
    let reader = beside(&mut run, dir);
    let is_cached = |(name, _): &(String, String)| name.starts_with("cache.");
    while !["solver", "checker"].iter().any(|agent| parts(&reader, agent).iter().any(is_cached)) {
        assert!(run.try_wait().unwrap().is_none(), "the run ended early");
    }
    kill_run(run);
}

// FX-57: with little room some open groups of the life before are forgotten, as others come first
#[test]
fn open_groups_of_a_life_that_was_killed_are_gone_on_with() {
    let scratch = Scratch::new();
    let reference = reference(&scratch);
    let mut found = 0;
    for case in 0..kills(3) {
        let budget = if case % 2 == 0 { room_for(&scratch, 2) } else { String::new() };
        let (name, section) = (format!("case-{case}"), format!("world = {0}\nslots = {0}", 1 + case % 2));
        let (config, dir) = (config(&scratch, &name, &budget, Some(&section)), scratch.path(&name));
        kill_when_cached(&config, &dir, &THREE_STEPS);
        // Another number of workers, another order of rows.
        let more = [&["--resume", "--workers", "1"], &THREE_STEPS[..]].concat();
        let summary = run_config(&config, &dir, &more);
        found += sum(&summary, "found_accumulated");
        assert_eq!(weights(&summary), weights(&reference), "{name}");
        assert_eq!(summary["samples"], reference["samples"], "{name}");
        check_books(&dir);
        check_memory(&dir);
    }
    assert!(found > 0, "no state had a gradient");
}

/// Gradients in the state of members that nobody wants any more when the run goes on, whether members are trained as they come or with
/// their groups: the state is not believed.
#[test]
fn members_that_were_trained_and_left_out_afterwards_are_in_no_update() {
    for early in ["early = true", "early = false"] {
        let scratch = Scratch::new();
        let with = |name: &str, section: &str| {
            scratch.warm_config(name, &format!("{section}[rollout]\nat_once = 1\n[trainer]\n{early}"), "")
        };
        let (grouped, plain) = (with("groups", "[process_groups]\nslots = 1\n"), with("plain", ""));
        // The kill may come after the update, or find the cache of the other agent: then another run is tried.
        let mut killed = (0..20).map(|attempt| {
            let dir = scratch.path(&format!("run-{attempt}"));
            run_config(&grouped, &dir, &["--steps", "1"]);
            kill_when_cached(&grouped, &dir, &["--resume"]);
            dir
        });
        let is_trained = |dir: &String| {
            let trained = sql(dir, "SELECT count(*) AS n FROM solver WHERE state = 'accumulated'");
            trained[0]["n"].as_u64() > Some(0)
        };
        let dir = killed.find(is_trained).expect("a run that is killed with members that were trained");
        let copy = scratch.path("copy");
        let left_out = leave_out(&dir);
        copied(Path::new(&dir), Path::new(&copy));
        let resumed = [&["--resume"], &THREE_STEPS[..]].concat();
        let reference = run_config(&plain, &copy, &resumed);
        let summary = run_config(&grouped, &dir, &resumed);
        assert!(summary["samples"]["excluded"]["bad"] == left_out, "{early}: {summary}");
        assert_eq!(weights(&summary), weights(&reference), "{early}");
        assert_eq!(summary["samples"], reference["samples"], "{early}");
        check_books(&dir);
        check_memory(&dir);
    }
}
