//! States in files: commits that race, bytes that change, names that lead elsewhere.

use std::fs;
use std::sync::Arc;

use forebay_trainer_adapter::states::{FileStates, Staged, States, StatesError, Which};

fn states() -> (tempfile::TempDir, Arc<FileStates>) {
    let folder = tempfile::tempdir().unwrap();
    let states = Arc::new(FileStates::open(folder.path()).unwrap());
    (folder, states)
}

#[test]
fn versions_are_numbered_without_gaps_and_the_newest_two_are_kept() {
    let (folder, states) = states();
    for number in 1..=5_u64 {
        let staged = states.stage("solver", "trainer", &number.to_le_bytes()).unwrap();
        assert_eq!(states.commit("solver", number - 1, &[staged]).unwrap(), number);
        assert_eq!(states.read("solver", Which::Latest, "trainer").unwrap(), number.to_le_bytes());
    }
    assert_eq!(states.read("solver", Which::Exact(4), "trainer").unwrap(), 4_u64.to_le_bytes());
    assert_eq!(states.find("solver", Which::Exact(3)).unwrap(), None);
    assert_eq!(states.find("checker", Which::Latest).unwrap(), None);
    assert_eq!(fs::read_dir(folder.path().join("solver/parts")).unwrap().count(), 2);
    let missing = states.read("solver", Which::Latest, "cache").unwrap_err();
    assert!(matches!(missing, StatesError::Missing { .. }), "{missing}");
}

#[test]
fn of_commits_that_expect_the_same_one_succeeds() {
    let (_folder, states) = states();
    for round in 0..20 {
        let committed: Vec<bool> = std::thread::scope(|scope| {
            let commit = |index: u8| {
                let staged = states.stage("solver", "trainer", &[index]).unwrap();
                match states.commit("solver", round, &[staged]) {
                    Ok(number) => {
                        assert_eq!(number, round + 1);
                        true
                    }
                    Err(StatesError::Conflict { expected, found, .. }) => {
                        assert_eq!((expected, found), (round, round + 1));
                        false
                    }
                    // The part of the one who lost went with the winner's tidying.
                    Err(StatesError::NotStaged { .. }) => false,
                    Err(error) => panic!("{error:?}"),
                }
            };
            let threads: Vec<_> = (0..3).map(|index| scope.spawn(move || commit(index))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(committed.iter().filter(|&&committed| committed).count(), 1, "round {round}");
    }
}

#[test]
fn a_part_is_named_once_more_without_a_copy() {
    let (folder, states) = states();
    let staged = states.stage("solver", "trainer", &[7; 1_000]).unwrap();
    states.commit("solver", 0, &[staged]).unwrap();
    for number in 1..5 {
        let newest = states.find("solver", Which::Latest).unwrap().unwrap();
        let kept = newest.part("trainer").unwrap().staged.clone();
        assert_eq!(states.commit("solver", number, &[kept]).unwrap(), number + 1);
    }
    assert_eq!(fs::read_dir(folder.path().join("solver/parts")).unwrap().count(), 1);
    assert_eq!(states.read("solver", Which::Latest, "trainer").unwrap(), [7; 1_000]);
}

#[test]
fn changed_bytes_are_an_error_and_never_a_state() {
    let (folder, states) = states();
    let staged = states.stage("solver", "trainer", &[7; 100]).unwrap();
    states.commit("solver", 0, &[staged]).unwrap();
    let part = fs::read_dir(folder.path().join("solver/parts")).unwrap().next().unwrap().unwrap().path();
    let manifest = folder.path().join("solver/00000000000000000001.state");
    for path in [part, manifest] {
        let bytes = fs::read(&path).unwrap();
        for at in (0..bytes.len() - 1).step_by(7) {
            let mut changed = bytes.clone();
            changed[at] ^= 0x10;
            fs::write(&path, changed).unwrap();
            let error = states.read("solver", Which::Latest, "trainer").unwrap_err();
            assert!(
                matches!(error, StatesError::Damaged { .. } | StatesError::Io { .. }),
                "byte {at} of {path:?}: {error:?}"
            );
        }
        fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        assert!(matches!(states.read("solver", Which::Latest, "trainer"), Err(StatesError::Damaged { .. })));
        fs::write(&path, bytes).unwrap();
        states.read("solver", Which::Latest, "trainer").unwrap();
    }
}

/// A full disk stays full, if who cannot write a part leaves what he has of it.
#[test]
fn a_part_that_could_not_be_written_whole_leaves_no_file() {
    let (folder, states) = states();
    let full = |to: &mut dyn std::io::Write| {
        to.write_all(&[0; 60])?;
        Err(std::io::ErrorKind::StorageFull.into())
    };
    let short = |to: &mut dyn std::io::Write| to.write_all(&[0; 60]);
    assert!(matches!(
        states.stage_from("solver", "trainer", 100, &mut { full }),
        Err(StatesError::Io { .. })
    ));
    assert!(states.stage_from("solver", "trainer", 100, &mut { short }).is_err());
    let parts = folder.path().join("solver/parts");
    assert_eq!(fs::read_dir(parts).unwrap().count(), 0);
}

#[test]
fn names_that_lead_elsewhere_and_parts_that_were_never_staged_are_refused() {
    let (_folder, states) = states();
    for name in ["", "..", ".hidden", "a/b", "a b", "a\n", "ä", &"a".repeat(101)] {
        assert!(matches!(states.stage(name, "trainer", b"x"), Err(StatesError::Name { .. })), "{name:?}");
        assert!(matches!(states.stage("solver", name, b"x"), Err(StatesError::Name { .. })), "{name:?}");
        assert!(matches!(states.find(name, Which::Latest), Err(StatesError::Name { .. })), "{name:?}");
    }
    let staged = states.stage("solver", "trainer", b"x").unwrap();
    let digest = "0".repeat(64);
    let forged = [
        String::new(),
        "trainer".into(),
        format!("trainer 1 {digest} ../../etc/passwd"),
        format!("trainer 1 {digest} no-such-file"),
        staged.0.replace(" 1 ", " 2 "),
    ];
    for line in forged {
        let refused = states.commit("solver", 0, &[Staged(line.clone())]);
        assert!(matches!(refused, Err(StatesError::NotStaged { .. })), "{line:?}: {refused:?}");
    }
    let twice = states.commit("solver", 0, &[staged.clone(), staged]);
    assert!(matches!(twice, Err(StatesError::NotStaged { .. })), "{twice:?}");
    assert_eq!(states.find("solver", Which::Latest).unwrap(), None);
}
