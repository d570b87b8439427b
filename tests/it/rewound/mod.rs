//! Trainer and store agree after any fall-back: a process is killed, the store is taken back to an older step, and what is trained
//! again ends with the same weights: here for the command, in [`lives`] for a trainer whose states are set and got.

mod lives;

use std::time::{Duration, Instant};

use forebay::store::*;

use crate::ranks::kill_run;
use crate::support::{Scratch, log_bytes, run_config, small_config, sql, start_config, weights};

/// Far longer than a run takes to log what it is waited for: one that has not done so by then hangs.
const HANGS: Duration = Duration::from_secs(300);

/// Takes a store `back` committed steps back, or as far as the states of its policies are kept. Gives the steps that were undone.
fn take_back(store: &Store, back: usize) -> u64 {
    let steps = store.steps();
    let committed = steps.iter().filter(|step| step.progress == StepProgress::Committed);
    let committed: Vec<u64> = committed.map(|step| step.step).collect();
    for back in (0..=back).rev() {
        let to = committed.iter().rev().nth(back).copied().unwrap_or_default();
        match store.rewind(to, Rewind::TrainAgain) {
            Ok(done) => return done.steps_undone,
            Err(error) => assert!(matches!(error.cause(), Cause::RewindTooFar { .. }), "{error}"),
        }
    }
    panic!("the newest state is always kept")
}

/// Kills a run once its log has grown by `bytes`, and its ranks with it; false when it had ended before.
fn kill_after(config: &str, dir: &str, more: &[&str], bytes: u64) -> bool {
    let before = log_bytes(dir);
    let mut child = start_config(config, dir, more);
    let begun = Instant::now();
    while log_bytes(dir) < before + bytes && begun.elapsed() < HANGS {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        std::thread::yield_now();
    }
    kill_run(child);
    assert!(begun.elapsed() < HANGS, "{dir}: the run hangs");
    true
}

/// What SQL counts of a run's trained rows, against its steps: a row that was trained on twice would be in two claims.
fn check_books(dir: &str, summary: &serde_json::Value) {
    for table in ["solver", "checker"] {
        let rows = sql(dir, &format!("SELECT count(*) AS n FROM {table} WHERE state = 'consumed'"));
        let claims = sql(
            dir,
            &format!(
                "SELECT sum(rows) AS n FROM system.claims WHERE consumer = 'train-{table}' AND state = 'consumed'"
            ),
        );
        assert_eq!(rows[0]["n"], claims[0]["n"], "{table}");
    }
    let steps =
        sql(dir, "SELECT sum(rows) AS n, count(*) AS steps FROM system.steps WHERE state = 'committed'");
    assert_eq!((&steps[0]["n"], &steps[0]["steps"]), (&summary["samples"]["consumed"], &6.into()));
}

/// A run that is killed, taken back a step and resumed; killed again, taken back again; and brought to its end.
fn fall_back_again_and_again(config: &str, reference: &serde_json::Value, name: &str) {
    let scratch = Scratch::new();
    let (mut kills, mut undone) = (0, 0);
    for tenth in [2, 4, 6, 9] {
        let dir = scratch.path(&format!("{name}-{tenth}"));
        let whole = log_bytes(reference["dir"].as_str().unwrap());
        let mut more: &[&str] = &[];
        for bytes in [whole * tenth / 10, whole / 5, whole / 7] {
            kills += u32::from(kill_after(config, &dir, more, bytes));
            let store = Store::open(&dir, Options::default()).unwrap();
            undone += take_back(&store, 1);
            more = &["--resume"];
        }
        let summary = run_config(config, &dir, &["--resume"]);
        assert_eq!(weights(&summary), weights(reference), "{name}, killed at {tenth} tenths");
        assert_eq!(summary["samples"], reference["samples"], "{name}, killed at {tenth} tenths");
        check_books(&dir, &summary);
    }
    assert!(kills >= 8 && undone >= 8, "{name}: only {kills} runs were cut off, {undone} taken back");
}

fn reference(config: &str, dir: &str) -> serde_json::Value {
    let mut summary = run_config(config, dir, &[]);
    summary["dir"] = dir.into();
    summary
}

// FX-57, FX-35: the same weights after any fall-back
#[test]
fn a_run_that_is_killed_and_taken_back_a_step_ends_with_the_same_weights() {
    let scratch = Scratch::new();
    let config = small_config();
    let config = config.to_str().unwrap();
    let reference = reference(config, &scratch.path("reference"));
    fall_back_again_and_again(config, &reference, "here");
}

#[test]
fn so_does_one_whose_trainers_are_process_groups() {
    let scratch = Scratch::new();
    let reference = reference(small_config().to_str().unwrap(), &scratch.path("reference"));
    let config = scratch.config(&[("[warm_up]", "[process_groups]\nworld = 1\n\n[warm_up]")]);
    fall_back_again_and_again(&config, &reference, "groups");
}
