//! Repairs where what later records stand on is gone: a declaration, a deletion, more than can be gone on without.

use std::path::{Path, PathBuf};

use forebay_store::*;

use crate::repair::{COPY, mend};
use crate::support::*;

/// How long the log of a store that lives is.
fn log_length(world: &World) -> usize {
    image_of(&world.disk)[&log()].len()
}

fn log() -> PathBuf {
    Path::new(ROOT).join("log/00000001.log")
}

fn open_copy(world: &World) -> Store {
    Store::open(COPY, world.options()).unwrap()
}

/// The store as it lies there, without what the log got between two moments.
fn without(world: &World, (from, to): (usize, usize)) -> Image {
    let mut image = image_of(&world.disk);
    image.get_mut(&log()).unwrap()[from..to].fill(0xA5);
    image
}

/// Does something, and gives where the log tells of it.
fn told(world: &World, store: &Store, does: impl FnOnce()) -> (usize, usize) {
    store.sync().unwrap();
    let from = log_length(world);
    does();
    store.sync().unwrap();
    (from, log_length(world))
}

#[test]
fn a_declaration_that_is_gone_costs_what_names_it_and_nothing_else() {
    let world = World::new();
    let (store, table) = solver(&world);
    let place = told(&world, &store, || _ = store.create_table("other", solver_schema()).unwrap());
    let other = store.table("other").unwrap();
    for i in 0..100 {
        finished(&other, 0, &format!("other{i}_0_0"));
        finished(&table, 0, &format!("kept{i}_0_0"));
    }
    let before = scan(&store)["solver"].clone();
    drop((store, table, other));
    let (report, copy) = mend(&without(&world, place));
    assert_eq!((report.records_given_up, report.rows_lost), (100, 0), "{:?}", report.losses);
    assert!(report.losses.iter().any(|loss| loss.contains("names table 1")), "{:?}", report.losses);
    assert_eq!(scan(&open_copy(&copy))["solver"], before);
}

#[test]
fn a_column_whose_coming_is_gone_costs_the_records_that_write_it() {
    let world = World::new();
    let (store, table) = solver(&world);
    let score = DataColumn::new("score", DataType::Float32);
    let place = told(&world, &store, || table.add_column(score).unwrap());
    for i in 0..100 {
        let row = finished(&table, 0, &format!("q{i}_0_0"));
        table.write(row, [("score", 0.5.into())]).unwrap();
    }
    drop((store, table));
    let (report, copy) = mend(&without(&world, place));
    assert_eq!((report.records_given_up, report.rows_lost), (100, 0), "{:?}", report.losses);
    assert_eq!(pick(&open_copy(&copy), "solver", &["prompt"]).len(), 100);
}

#[test]
fn what_claims_wrote_that_are_gone_with_their_consumer_is_kept() {
    let world = World::new();
    let (store, table) = solver(&world);
    let declared = Consumer::task(["solver"]).ready(["prompt"]);
    let place = told(&world, &store, || _ = store.create_consumer("task", declared).unwrap());
    let task = store.consumer("task").unwrap();
    for i in 0..100 {
        table.insert(0, &format!("q{i}_0_0"), [("prompt", "a prompt".into())]).unwrap();
        let claim = task.claim(MicroBatch::of(1), "me", Wait::No).unwrap().unwrap();
        let row = claim.rows()[0];
        claim.finish(|batch| batch.write(&table, row, [("reward", f64::from(i).into())])).unwrap();
    }
    let rewards = pick(&store, "solver", &["sample_id", "reward"]);
    drop((store, table, task));
    let (report, copy) = mend(&without(&world, place));
    assert_eq!((report.records_given_up, report.rows_lost), (200, 0), "{:?}", report.losses);
    assert_eq!(pick(&open_copy(&copy), "solver", &["sample_id", "reward"]), rewards);
}

#[test]
fn the_log_ends_where_too_many_records_cannot_follow() {
    let world = World::new();
    let (store, table) = solver(&world);
    let place = told(&world, &store, || table.rename_column("prompt", "p0").unwrap());
    for i in 0..100 {
        table.rename_column(&format!("p{i}"), &format!("p{}", i + 1)).unwrap();
        table.insert(0, &format!("q{i}_0_0"), [("reward", 1.0.into())]).unwrap();
    }
    drop((store, table));
    let (report, copy) = mend(&without(&world, place));
    assert!(report.losses.iter().any(|loss| loss.contains("the log ends here")), "{:?}", report.losses);
    assert_eq!(pick(&open_copy(&copy), "solver", &["sample_id"]).len(), 64, "those before the last refusal");
}

#[test]
fn of_two_generations_of_an_extent_the_copy_holds_the_later_one() {
    let world = World::new();
    let (store, table) = solver(&world);
    let text = |i: u64| format!("version {i}: {}", "a value that fills more than one view ".repeat(40));
    let fill = |version: u64, rows: u64| {
        for i in 0..rows {
            let prompt = text(version);
            table.insert(version, &format!("q{version}x{i}_0_0"), [("prompt", (&*prompt).into())]).unwrap();
        }
        store.sync().unwrap();
    };
    fill(0, 40);
    let place = told(&world, &store, || _ = table.delete(&Delete::all_confirmed()).unwrap());
    store.sync().unwrap();
    store.run_once().unwrap();
    (1..4).for_each(|i| fill(i, 1));
    assert!(store.stats().extents_recycled > 0, "{:?}", store.stats());
    std::mem::forget((store, table));
    let (report, copy) = mend(&without(&world, place));
    assert!(report.cells_emptied > 3, "those whose bytes are whole, too: {:?}", report.losses);
    let rows = pick(&open_copy(&copy), "solver", &["prompt"]);
    let kept = |i: u64| rows.iter().any(|row| row[0].contains(&text(i)));
    assert!((1..4).all(kept), "{rows:?}");
}
