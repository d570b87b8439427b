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
    assert!(plain.looks() > 4, "{}", plain.looks());
    let mut refused = 0;
    for at in 1..=plain.looks() {
        let disk = disk_of(&image);
        disk.fail_look(at);
        match opened(&disk) {
            Ok(found) => assert_eq!(found, SYNCED + LOGGED, "look {at}"),
            Err(error) => {
                refused += 1;
                assert!(matches!(error.cause(), Cause::Io { .. }), "look {at}: {error}");
            }
        }
        assert!(disk.looks() >= at, "look {at} never came");
        disk.restart();
        assert_eq!(opened(&disk).unwrap(), SYNCED + LOGGED, "look {at}");
    }
    assert!(refused > 2, "{refused}");
}
