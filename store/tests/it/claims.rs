//! Claims: who holds a row, until when, and what becomes of it.

use std::sync::Arc;
use std::time::Duration;

use forebay_store::*;

use crate::support::*;

/// A store with a task that is ready for rows as soon as they are inserted.
fn task(world: &World) -> (Store, Table, ConsumerHandle) {
    let (store, table) = solver(world);
    let consumer = store.create_consumer("task", Consumer::task(["solver"])).unwrap();
    (store, table, consumer)
}

fn take(consumer: &ConsumerHandle, rows: usize) -> Option<Claim> {
    consumer.claim(MicroBatch::up_to(rows), "me", Wait::No).unwrap()
}

fn progress_of(store: &Store, number: u64) -> ClaimProgress {
    store.claims().into_iter().find(|claim| claim.claim == number).unwrap().progress
}

#[test]
fn an_exact_micro_batch_waits_until_it_is_full() {
    let (_, table, consumer) = task(&World::new());
    (0..2).for_each(|i| _ = finished(&table, 0, &format!("q_0_{i}")));
    assert!(consumer.claim(MicroBatch::of(3), "me", Wait::No).unwrap().is_none());
    finished(&table, 0, "q_0_2");
    assert_eq!(consumer.claim(MicroBatch::of(3), "me", Wait::No).unwrap().unwrap().len(), 3);
}

// FX-B04: 0 could mean none or all.
#[test]
fn a_claim_of_no_rows_is_refused_with_the_way_out() {
    let world = World::new();
    let (store, table, train) = trained(&world, None);
    let task = store.create_consumer("task", Consumer::task(["solver"])).unwrap();
    let step = store.begin_step(StepPlan::new().rows(&train, 1)).unwrap();
    let rank = step.join(&train, Gang::new("dp", 0, 1)).unwrap();
    for ready in [false, true] {
        for rule in [MicroBatch::of(0), MicroBatch::up_to(0), MicroBatch::of(0).tokens_at_most("response", 9)]
        {
            let refused = [
                task.claim(rule, "me", Wait::No).unwrap_err(),
                step.next(&train, rule, Wait::No).unwrap_err(),
                rank.next(rule, Wait::No).unwrap_err(),
            ];
            for error in refused {
                assert_eq!(error.kind(), Kind::Input, "ready: {ready}, {rule:?}: {error}");
                assert!(error.to_string().contains("at least 1"), "{error}");
            }
        }
        finished(&table, 0, &format!("q_0_{}", u8::from(ready)));
    }
    assert_eq!(step.next(&train, MicroBatch::of(1), Wait::No).unwrap().unwrap().len(), 1);
}

// FX-96
#[test]
fn what_a_consumer_works_on_is_counted_until_it_ends() {
    let world = World::new();
    let (store, table, train) = trained(&world, None);
    let task = store.create_consumer("task", Consumer::task(["solver"]).ready(["reward"])).unwrap();
    (0..4).for_each(|i| _ = finished(&table, 0, &format!("q{i}_0_0")));
    let shown = || {
        let rows = |info: ConsumerInfo| [info.ready_rows, info.processing_rows, info.current_version];
        store.consumers().into_iter().map(rows).collect::<Vec<_>>()
    };
    assert_eq!(shown(), [[4, 0, 0], [4, 0, 0]]);
    let step = store.begin_step(StepPlan::new().rows(&train, 3)).unwrap();
    let first = step.next(&train, MicroBatch::of(2), Wait::No).unwrap().unwrap();
    let other = take(&task, 1).unwrap();
    assert_eq!(shown(), [[2, 2, 0], [3, 1, 0]]);
    first.accumulated().unwrap();
    step.next(&train, MicroBatch::of(1), Wait::No).unwrap().unwrap().accumulated().unwrap();
    drop(other);
    assert_eq!(shown(), [[1, 3, 0], [4, 0, 0]], "an accumulated row is not done before its step is");
    step.commit([("solver", vec![])]).unwrap();
    assert_eq!(shown()[0], [0, 0, 1]);
}

#[test]
fn a_claim_shows_its_rows_in_sample_order() {
    let (_, table, consumer) = task(&World::new());
    for id in ["q_0_10", "q_0_2", "p_0_3"] {
        finished(&table, 0, id);
    }
    let claim = take(&consumer, 8).unwrap();
    assert_eq!(ids(&claim), ["p_0_3", "q_0_2", "q_0_10"]);
    let batch = claim.columns(["sample_id", "reward_status", "prompt", "claim"]).unwrap();
    assert_eq!(
        show_batch(&batch)[1],
        "sample_id=q_0_2 | reward_status=true | prompt=q_0_2 | claim=null",
        "the claim column is the trainer's"
    );
    assert_eq!(claim.columns(["promt"]).unwrap_err().kind(), Kind::Input);
}

// FX-91
#[test]
fn two_claimers_that_race_get_disjoint_rows() {
    let (store, table, consumer) = task(&World::new());
    (0..400).for_each(|i| _ = finished(&table, 0, &format!("q_0_{i}")));
    let claimer = || {
        let mut mine = Vec::new();
        while let Some(claim) = consumer.claim(MicroBatch::up_to(3), "me", Wait::No).unwrap() {
            mine.extend(ids(&claim));
            claim.finish(|_| Ok(())).unwrap();
        }
        mine
    };
    let (a, b) = std::thread::scope(|scope| {
        let (a, b) = (scope.spawn(claimer), scope.spawn(claimer));
        (a.join().unwrap(), b.join().unwrap())
    });
    let mut all = [a, b].concat();
    assert_eq!(all.len(), 400);
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 400, "no row twice");
    assert_eq!(store.consumers()[0].ready_rows, 0);
}

// FX-39
#[test]
fn every_way_to_end_a_claim_gives_its_rows_back_once() {
    type End = fn(&World, &Store, Claim);
    let cases: [(&str, End, ClaimProgress); 4] = [
        ("dropped", |_, _, claim| drop(claim), ClaimProgress::Released),
        ("released", |_, _, claim| claim.release().unwrap(), ClaimProgress::Released),
        ("failed", |_, _, claim| _ = claim.finish(|_| Err(bad_id())).unwrap_err(), ClaimProgress::Released),
        ("late", expire_and_drop, ClaimProgress::Expired),
    ];
    for (what, end, progress) in cases {
        let world = World::new();
        let (store, table, consumer) = task(&world);
        (0..3).for_each(|i| _ = finished(&table, 0, &format!("q_0_{i}")));
        let claim = take(&consumer, 2).unwrap();
        let (number, held) = (claim.epoch().1, ids(&claim));
        assert_eq!(store.consumers()[0].ready_rows, 1);
        end(&world, &store, claim);
        assert_eq!(progress_of(&store, number), progress, "{what}");
        assert_eq!(store.consumers()[0].ready_rows, 3, "{what}");
        let mut back: Vec<String> =
            [take(&consumer, 2), take(&consumer, 2)].iter().flatten().flat_map(ids).collect();
        back.sort();
        assert_eq!(back, ["q_0_0", "q_0_1", "q_0_2"], "{what}: {held:?}");
        check_counts(&store);
    }
}

fn bad_id() -> Error {
    "not an id".parse::<SampleId>().unwrap_err()
}

fn expire_and_drop(world: &World, store: &Store, claim: Claim) {
    world.clock.advance(LEASE);
    assert!(store.run_once().unwrap().is_none(), "no lease is left");
    drop(claim);
}

#[test]
fn a_lease_ends_at_its_deadline_and_its_late_holder_is_fenced() {
    let world = World::new();
    let (store, table, consumer) = task(&world);
    let row = table.insert(0, "q_0_0", []).unwrap();
    let late = take(&consumer, 1).unwrap();
    assert_eq!(store.run_once().unwrap(), Some(world.clock.now().after(LEASE)));
    world.clock.advance(LEASE - Duration::from_micros(1));
    assert!(take(&consumer, 1).is_none(), "one microsecond is left");
    world.clock.advance(Duration::from_micros(1));
    let next = take(&consumer, 1).unwrap();
    assert_eq!(ids(&next), ids(&late));
    assert_ne!(next.epoch(), late.epoch());
    let error = late.finish(|batch| batch.write(&table, row, [("reward", 2.0.into())])).unwrap_err();
    assert!(matches!(error.cause(), Cause::ClaimFenced { found: "expired", .. }), "{error}");
    assert!(matches!(table.cell(row, "reward").unwrap(), Cell::Empty));
    next.finish(|batch| batch.write(&table, row, [("reward", 1.0.into())])).unwrap();
    assert!(take(&consumer, 1).is_none());
}

#[test]
fn a_lease_that_is_extended_ends_later_and_never_earlier() {
    let world = World::new();
    let (store, table, consumer) = task(&world);
    table.insert(0, "q_0_0", []).unwrap();
    let claim = take(&consumer, 1).unwrap();
    let granted = world.clock.now();
    assert_eq!(claim.extend(Duration::from_secs(1)).unwrap(), granted.after(LEASE), "it was longer already");
    world.clock.advance(LEASE / 2);
    let until = claim.extend(LEASE).unwrap();
    assert_eq!(until, granted.after(LEASE / 2 + LEASE));
    assert_eq!(store.run_once().unwrap(), Some(until));
    world.clock.advance(LEASE - Duration::from_micros(1));
    assert!(take(&consumer, 1).is_none(), "one microsecond is left");
    world.clock.advance(Duration::from_micros(1));
    let error = claim.extend(LEASE).unwrap_err();
    assert!(matches!(error.cause(), Cause::ClaimFenced { found: "expired", .. }), "{error}");
    assert_eq!(ids(&take(&consumer, 1).unwrap()), ["q_0_0"]);
}

#[test]
fn finishing_is_one_record_with_everything_in_it() {
    let world = World::new();
    let (store, table, consumer) = task(&world);
    let next = store.create_table("checker", Schema::new().data("prompt", DataType::Utf8)).unwrap();
    let row = table.insert(0, "q_0_0", []).unwrap();
    let claim = take(&consumer, 1).unwrap();
    let commits = store.stats().commits;
    let rows = claim
        .finish(|batch| {
            batch.write(&table, row, [("reward", 1.0.into())])?;
            batch.insert(&next, NewRow::new(0, "q_1_0")?, [("prompt", "is this right?".into())])
        })
        .unwrap();
    assert_eq!((rows.len(), store.stats().commits), (1, commits + 1));
    let before = scan(&store);
    let store = world.reopen(store);
    assert_eq!(scan(&store), before);
    assert!(take(&store.consumer("task").unwrap(), 1).is_none(), "it is done");
}

#[test]
fn a_task_may_leave_out_or_restart_a_row_that_it_holds() {
    let (store, table, consumer) = task(&World::new());
    let rows = ["q_0_0", "q_0_1"].map(|id| table.insert(0, id, []).unwrap());
    let claim = take(&consumer, 2).unwrap();
    claim
        .finish(|batch| {
            batch.exclude(&table, rows[0], "generation_failed")?;
            batch.insert(&table, NewRow::new(0, "q_0_1")?.next_attempt(), [])
        })
        .unwrap();
    let claim = take(&consumer, 2).unwrap();
    assert_eq!(ids(&claim), ["q_0_1"]);
    assert_eq!(table.counts().excluded.values().sum::<u64>(), 2);
    check_counts(&store);
}

#[test]
fn a_waiting_thread_is_woken_by_what_makes_a_row_ready() {
    type Act = fn(&World, &Table, Row, Claim);
    let cases: [(&str, Act); 3] = [
        ("an insert", |_, table, _, held| {
            finished(table, 0, "new_0_0");
            std::mem::forget(held);
        }),
        ("a claim that is dropped", |_, _, _, held| drop(held)),
        ("a next attempt", |_, table, _, held| {
            table.insert_row(NewRow::new(0, "q_0_0").unwrap().next_attempt(), []).unwrap();
            std::mem::forget(held);
        }),
    ];
    for (what, act) in cases {
        let world = World::new();
        // The machine's clock: the simulated one would move to the end of the lease while the thread waits.
        let store = Store::open(ROOT, world.options().clock(Arc::new(SystemClock))).unwrap();
        let table = store.create_table("solver", solver_schema()).unwrap();
        let consumer = store.create_consumer("task", Consumer::task(["solver"])).unwrap();
        let row = table.insert(0, "q_0_0", []).unwrap();
        let held = take(&consumer, 1).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                consumer.claim(MicroBatch::of(1), "waiting", Wait::Forever).unwrap().unwrap().len()
            });
            act(&world, &table, row, held);
            assert_eq!(waiting.join().unwrap(), 1, "{what}");
        });
    }
}

#[test]
fn waiting_takes_the_time_of_the_stores_clock() {
    let world = World::new();
    let (_, _, consumer) = task(&world);
    let start = world.clock.now();
    let wait = Duration::from_secs(3600);
    assert!(consumer.claim(MicroBatch::of(1), "me", Wait::For(wait)).unwrap().is_none());
    assert_eq!(world.clock.now(), start.after(wait));
    assert!(consumer.claim(MicroBatch::of(1), "me", Wait::For(Duration::ZERO)).unwrap().is_none());
}

#[test]
fn whoever_waits_takes_over_from_a_holder_that_is_gone() {
    let world = World::new();
    let (_, table, consumer) = task(&world);
    table.insert(0, "q_0_0", []).unwrap();
    std::mem::forget(take(&consumer, 1).unwrap());
    let start = world.clock.now();
    let claim = consumer.claim(MicroBatch::of(1), "heir", Wait::Forever).unwrap().unwrap();
    assert_eq!((claim.len(), world.clock.now()), (1, start.after(LEASE)));
}

#[test]
fn only_the_newest_ended_claims_are_remembered_and_every_live_one() {
    let (store, table, consumer) = task(&World::new());
    table.insert(0, "q_0_0", []).unwrap();
    let first = take(&consumer, 1).unwrap().epoch();
    let last = take(&consumer, 1).unwrap();
    assert_eq!((first.0, first.1 + 1), last.epoch());
    assert_eq!(
        store.claims().iter().map(|c| c.progress).collect::<Vec<_>>(),
        [ClaimProgress::Released, ClaimProgress::Leased]
    );
}

#[test]
fn each_kind_of_consumer_ends_its_claims_its_own_way() {
    let (store, table, train) = trained(&World::new(), None);
    let task = store.create_consumer("task", Consumer::task(["solver"])).unwrap();
    finished(&table, 0, "q_0_0");
    assert!(matches!(
        train.claim(MicroBatch::of(1), "me", Wait::No).unwrap_err().cause(),
        Cause::ConsumerKind { .. }
    ));
    assert!(matches!(take(&task, 1).unwrap().accumulated().unwrap_err().cause(), Cause::ConsumerKind { .. }));
    let step = store.begin_step(StepPlan::new().rows(&train, 1)).unwrap();
    let claim = step.next(&train, MicroBatch::of(1), Wait::No).unwrap().unwrap();
    assert!(matches!(claim.finish(|_| Ok(())).unwrap_err().cause(), Cause::ConsumerKind { .. }));
    assert_eq!(step.next(&train, MicroBatch::of(1), Wait::No).unwrap().unwrap().len(), 1, "it came back");
    assert_eq!(take(&task, 1).unwrap().len(), 1);
}

#[test]
fn a_row_that_a_trainer_holds_cannot_be_taken_from_under_it() {
    let (store, table, train) = trained(&World::new(), None);
    let row = finished(&table, 0, "q_0_0");
    let step = store.begin_step(StepPlan::new().rows(&train, 1)).unwrap();
    let claim = step.next(&train, MicroBatch::of(1), Wait::No).unwrap().unwrap();
    let again = || table.insert_row(NewRow::new(0, "q_0_0").unwrap().next_attempt(), []);
    let check = || {
        assert!(matches!(table.exclude(row, "late").unwrap_err().cause(), Cause::ClaimFenced { .. }));
        assert!(matches!(again().unwrap_err().cause(), Cause::ClaimFenced { .. }));
    };
    check();
    claim.accumulated().unwrap();
    check();
    step.commit([("solver", vec![])]).unwrap();
    assert!(matches!(table.exclude(row, "late").unwrap_err().cause(), Cause::RowConsumed { step: 1, .. }));
    check_counts(&store);
}

#[test]
fn a_consumer_names_tables_and_columns_that_exist_and_each_once() {
    let (store, ..) = trained(&World::new(), None);
    let cases = [
        Consumer::task([]),
        Consumer::task(["solvr"]),
        Consumer::task(["solver", "solver"]),
        Consumer::task(["solver"]).ready(["rewrd"]),
        Consumer::task(["solver"]).group(GroupBy::Input, 0),
        Consumer::trainer(["solver"]),
    ];
    for consumer in cases {
        let shown = format!("{consumer:?}");
        assert_eq!(store.create_consumer("new", consumer).unwrap_err().kind(), Kind::Input, "{shown}");
    }
    assert_eq!(store.create_consumer("train", Consumer::task(["solver"])).unwrap_err().kind(), Kind::Input);
    assert_eq!(store.consumers().len(), 1);
}

#[test]
fn a_consumer_that_is_declared_late_finds_the_rows_that_are_there() {
    let (store, table) = solver(&World::new());
    finished(&table, 0, "q_0_0");
    table.insert(0, "q_0_1", []).unwrap();
    table.exclude(finished(&table, 0, "q_0_2"), "x").unwrap();
    let task = store.create_consumer("task", Consumer::task(["solver"]).ready(["reward"])).unwrap();
    let claim = take(&task, 9).unwrap();
    assert_eq!(ids(&claim), ["q_0_0"]);
}

#[test]
fn cells_of_a_claim_are_the_stored_bytes_and_outlive_it() {
    let (store, table, consumer) = task(&World::new());
    let tokens: Vec<i32> = (0..100).collect();
    table.insert(0, "q_0_0", [("response", (&tokens).into()), ("prompt", "short".into())]).unwrap();
    table.insert(0, "q_0_1", [("response", Value::Null), ("reward", 1.0.into())]).unwrap();
    let claim = take(&consumer, 2).unwrap();
    let responses = claim.cells("response").unwrap();
    let (prompts, rewards) = (claim.cells("prompt").unwrap(), claim.cells("reward").unwrap());
    assert_eq!(claim.cells("respons").unwrap_err().kind(), Kind::Input);
    let stored = table.cell(claim.rows()[0], "response").unwrap();
    drop((claim, consumer, table, store));
    let (Cell::Bytes(stored), Cell::Bytes(response), Cell::Bytes(prompt)) =
        (stored, &responses[0], &prompts[0])
    else {
        panic!("{responses:?} {prompts:?}")
    };
    assert_eq!(stored.as_ptr(), response.as_ptr(), "not copied");
    assert_eq!((&**response, &**prompt), (bytemuck::cast_slice(&tokens), &b"short"[..]));
    assert!(matches!((&responses[1], &prompts[1]), (Cell::Null, Cell::Empty)));
    assert!(matches!(rewards[..], [Cell::Empty, Cell::Inline(bits)] if bits == u64::from(1_f32.to_bits())));
}
