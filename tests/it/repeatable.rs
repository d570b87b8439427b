//! The same seed gives the same weights.

use crate::support::{Scratch, run_small, sql, weights};

// FX-35
#[test]
fn workers_and_the_barrier_change_no_bit() {
    let scratch = Scratch::new();
    let reference = run_small(&scratch.path("reference"), &[]);
    assert_eq!(reference["steps"], 6);
    for (name, arguments) in [
        ("one-worker", vec!["--workers", "1"]),
        ("four-workers", vec!["--workers", "4"]),
        ("barrier", vec!["--barrier"]),
        ("again", vec![]),
    ] {
        let summary = run_small(&scratch.path(name), &arguments);
        assert_eq!(weights(&summary), weights(&reference), "{name}");
    }
    let other = run_small(&scratch.path("other-seed"), &["--seed", "4"]);
    assert_ne!(weights(&other), weights(&reference), "another seed, another run");
}

#[test]
fn a_run_may_stop_early_and_go_on_later() {
    let scratch = Scratch::new();
    let whole = run_small(&scratch.path("whole"), &[]);
    let dir = scratch.path("in-two");
    let first = run_small(&dir, &["--steps", "2"]);
    assert_eq!(first["steps"], 2);
    let second = run_small(&dir, &["--resume"]);
    assert_eq!(weights(&second), weights(&whole));
    assert_eq!(second["samples"], whole["samples"]);
    assert_eq!(second["policies"][0]["held_out_first"], whole["policies"][0]["held_out_first"]);
}

// FX-31, FX-34, FX-10, FX-12: versions rise by one a step, a step trains one version, and everything is accounted for
#[test]
fn every_sample_is_accounted_for() {
    let scratch = Scratch::new();
    let dir = scratch.path("run");
    let summary = run_small(&dir, &[]);
    let samples = &summary["samples"];
    assert_eq!(samples["written"], 6 * 16 * 2);
    assert_eq!(samples["consumed"], samples["written"]);
    assert_eq!(samples["open"], 0);
    for table in ["solver", "checker"] {
        let rows = sql(
            &dir,
            &format!(
                "SELECT policy_version, step, count(*) AS n, count(DISTINCT sample_id) AS ids FROM {table} GROUP BY 1, 2 ORDER BY 1"
            ),
        );
        assert_eq!(rows.len(), 6, "{rows:?}");
        for (version, row) in rows.iter().enumerate() {
            assert_eq!((&row["policy_version"], &row["step"]), (&version.into(), &(version + 1).into()));
            assert_eq!((&row["n"], &row["ids"]), (&16.into(), &16.into()));
        }
        // FX-89, FX-33: one version of the weights in a step, and another one in every step
        let weights = sql(
            &dir,
            &format!(
                "SELECT policy_version, count(DISTINCT weights) AS n, min(weights) AS hash FROM {table} GROUP BY 1"
            ),
        );
        assert!(weights.iter().all(|row| row["n"] == 1), "{weights:?}");
        let hashes: std::collections::HashSet<String> =
            weights.iter().map(|row| row["hash"].to_string()).collect();
        assert_eq!(hashes.len(), 6);
        let held = sql(&dir, &format!("SELECT count(*) AS n FROM {table} WHERE is_processing"));
        assert_eq!(held[0]["n"], 0);
    }
}
