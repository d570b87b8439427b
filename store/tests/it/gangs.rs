//! Gangs: data-parallel ranks take the micro-batches of a trainer as one.

use std::sync::Mutex;

use forebay_store::*;

use crate::support::*;

fn ranks(step: &Step, train: &ConsumerHandle, world: u32, split: Split) -> Vec<GangMember> {
    let join = |rank| step.join(train, Gang::new("dp", rank, world).split(split)).unwrap();
    (0..world).map(join).collect()
}

fn rows(table: &Table, rows: usize) {
    for i in 0..rows {
        let response = vec![1_i32; 10 * (i + 1)];
        let cells = [("response", response.into()), ("reward", 1.0.into())];
        table.insert(0, &format!("q_0_{i}"), cells).unwrap();
    }
}

fn next(rank: &GangMember) -> Option<Claim> {
    rank.next(MicroBatch::of(4), Wait::No).unwrap()
}

// FX-B16
#[test]
fn every_rank_sees_the_same_micro_batch_however_often_it_asks() {
    let (store, table, train) = trained(&World::new(), None);
    rows(&table, 8);
    let step = store.begin_step(StepPlan::new().rows(&train, 8)).unwrap();
    let gang = ranks(&step, &train, 3, Split::Same);
    let mut claims = Vec::new();
    for sequence in 0..2 {
        let parts: Vec<Claim> = gang.iter().map(|rank| next(rank).unwrap()).collect();
        for (rank, part) in gang.iter().zip(&parts) {
            assert_eq!((part.sequence_in_step(), part.len(), part.rows_in_gang()), (sequence, 4, 4));
            assert_eq!(ids(part), ids(&parts[0]));
            let again = rank.fetch(sequence, MicroBatch::of(4), Wait::No).unwrap().unwrap();
            assert_eq!((ids(&again), again.epoch()), (ids(part), part.epoch()));
            claims.push(again);
        }
        claims.extend(parts);
    }
    assert!(gang.iter().all(|rank| next(rank).is_none()) && step.is_complete(&train));
    assert!(step.commit([("solver", vec![])]).is_err(), "nothing is accumulated yet");
    for claim in claims {
        claim.accumulated().unwrap(); // each rank says it twice
    }
    assert_eq!(step.commit([("solver", vec![])]).unwrap().rows, 8);
    check_counts(&store);
}

#[test]
fn a_balanced_gang_shares_rows_by_the_length_of_their_lists() {
    let (store, table, train) = trained(&World::new(), None);
    rows(&table, 8);
    let step = store.begin_step(StepPlan::new().rows(&train, 8)).unwrap();
    let gang = ranks(&step, &train, 3, Split::Balanced);
    let rule = MicroBatch::of(8).tokens_at_most("response", 1_000);
    let parts: Vec<Claim> = gang.iter().map(|rank| rank.next(rule, Wait::No).unwrap().unwrap()).collect();
    let mut all: Vec<String> = parts.iter().flat_map(ids).collect();
    all.sort();
    assert_eq!(all, (0..8).map(|i| format!("q_0_{i}")).collect::<Vec<_>>());
    for part in &parts {
        assert_eq!((part.rows_in_gang(), part.tokens_in_gang()), (8, 360));
        let tokens: u32 = part.sample_ids().iter().map(|id| 10 * (id.trajectory() + 1)).sum();
        assert!((110..=130).contains(&tokens), "{tokens} of 360 tokens");
        assert_eq!(part.columns(["response"]).unwrap().num_rows(), part.len());
    }
    parts.into_iter().for_each(|part| part.accumulated().unwrap());
    assert_eq!(step.commit([("solver", vec![])]).unwrap().rows, 8);
}

#[test]
fn a_micro_batch_that_one_rank_loses_is_lost_for_all_and_comes_back() {
    let (store, table, train) = trained(&World::new(), None);
    rows(&table, 4);
    let step = store.begin_step(StepPlan::new().rows(&train, 4)).unwrap();
    let gang = ranks(&step, &train, 2, Split::Same);
    let (first, second) = (next(&gang[0]).unwrap(), next(&gang[1]).unwrap());
    drop(first);
    assert!(matches!(second.accumulated().unwrap_err().cause(), Cause::ClaimFenced { .. }));
    let lost = gang[1].fetch(0, MicroBatch::of(4), Wait::No).unwrap_err();
    assert!(matches!(lost.cause(), Cause::ClaimFenced { .. }), "{lost}");
    let parts: Vec<Claim> = gang.iter().map(|rank| next(rank).unwrap()).collect();
    assert!(parts.iter().all(|part| part.sequence_in_step() == 1 && part.len() == 4));
    parts.into_iter().for_each(|part| part.accumulated().unwrap());
    assert_eq!(step.commit([("solver", vec![])]).unwrap().rows, 4);
}

#[test]
fn a_rank_that_has_the_gradient_of_a_lost_micro_batch_must_drop_its_cache() {
    for expires in [false, true] {
        let world = World::new();
        let (store, table, train) = trained(&world, None);
        rows(&table, 8);
        let step = store.begin_step(StepPlan::new().rows(&train, 8)).unwrap();
        let gang = ranks(&step, &train, 2, Split::Same);
        gang.iter().for_each(|rank| next(rank).unwrap().accumulated().unwrap());
        next(&gang[0]).unwrap().accumulated().unwrap();
        let other = next(&gang[1]).unwrap();
        if expires {
            world.clock.advance(LEASE);
            store.run_once().unwrap();
        } else {
            drop(other);
        }
        for rank in &gang {
            let refused = rank.next(MicroBatch::of(4), Wait::No).unwrap_err();
            assert!(matches!(refused.cause(), Cause::CacheDropped { .. }), "{refused}");
        }
        // All eight rows are there again for ranks that have joined again.
        let gang = ranks(&step, &train, 2, Split::Same);
        for _ in 0..2 {
            gang.iter().for_each(|rank| next(rank).unwrap().accumulated().unwrap());
        }
        assert_eq!(step.commit([("solver", vec![])]).unwrap().rows, 8, "expires: {expires}");
        check_counts(&store);
    }
}

#[test]
fn a_gang_ends_with_its_process() {
    let world = World::new();
    let (store, table, train) = trained(&world, None);
    rows(&table, 4);
    let step = store.begin_step(StepPlan::new().rows(&train, 4)).unwrap();
    let gang = ranks(&step, &train, 2, Split::Same);
    next(&gang[0]).unwrap().accumulated().unwrap();
    std::mem::forget((step, gang, table, train));
    let store = world.reopen(store);
    let train = store.consumer("train").unwrap();
    assert_eq!(train_once(&store, &train, StepPlan::new().rows(&train, 4), "solver"), 4);
    check_counts(&store);
}

#[test]
fn ranks_that_do_not_fit_are_refused() {
    let (store, table, train) = trained(&World::new(), None);
    rows(&table, 8);
    let step = store.begin_step(StepPlan::new().rows(&train, 8)).unwrap();
    assert_eq!(step.join(&train, Gang::new("dp", 2, 2)).unwrap_err().kind(), Kind::Input);
    let gang = ranks(&step, &train, 2, Split::Same);
    let held = next(&gang[0]).unwrap();
    let other = step.join(&train, Gang::new("dp", 1, 3)).unwrap();
    assert_eq!(other.next(MicroBatch::of(4), Wait::No).unwrap_err().kind(), Kind::Input);
    assert_eq!(gang[1].fetch(7, MicroBatch::of(4), Wait::No).unwrap_err().kind(), Kind::Input);
    let alone = step.join(&train, Gang::new("other", 0, 1)).unwrap();
    let theirs = next(&alone).unwrap();
    assert_ne!(ids(&theirs), ids(&held), "another gang has rows of its own");
    assert_eq!(gang[1].fetch(1, MicroBatch::of(4), Wait::No).unwrap_err().kind(), Kind::Input);
}

#[test]
fn ranks_on_threads_of_their_own_agree_and_nobody_sleeps_for_ever() {
    const WORLD: u32 = 3;
    const ROWS: usize = 40;
    let store = World::new().open_in_real_time();
    let table = store.create_table("solver", solver_schema()).unwrap();
    let train = store.create_consumer("train", Consumer::trainer(["solver"]).ready(["reward"])).unwrap();
    let step = store.begin_step(StepPlan::new().rows(&train, ROWS as u64)).unwrap();
    let seen: Mutex<Vec<Vec<Vec<String>>>> = Mutex::default();
    std::thread::scope(|scope| {
        for rank in ranks(&step, &train, WORLD, Split::Same) {
            let seen = &seen;
            scope.spawn(move || {
                let mut mine = Vec::new();
                while let Some(claim) = rank.next(MicroBatch::of(4), Wait::Forever).unwrap() {
                    mine.push(ids(&claim));
                    claim.accumulated().unwrap();
                }
                seen.lock().unwrap().push(mine);
            });
        }
        rows(&table, ROWS);
    });
    let seen = seen.into_inner().unwrap();
    assert!(seen.iter().all(|batches| *batches == seen[0]));
    assert_eq!(seen[0].iter().flatten().count(), ROWS);
    assert_eq!(step.commit([("solver", vec![])]).unwrap().rows, ROWS as u64);
}

#[test]
fn a_cache_that_lost_nothing_keeps_its_gradients_when_another_is_lost() {
    let world = World::new();
    let store = world.open();
    let [first, second] = ["first", "second"].map(|name| {
        let table = store.create_table(name, solver_schema()).unwrap();
        (0..2).for_each(|i| _ = finished(&table, 0, &format!("q_0_{i}")));
        store.create_consumer(&format!("train-{name}"), Consumer::trainer([name]).ready(["reward"])).unwrap()
    });
    let step = store.begin_step(StepPlan::new().rows(&first, 2).rows(&second, 2)).unwrap();
    let gang = ranks(&step, &first, 2, Split::Same);
    let take = || step.next(&second, MicroBatch::of(1), Wait::No).unwrap().unwrap();
    let (kept, _leased) = (take(), take());
    let name = kept.gradient_id().unwrap();
    kept.accumulated().unwrap();
    let of_gang = || gang[0].next(MicroBatch::of(2), Wait::No);
    of_gang().unwrap().unwrap().accumulated().unwrap(); // one rank of two has it
    world.clock.advance(LEASE * 2);
    store.run_once().unwrap();
    assert!(matches!(of_gang().unwrap_err().cause(), Cause::CacheDropped { .. }), "its cache is lost");
    assert!(!store.accumulate(&name).unwrap(), "this one is there as before");
    check_counts(&store);
}

#[test]
fn a_trainer_whose_rows_go_back_with_a_gang_s_is_told_before_it_accumulates_or_commits() {
    let store = World::new().open();
    let [first, second] = ["first", "second"].map(|name| {
        let table = store.create_table(name, solver_schema().policy("team")).unwrap();
        (0..2).for_each(|i| _ = finished(&table, 0, &format!("q_0_{i}")));
        store.create_consumer(&format!("train-{name}"), Consumer::trainer([name]).ready(["reward"])).unwrap()
    });
    let step = store.begin_step(StepPlan::new().rows(&first, 2).rows(&second, 2)).unwrap();
    let gang = ranks(&step, &first, 2, Split::Same);
    let parts = || [0, 1].map(|rank: usize| gang[rank].next(MicroBatch::of(2), Wait::No).unwrap().unwrap());
    let take = || step.next(&second, MicroBatch::of(1), Wait::No).unwrap().unwrap();
    take().accumulated().unwrap();
    let [kept, lost] = parts();
    kept.accumulated().unwrap();
    drop(lost); // its cache is the policy's, and goes with all that is in it
    let is_told = |refused: Error| {
        assert!(matches!(refused.cause(), Cause::CacheDropped { epoch: 1, .. }), "{refused}");
        assert_eq!(refused.kind(), Kind::State);
    };
    is_told(step.check_commit([("team", vec![])]).unwrap_err());
    is_told(step.commit([("team", vec![])]).unwrap_err());
    is_told(take().accumulated().unwrap_err());
    step.drop_cache("second").unwrap();
    let gang = ranks(&step, &first, 2, Split::Same);
    gang.iter()
        .for_each(|rank| rank.next(MicroBatch::of(2), Wait::No).unwrap().unwrap().accumulated().unwrap());
    (0..2).for_each(|_| take().accumulated().unwrap());
    assert_eq!(step.commit([("team", vec![])]).unwrap().rows, 4, "each once");
    check_counts(&store);
}

#[test]
fn a_trainer_that_relied_on_nothing_in_a_lost_cache_goes_on() {
    let (store, table, train) = trained(&World::new(), None);
    rows(&table, 8);
    let step = store.begin_step(StepPlan::new().rows(&train, 8)).unwrap();
    let gang = ranks(&step, &train, 2, Split::Same);
    let held = step.next(&train, MicroBatch::of(4), Wait::No).unwrap().unwrap();
    next(&gang[0]).unwrap().accumulated().unwrap();
    drop(next(&gang[1]).unwrap());
    held.accumulated().unwrap();
    let gang = ranks(&step, &train, 2, Split::Same);
    gang.iter().for_each(|rank| next(rank).unwrap().accumulated().unwrap());
    assert_eq!(step.commit([("solver", vec![])]).unwrap().rows, 8);
    check_counts(&store);
}

#[test]
fn a_micro_batch_of_several_ranks_is_accumulated_by_none_for_the_others() {
    let (store, table, train) = trained(&World::new(), None);
    rows(&table, 8);
    let step = store.begin_step(StepPlan::new().rows(&train, 8)).unwrap();
    let gang = ranks(&step, &train, 2, Split::Balanced);
    let [first, second] = [0, 1].map(|rank: usize| next(&gang[rank]).unwrap());
    let name = first.gradient_id().unwrap();
    let refused = |error: Error| matches!(error.cause(), Cause::Argument { what: "gradient", .. });
    assert!(refused(store.accumulate(&name).unwrap_err()));
    first.accumulated().unwrap();
    assert!(refused(store.accumulate(&name).unwrap_err()), "one of two has it");
    second.accumulated().unwrap();
    assert!(!store.accumulate(&name).unwrap(), "all have said so");
    let alone = step.join(&train, Gang::new("one", 0, 1)).unwrap();
    let claim = next(&alone).unwrap();
    assert!(store.accumulate(&claim.gradient_id().unwrap()).unwrap(), "there are no others");
    assert_eq!(step.commit([("solver", vec![])]).unwrap().rows, 8);
    check_counts(&store);
}

#[test]
fn threads_of_one_rank_are_given_each_micro_batch_once() {
    const ROWS: usize = 256;
    let (store, table, train) = trained(&World::new(), None);
    rows(&table, ROWS);
    let step = store.begin_step(StepPlan::new().rows(&train, ROWS as u64)).unwrap();
    let rank = step.join(&train, Gang::new("dp", 0, 1)).unwrap();
    let given = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(claim) = rank.next(MicroBatch::of(1), Wait::Forever).unwrap() {
                    given.lock().unwrap().push(claim.sequence_in_step());
                    claim.accumulated().unwrap();
                }
            });
        }
    });
    let mut given = given.into_inner().unwrap();
    given.sort_unstable();
    assert_eq!(given, (0..ROWS as u32).collect::<Vec<_>>());
    assert_eq!(step.commit([("solver", vec![])]).unwrap().rows, ROWS as u64);
}
