//! Steps, gangs, objects.

use forebay_client::Plan;
use forebay_store::{Durability, Gang, GroupBy, Kind, NewRow, Policy, Rewind, Split};
use std::thread;

use super::*;

#[test]
fn a_step_takes_what_it_planned_and_commits_it_at_once() {
    on_every_way(|world| {
        let client = world.client();
        let (table, train) = (solver(&client), trainer(&client));
        (0..4).for_each(|at| _ = row(&table, 0, &format!("q{at}_0_0"), Some(1.0)));
        let late = row(&table, 0, "late_0_0", None);
        let mut step =
            client.begin_step(&Plan::new().rows("train", 4)).unwrap().durability(Durability::Synced);
        let mut seen = 0;
        while let Some(claim) = step.next(&train, up_to(3), LONG).unwrap() {
            assert_eq!((claim.step(), claim.gradient_id().map(|id| id.step)), (Some(1), Some(1)));
            seen += claim.len();
            claim.accumulated().unwrap();
        }
        assert!(seen == 4 && step.is_complete(&train).unwrap());
        let first = forebay_store::ObjectRef::of("weights", 1, b"not put yet");
        step.check_commit([("solver", vec![first])]).unwrap();
        let idle = step.check_commit([]).unwrap_err();
        assert_eq!((idle.kind(), idle.cause()), (Kind::State, "PolicyMissing"), "{idle}");
        let idle = step.commit([]).unwrap_err();
        assert_eq!((idle.kind(), idle.cause()), (Kind::State, "PolicyMissing"), "{idle}");
        let committed = step.commit([("solver", vec![])]).unwrap();
        assert_eq!((committed.step, committed.rows), (1, 4));
        assert_eq!(client.policy("solver").unwrap().version, 1);
        let stale = table.insert(NewRow::new(0, "old_0_0").unwrap(), [("prompt", "?".into())]).unwrap_err();
        assert_eq!((stale.kind(), stale.cause()), (Kind::State, "Stale"));
        assert_eq!(table.write(late, [("reward", 1.0.into())]).unwrap_err().cause(), "RowExcluded");
        let counts = table.counts().unwrap();
        assert_eq!((counts.written, counts.consumed, counts.open()), (5, 4, 0));
    });
}

#[test]
fn a_step_that_is_dropped_gives_its_rows_back() {
    on_every_way(|world| {
        let (one, other) = (world.client(), world.client());
        let (table, train) = (solver(&one), trainer(&one));
        row(&table, 0, "q_0_0", Some(1.0));
        let plan = Plan::new().rows("train", 1);
        let step = one.begin_step(&plan).unwrap();
        let error = other.begin_step(&plan).unwrap_err();
        assert_eq!((error.kind(), error.cause()), (Kind::State, "StepOpen"));
        step.next(&train, up_to(1), Wait::No).unwrap().unwrap().accumulated().unwrap();
        drop(step);
        let mut step = other.begin_step(&plan).unwrap();
        assert_eq!(step.number(), 1);
        let claim = step.next(&other.consumer("train").unwrap(), up_to(1), Wait::No).unwrap().unwrap();
        claim.accumulated().unwrap();
        assert_eq!(step.commit([("solver", vec![])]).unwrap().rows, 1);
        let over = step.commit([("solver", vec![])]).unwrap_err();
        assert_eq!((over.kind(), over.cause()), (Kind::State, "StepClosed"));
    });
}

// FX-B16
#[test]
fn ranks_of_other_processes_take_their_shares_of_one_step() {
    on_every_way(|world| {
        let leader = world.client();
        let table = solver(&leader);
        let grouped = Consumer::trainer(["solver"]).ready(["reward"]).group(GroupBy::Input, 4);
        leader.create_consumer("train", grouped).unwrap();
        (0..4).for_each(|at| _ = row(&table, 0, &format!("q_0_{at}"), Some(1.0)));
        let step = leader.begin_step(&Plan::new().groups("train", ["q"])).unwrap();
        let mut shares = thread::scope(|scope| {
            let rank = |rank| {
                let (client, number) = (world.client(), step.number());
                scope.spawn(move || {
                    let (step, train) = (client.open_step(number), client.consumer("train").unwrap());
                    let gang = Gang::new("actors", rank, 2).split(Split::Balanced);
                    let member = step.join(&train, &gang).unwrap();
                    let mut seen = Vec::new();
                    while let Some(claim) = member.next(up_to(8), LONG).unwrap() {
                        assert_eq!(claim.rows_in_gang(), 4);
                        seen.extend(ids(&claim));
                        claim.accumulated().unwrap();
                    }
                    seen
                })
            };
            [rank(0), rank(1)].map(|rank| rank.join().unwrap())
        });
        assert_eq!([shares[0].len(), shares[1].len()], [2, 2]);
        let mut all = std::mem::take(&mut shares[0]);
        all.append(&mut shares[1]);
        all.sort();
        assert_eq!(all, ["q_0_0", "q_0_1", "q_0_2", "q_0_3"]);
        let mut step = step;
        assert_eq!(step.commit([("solver", vec![])]).unwrap().rows, 4);
    });
}

#[test]
fn ranks_of_one_client_hold_their_parts_of_one_claim_each() {
    for split in [Split::Same, Split::Balanced] {
        on_every_way(|world| {
            let client = world.client();
            let table = solver(&client);
            let grouped = Consumer::trainer(["solver"]).ready(["reward"]).group(GroupBy::Input, 4);
            let train = client.create_consumer("train", grouped).unwrap();
            (0..4).for_each(|at| _ = row(&table, 0, &format!("q_0_{at}"), Some(1.0)));
            let mut step = client.begin_step(&Plan::new().groups("train", ["q"])).unwrap();
            let rank = |rank| step.join(&train, &Gang::new("ranks", rank, 2).split(split)).unwrap();
            let parts = [rank(0), rank(1)].map(|member| member.next(up_to(8), LONG).unwrap().unwrap());
            let share = if split == Split::Same { 4 } else { 2 };
            for part in &parts {
                assert_eq!(part.cells(["reward"]).unwrap()[0].len(), share);
            }
            parts.into_iter().for_each(|part| part.accumulated().unwrap());
            assert_eq!(step.commit([("solver", vec![])]).unwrap().rows, 4);
        });
    }
}

#[test]
fn a_cache_that_is_dropped_gives_its_rows_back() {
    on_every_way(|world| {
        let client = world.client();
        let (table, train) = (solver(&client), trainer(&client));
        row(&table, 0, "q_0_0", Some(1.0));
        let step = client.begin_step(&Plan::new().rows("train", 1)).unwrap();
        let first = step.next(&train, up_to(1), Wait::No).unwrap().unwrap();
        let epoch = first.gradient_id().unwrap().cache_epoch;
        first.accumulated().unwrap();
        step.drop_cache("solver").unwrap();
        let again = step.next(&train, up_to(1), LONG).unwrap().unwrap();
        assert_eq!(again.gradient_id().unwrap().cache_epoch, epoch + 1);
    });
}

#[test]
fn a_cache_that_another_client_drops_is_told_to_whoever_has_accumulated_in_it() {
    on_every_way(|world| {
        let (client, other) = (world.client(), world.client());
        let (table, train) = (solver(&client), trainer(&client));
        row(&table, 0, "q_0_0", Some(1.0));
        let mut step = client.begin_step(&Plan::new().rows("train", 1)).unwrap();
        step.next(&train, up_to(1), Wait::No).unwrap().unwrap().accumulated().unwrap();
        other.open_step(step.number()).drop_cache("solver").unwrap();
        let told = step.commit([("solver", vec![])]).unwrap_err();
        assert_eq!((told.kind(), told.cause()), (Kind::State, "CacheDropped"), "{told}");
        step.drop_cache("solver").unwrap();
        step.next(&train, up_to(1), LONG).unwrap().unwrap().accumulated().unwrap();
        assert_eq!(step.commit([("solver", vec![])]).unwrap().rows, 1);
    });
}

#[test]
fn a_run_goes_back_to_a_step_and_on_from_there() {
    on_every_way(|world| {
        let client = world.client();
        let (table, train) = (solver(&client), trainer(&client));
        for version in 0..2 {
            row(&table, version, "q_0_0", Some(1.0));
            let mut step = client.begin_step(&Plan::new().rows("train", 1)).unwrap();
            step.next(&train, up_to(1), LONG).unwrap().unwrap().accumulated().unwrap();
            step.commit([("solver", vec![])]).unwrap();
        }
        let done = client.rewind(1, Rewind::TrainAgain).unwrap();
        assert_eq!((done.step, done.steps_undone, done.rows), (1, 1, 1));
        assert_eq!(client.policy("solver").unwrap().version, 1);
        assert_eq!(client.rewind(7, Rewind::Exclude).unwrap_err().kind(), Kind::Input);
    });
}

#[test]
fn objects_are_read_as_they_were_written_and_a_durable_policy_names_them() {
    on_every_way(|world| {
        let client = world.client();
        client.declare_policy("solver", Policy::durable(["solver.weights"])).unwrap();
        let (table, train) = (solver(&client), trainer(&client));
        row(&table, 0, "q_0_0", Some(1.0));
        let mut step = client.begin_step(&Plan::new().rows("train", 1)).unwrap();
        step.next(&train, up_to(1), LONG).unwrap().unwrap().accumulated().unwrap();
        let missing = step.commit([("solver", vec![])]).unwrap_err();
        assert_eq!((missing.kind(), missing.cause()), (Kind::State, "StateMissing"));
        let payload: Vec<u8> =
            (0..3_000_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let object = client.put_object("solver.weights", 1, &payload).unwrap();
        assert_eq!(object.bytes, payload.len() as u64);
        step.commit([("solver", vec![object.clone()])]).unwrap();
        let read = world.client().object(&client.policy("solver").unwrap().objects[0]).unwrap();
        assert!(read == payload, "other bytes");
        client.put_object("solver.empty", 1, &[]).unwrap();
        client.sync().and(client.checkpoint()).unwrap();
    });
}

#[test]
fn rows_whose_gradients_were_lost_come_again_and_no_others() {
    on_every_way(|world| {
        let client = world.client();
        let (table, train) = (solver(&client), trainer(&client));
        (0..6).for_each(|at| _ = row(&table, 0, &format!("q{at}_0_0"), Some(1.0)));
        let mut step = client.begin_step(&Plan::new().rows("train", 6)).unwrap();
        let claims = [(); 3].map(|()| step.next(&train, up_to(2), LONG).unwrap().unwrap());
        let lost = (claims[1].epoch(), ids(&claims[1]));
        claims.into_iter().for_each(|claim| claim.accumulated().unwrap());
        let (incarnation, number, member) = lost.0;
        assert_eq!(
            step.return_lost(&[(incarnation + 1, number, member), (incarnation, 9_999, 0)]).unwrap(),
            0
        );
        assert!(step.is_complete(&train).unwrap());
        assert_eq!(step.return_lost(&[lost.0, lost.0]).unwrap(), 2);
        assert_eq!(step.return_lost(&[lost.0]).unwrap(), 0, "once");
        let again = step.next(&train, up_to(8), LONG).unwrap().unwrap();
        assert_eq!(ids(&again), lost.1);
        again.accumulated().unwrap();
        assert_eq!(step.commit([("solver", vec![])]).unwrap().rows, 6);
        let over = step.return_lost(&[lost.0]).unwrap_err();
        assert_eq!((over.kind(), over.cause()), (Kind::State, "StepClosed"), "{over}");
    });
}
