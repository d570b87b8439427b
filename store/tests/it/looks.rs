//! Looks for files that fail.

use forebay_store::*;

use crate::power::{LOGGED, SYNCED, lived, rows};
use crate::support::*;

/// Whether a file is there is asked of the disk as everything is, and an error is no answer.
#[test]
fn a_look_for_a_file_that_fails_is_an_error_and_makes_nothing_anew() {
    let (world, _) = lived();
    world.open().checkpoint().unwrap();
    let image = image_of(&world.disk);
    let opened = |disk: &SimulatedDisk| World::on(disk.clone()).try_open().map(|store| rows(&store));
    let plain = disk_of(&image);
    assert_eq!(opened(&plain).unwrap(), SYNCED + LOGGED);
    let history = plain.history().into_iter().zip(1..);
    let looks: Vec<u64> =
        history.filter(|(operation, _)| *operation == DiskOperation::Exists).map(|(_, at)| at).collect();
    assert!(looks.len() > 4, "{looks:?}");
    let mut refused = 0;
    for at in looks {
        let disk = disk_of(&image);
        disk.arm(at, DiskFault::IoError);
        match opened(&disk) {
            Ok(found) => assert_eq!(found, SYNCED + LOGGED, "point {at}"),
            Err(error) => {
                refused += 1;
                assert!(matches!(error.cause(), Cause::Io { .. }), "point {at}: {error}");
            }
        }
        assert_eq!(disk.struck(), Some((at, DiskFault::IoError)));
        disk.restart();
        assert_eq!(opened(&disk).unwrap(), SYNCED + LOGGED, "point {at}");
    }
    assert!(refused > 2, "{refused}");
}
