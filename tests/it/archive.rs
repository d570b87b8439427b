//! Versions that leave the store, by command and while a run goes on.

use std::path::Path;

use forebay::client::{Client, ConnectOptions};
use forebay::store::NewRow;
use serde_json::{Value, json};

use crate::support::{Scratch, Served, forebay, last_json, run_small, sql, stderr, weights};

fn ask(arguments: &[&str], statement: &str) -> Vec<Value> {
    let base = ["sql", "--format", "json", statement];
    let output = forebay(&[&base, arguments].concat()).output().unwrap();
    assert!(output.status.success(), "{statement}: {}", stderr(&output));
    serde_json::from_slice::<Value>(&output.stdout).unwrap().as_array().unwrap().clone()
}

const BY_VERSION: &str = "SELECT policy_version, count(*) AS rows, sum(array_length(response)) AS tokens, \
                          round(avg(reward), 6) AS reward FROM solver GROUP BY 1 ORDER BY 1";

#[test]
fn versions_move_by_command_and_are_asked_with_the_live_ones() {
    let scratch = Scratch::new();
    let (dir, to) = (scratch.path("run"), scratch.path("archive"));
    run_small(&dir, &[]);
    let before = sql(&dir, BY_VERSION);
    let archive = |more: &[&str]| {
        let base = ["archive", "--dir", &dir, "--to", &to, "--json"];
        let output = forebay(&[&base, more].concat()).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        last_json(&output)
    };
    let due = archive(&["--dry-run"])["due"].as_array().unwrap().len();
    assert!(due > 2 && !Path::new(&to).exists(), "a dry run touches nothing");
    let some = archive(&["--versions", "0..0"]);
    assert_eq!(some["moved"]["versions"], 2, "one of each table: {some}");
    let rest = archive(&[]);
    assert_eq!(rest["moved"]["versions"].as_u64().unwrap() as usize, due - 2, "{rest}");
    assert_eq!((&archive(&[])["moved"]["versions"], &rest["held_back"]), (&json!(0), &json!([])));
    assert!(sql(&dir, BY_VERSION).len() < before.len());
    assert_eq!(ask(&["--dir", &dir, "--archive", &to], BY_VERSION), before);
    let alone = ask(&["--archive", &to], BY_VERSION);
    assert_eq!(alone, before[..alone.len()]);
    assert_eq!(2 * alone.len(), due);
    let cleaned = archive(&["--clean", "--older-than", "0"]);
    assert_eq!(cleaned["removed"]["files"], 0);
}

/// Rows of the solver's versions that are over, as a query sees them and as they were written, and its lowest version.
const SEEN: &str = "SELECT (SELECT count(*) FROM solver s, system.tables t \
                     WHERE t.table_name = 'solver' AND s.policy_version < t.current_version) AS rows, \
                    (SELECT 16 * current_version FROM system.tables WHERE table_name = 'solver') AS written, \
                    (SELECT min(policy_version) FROM solver) AS lowest";

#[test]
fn a_served_store_shows_archived_rows_beside_the_live_ones() {
    let scratch = Scratch::new();
    let (dir, to) = (scratch.path("run"), scratch.path("archive"));
    run_small(&dir, &[]);
    let refused = forebay(&["serve", "--dir", &dir, "--archive", &to]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("there is no archive"), "{}", stderr(&refused));
    let moved = forebay(&["archive", "--dir", &dir, "--to", &to, "--json"]).output().unwrap();
    assert!(moved.status.success(), "{}", stderr(&moved));
    let [rows, written, lowest] = Served::new(&dir, &[], None).numbers(SEEN)[..] else { panic!() };
    assert!(rows < written && lowest > 0, "{rows} of {written} rows are live, from version {lowest} on");
    assert_eq!(Served::new(&dir, &["--archive", &to], None).numbers(SEEN), [written, written, 0]);
}

/// Beside whoever writes through the server: versions leave the store, and a query sees every row all the while.
#[test]
fn a_server_archives_the_store_that_it_serves() {
    let scratch = Scratch::new();
    let (dir, to, socket) = (scratch.path("run"), scratch.path("archive"), scratch.path("socket"));
    run_small(&dir, &[]);
    let to_archive = ["--archive", &to, "--archive-keep-versions", "2"];
    let refused = forebay(&[&["serve", "--dir", &dir], &to_archive[..]].concat()).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("--socket"), "{}", stderr(&refused));

    let served = Served::new(&dir, &[&["--socket", &socket], &to_archive[..]].concat(), None);
    let all = served.numbers(SEEN);
    assert_eq!((all[0], all[2]), (all[1], 0));
    let client = Client::connect(&format!("unix://{socket}"), &ConnectOptions::default()).unwrap();
    let solver = client.table("solver").unwrap();
    let last = Path::new(&to).join("_commits/solver");
    while !last.join("3.1.json").exists() {
        assert_eq!(served.numbers(SEEN), all);
    }
    solver.insert(NewRow::new(6, "late_0_0").unwrap(), []).unwrap();
    assert_eq!(served.numbers("SELECT count(*) FROM solver WHERE sample_id = 'late_0_0'"), [1]);
    assert_eq!(served.numbers(SEEN), all);
}

/// Whatever has moved by then: a query sees every row that was ever written.
#[test]
fn a_run_that_archives_serves_what_it_has_archived() {
    let scratch = Scratch::new();
    let (dir, to) = (scratch.path("run"), scratch.path("archive"));
    let table = format!("[archive]\nto = {to:?}\nkeep_versions = 1\n\n[batch]");
    let config = scratch.config(&[("steps = 6", "steps = 100000"), ("[batch]", &table)]);
    let served = Served::of(forebay(&["run", &config, "--dir", &dir, "--quiet"]));
    // The solver's versions move in their order, so version 0 has left the store before version 1 has a manifest.
    let has_moved = || Path::new(&to).join("_commits/solver/1.1.json").exists();
    while !has_moved() {
        assert!(served.ask("SELECT 1 AS one", "").ends_with("\r\n\r\none\n1\n"));
    }
    for _ in 0..20 {
        let [rows, written, lowest] = served.numbers(SEEN)[..] else { panic!() };
        assert!(rows == written && lowest == 0, "{rows} of {written} rows, from version {lowest} on");
    }
}

/// The run computes the same, and ends with few versions in the store and the others in the archive.
#[test]
fn a_run_archives_while_it_goes_on() {
    let scratch = Scratch::new();
    let (plain, dir, to) = (scratch.path("plain"), scratch.path("run"), scratch.path("archive"));
    let expected = run_small(&plain, &[]);
    let table = format!("[archive]\nto = {to:?}\nkeep_versions = 2\n\n[batch]");
    let config = scratch.config(&[("[batch]", &table)]);
    let output = forebay(&["run", &config, "--dir", &dir, "--json", "--quiet"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(weights(&last_json(&output)), weights(&expected));
    assert!(Path::new(&to).join("forebay-archive.json").exists());
    let both = ask(&["--dir", &dir, "--archive", &to], BY_VERSION);
    assert_eq!(both, sql(&plain, BY_VERSION));
}

#[test]
fn what_cannot_be_archived_is_told() {
    let scratch = Scratch::new();
    let (dir, to) = (scratch.path("run"), scratch.path("archive"));
    let refuse = |arguments: &[&str], expected: &str| {
        let output = forebay(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&output).contains(expected), "{arguments:?}: {}", stderr(&output));
    };
    refuse(&["archive", "--dir", &dir, "--to", &to], "holds no Forebay store");
    run_small(&dir, &["--steps", "2"]);
    refuse(&["archive", "--dir", &dir, "--to", "gopher://x"], "no address of an archive");
    refuse(&["archive", "--dir", &dir, "--to", &to, "--versions", "9..3"], "comes after");
    refuse(&["archive", "--dir", &dir, "--to", &to, "--versions", "x..3"], "is not a version");
    refuse(&["archive", "--dir", &dir, "--to", &to, "--keep-versions", "0"], "keep-versions");
    refuse(&["sql", "--archive", &to, "SELECT 1"], "there is no archive");
    refuse(&["serve", "--dir", &dir, "--archive", "gopher://x"], "no address of an archive");
    refuse(&["sql", "SELECT 1"], "--dir");
    let config = scratch.config(&[("[batch]", "[archive]\nto = \"gopher://x\"\n\n[batch]")]);
    refuse(&["run", &config, "--dir", &scratch.path("other"), "--quiet"], "no address of an archive");
    let config = scratch.config(&[("[batch]", "[archive]\nto = \"x\"\nkeep_versions = 0\n\n[batch]")]);
    refuse(&["run", &config, "--dir", &scratch.path("another"), "--quiet"], "archive.keep_versions = 0");
}
