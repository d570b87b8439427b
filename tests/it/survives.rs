//! A run that is killed goes on as if nothing had happened.

use crate::support::{
    Scratch, forebay, log_bytes, run_small, small_config, sql, start_small, stderr, weights,
};

/// Kills a run once its log has grown by `bytes`; false when it had ended before.
fn kill_after(dir: &str, arguments: &[&str], bytes: u64) -> bool {
    let before = log_bytes(dir);
    let mut child = start_small(dir, arguments);
    loop {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        if log_bytes(dir) >= before + bytes {
            child.kill().unwrap();
            child.wait().unwrap();
            return true;
        }
        std::thread::yield_now();
    }
}

// FX-39, FX-B14: nothing is lost and nothing is trained on twice
#[test]
fn kill_at_any_moment_then_resume_ends_with_the_same_weights() {
    let scratch = Scratch::new();
    let reference_dir = scratch.path("reference");
    let reference = run_small(&reference_dir, &[]);
    let whole = log_bytes(&reference_dir);
    let mut kills = 0;
    for tenth in [0, 2, 4, 6, 9] {
        let dir = scratch.path(&format!("killed-{tenth}"));
        let killed = kill_after(&dir, &[], whole * tenth / 10 + 1);
        // The first life and one more are cut off; the third goes to the end.
        let again = killed && kill_after(&dir, &["--resume"], whole / 6);
        kills += u32::from(killed) + u32::from(again);
        let summary = run_small(&dir, &["--resume"]);
        assert_eq!(weights(&summary), weights(&reference), "killed at {tenth} tenths, again: {again}");
        let samples = &summary["samples"];
        assert_eq!(samples, &reference["samples"], "killed at {tenth} tenths");
        // Three books that agree: rows, claims and steps. A row that was trained on twice would be in two claims.
        for table in ["solver", "checker"] {
            let rows = sql(&dir, &format!("SELECT count(*) AS n FROM {table} WHERE state = 'consumed'"));
            let claims = sql(
                &dir,
                &format!(
                    "SELECT sum(rows) AS n FROM system.claims WHERE consumer = 'train-{table}' AND state = 'consumed'"
                ),
            );
            assert_eq!(rows[0]["n"], claims[0]["n"], "{table}");
        }
        let steps =
            sql(&dir, "SELECT sum(rows) AS n, count(*) AS steps FROM system.steps WHERE state = 'committed'");
        assert_eq!((&steps[0]["n"], &steps[0]["steps"]), (&samples["consumed"], &6.into()));
    }
    assert!(kills >= 5, "only {kills} runs were cut off; the test is to kill them in the middle");
}

#[test]
fn a_second_writer_is_refused_with_the_pid_of_the_first() {
    let scratch = Scratch::new();
    let dir = scratch.path("run");
    let mut child = start_small(&dir, &["--steps", "1000000"]);
    while log_bytes(&dir) == 0 {
        assert!(child.try_wait().unwrap().is_none(), "the run ended early");
        std::thread::yield_now();
    }
    let config = small_config();
    let second =
        forebay(&["run", config.to_str().unwrap(), "--dir", &dir, "--resume", "--quiet"]).output().unwrap();
    let pid = child.id();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(second.status.code(), Some(2));
    let text = stderr(&second);
    assert!(text.contains(&format!("process {pid}")) && text.contains("stop that process"), "{text}");
}

#[test]
fn a_run_is_resumed_with_its_own_configuration_only() {
    let scratch = Scratch::new();
    let dir = scratch.path("run");
    run_small(&dir, &["--steps", "1"]);
    let config = small_config();
    let config = config.to_str().unwrap();
    for (arguments, expected) in [
        (vec!["run", config, "--dir", &dir], "holds a run already"),
        (vec!["run", config, "--dir", &dir, "--resume", "--seed", "4"], "seed = 3"),
    ] {
        let output = forebay(&arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
}
