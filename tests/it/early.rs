//! Members of groups trained before their groups are complete: the weights that whole groups give, whatever comes when.

use std::path::Path;

use forebay::store::{Options, SampleId, Store};
use serde_json::Value;

use crate::support::{Scratch, log_bytes, run_config, sql, start_config, weights};

/// How many runs may find every group whole whenever their trainers look, which the scheduler can bring about in any single one.
pub(crate) const ATTEMPTS: u32 = 20;

const SOME_ROWS: &str = "[rollout]\nat_once = 1\n[trainer]\nearly = true";

fn with(scratch: &Scratch, name: &str, text: &str) -> String {
    scratch.warm_config(name, text, "")
}

/// Three steps of a run.
fn run(scratch: &Scratch, name: &str, text: &str, more: &[&str]) -> Value {
    run_config(&with(scratch, name, text), &scratch.path(name), &[&["--steps", "3"], more].concat())
}

/// The weights of an agent's newest state.
pub(crate) fn parameters(dir: &str, agent: &str) -> Vec<f32> {
    let store = Store::open(dir, Options::default()).unwrap();
    let payload = store.object(&store.policy(agent).unwrap().objects[0]).unwrap();
    let head = u64::from_le_bytes(payload[..8].try_into().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&payload[8..8 + head]).unwrap();
    let offsets = &header["parameters"]["data_offsets"];
    let at = |index: usize| 8 + head + offsets[index].as_u64().unwrap() as usize;
    payload[at(0)..at(1)].as_chunks().0.iter().copied().map(f32::from_le_bytes).collect()
}

/// How far apart the weights of two runs are, relative to those of the second; the agent's that are farthest.
fn apart(one: &str, other: &str) -> f64 {
    let mut most: f64 = 0.0;
    for agent in ["solver", "checker"] {
        let (one, other) = (parameters(one, agent), parameters(other, agent));
        let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
        let difference = norm(&mut one.iter().zip(&other).map(|(a, b)| f64::from(a - b)));
        most = most.max(difference / norm(&mut other.iter().map(|&v| f64::from(v))));
    }
    most
}

// FX-37, FX-35
#[test]
fn early_training_gives_the_weights_of_whole_groups_and_its_own_bits_whatever_comes_when() {
    let scratch = Scratch::new();
    let (whole, early) = (run(&scratch, "whole", "", &[]), run(&scratch, "early", SOME_ROWS, &[]));
    assert_eq!(early["samples"], whole["samples"]);
    let error = apart(&scratch.path("early"), &scratch.path("whole"));
    assert!(error < 1e-6, "off by {error:.1e}");
    assert!(whole.get("micro_batches").is_none(), "nobody asked");
    let attempt = |attempt| run(&scratch, &format!("early-{attempt}"), SOME_ROWS, &["--workers", "1"]);
    assert!(has_early(&early) || (0..ATTEMPTS).any(|number| has_early(&attempt(number))), "{early}");
    let room = |bytes: usize| format!("{SOME_ROWS}\nearly_budget_bytes = {bytes}");
    let (little, one) = (room(2 * group_bytes(&scratch)), room(group_bytes(&scratch)));
    for (name, text, more) in [
        ("one-worker", SOME_ROWS, vec!["--workers", "1"]),
        ("four-workers", SOME_ROWS, vec!["--workers", "4"]),
        ("barrier", SOME_ROWS, vec!["--barrier"]),
        ("groups-at-once", "[trainer]\nearly = true", vec![]),
        ("three-at-once", "[rollout]\nat_once = 3\n[trainer]\nearly = true\nthreads = 2", vec![]),
        // Room for the sums of two groups: at most one is handed out in part.
        ("little-room", little.as_str(), vec![]),
        ("room-for-one", one.as_str(), vec![]),
    ] {
        let summary = run(&scratch, name, text, &more);
        assert_eq!(weights(&summary), weights(&early), "{name}");
        assert_eq!(summary["samples"], whole["samples"], "{name}");
        if ["barrier", "room-for-one"].contains(&name) {
            assert_eq!(early_batches(&summary), 0, "{name}");
        }
    }
    let none = room(group_bytes(&scratch) - 1);
    let summary = run(&scratch, "no-room", &none, &[]);
    assert_eq!(weights(&summary), weights(&whole), "without room for one group all are trained whole");
    assert_eq!(early_batches(&summary), 0);
}

/// Whether a run trained members before their groups were complete.
pub(crate) fn has_early(summary: &Value) -> bool {
    early_batches(summary) > 0
}

/// How many micro-batches had rows of groups that were not complete yet.
fn early_batches(summary: &Value) -> u64 {
    let counted = &summary["micro_batches"];
    let (trained, early) = (counted["trained"].as_u64().unwrap(), counted["early"].as_u64().unwrap());
    assert!(early <= trained && trained > 0, "{summary}");
    early
}

/// The sums of one group, with those of the entropy bonus.
fn group_bytes(scratch: &Scratch) -> usize {
    3 * 8 * parameters(&scratch.path("whole"), "solver").len()
}

/// Samples that are drawn one by one are those that are drawn a group at a time.
#[test]
fn how_many_samples_are_drawn_at_once_changes_no_bit() {
    let scratch = Scratch::new();
    let reference = run(&scratch, "reference", "", &[]);
    for rows in ["1", "3", "16"] {
        let summary = run(&scratch, rows, &format!("[rollout]\nat_once = {rows}"), &[]);
        assert_eq!(weights(&summary), weights(&reference), "{rows}");
    }
}

// FX-30
#[test]
fn early_training_knows_every_objective() {
    let scratch = Scratch::new();
    for (name, objective) in [
        ("grpo", "loss = \"grpo\"\nadvantage = \"sample\""),
        ("dr-grpo", "loss = \"dr_grpo\"\nadvantage = \"centred\"\nkl_coefficient = 0.1"),
        ("clipped", "policy_term = \"clipped\"\nclip_high = 0.28"),
        ("truncated", "policy_term = \"truncated\"\nimportance_cap = 0.7"),
    ] {
        let (early, whole) = (scratch.path(&format!("{name}-early")), scratch.path(&format!("{name}-whole")));
        let text = format!("{SOME_ROWS}\n[trainer.objective]\n{objective}");
        run_config(&with(&scratch, name, &text), &early, &["--steps", "2"]);
        let text = format!("[trainer.objective]\n{objective}");
        run_config(&with(&scratch, &format!("{name}-whole"), &text), &whole, &["--steps", "2"]);
        let error = apart(&early, &whole);
        assert!(error < 1e-6, "{name}: off by {error:.1e}");
    }
}

/// Kills a run once its log has grown to so many bytes; false when it had ended before.
pub(crate) fn kill_at(config: &str, dir: &str, more: &[&str], bytes: u64) -> bool {
    let mut run = start_config(config, dir, more);
    while run.try_wait().unwrap().is_none() && log_bytes(dir) < bytes {
        std::thread::yield_now();
    }
    let is_cut = run.try_wait().unwrap().is_none();
    run.kill().unwrap();
    run.wait().unwrap();
    is_cut
}

// FX-39: sums that die with their process give their rows back, once
#[test]
fn a_run_that_is_killed_with_open_groups_goes_on_to_the_same_weights() {
    let scratch = Scratch::new();
    let config = with(&scratch, "early", SOME_ROWS);
    let reference = run_config(&config, &scratch.path("reference"), &["--steps", "3"]);
    let whole = log_bytes(&scratch.path("reference"));
    let mut kills = 0;
    for tenth in [1, 3, 5, 8] {
        let dir = scratch.path(&format!("killed-{tenth}"));
        let killed = kill_at(&config, &dir, &["--steps", "3"], whole * tenth / 10);
        let until = log_bytes(&dir) + whole / 7;
        let again = killed && kill_at(&config, &dir, &["--resume", "--steps", "3"], until);
        kills += u32::from(killed) + u32::from(again);
        let summary = run_config(&config, &dir, &["--resume", "--steps", "3"]);
        assert_eq!(weights(&summary), weights(&reference), "{tenth} tenths");
        assert_eq!(summary["samples"], reference["samples"], "{tenth} tenths");
        let rows = sql(&dir, "SELECT count(*) AS n FROM solver WHERE state = 'consumed'");
        let claims =
            "SELECT sum(rows) AS n FROM system.claims WHERE consumer = 'train-solver' AND state = 'consumed'";
        assert_eq!(rows[0]["n"], sql(&dir, claims)[0]["n"]);
    }
    assert!(kills >= 4, "only {kills} runs were cut off; the test is to kill them in the middle");
}

pub(crate) fn copied(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => copied(&entry.path(), &target),
            kind if kind.is_file() => _ = std::fs::copy(entry.path(), target).unwrap(),
            _ => {} // a socket of a run that is gone
        }
    }
}

/// Leaves out a member of each of two groups of the step that a run was killed in, one that was trained where there is one, and whoever would have come behind it; gives how
/// many rows that are.
pub(crate) fn leave_out(dir: &str) -> usize {
    let open = "SELECT sample_id, policy_version FROM solver WHERE state <> 'consumed' AND policy_version = \
                (SELECT max(policy_version) FROM solver) ORDER BY state <> 'accumulated', sample_id";
    let rows = sql(dir, open);
    let store = Store::open(dir, Options::default()).unwrap();
    let [solver, checker] = ["solver", "checker"].map(|agent| store.table(agent).unwrap());
    let version_behind = store.policy("checker").unwrap().version;
    let (mut left_out, mut count): (Vec<String>, usize) = (Vec::new(), 0);
    for row in rows {
        let sample: SampleId = row["sample_id"].as_str().unwrap().parse().unwrap();
        if left_out.len() < 2 && !left_out.iter().any(|input| *input == sample.input()) {
            let found = solver.find(row["policy_version"].as_u64().unwrap(), &sample);
            solver.exclude(found.unwrap(), "bad").unwrap();
            left_out.push(sample.input().to_owned());
            count += 1;
            let behind = sample.next_turn();
            if checker.find(version_behind, &behind).is_none() {
                let row = checker.insert(version_behind, behind.to_string().as_str(), []).unwrap();
                checker.exclude(row, "bad").unwrap();
                count += 1;
            }
        }
    }
    assert_eq!(left_out.len(), 2);
    count
}

#[test]
fn groups_that_lack_members_give_the_weights_of_whole_groups_that_lack_them() {
    let scratch = Scratch::new();
    let (early, whole) =
        (with(&scratch, "early", SOME_ROWS), with(&scratch, "whole", "[rollout]\nat_once = 1"));
    let begun = scratch.path("begun");
    run_config(&early, &begun, &["--steps", "1"]);
    assert!(kill_at(&early, &begun, &["--resume"], log_bytes(&begun) + 2_000), "killed in its second step");
    let left_out = leave_out(&begun);
    let go_on = |name: &str, config: &str, more: &[&str]| {
        let dir = scratch.path(name);
        copied(Path::new(&begun), Path::new(&dir));
        if config == whole {
            let identity = Path::new(&dir).join("run.toml");
            let text = std::fs::read_to_string(&identity).unwrap().replace("early = true\n", "");
            std::fs::write(identity, text).unwrap();
        }
        let summary = run_config(config, &dir, &[&["--resume", "--steps", "3"], more].concat());
        assert!(summary["samples"]["excluded"]["bad"] == left_out, "{summary}");
        summary
    };
    let reference = go_on("early-copy", &early, &[]);
    assert_eq!(weights(&go_on("barrier", &early, &["--barrier"])), weights(&reference));
    assert_eq!(weights(&go_on("one-worker", &early, &["--workers", "1"])), weights(&reference));
    go_on("whole-copy", &whole, &[]);
    let error = apart(&scratch.path("early-copy"), &scratch.path("whole-copy"));
    assert!(error < 1e-6, "off by {error:.1e}");
}
