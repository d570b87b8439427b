//! What one does with the files of a run: check them, copy them, mend them, and ask them while they are written.

use std::path::{Path, PathBuf};
use std::process::Output;

use crate::support::{Scratch, forebay, last_json, run_small, sql, start_small, stderr};

fn run(arguments: &[&str]) -> Output {
    forebay(arguments).output().unwrap()
}

fn flip(path: &Path, offset: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[offset] ^= 0x5A;
    std::fs::write(path, bytes).unwrap();
}

fn first(dir: &str, folder: &str) -> PathBuf {
    let mut files: Vec<_> =
        std::fs::read_dir(Path::new(dir).join(folder)).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    files.remove(0)
}

#[test]
fn a_check_says_what_it_looked_at_and_its_exit_code_what_it_found() {
    let scratch = Scratch::new();
    let dir = scratch.path("run");
    run_small(&dir, &["--steps", "2"]);
    let sound = run(&["verify", "--dir", &dir]);
    let text = String::from_utf8_lossy(&sound.stdout).into_owned();
    assert_eq!(sound.status.code(), Some(0), "{text} {}", stderr(&sound));
    assert!(text.contains("records in") && text.ends_with("sound\n"), "{text}");

    flip(&first(&dir, "extents"), 70);
    let damaged = run(&["verify", "--dir", &dir, "--json"]);
    assert_eq!(damaged.status.code(), Some(1), "{}", stderr(&damaged));
    let report = last_json(&damaged);
    assert_eq!((&report["sound"], &report["fault_count"]), (&false.into(), &1.into()), "{report}");
    assert_eq!(report["faults"][0]["kind"], "value");
    assert!(report["faults"][0]["offset"].as_u64().unwrap() <= 70, "{report}");

    let nowhere = run(&["verify", "--dir", &scratch.path("nowhere")]);
    assert_eq!(nowhere.status.code(), Some(2));
    assert!(stderr(&nowhere).contains("no Forebay store"), "{}", stderr(&nowhere));
}

#[test]
fn a_damaged_run_is_mended_into_a_copy_that_is_sound() {
    let scratch = Scratch::new();
    let (dir, copy) = (scratch.path("run"), scratch.path("copy"));
    run_small(&dir, &["--steps", "2"]);
    flip(&first(&dir, "extents"), 70);
    let trial = run(&["repair", "--dir", &dir, "--dry-run"]);
    let text = String::from_utf8_lossy(&trial.stdout).into_owned();
    assert!(trial.status.success() && text.contains("1 cells emptied"), "{text} {}", stderr(&trial));
    assert!(!Path::new(&copy).exists());

    let mended = run(&["repair", "--dir", &dir, "--to", &copy, "--json"]);
    assert!(mended.status.success(), "{}", stderr(&mended));
    let report = last_json(&mended);
    assert_eq!(
        (&report["cells_emptied"], &report["verified"]["sound"]),
        (&1.into(), &true.into()),
        "{report}"
    );
    assert_eq!(run(&["verify", "--dir", &copy]).status.code(), Some(0));
    assert_eq!(run(&["verify", "--dir", &dir]).status.code(), Some(1), "the damaged store is as it was");
    assert_eq!(
        run(&["repair", "--dir", &dir, "--to", &copy]).status.code(),
        Some(2),
        "the copy is not overwritten"
    );
    assert_eq!(sql(&copy, "SELECT count(*) AS n FROM solver"), sql(&dir, "SELECT count(*) AS n FROM solver"));
}

// FX-B16
#[test]
fn a_run_is_asked_checked_and_copied_while_it_goes_on() {
    let scratch = Scratch::new();
    let (dir, copy) = (scratch.path("run"), scratch.path("copy"));
    let mut child = start_small(&dir, &["--steps", "1000000"]);
    let trained = "SELECT count(*) AS n FROM solver WHERE state = 'consumed'";
    // The store, and then its table, are there sooner or later.
    while !forebay(&["sql", "--dir", &dir, "--format", "json", trained])
        .output()
        .is_ok_and(|output| output.status.success() && last_json(&output)[0]["n"].as_u64() > Some(0))
    {
        assert!(child.try_wait().unwrap().is_none(), "the run ended early");
    }
    let checked = run(&["verify", "--dir", &dir]);
    assert_eq!(checked.status.code(), Some(0), "{}", String::from_utf8_lossy(&checked.stdout));
    let copied = run(&["backup", "--dir", &dir, "--to", &copy]);
    assert!(copied.status.success(), "{}", stderr(&copied));
    assert!(child.try_wait().unwrap().is_none(), "the run goes on");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(run(&["verify", "--dir", &copy]).status.code(), Some(0));
    assert!(sql(&copy, trained)[0]["n"].as_u64() > Some(0));
}
