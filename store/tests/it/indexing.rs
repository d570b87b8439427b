//! Consumers that are declared on tables that have rows.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use forebay_store::*;

use crate::support::*;

const ROWS: u32 = 1_000_000;

/// `solver` with so many rows, eight of an input, all of them finished.
fn full(world: &World, rows: u32) -> (Store, Table) {
    let store = world.open_in_real_time();
    let table = store.create_table("solver", solver_schema()).unwrap();
    for first in (0..rows).step_by(10_000) {
        let mut batch = store.batch();
        batch.durability(Durability::Memory);
        for i in first..rows.min(first + 10_000) {
            let row = NewRow::of(0, SampleId::new(&format!("q{}", i / 8), 0, i % 8).unwrap());
            batch.insert(&table, row, [("reward", 1.0.into())]).unwrap();
        }
        batch.commit().unwrap();
    }
    (store, table)
}

/// How long others wait at the most while a consumer is declared on a full table, and how long that takes. Prints, for
/// whoever changes it.
#[test]
#[ignore = "a measurement"]
fn a_declaration_on_a_full_table_long() {
    let world = World { segment_bytes: 1 << 30, ..World::new() };
    let (store, table) = full(&world, ROWS);
    let by_input = |consumer: Consumer| consumer.ready(["reward"]).group(GroupBy::Input, 8);
    let declared = [
        ("rows", Consumer::task(["solver"]).ready(["reward"])),
        ("groups", by_input(Consumer::task(["solver"]))),
        ("none-is-ready", by_input(Consumer::task(["solver"])).ready(["reward", "response"])),
        ("trainer-of-groups", by_input(Consumer::trainer(["solver"]))),
    ];
    for (at, (name, consumer)) in declared.into_iter().enumerate() {
        let (ended, under_way) = (AtomicBool::new(false), Barrier::new(2));
        let (took, worst, calls) = std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let (mut worst, mut calls) = (Duration::ZERO, 0);
                while !ended.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    table.insert(0, &format!("other{at}_{calls}_0"), []).unwrap();
                    (worst, calls) = (worst.max(begun.elapsed()), calls + 1);
                    if calls == 1 {
                        under_way.wait();
                    }
                }
                (worst, calls)
            });
            under_way.wait();
            let begun = Instant::now();
            store.create_consumer(name, consumer).unwrap();
            let took = begun.elapsed();
            ended.store(true, Ordering::Relaxed);
            let (worst, calls) = other.join().unwrap();
            (took, worst, calls)
        });
        println!("{name}: declared in {took:?}; of {calls} inserts beside it one waited {worst:?}");
    }
}
