//! A log of which an early segment came back after later ones had gone: removals that were not synced may happen in any order.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use forebay_store::*;

use crate::support::*;

fn segment(number: u32) -> PathBuf {
    Path::new(ROOT).join(format!("log/{number:08}.log"))
}

/// A store whose checkpoint covers segments, of which the first is still there and the ones behind it are not.
fn with_a_gap() -> (World, Vec<String>) {
    let world = World { segment_bytes: 900, ..World::new() };
    let (store, table) = solver(&world);
    let insert =
        |i: usize| _ = table.insert(0, &format!("q_0_{i}"), [("prompt", "a prompt".into())]).unwrap();
    (0..40).for_each(insert);
    store.sync().unwrap();
    let before = image_of(&world.disk);
    store.checkpoint().unwrap();
    (40..50).for_each(insert);
    store.sync().unwrap();
    let rows = scan(&store)["solver"].clone();
    let mut image = image_of(&world.disk);
    assert!(!image.contains_key(&segment(1)) && !image.contains_key(&segment(2)));
    image.insert(segment(1), before[&segment(1)].clone());
    (World::on(disk_of(&image)), rows)
}

#[test]
fn a_segment_that_came_back_before_a_gap_is_passed_over_by_all_and_removed_by_the_writer() {
    let (world, rows) = with_a_gap();
    let verified = |path: &Path| {
        let report = verify(path, &world.options(), &mut |_| ControlFlow::Continue(())).unwrap();
        assert!(report.is_sound(), "{}: {:?}", path.display(), report.faults);
    };
    verified(Path::new(ROOT));
    let reader = Store::open(ROOT, world.options().read_only(true)).unwrap();
    assert_eq!(scan(&reader)["solver"], rows);
    reader.backup("/copy").unwrap();
    verified(Path::new("/copy"));
    let copy = Store::open("/copy", world.options()).unwrap();
    assert_eq!(scan(&copy)["solver"], rows);
    drop((reader, copy));
    let store = world.open();
    assert_eq!(scan(&store)["solver"], rows);
    assert!(!world.disk.exists(&segment(1)).unwrap());
    verified(Path::new(ROOT));
}
