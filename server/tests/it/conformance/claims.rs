//! Claims: at most one holder, finished or given back.

use std::sync::Arc;
use std::thread;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int32Type};
use forebay_client::{CellValue, Changes};
use forebay_store::{Kind, Lists, NewRow, SimulatedClock, Timestamp};

use super::*;

#[test]
fn a_row_is_ready_with_its_last_cell_and_handed_out_once() {
    on_every_way(|world| {
        let (writer, one, other) = (world.client(), world.client(), world.client());
        let table = solver(&writer);
        judge(&writer);
        let (judge, rival) = (one.consumer("judge").unwrap(), other.consumer("judge").unwrap());
        let row = table.insert(NewRow::new(0, "q_0_0").unwrap(), [("prompt", "2 + 2 =".into())]).unwrap();
        assert!(judge.claim(up_to(4), Wait::No).unwrap().is_none());
        table.write(row, [("response", vec![4_i32, 2].into())]).unwrap();
        let claim = judge.claim(up_to(4), Wait::No).unwrap().unwrap();
        assert!(rival.claim(up_to(4), Wait::No).unwrap().is_none());
        assert_eq!(
            (ids(&claim), claim.rows(), claim.table()),
            (vec!["q_0_0".to_owned()], &[row][..], "solver")
        );
        let batch = claim.columns(["prompt", "response", "reward", "policy_version"]).unwrap();
        assert_eq!(batch.column(0).as_string_view().value(0), "2 + 2 =");
        assert_eq!(batch.column(1).as_list::<i32>().value(0).as_primitive::<Int32Type>().values(), &[4, 2]);
        assert!(batch.column(2).is_null(0), "it is not final");
        let verdict = verdicts(&claim, 0.25);
        let rows = claim.finish(&verdict).unwrap();
        assert!(rows.is_empty() && rival.claim(up_to(4), Wait::No).unwrap().is_none());
        let reward = table.cell(row, "reward").unwrap();
        assert_eq!(reward, CellValue::Inline(0.25_f32.to_bits().into()));
    });
}

#[test]
fn what_a_task_writes_and_the_end_of_its_claim_are_one() {
    on_every_way(|world| {
        let client = world.client();
        let (table, judge) = (solver(&client), judge(&client));
        client.create_table("checker", Schema::new().data("prompt", DataType::Utf8)).unwrap();
        row(&table, 0, "q_0_0", None);
        let claim = judge.claim(up_to(1), Wait::No).unwrap().unwrap();
        let mut wrong = verdicts(&claim, 1.0);
        wrong.insert("checker", NewRow::new(0, "q_1_0").unwrap(), [("no such column", "x".into())]);
        let error = claim.finish(&wrong).unwrap_err();
        assert_eq!((error.kind(), error.cause()), (Kind::Input, "Unknown"));
        let again = judge.claim(up_to(1), LONG).unwrap().expect("the rows went back");
        let mut right = verdicts(&again, 1.0);
        right.insert("checker", NewRow::new(0, "q_1_0").unwrap(), [("prompt", "x".into())]);
        assert_eq!(again.finish(&right).unwrap().len(), 1);
    });
}

#[test]
fn a_claim_that_is_dropped_or_released_goes_to_the_next() {
    on_every_way(|world| {
        let client = world.client();
        let (table, judge) = (solver(&client), judge(&client));
        row(&table, 0, "q_0_0", None);
        let first = judge.claim(up_to(1), Wait::No).unwrap().unwrap();
        let epoch = first.epoch();
        first.release().unwrap();
        let second = judge.claim(up_to(1), Wait::No).unwrap().unwrap();
        assert_eq!(second.epoch().0, epoch.0);
        assert!(second.epoch().1 > epoch.1, "no two claims have one name");
        drop(second);
        assert!(judge.claim(up_to(1), Wait::No).unwrap().is_some());
    });
}

#[test]
fn what_one_holds_another_cannot_end() {
    on_every_way(|world| {
        let (one, other) = (world.client(), world.client());
        let (table, judge) = (solver(&one), judge(&one));
        row(&table, 0, "q_0_0", None);
        let claim = judge.claim(up_to(1), Wait::No).unwrap().unwrap();
        let thief = other.connection();
        let changes = verdicts(&claim, 1.0);
        let refused = [
            thief.finish(claim.epoch(), &changes).map(drop),
            thief.release(claim.epoch()),
            thief.accumulated(claim.epoch()),
            thief.columns(claim.epoch(), &["reward"], Lists::Together).map(drop),
            thief.cells(claim.epoch(), &["reward"]).map(drop),
            thief.extend(claim.epoch(), Duration::from_secs(1)).map(drop),
        ];
        for refused in refused {
            let error = refused.unwrap_err();
            assert_eq!((error.kind(), error.cause()), (Kind::State, "ClaimFenced"), "{error}");
        }
        claim.finish(&changes).unwrap();
    });
}

#[test]
fn who_waits_is_woken_by_the_last_cell() {
    on_every_way(|world| {
        let writer = world.client();
        let table = solver(&writer);
        judge(&writer);
        thread::scope(|scope| {
            let waiting: Vec<_> = (0..4)
                .map(|_| {
                    let client = world.client();
                    scope.spawn(move || {
                        let claim = client
                            .consumer("judge")
                            .unwrap()
                            .claim(MicroBatch::of(2), LONG)
                            .unwrap()
                            .unwrap();
                        let ids = ids(&claim);
                        claim.finish(&Changes::new()).unwrap();
                        ids
                    })
                })
                .collect();
            (0..8).for_each(|at| _ = row(&table, 0, &format!("q{at}_0_0"), None));
            let mut all: Vec<String> =
                waiting.into_iter().flat_map(|waiting| waiting.join().unwrap()).collect();
            all.sort();
            assert_eq!(all, (0..8).map(|at| format!("q{at}_0_0")).collect::<Vec<_>>());
        });
    });
}

// FX-B12: both modes, a look that gives nothing at once, and a wait.
#[test]
fn a_wait_that_is_over_gives_nothing() {
    on_every_way(|world| {
        let client = world.client();
        solver(&client);
        let judge = judge(&client);
        for wait in [Wait::No, Wait::For(Duration::from_millis(5))] {
            assert!(judge.claim(up_to(1), wait).unwrap().is_none());
        }
    });
}

#[test]
fn a_lease_ends_unless_it_is_extended() {
    for way in Way::ALL {
        let clock = Arc::new(SimulatedClock::new(Timestamp(1_000_000)));
        let lease = Duration::from_secs(60);
        let world = World::with(way, Options::default().lease(lease).clock(clock.clone()));
        let client = world.client();
        let (table, judge) = (solver(&client), judge(&client));
        row(&table, 0, "q_0_0", None);
        let claim = judge.claim(up_to(1), Wait::No).unwrap().unwrap();
        assert_eq!(claim.extend(2 * lease).unwrap(), Timestamp(1_000_000 + 120_000_000), "{way:?}");
        clock.advance(lease);
        assert!(judge.claim(up_to(1), Wait::No).unwrap().is_none());
        clock.advance(lease);
        let next = judge.claim(up_to(1), Wait::No).unwrap().unwrap();
        let changes = verdicts(&claim, 1.0);
        let error = claim.finish(&changes).unwrap_err();
        assert_eq!((error.kind(), error.cause()), (Kind::State, "ClaimFenced"), "{way:?}: {error}");
        let verdict = verdicts(&next, 0.5);
        next.finish(&verdict).unwrap();
        let stored = table.find(0, &"q_0_0".parse().unwrap()).unwrap().unwrap();
        let batch = table.cell(stored, "reward").unwrap();
        assert_eq!(batch, CellValue::Inline(0.5_f32.to_bits().into()));
    }
}

// DESIGN 3.4: whoever comes late ends nothing, and the work is there for others once.
#[test]
fn who_comes_after_the_deadline_is_refused_whatever_the_call_and_the_rows_are_there_once() {
    for way in Way::ALL {
        eprintln!("on the way {way:?}");
        let clock = Arc::new(SimulatedClock::new(Timestamp(1_000_000)));
        let lease = Duration::from_secs(60);
        let world = World::with(way, Options::default().lease(lease).clock(clock.clone()));
        let (client, other) = (world.client(), world.client());
        let (table, judge) = (solver(&client), judge(&client));
        (0..4).for_each(|at| _ = row(&table, 0, &format!("q{at}_0_0"), None));
        let late = [(); 4].map(|()| judge.claim(up_to(1), Wait::No).unwrap().unwrap());
        clock.advance(lease);
        let there = other.consumer("judge").unwrap();
        let again = there.claim(up_to(8), Wait::No).unwrap().expect("they are there again");
        assert_eq!(again.len(), 4);
        assert!(there.claim(up_to(8), Wait::No).unwrap().is_none(), "once");
        let [finishes, extends, releases, drops] = late;
        let verdict = verdicts(&finishes, 1.0);
        let refused = [extends.extend(lease).map(drop), finishes.finish(&verdict).map(drop)];
        for refused in refused {
            let error = refused.unwrap_err();
            assert_eq!((error.kind(), error.cause()), (Kind::State, "ClaimFenced"), "{error}");
        }
        let _ = releases.release(); // refused or nothing to do, and nobody loses anything by it
        drop((drops, extends));
        assert!(there.claim(up_to(8), Wait::No).unwrap().is_none(), "nobody gave away what another holds");
        let verdict = verdicts(&again, 0.5);
        again.finish(&verdict).unwrap();
        let first = table.find(0, &"q0_0_0".parse().unwrap()).unwrap().unwrap();
        assert_eq!(table.cell(first, "reward").unwrap(), CellValue::Inline(0.5_f32.to_bits().into()));
    }
}

#[test]
fn values_outlive_their_claim_and_their_client() {
    on_every_way(|world| {
        let client = world.client();
        let (table, judge) = (solver(&client), judge(&client));
        row(&table, 0, "q_0_0", None);
        let claim = judge.claim(up_to(1), Wait::No).unwrap().unwrap();
        let mut cells = claim.cells(["prompt", "response"]).unwrap();
        claim.release().unwrap();
        drop((table, judge, client));
        let responses = cells.pop().unwrap();
        assert_eq!(cells, [[CellValue::Bytes("q_0_0".into())]], "who keeps one keeps what it stands on");
        assert_eq!(responses, [CellValue::Bytes(vec![1, 0, 0, 0, 2, 0, 0, 0, 5, 0, 0, 0].into())]);
    });
}

// FX-B06: the rows first, their values later, are the values that come along.
#[test]
fn columns_that_come_along_are_what_is_read_later() {
    on_every_way(|world| {
        let client = world.client();
        let (table, judge) = (solver(&client), judge(&client));
        (0..16).for_each(|at| _ = row(&table, 0, &format!("q{at}_0_0"), Some(at as f32)));
        let names = ["sample_id", "prompt", "response", "reward", "reward_status"];
        let claim = judge.claim_with(up_to(16), Wait::No, &names).unwrap().unwrap();
        let along = claim.columns(names).unwrap();
        let later = claim.columns(names).unwrap();
        assert_eq!(along, later);
        let rewards = along.column(3).as_primitive::<Float32Type>();
        assert_eq!((along.num_rows(), rewards.null_count()), (16, 0));
    });
}
