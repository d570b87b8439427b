//! Copies that fail, nodes and users that are others.

use forebay_trainer_adapter::Error;
use forebay_trainer_adapter::publication::*;

use crate::program::Program;
use crate::state::*;

// FX-69
#[test]
fn a_copy_that_fails_publishes_nothing_and_the_version_before_it_goes_on_being_served() {
    for copy in 0..6 {
        let folder = tempfile::tempdir().unwrap();
        let (ours, theirs) = (failing(copy as u64, copy), device(2));
        let (publisher, reader) = (publisher(&ours, folder.path()), reader(&theirs, folder.path()));
        let mut served = 0;
        for version in 1..=5 {
            match publish(&publisher, &ours, version) {
                Ok(()) => served = version,
                Err(error) => {
                    assert!(matches!(error, PublicationError::Device(Error::Copy { .. })), "{error}");
                    assert_eq!(copy / 2 + 1, version as usize, "two copies a version");
                }
            }
            match served {
                0 => assert!(matches!(
                    latest(&reader, &theirs),
                    Err(PublicationError::NoVersion { newest: None, .. })
                )),
                served => assert_eq!(latest(&reader, &theirs).unwrap(), served),
            }
        }
        assert_eq!(publisher.counts().snapshots, 4);
    }
}

// FX-69
#[test]
fn a_copy_that_fails_at_the_reader_is_no_version_and_ends_its_hold() {
    for copy in 0..4 {
        let folder = tempfile::tempdir().unwrap();
        let (ours, theirs) = (device(1), failing(copy as u64, copy));
        let (publisher, reader) = (publisher(&ours, folder.path()), reader(&theirs, folder.path()));
        publish(&publisher, &ours, 1).unwrap();
        let failed = (0..2).filter(|_| match latest(&reader, &theirs) {
            Ok(version) => {
                assert_eq!(version, 1);
                false
            }
            Err(error) => {
                assert!(matches!(error, PublicationError::Device(_)) && !error.may_be_elsewhere(), "{error}");
                true
            }
        });
        assert_eq!(failed.count(), 1);
        assert_eq!((publisher.counts().holds, reader.counts().domains_made), (0, 1));
    }
}

#[test]
fn a_key_of_another_node_is_refused_with_both_names() {
    let folder = tempfile::tempdir().unwrap();
    let own = device(1);
    let publisher = publisher(&own, folder.path());
    publish(&publisher, &own, 1).unwrap();
    let path = folder.path().join("solver.publication");
    let node = this_node().unwrap();
    let text = std::fs::read_to_string(&path).unwrap().replace(&node, "another-node");
    std::fs::write(&path, text).unwrap();
    let error = latest(&reader(&own, folder.path()), &own).unwrap_err();
    assert!(error.may_be_elsewhere());
    assert!(error.to_string().contains(&format!("on node another-node, this is {node}")), "{error}");
}

#[test]
#[allow(clippy::print_stderr, reason = "says that it was skipped")]
fn processes_of_other_users_get_nothing_and_give_nothing() {
    const NOBODY: u32 = 65534;
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root starts processes of other users");
        return;
    }
    let open = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    };
    let folder = tempfile::tempdir().unwrap();
    open(folder.path(), 0o777);
    let program = std::env::current_exe().unwrap();
    let reachable = program.ancestors().skip(1).all(|path| {
        let mode = std::fs::metadata(path)
            .map(|found| std::os::unix::fs::PermissionsExt::mode(&found.permissions()));
        mode.is_ok_and(|mode| mode & 0o001 != 0)
    });
    if !reachable {
        eprintln!("skipped: other users may not run {}", program.display());
        return;
    }
    let own = device(1);
    let publisher = publisher(&own, folder.path());
    publish(&publisher, &own, 1).unwrap();
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        open(&entry.unwrap().path(), 0o777); // somebody has been careless
    }
    let mut theirs = Program::start_as(folder.path(), &[], Some(NOBODY));
    theirs.asks("get solver latest", "error OtherUser");
    assert_eq!((publisher.counts().holds, publisher.counts().granted), (0, 0));
    drop(publisher);
    theirs.asks("publish 4", "published 4");
    let error = latest(&reader(&own, folder.path()), &own).unwrap_err();
    assert!(matches!(error, PublicationError::OtherUser { uid: NOBODY, own: 0, .. }), "{error}");
}
