//! Gangs: the ranks of a trainer take its micro-batches as one, each from a client of its own.

use std::sync::Arc;

use forebay_client::{GangMember, Plan, Step};
use forebay_store::{Gang, Kind, SimulatedClock, Split, Timestamp};

use super::*;

/// Rows whose responses grow longer by ten tokens each.
fn rows(table: &Table, rows: usize) {
    for at in 0..rows {
        let cells = [("response", vec![1_i32; 10 * (at + 1)].into()), ("reward", 1.0.into())];
        table.insert(NewRow::new(0, &format!("q_0_{at}")).unwrap(), cells).unwrap();
    }
}

/// So many ranks of a step, each of a client of its own, which are given along: they hold what they have.
fn ranks(world: &World, step: &Step, count: u32, split: Split) -> (Vec<Client>, Vec<GangMember>) {
    let clients: Vec<Client> = (0..count).map(|_| world.client()).collect();
    let join = |(rank, client): (u32, &Client)| {
        let train = client.consumer("train").unwrap();
        client.open_step(step.number()).join(&train, &Gang::new("ranks", rank, count).split(split)).unwrap()
    };
    let members = (0..count).zip(&clients).map(join).collect();
    (clients, members)
}

fn next(rank: &GangMember, rule: MicroBatch) -> Claim {
    rank.next(rule, LONG).unwrap().expect("there is more")
}

// FX-B16, FX-B18
#[test]
fn a_balanced_gang_shares_rows_by_the_length_of_their_lists_and_knows_the_counts_of_all() {
    on_every_way(|world| {
        let client = world.client();
        let table = solver(&client);
        trainer(&client);
        rows(&table, 8);
        let mut step = client.begin_step(&Plan::new().rows("train", 8)).unwrap();
        let (_clients, members) = ranks(world, &step, 3, Split::Balanced);
        let rule = MicroBatch::of(8).tokens_at_most("response", 1_000);
        let parts: Vec<Claim> = members.iter().map(|rank| next(rank, rule)).collect();
        let mut all: Vec<String> = parts.iter().flat_map(ids).collect();
        all.sort();
        assert_eq!(all, (0..8).map(|at| format!("q_0_{at}")).collect::<Vec<_>>());
        for part in &parts {
            assert_eq!((part.rows_in_gang(), part.tokens_in_gang(), part.sequence_in_step()), (8, 360, 0));
            let tokens: u32 = part.sample_ids().iter().map(|id| 10 * (id.trajectory() + 1)).sum();
            assert!((110..=130).contains(&tokens), "{tokens} of 360 tokens");
            assert_eq!(part.columns(["response"]).unwrap().num_rows(), part.len());
        }
        parts.into_iter().for_each(|part| part.accumulated().unwrap());
        assert_eq!(step.commit([("solver", vec![])]).unwrap().rows, 8);
    });
}

// DESIGN 4: all ranks finish a micro-batch or none.
#[test]
fn a_micro_batch_that_one_rank_loses_is_lost_for_all_and_comes_back() {
    on_every_way(|world| {
        let client = world.client();
        let table = solver(&client);
        trainer(&client);
        rows(&table, 4);
        let mut step = client.begin_step(&Plan::new().rows("train", 4)).unwrap();
        let (_clients, members) = ranks(world, &step, 2, Split::Balanced);
        let [first, second] = [0, 1].map(|rank| next(&members[rank], MicroBatch::of(4)));
        first.release().unwrap();
        let late = second.accumulated().unwrap_err();
        assert_eq!((late.kind(), late.cause()), (Kind::State, "ClaimFenced"), "{late}");
        let open = step.commit([("solver", vec![])]).unwrap_err();
        assert_eq!(open.kind(), Kind::State, "{open}");
        let parts = [0, 1].map(|rank| next(&members[rank], MicroBatch::of(4)));
        assert!(parts.iter().all(|part| part.sequence_in_step() == 1 && part.rows_in_gang() == 4));
        parts.into_iter().for_each(|part| part.accumulated().unwrap());
        assert_eq!(step.commit([("solver", vec![])]).unwrap().rows, 4);
    });
}

#[test]
fn a_rank_that_has_the_gradient_of_a_lost_micro_batch_must_drop_its_cache() {
    for way in Way::ALL {
        eprintln!("on the way {way:?}");
        let clock = Arc::new(SimulatedClock::new(Timestamp(1_000_000)));
        let lease = Duration::from_secs(60);
        let world = World::with(way, Options::default().lease(lease).clock(clock.clone()));
        let client = world.client();
        let table = solver(&client);
        trainer(&client);
        rows(&table, 4);
        let mut step = client.begin_step(&Plan::new().rows("train", 4)).unwrap();
        let (_clients, members) = ranks(&world, &step, 2, Split::Same);
        let [first, second] = [0, 1].map(|rank| next(&members[rank], MicroBatch::of(4)));
        first.accumulated().unwrap();
        clock.advance(lease);
        world.store.run_once().unwrap();
        let late = second.accumulated().unwrap_err();
        assert_eq!((late.kind(), late.cause()), (Kind::State, "CacheDropped"), "{late}");
        for rank in &members {
            let refused = rank.next(MicroBatch::of(4), Wait::No).unwrap_err();
            assert_eq!((refused.kind(), refused.cause()), (Kind::State, "CacheDropped"), "{refused}");
        }
        let (_clients, members) = ranks(&world, &step, 2, Split::Same);
        members.iter().for_each(|rank| next(rank, MicroBatch::of(4)).accumulated().unwrap());
        assert_eq!(
            step.commit([("solver", vec![])]).unwrap().rows,
            4,
            "once, after the ranks have joined again"
        );
    }
}

#[test]
fn who_is_no_rank_or_of_no_step_is_refused() {
    on_every_way(|world| {
        let client = world.client();
        let table = solver(&client);
        let train = trainer(&client);
        rows(&table, 1);
        let step = client.begin_step(&Plan::new().rows("train", 1)).unwrap();
        for gang in [Gang::new("ranks", 2, 2), Gang::new("ranks", 0, 0)] {
            let error = step.join(&train, &gang).unwrap_err();
            assert_eq!(error.kind(), Kind::Input, "{gang:?}: {error}");
        }
        let member = step.join(&train, &Gang::new("ranks", 0, 2)).unwrap();
        let _held = next(&member, MicroBatch::of(1));
        let other = step.join(&train, &Gang::new("ranks", 1, 3)).unwrap();
        let error = other.next(MicroBatch::of(1), Wait::No).unwrap_err();
        assert_eq!(error.kind(), Kind::Input, "a gang is as large as its first rank said: {error}");
        let over = client.open_step(7).join(&train, &Gang::new("ranks", 0, 1)).unwrap_err();
        assert_eq!((over.kind(), over.cause()), (Kind::State, "StepClosed"), "{over}");
    });
}
