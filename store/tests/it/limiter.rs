//! The rate limiter: who inserts and who claims wait for each other, and never both.

use std::collections::HashSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use forebay_store::*;

use crate::support::*;

const PATIENCE: Duration = Duration::from_secs(7);

/// `solver` with a trainer of single rows that has a limiter.
fn limited(store: &Store, limiter: RateLimiter) -> (Table, ConsumerHandle) {
    let table = store.create_table("solver", solver_schema()).unwrap();
    let declared = Consumer::trainer(["solver"]).ready(["reward"]).rate_limiter(limiter);
    (table, store.create_consumer("train", declared).unwrap())
}

fn open(world: &World) -> Store {
    Store::open(ROOT, world.options().capacity_wait(PATIENCE)).unwrap()
}

fn insert(table: &Table, id: &str) -> Result<Row> {
    table.insert(0, id, [("prompt", "a prompt that lies in an extent".into()), ("reward", 1.0.into())])
}

/// Inserts until one is refused. Gives how many came, and the refusal.
fn fill(table: &Table, name: &str) -> (usize, Error) {
    let mut came = 0;
    loop {
        match insert(table, &format!("{name}_0_{came}")) {
            Ok(_) => came += 1,
            Err(error) => return (came, error),
        }
    }
}

/// Inserted and handed out, as the limiter counts them.
fn counts(consumer: &ConsumerHandle) -> (u64, u64) {
    let info = consumer.rate_limiter().unwrap();
    (info.inserted, info.handed_out)
}

// FX-B18: at the limit a writer is told whom it waits for, nothing is lost, and a claim lets it go on
#[test]
fn inserts_wait_for_a_consumer_that_is_behind_and_are_refused_at_their_deadline() {
    let world = World::new();
    let store = open(&world);
    let (table, train) = limited(&store, RateLimiter::new(1.0, 2, 4.0));
    let began = world.clock.now();
    let (came, refused) = fill(&table, "q");
    assert_eq!((came, counts(&train)), (6, (6, 0)));
    assert_eq!(world.clock.now().since(began), PATIENCE, "one insert waited, to its end");
    assert_eq!(refused.kind(), Kind::Retry);
    for told in ["train", "6 rows", "0 were handed out", "buffer of 4"] {
        assert!(refused.to_string().contains(told), "{told:?} is not in: {refused}");
    }
    let now = world.clock.now();
    let mut batch = store.batch();
    batch.wait(Wait::No).insert(&table, NewRow::new(0, "q_0_6").unwrap(), []).unwrap();
    assert_eq!(batch.commit().unwrap_err().kind(), Kind::Retry);
    assert_eq!(world.clock.now(), now, "who does not want to wait does not");
    assert_eq!(pick(&store, "solver", &["sample_id"]).len(), 6, "what was refused is not there");

    let step = store.begin_step(StepPlan::new().rows(&train, 3)).unwrap();
    let claim = step.next(&train, MicroBatch::of(3), Wait::No).unwrap().unwrap();
    assert_eq!(fill(&table, "r").0, 3);
    drop(claim);
    assert_eq!(counts(&train), (9, 0), "a claim that is given back was not handed out");
    assert!(insert(&table, "s_0_0").is_err());
}

#[test]
fn what_belongs_to_rows_that_are_there_is_never_held_back() {
    let world = World::new();
    let store = open(&world);
    let table = store.create_table("solver", solver_schema()).unwrap();
    let limiter = RateLimiter::new(1.0, 1, 2.0);
    let task = Consumer::task(["solver"]).ready(["prompt"]);
    let answer = store.create_consumer("answer", task.clone()).unwrap();
    let declared = task.purposes([Purpose::Train]).rate_limiter(limiter);
    let limited = store.create_consumer("limited", declared).unwrap();
    let first = NewRow::new(0, "q_0_0").unwrap().token(7);
    let row = table.insert_row(first.clone(), [("prompt", "?".into())]).unwrap();
    assert_eq!(fill(&table, "r").0, 2);
    let now = world.clock.now();

    table.append(row, "response", vec![1].into()).unwrap();
    table.finalize(row, "response").unwrap();
    assert_eq!(table.insert_row(first, [("prompt", "?".into())]).unwrap(), row, "the same again");
    table.insert_row(NewRow::new(0, "r_0_0").unwrap().next_attempt(), []).unwrap();
    assert_eq!(counts(&limited), (3, 0), "the next attempt took the place of the one before");
    table.insert_row(NewRow::new(0, "x_0_0").unwrap().excluded("no turn"), []).unwrap();
    table.insert_row(NewRow::new(0, "e_0_0").unwrap().purpose(Purpose::Eval), []).unwrap();
    assert_eq!(counts(&limited), (3, 0), "none of this is for the consumer");
    let claim = answer.claim(MicroBatch::up_to(1), "me", Wait::No).unwrap().unwrap();
    claim.finish(|batch| batch.insert(&table, NewRow::new(0, "q_1_0")?, [])).unwrap();
    let mut batch = store.batch();
    batch.write(&table, row, [("reward", 1.0.into())]).unwrap();
    batch.insert(&table, NewRow::new(0, "q_2_0").unwrap(), []).unwrap();
    batch.commit().unwrap();
    assert_eq!(counts(&limited), (5, 0), "rows that follow on others count");
    assert_eq!(world.clock.now(), now, "nothing of it waited");
    let duplicate = table.insert(0, "r_0_1", []).unwrap_err();
    assert!(matches!(duplicate.cause(), Cause::DuplicateRow { .. }), "told at once: {duplicate}");
    assert_eq!(world.clock.now(), now);
    assert_eq!(insert(&table, "n_0_0").unwrap_err().kind(), Kind::Retry);
}

#[test]
fn claims_wait_until_enough_has_come_and_take_no_more_than_their_share() {
    let world = World::new();
    let store = open(&world);
    let table = store.create_table("solver", solver_schema()).unwrap();
    let declared = Consumer::task(["solver"]).rate_limiter(RateLimiter::new(0.5, 4, 2.0));
    let task = store.create_consumer("task", declared).unwrap();
    (0..3).for_each(|i| _ = insert(&table, &format!("q_0_{i}")).unwrap());
    let claim = |rule| task.claim(rule, "me", Wait::No).unwrap().map(|claim| claim.len());
    assert_eq!(claim(MicroBatch::up_to(8)), None, "three of at least four");
    let now = world.clock.now();
    assert!(task.claim(MicroBatch::of(1), "me", Wait::For(PATIENCE)).unwrap().is_none());
    assert_eq!(world.clock.now().since(now), PATIENCE);
    let mut waiting = Box::pin(task.claim_async(MicroBatch::of(3), "me").unwrap());
    let mut poll = || waiting.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(poll().is_pending());
    insert(&table, "q_0_3").unwrap();
    assert_eq!(claim(MicroBatch::up_to(8)), Some(2), "the buffer, and nothing is beyond the first four");
    assert_eq!(claim(MicroBatch::of(3)), None, "more than may be handed out");
    assert!(poll().is_pending());
    insert(&table, "q_0_4").unwrap();
    assert!(poll().is_pending());
    insert(&table, "q_0_5").unwrap();
    let Poll::Ready(claimed) = poll() else { panic!("two more came, so one more may go") };
    let held = claimed.unwrap().unwrap();
    assert_eq!((held.len(), counts(&task)), (3, (6, 3)));
    assert_eq!(claim(MicroBatch::up_to(8)), None, "all of the share is out");
    held.finish(|_| Ok(())).unwrap();
    assert_eq!(claim(MicroBatch::up_to(8)), None, "what was finished was handed out as well");
    drop(Pin::into_inner(waiting));
}

/// Lets a writer wait at the limit, then does something, and sees the writer through.
fn frees_a_writer(what: &str, relieve: impl FnOnce(&Store, &Table, &ConsumerHandle)) {
    let store = World::new().open_in_real_time();
    let (table, train) = limited(&store, RateLimiter::new(1.0, 1, 3.0));
    (0..4).for_each(|i| _ = insert(&table, &format!("q_0_{i}")).unwrap());
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut batch = store.batch();
            batch.wait(Wait::Forever).insert(&table, NewRow::new(1, "late_0_0").unwrap(), []).unwrap();
            batch.commit().map(|rows| rows.len())
        });
        relieve(&store, &table, &train);
        assert_eq!(writer.join().unwrap().unwrap(), 1, "{what}");
    });
}

#[test]
fn whatever_moves_the_balance_wakes_a_writer() {
    let claim = |store: &Store, train: &ConsumerHandle| {
        let step = store.begin_step(StepPlan::new().rows(train, 1)).unwrap();
        step.next(train, MicroBatch::of(1), Wait::No).unwrap().unwrap().accumulated().unwrap();
        step
    };
    frees_a_writer("a claim", |store, _, train| std::mem::forget(claim(store, train)));
    frees_a_writer("a step that leaves the rest behind", |store, _, train| {
        let step = claim(store, train);
        step.commit([("solver", vec![])]).unwrap();
    });
    frees_a_writer("an exclusion", |_, table, _| {
        table.exclude(table.find(0, &"q_0_0".parse().unwrap()).unwrap(), "failed").unwrap();
    });
    frees_a_writer("a deletion", |_, table, _| {
        let row = table.find(0, &"q_0_1".parse().unwrap()).unwrap();
        table.delete(&Delete::rows([row]).force()).unwrap();
    });
    frees_a_writer("a claimer that goes away empty-handed", |store, _, train| {
        let step = store.begin_step(StepPlan::new().rows(train, 9)).unwrap();
        assert!(step.next(train, MicroBatch::of(9), Wait::No).unwrap().is_none());
        std::mem::forget(step);
    });
}

#[test]
fn a_writer_that_waits_is_told_when_the_store_is_closed() {
    let store = World::new().open_in_real_time();
    let (table, _) = limited(&store, RateLimiter::new(1.0, 1, 1.0));
    (0..2).for_each(|i| _ = insert(&table, &format!("q_0_{i}")).unwrap());
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut batch = store.batch();
            batch.wait(Wait::Forever);
            let row = NewRow::new(0, "late_0_0").unwrap();
            let refused = batch.insert(&table, row, []).and_then(|()| batch.commit()).unwrap_err();
            refused.kind()
        });
        store.close("tired");
        assert_eq!(writer.join().unwrap(), Kind::Closed);
    });
}

#[test]
fn inserts_go_on_while_what_a_claimer_asked_for_cannot_be_had() {
    let world = World::new();
    let store = open(&world);
    let table = store.create_table("solver", solver_schema()).unwrap();
    let declared =
        Consumer::task(["solver"]).group(GroupBy::Input, 4).rate_limiter(RateLimiter::new(1.0, 1, 4.0));
    let task = store.create_consumer("task", declared).unwrap();
    // Three groups are begun, none is whole, and the limit is reached.
    for (input, trajectory) in [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1)] {
        insert(&table, &format!("q{input}_0_{trajectory}")).unwrap();
    }
    assert_eq!(insert(&table, "q2_0_1").unwrap_err().kind(), Kind::Retry, "nobody has asked yet");
    assert!(task.claim(MicroBatch::of(4), "me", Wait::No).unwrap().is_none());
    for (input, trajectory) in [(2, 1), (0, 2), (1, 2), (2, 2), (0, 3)] {
        insert(&table, &format!("q{input}_0_{trajectory}")).unwrap();
    }
    assert!(insert(&table, "q1_0_3").is_err(), "now there is a whole group to be had");
    assert_eq!(task.claim(MicroBatch::of(4), "me", Wait::No).unwrap().unwrap().len(), 4);
    assert!(insert(&table, "q1_0_3").is_err(), "dropped at once: the group is there again");
}

// FX-91: writers and claimers on threads, each waiting for the other; every row is handed out once and nobody waits for ever
#[test]
fn writers_and_claimers_who_wait_for_each_other_all_come_to_their_end() {
    const WRITERS: usize = 4;
    const ROWS: usize = 150;
    for limiter in
        [RateLimiter::new(1.0, 1, 1.0), RateLimiter::new(1.0, 3, 3.0), RateLimiter::new(1.0, 1, 64.0)]
    {
        let store = World::new().open_in_real_time();
        let table = store.create_table("solver", solver_schema()).unwrap();
        let declared = Consumer::task(["solver"]).rate_limiter(limiter);
        let task = store.create_consumer("task", declared).unwrap();
        let taken = Mutex::new(HashSet::new());
        std::thread::scope(|scope| {
            for claimer in 0..3_usize {
                let (task, taken, store) = (&task, &taken, &store);
                scope.spawn(move || {
                    loop {
                        let rule =
                            if claimer == 0 { MicroBatch::of(1) } else { MicroBatch::up_to(2 * claimer) };
                        let Ok(Some(claim)) = task.claim(rule, "me", Wait::Forever) else { return };
                        if claim.epoch().1 % 5 == 0 {
                            continue; // given back
                        }
                        let mine = ids(&claim);
                        claim.finish(|_| Ok(())).unwrap();
                        let mut taken = taken.lock().unwrap();
                        mine.into_iter().for_each(|id| assert!(taken.insert(id), "no row twice"));
                        if taken.len() == WRITERS * ROWS {
                            store.close("all is done");
                        }
                    }
                });
            }
            for writer in 0..WRITERS {
                let (table, store) = (&table, &store);
                scope.spawn(move || {
                    let mut at = 0;
                    while at < ROWS {
                        let mut batch = store.batch();
                        batch.wait(Wait::Forever);
                        for i in at..ROWS.min(at + 1 + writer) {
                            let row = NewRow::new(0, &format!("w{writer}_0_{i}")).unwrap();
                            batch.insert(table, row, []).unwrap();
                        }
                        at += batch.commit().unwrap().len();
                    }
                });
            }
        });
        assert_eq!(taken.into_inner().unwrap().len(), WRITERS * ROWS, "{limiter:?}");
    }
}

#[test]
fn the_counts_are_the_same_for_the_next_process_whether_it_replays_or_starts_from_a_checkpoint() {
    for checkpoint in [false, true] {
        let world = World::new();
        let store = open(&world);
        let limiter = RateLimiter::new(1.0, 2, 30.0);
        let (table, train) = limited(&store, limiter);
        for i in 0..12 {
            insert(&table, &format!("q_0_{i}")).unwrap();
        }
        table.exclude(table.find(0, &"q_0_11".parse().unwrap()).unwrap(), "failed").unwrap();
        let step = store.begin_step(StepPlan::new().rows(&train, 4)).unwrap();
        step.next(&train, MicroBatch::of(4), Wait::No).unwrap().unwrap().accumulated().unwrap();
        assert_eq!(counts(&train), (11, 4));
        if checkpoint {
            store.checkpoint().unwrap();
        }
        std::mem::forget(step);
        let store = world.reopen(store);
        let train = store.consumer("train").unwrap();
        assert_eq!(train.rate_limiter().unwrap().declared, limiter);
        assert_eq!(counts(&train), (11, 0), "what was held when the process ended comes back");

        assert_eq!(train_once(&store, &train, StepPlan::new().rows(&train, 4), "solver"), 4);
        assert_eq!(counts(&train), (0, 0), "the version is over");
        if checkpoint {
            store.checkpoint().unwrap();
        }
        let store = world.reopen(store);
        let train = store.consumer("train").unwrap();
        assert_eq!(counts(&train), (0, 0));
        store.rewind(0, Rewind::TrainAgain).unwrap();
        assert_eq!(counts(&train), (11, 0), "a rewind brings the version back");
        let info = train.rate_limiter().unwrap();
        assert_eq!((info.may_insert, info.may_claim), (21, 39));
    }
}

#[test]
fn a_limiter_declared_on_a_full_table_counts_what_is_there() {
    let (store, table) = solver(&World::new());
    let rows: Vec<Row> = (0..9).map(|i| insert(&table, &format!("q_0_{i}")).unwrap()).collect();
    table.exclude(rows[3], "failed").unwrap();
    table.delete(&Delete::rows([rows[4]]).force()).unwrap();
    let declared = Consumer::task(["solver"]).rate_limiter(RateLimiter::new(1.0, 1, 8.0));
    let task = store.create_consumer("task", declared).unwrap();
    assert_eq!(counts(&task), (7, 0));
}

#[test]
fn a_limiter_that_could_never_move_is_refused() {
    let (store, _) = solver(&World::new());
    for (limiter, members) in [
        (RateLimiter::new(0.0, 1, 8.0), 1),
        (RateLimiter::new(f64::NAN, 1, 8.0), 1),
        (RateLimiter::new(-1.0, 1, 8.0), 1),
        (RateLimiter::new(2.0, 1, 8.0), 1),
        (RateLimiter::new(1.0, 0, 8.0), 1),
        (RateLimiter::new(1.0, 1, f64::NAN), 1),
        (RateLimiter::new(1.0, 1, -1.0), 1),
        (RateLimiter::new(1.0, 1, 7.5), 8),
    ] {
        let declared = Consumer::trainer(["solver"]).group(GroupBy::Input, members).rate_limiter(limiter);
        let refused = store.create_consumer("train", declared).unwrap_err();
        assert!(
            matches!(refused.cause(), Cause::Argument { what: "rate_limiter", .. }),
            "{limiter:?}: {refused}"
        );
    }
    assert!(store.consumer("train").is_err());
}
