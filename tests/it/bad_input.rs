//! Every mistake gets an error that names it, exit code 2, and nothing is lost.

use std::path::Path;

use crate::support::{Scratch, forebay, run_small, stderr, weights};

fn refuse(arguments: &[&str], expected: &[&str]) {
    let output = forebay(arguments).output().unwrap();
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
    for part in expected {
        assert!(text.contains(part), "{arguments:?}: {part:?} is not in: {text}");
    }
}

#[test]
fn bad_configurations_are_refused_by_name() {
    let groups = |key: &str| format!("[process_groups]\n{key}\n[policy]");
    let (no_world, few_slots, typo) =
        (groups("world = 0"), groups("world = 3\nslots = 2"), groups("slot = 2"));
    let trainer = |key: &str| format!("[trainer]\n{key}\n[policy]");
    let (idle_budget, early_typo) = (trainer("early_budget_bytes = 0"), trainer("erly = true"));
    let (negative_budget, early_word) =
        (trainer("early = true\nearly_budget_bytes = -1"), trainer("early = \"yes\""));
    let at_once = |rows: &str| format!("[rollout]\nat_once = {rows}\n[policy]");
    let (none_at_once, many_at_once) = (at_once("0"), at_once("17"));
    let cases: [(&str, &str, &[&str]); 18] = [
        ("group_size = 4", "group_sise = 4", &["unknown field `group_sise`", "did you mean `group_size`"]),
        ("group_size = 4", "group_size = 5", &["batch.group_size = 5", "does not divide", "16"]),
        ("group_size = 4", "group_size = 0", &["batch.group_size = 0", "at least 1"]),
        ("next = \"checker\"", "next = \"chekcer\"", &["\"chekcer\"", "\"solver\", \"checker\""]),
        ("role = \"checker\"", "role = \"judge\"", &["agents.checker.role", "\"judge\""]),
        ("steps = 6", "steps = \"six\"", &["steps", "invalid type"]),
        ("seed = 3", "seed = = 3", &["not a valid configuration"]),
        ("num_key_value_heads = 2", "num_key_value_heads = 3", &["num_key_value_heads", "3"]),
        ("[policy]", &no_world, &["process_groups.world = 0", "1 to 64"]),
        ("[policy]", &few_slots, &["process_groups.slots = 2", "give at least 3"]),
        ("[policy]", &typo, &["unknown field `slot`", "did you mean `slots`?"]),
        ("[policy]", &idle_budget, &["trainer.early_budget_bytes = 0", "trainer.early = true"]),
        ("[policy]", &early_typo, &["unknown field `erly`", "did you mean `early`?"]),
        ("[policy]", &negative_budget, &["early_budget_bytes", "-1"]),
        ("[policy]", &early_word, &["early", "expected a boolean"]),
        ("[policy]", &none_at_once, &["rollout.at_once = 0", "1 to batch.global_batch = 16"]),
        ("[policy]", &many_at_once, &["rollout.at_once = 17", "1 to batch.global_batch = 16"]),
        ("/train.jsonl", "/nowhere.jsonl", &["cannot read", "nowhere.jsonl"]),
    ];
    for (from, to, expected) in cases {
        let scratch = Scratch::new();
        let config = scratch.config(&[(from, to)]);
        refuse(&["run", &config, "--dir", &scratch.path("run"), "--quiet"], expected);
    }
    refuse(&["run", "nowhere.toml"], &["cannot read nowhere.toml", "No such file"]);
}

#[test]
fn bad_data_is_refused_with_its_line() {
    let scratch = Scratch::new();
    let empty = scratch.path("empty.jsonl");
    std::fs::write(&empty, "\n").unwrap();
    let torn = scratch.path("torn.jsonl");
    std::fs::write(
        &torn,
        "{\"family\":\"f\",\"id\":\"a\",\"question\":\"q\",\"answer\":\"a\"}\n{\"family\":",
    )
    .unwrap();
    let train = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/train.jsonl");
    for (file, expected) in [(&empty, "holds nothing"), (&torn, "line 2")] {
        let config = scratch.config(&[(train.to_str().unwrap(), file)]);
        refuse(&["run", &config, "--dir", &scratch.path("run"), "--quiet"], &[expected]);
    }
}

#[test]
fn directories_that_cannot_hold_the_store_are_refused() {
    let scratch = Scratch::new();
    let config = scratch.config(&[]);
    refuse(&["run", &config, "--dir", "/proc/forebay", "--quiet"], &["/proc/forebay"]);
    let foreign = scratch.path("foreign");
    std::fs::create_dir(&foreign).unwrap();
    std::fs::write(Path::new(&foreign).join("thesis.txt"), "keep me").unwrap();
    refuse(&["run", &config, "--dir", &foreign, "--quiet"], &["is not empty", "no Forebay store"]);
    assert_eq!(std::fs::read_to_string(Path::new(&foreign).join("thesis.txt")).unwrap(), "keep me");
}

#[test]
fn an_address_that_cannot_be_served_is_refused_before_the_directory_is_made() {
    let scratch = Scratch::new();
    let (config, dir) = (scratch.config(&[]), scratch.path("run"));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (address, expected) in [("0.0.0.0:0", "loopback"), (taken.as_str(), "cannot listen on")] {
        refuse(&["run", &config, "--dir", &dir, "--listen", address, "--quiet"], &[address, expected]);
        assert!(!Path::new(&dir).exists(), "{address}");
    }
}

#[test]
fn another_format_version_is_refused_and_left_alone() {
    let scratch = Scratch::new();
    let dir = scratch.path("run");
    run_small(&dir, &["--steps", "1"]);
    let identity = Path::new(&dir).join("FOREBAY");
    let original = std::fs::read(&identity).unwrap();
    let mut newer = original.clone();
    newer[8] = 9;
    std::fs::write(&identity, &newer).unwrap();
    refuse(&["sql", "--dir", &dir, "SELECT 1"], &["on-disk format 9", "reads format 1"]);
    assert_eq!(std::fs::read(&identity).unwrap(), newer);
    std::fs::write(&identity, original).unwrap();
    assert!(forebay(&["sql", "--dir", &dir, "SELECT 1"]).output().unwrap().status.success());
}

#[test]
fn a_damaged_last_record_is_named_and_nothing_is_lost() {
    let scratch = Scratch::new();
    let dir = scratch.path("run");
    let before = run_small(&dir, &["--steps", "2"]);
    let mut segments: Vec<_> =
        std::fs::read_dir(Path::new(&dir).join("log")).unwrap().map(|e| e.unwrap().path()).collect();
    segments.sort();
    let last = segments.last().unwrap();
    let original = std::fs::read(last).unwrap();
    let mut damaged = original.clone();
    let at = damaged.len() - 12; // inside the last record's payload or padding-free end
    damaged[at] ^= 0xFF;
    std::fs::write(last, &damaged).unwrap();
    let config = crate::support::small_config();
    let resume = ["run", config.to_str().unwrap(), "--dir", &dir, "--resume", "--quiet", "--json"];
    let name = last.file_name().unwrap().to_str().unwrap();
    refuse(&resume, &[name, "damaged at offset", "checksum"]);
    assert_eq!(std::fs::read(last).unwrap(), damaged, "nothing was changed");
    std::fs::write(last, original).unwrap();
    let after = run_small(&dir, &["--resume", "--steps", "2"]);
    assert_eq!(weights(&after), weights(&before));
}
