//! Rows of peers: SP-27, and what of SP-08 and SP-17 the store has to be able to express.

use forebay_store::*;

use crate::support::*;

fn from(peer: &str, round: u64) -> Origin {
    Origin { peer: peer.to_owned(), round }
}

/// A row of a peer that a trainer is ready for.
fn received(table: &Table, version: u64, id: &str, origin: &Origin) -> Row {
    let new = NewRow::new(version, id).unwrap().external(origin);
    table.insert_row(new, [("prompt", id.into()), ("reward", 1.0.into())]).unwrap()
}

/// `solver` with a trainer of both own rows and peers', singly or by pairs of an input.
fn open_to_peers(world: &World, pairs: bool) -> (Store, Table, ConsumerHandle) {
    let store = Store::open(ROOT, world.options().object_versions_kept(8)).unwrap();
    let table = store.create_table("solver", solver_schema()).unwrap();
    let declared = Consumer::trainer(["solver"]).ready(["reward"]).origins(Origins::All);
    let declared = if pairs { declared.group(GroupBy::Input, 2) } else { declared };
    let train = store.create_consumer("train", declared).unwrap();
    (store, table, train)
}

/// The store says the same after a restart, from the log alone and from a checkpoint.
fn restarted(world: &World, store: Store) -> (Store, Table, ConsumerHandle) {
    let mut store = store;
    let (shown, consumers) = (scan_content(&store), store.consumers());
    for way in ["replayed", "from a checkpoint"] {
        std::mem::forget(store);
        world.disk.restart();
        store = Store::open(ROOT, world.options().object_versions_kept(8)).unwrap();
        assert_eq!((&scan_content(&store), &store.consumers()), (&shown, &consumers), "{way}");
        check_counts(&store);
        store.checkpoint().unwrap();
    }
    let (table, train) = (store.table("solver").unwrap(), store.consumer("train").unwrap());
    (store, table, train)
}

/// What a step gets, a micro-batch a list; nothing of it is kept.
fn obtainable(store: &Store, plan: StepPlan, train: &ConsumerHandle) -> Vec<Vec<String>> {
    let step = store.begin_step(plan).unwrap();
    let mut claims = Vec::new();
    while let Some(claim) = step.next(train, MicroBatch::up_to(64), Wait::No).unwrap() {
        claims.push(claim);
    }
    claims.iter().map(ids).collect()
}

// SP-27: the default filter leaves external rows out, and says so.
#[test]
fn a_trainer_that_says_nothing_leaves_rows_of_peers_out_with_the_reason() {
    let world = World::new();
    let (store, table, _) = trained(&world, None);
    finished(&table, 0, "own_0_0");
    received(&table, 0, "theirs_0_0", &from("berlin/3", 17));
    let measured = NewRow::new(0, "measured_0_0").unwrap().purpose(Purpose::Eval).external(&from("oslo", 2));
    table.insert_row(measured, []).unwrap();
    let (store, table, train) = restarted(&world, store);
    assert_eq!(table.counts().excluded, [("external".to_owned(), 1)].into());
    assert_eq!(table.counts().open(), 1);
    assert_eq!(
        pick(&store, "solver", &["sample_id", "origin_peer", "origin_round", "excluded_reason"]),
        [
            ["measured_0_0", "oslo", "2", "null"],
            ["own_0_0", "null", "null", "null"],
            ["theirs_0_0", "berlin/3", "17", "external"]
        ]
    );
    assert_eq!(obtainable(&store, StepPlan::new().rows(&train, 9), &train), [["own_0_0"]]);
}

#[test]
fn a_trainer_that_is_declared_later_leaves_out_what_is_there() {
    let world = World::new();
    let (store, table) = solver(&world);
    received(&table, 0, "theirs_0_0", &from("oslo", 2));
    assert_eq!(table.counts().open(), 1, "in a table without a trainer they are kept");
    let trainer = Consumer::trainer(["solver"]).ready(["reward"]);
    store.create_consumer("train", trainer).unwrap();
    assert_eq!(table.counts().excluded, [("external".to_owned(), 1)].into());
    restarted(&world, store);
}

// SP-27, PL-21: who asks for external rows gets them whatever their version; for own rows the rule stands.
#[test]
fn rows_of_peers_pass_by_the_version_rule_where_they_are_asked_for_and_nobody_else_does() {
    let world = World::new();
    let (store, table, train) = open_to_peers(&world, false);
    finished(&table, 0, "start_0_0");
    received(&table, 9, "ahead_0_0", &from("oslo", 9));
    finished(&table, 9, "future_0_0");
    let step = store.begin_step(StepPlan::new().rows(&train, 1)).unwrap();
    let claim = step.next(&train, MicroBatch::up_to(8), Wait::No).unwrap().unwrap();
    assert_eq!(ids(&claim), ["start_0_0"], "a micro-batch is of own rows or of peers'");
    claim.accumulated().unwrap();
    step.commit([("solver", vec![])]).unwrap();
    // The policy stands at 1: a peer's row at version 0 is taken all the same, an own one is stale.
    let behind = received(&table, 0, "behind_0_0", &from("oslo", 3));
    assert!(matches!(table.insert(0, "late_0_0", []).unwrap_err().cause(), Cause::Stale { .. }));
    table.span(behind, 3, 40).unwrap(); // versions are the peer's own affair
    let (store, table, train) = restarted(&world, store);
    let plan = |train: &ConsumerHandle| StepPlan::new().rows(train, 9);
    assert_eq!(obtainable(&store, plan(&train), &train), [["ahead_0_0", "behind_0_0"]]);
    let info = &store.consumers()[0];
    assert_eq!((info.ready_rows, info.future_rows), (2, 1));
    finished(&table, 1, "now_0_0");
    let step = store.begin_step(StepPlan::new().rows(&train, 9)).unwrap();
    let mut claim = step.next(&train, MicroBatch::up_to(1), Wait::No).unwrap().unwrap();
    while ids(&claim) != ["now_0_0"] {
        claim.release().unwrap();
        claim = step.next(&train, MicroBatch::up_to(1), Wait::No).unwrap().unwrap();
    }
    claim.accumulated().unwrap();
    step.commit([("solver", vec![])]).unwrap();
    assert_eq!(table.counts().excluded, [].into(), "they do not turn stale");
    let (store, _, train) = restarted(&world, store);
    assert_eq!(train_once(&store, &train, plan(&train), "solver"), 2);
    restarted(&world, store);
}

// SP-08: what a step trains on is so many groups of its own and so many of peers, each of one origin.
#[test]
fn groups_are_of_one_origin_and_planned_by_it() {
    let world = World::new();
    let (store, table, train) = open_to_peers(&world, true);
    let (oslo, rome) = (from("oslo", 3), from("rome", 3));
    finished(&table, 0, "q_0_0");
    received(&table, 0, "q_0_1", &oslo);
    received(&table, 0, "q_0_2", &rome);
    received(&table, 5, "q_0_3", &from("oslo", 4));
    assert_eq!(store.consumers()[0].ready_rows, 0, "four halves are no pair");
    received(&table, 7, "q_0_4", &oslo);
    drop(train);
    let (store, table, train) = restarted(&world, store);
    finished(&table, 0, "q_0_5");
    let plan = StepPlan::new().groups(&train, ["q".to_owned(), oslo.group("q")]);
    assert_eq!(obtainable(&store, plan, &train), [["q_0_1", "q_0_4"], ["q_0_0", "q_0_5"]]);
    // What is said of a group is said of that origin's, whatever version is named with it.
    train.expect_group(&table, 0, &rome.group("q"), 1).unwrap();
    train.close_group(&table, 99, &from("oslo", 4).group("q")).unwrap();
    let (store, table, train) = restarted(&world, store);
    let step =
        store.begin_step(StepPlan::new().groups(&train, [rome.group("q"), from("oslo", 4).group("q")]));
    let step = step.unwrap();
    let claim = step.next(&train, MicroBatch::up_to(8), Wait::No).unwrap().unwrap();
    assert_eq!((ids(&claim), step.is_complete(&train)), (vec!["q_0_2".to_owned(), "q_0_3".to_owned()], true));
    claim.accumulated().unwrap();
    step.commit([("solver", vec![])]).unwrap();
    assert_eq!(table.counts().excluded, [("stale".to_owned(), 2)].into(), "the own pair was not in the step");
    let (store, _, train) = restarted(&world, store);
    let plan = StepPlan::new().groups(&train, [oslo.group("q")]);
    assert_eq!(train_once(&store, &train, plan, "solver"), 2);
}

// SP-17, SP-09: the receiver computes rewards and token columns itself, of rows of any version.
#[test]
fn tasks_serve_rows_of_peers_at_any_version_unless_told_otherwise() {
    let world = World::new();
    let (store, table, train) = open_to_peers(&world, false);
    let declare = |name, origins: Option<Origins>| {
        let task = Consumer::task(["solver"]).ready(["prompt"]);
        store.create_consumer(name, origins.map_or(task.clone(), |origins| task.origins(origins))).unwrap()
    };
    let tasks = [
        declare("reward", None),
        declare("own", Some(Origins::Own)),
        declare("encode", Some(Origins::External)),
    ];
    let row = |new: NewRow| table.insert_row(new, [("prompt", "p".into())]).unwrap();
    row(NewRow::new(0, "own_0_0").unwrap());
    let theirs = row(NewRow::new(30, "theirs_0_0").unwrap().external(&from("oslo", 30)));
    let seen = tasks.each_ref().map(|task| {
        let mut seen = Vec::new();
        while let Some(claim) = task.claim(MicroBatch::up_to(8), "me", Wait::No).unwrap() {
            seen.extend(ids(&claim));
            let rewarded = task.name() == "reward";
            claim
                .finish(|batch| match rewarded && seen.last().is_some_and(|id| id == "theirs_0_0") {
                    true => batch.write(&table, theirs, [("reward", 0.5.into())]),
                    false => Ok(()),
                })
                .unwrap();
        }
        seen
    });
    assert_eq!(seen, [vec!["own_0_0", "theirs_0_0"], vec!["own_0_0"], vec!["theirs_0_0"]]);
    assert_eq!(obtainable(&store, StepPlan::new().rows(&train, 9), &train), [["theirs_0_0"]]);
    let refused = Consumer::trainer(["other"]).origins(Origins::External);
    store.create_table("other", solver_schema()).unwrap();
    assert_eq!(store.create_consumer("only", refused).unwrap_err().kind(), Kind::Input);
    restarted(&world, store);
}

#[test]
fn a_rewind_brings_trained_rows_of_peers_back_and_leaves_the_others_alone() {
    for rows in [Rewind::TrainAgain, Rewind::Exclude] {
        let world = World::new();
        let (store, table, train) = open_to_peers(&world, false);
        received(&table, 0, "first_0_0", &from("oslo", 1));
        train_once(&store, &train, StepPlan::new().rows(&train, 1), "solver");
        received(&table, 1, "second_0_0", &from("oslo", 2));
        train_once(&store, &train, StepPlan::new().rows(&train, 1), "solver");
        received(&table, 2, "left_0_0", &from("oslo", 3));
        store.rewind(1, rows).unwrap();
        let (store, table, train) = restarted(&world, store);
        let seen = obtainable(&store, StepPlan::new().rows(&train, 9), &train);
        let again = rows == Rewind::TrainAgain;
        let expected = if again { vec!["left_0_0", "second_0_0"] } else { vec!["left_0_0"] };
        assert_eq!(seen, [expected]);
        assert_eq!(table.counts().excluded.get("rewound").copied(), (!again).then_some(1));
    }
}

// FX-14
#[test]
fn a_row_of_a_peer_has_a_version_that_is_not_retired_or_it_could_be_one_that_was_deleted() {
    let world = World::new();
    let (store, table, train) = open_to_peers(&world, false);
    let peer = from("oslo", 1);
    received(&table, 0, "a_0_0", &peer);
    train_once(&store, &train, StepPlan::new().rows(&train, 1), "solver");
    table.delete(&Delete::version(0).force()).unwrap();
    let new = |id: &str| NewRow::new(0, id).unwrap().external(&peer);
    for new in [new("a_0_0"), new("b_0_0"), new("b_0_0").late()] {
        let refused = table.insert_row(new, []).unwrap_err();
        assert!(matches!(refused.cause(), Cause::Retired { version: 0, .. }), "{refused}");
        let way_out = "give a row of a peer the version that the policy has now";
        assert!(refused.to_string().contains(way_out), "{refused}");
    }
    received(&table, 1, "b_0_0", &peer);
    assert_eq!(obtainable(&store, StepPlan::new().rows(&train, 9), &train), [["b_0_0"]]);
}

#[test]
fn an_origin_is_checked_where_it_enters() {
    let world = World::new();
    let (_store, table, _) = open_to_peers(&world, false);
    let new = |origin: &Origin| NewRow::new(0, "a_0_0").unwrap().external(origin);
    for peer in ["", "a\u{1f}b"] {
        let refused = table.insert_row(new(&from(peer, 1)), []).unwrap_err();
        assert_eq!(refused.kind(), Kind::Input, "{peer:?}");
    }
    let row = table.insert_row(new(&from("oslo", 1)).token(7), []).unwrap();
    assert_eq!(table.insert_row(new(&from("oslo", 1)).token(7), []).unwrap(), row, "safe to repeat");
    assert_eq!(table.insert_row(new(&from("oslo", 2)).next_attempt(), []).unwrap_err().kind(), Kind::Input);
    table.insert_row(new(&from("oslo", 1)).next_attempt(), []).unwrap();
    assert_eq!(table.insert(u64::MAX, "a_0_0", []).unwrap_err().kind(), Kind::Input, "no policy gets there");
}
