//! Rows as they come: numbers given out, replicas, spans, late ones, and the lengths of columns that belong together.

use std::collections::BTreeSet;

use forebay_store::*;

use crate::support::*;

fn id(text: &str) -> SampleId {
    text.parse().unwrap()
}

fn samples(store: &Store) -> Vec<String> {
    pick(store, "solver", &["sample_id"]).concat()
}

// FX-14
#[test]
fn the_store_gives_out_trajectory_numbers_that_are_free() {
    let world = World::new();
    let (store, table) = solver(&world);
    table.insert(0, "q_0_1", []).unwrap();
    let next = || table.insert_row(NewRow::next_trajectory(0, "q", 0).unwrap(), []).unwrap();
    (0..2).for_each(|_| _ = next());
    table.insert(0, "q_0_4", []).unwrap();
    table.insert(0, "q_0_?", []).unwrap();
    next();
    table.insert(0, "q_1_?", []).unwrap();
    table.insert(1, "q_0_?", []).unwrap();
    let expected = ["q_0_0", "q_0_1", "q_0_2", "q_0_3", "q_0_4", "q_0_5", "q_1_0", "q_0_0"];
    assert_eq!(samples(&store), expected);
    let store = world.reopen(store);
    let table = store.table("solver").unwrap();
    table.insert_row(NewRow::next_trajectory(0, "q", 0).unwrap(), []).unwrap();
    assert!(table.find(0, &id("q_0_6")).is_some(), "exact also after a replay");
    for wrong in ["?", "_?", "q_?", "_0_?", "q_x_?"] {
        assert_eq!(NewRow::new(0, wrong).unwrap_err().kind(), Kind::Input, "{wrong}");
    }
}

// FX-14
#[test]
fn a_numbered_row_is_inserted_once_for_its_token() {
    let world = World::new();
    let (store, table) = solver(&world);
    let row = || NewRow::next_trajectory(0, "q", 0).unwrap().token(9);
    let insert = |table: &Table| table.insert_row(row(), [("prompt", "the first".into())]).unwrap();
    let first = insert(&table);
    assert_eq!(insert(&table), first);
    let mut batch = store.batch();
    batch.insert(&table, row().token(10), []).unwrap();
    batch.insert(&table, row().token(10), []).unwrap();
    batch.insert(&table, row().token(9), []).unwrap();
    let rows = batch.commit().unwrap();
    assert_eq!(
        (rows[0], rows[2]),
        (rows[1], first),
        "also within a batch that was numbered before it was decided"
    );
    let store = world.reopen(store);
    let table = store.table("solver").unwrap();
    assert_eq!(insert(&table), first);
    assert_eq!(table.counts().written, 2);
}

#[test]
fn threads_that_number_at_the_same_time_get_numbers_of_their_own() {
    let (store, table) = solver(&World::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    table.insert(0, "q_0_?", [("prompt", "p".into())]).unwrap();
                }
            });
        }
    });
    let found: BTreeSet<String> = samples(&store).into_iter().collect();
    assert_eq!(found, (0..200).map(|number| format!("q_0_{number}")).collect());
}

// FX-B02
#[test]
fn rollouts_differ_in_their_trajectory_only() {
    let world = World::new();
    let (store, table) = solver(&world);
    let mut batch = store.batch();
    for input in ["a", "b"] {
        batch
            .insert_rollouts(
                &table,
                NewRow::next_trajectory(0, input, 0).unwrap(),
                4,
                [("prompt", input.into())],
            )
            .unwrap();
    }
    assert_eq!(batch.commit().unwrap().len(), 8, "2 rows with 4 rollouts");
    let shown = pick(&store, "solver", &["input_id", "turn", "trajectory_id", "prompt"]);
    let expected =
        ["a", "b"].map(|input| (0..4).map(move |t| [input, "0", &t.to_string(), input].map(str::to_owned)));
    assert_eq!(shown, expected.into_iter().flatten().collect::<Vec<_>>());
    let again = || table.insert_rollouts(NewRow::new(0, "c_0_5").unwrap().token(3), 3, []).unwrap();
    let rows = again();
    assert_eq!(again(), rows, "one token makes all of them safe to repeat");
    assert_eq!(samples(&store)[8..], ["c_0_5", "c_0_6", "c_0_7"]);
    let refused = [
        table.insert_rollouts(NewRow::new(0, "d_0_0").unwrap(), 0, []),
        table.insert_rollouts(NewRow::new(0, "d_0_4294967295").unwrap(), 2, []),
        table.insert_rollouts(NewRow::new(0, "d_0_0").unwrap(), 2, [("nothing", 1.into())]),
        table.insert_rollouts(NewRow::new(0, "c_0_4").unwrap(), 2, []),
    ];
    for (error, kind) in refused.into_iter().zip([Kind::Input, Kind::Input, Kind::Input, Kind::State]) {
        assert_eq!(error.unwrap_err().kind(), kind);
    }
    assert_eq!(table.counts().written, 11, "of what was refused nothing is there");
}

// FX-26
#[test]
fn a_late_row_is_kept_and_left_out_when_it_says_so() {
    let world = World::new();
    let (store, table, train) = trained(&world, None);
    finished(&table, 0, "q_0_0");
    train_once(&store, &train, StepPlan::new().rows(&train, 1), "solver");
    assert!(matches!(table.insert(0, "q_0_1", []).unwrap_err().cause(), Cause::Stale { current: 1, .. }));
    let late = || NewRow::new(0, "q_0_1").unwrap().late();
    let row = table.insert_row(late(), [("reward", 1.0.into())]).unwrap();
    table.insert_row(NewRow::new(1, "q_0_1").unwrap().late(), [("reward", 1.0.into())]).unwrap();
    let store = world.reopen(store);
    let table = store.table("solver").unwrap();
    let info = table.get(0, &id("q_0_1")).unwrap();
    assert_eq!((info.row, info.excluded.as_deref()), (row, Some("stale")));
    assert_eq!(table.get(1, &id("q_0_1")).unwrap().excluded, None, "it is not late after all");
    let ready = store.consumers().iter().map(|consumer| consumer.ready_rows).sum::<u64>();
    assert_eq!(ready, 1);
    check_counts(&store);
}

#[test]
fn a_row_is_found_with_all_that_is_known_of_it() {
    let world = World::new();
    let (store, table) = solver(&world);
    let new = NewRow::new(2, "q_1_3")
        .unwrap()
        .agent("judge")
        .parent("solver/q_0_3")
        .weights("w7")
        .external(&Origin { peer: "peer-1".to_owned(), round: 4 });
    let row = table.insert_row(new.purpose(Purpose::Eval), [("prompt", "p".into())]).unwrap();
    table.append(row, "response", vec![1].into()).unwrap();
    let store = world.reopen(store);
    let table = store.table("solver").unwrap();
    let info = table.get(2, &id("q_1_3")).unwrap();
    assert_eq!((info.row, info.attempt, info.purpose, info.step), (row, 0, Purpose::Eval, None));
    assert_eq!((&*info.agent, info.parent.as_deref()), ("judge", Some("solver/q_0_3")));
    assert_eq!(info.weights.as_deref(), Some("w7"));
    assert_eq!(info.origin, Origin::parse("peer-1/4"));
    assert_eq!(pick(&store, "solver", &["origin_peer", "origin_round"]), [["peer-1", "4"]]);
    assert_eq!(["prompt", "response", "reward"].map(|c| info.status(c).unwrap()), [true, false, false]);
    assert!(matches!(info.cell("prompt").unwrap(), Cell::Bytes(bytes) if *bytes == *b"p"));
    assert!(
        matches!(info.cell("response").unwrap(), Cell::Empty),
        "nobody sees a partial cell who does not ask for it"
    );
    assert_eq!(table.partial(row, "response").unwrap().unwrap(), 1_i32.to_le_bytes());
    assert_eq!((table.partial(row, "prompt").unwrap(), table.partial(row, "reward").unwrap()), (None, None));
    assert_eq!(info.cell("nothing").unwrap_err().kind(), Kind::Input);
    assert!(table.get(3, &id("q_1_3")).is_none() && table.get(2, &id("q_1_4")).is_none());
}

#[test]
fn a_row_says_which_versions_it_was_made_under() {
    let world = World::new();
    let (store, table) = solver(&world);
    let row = table.insert(3, "a_0_0", []).unwrap();
    table.insert(4, "b_0_0", []).unwrap();
    let before = store.snapshot();
    table.span(row, 17, 4).unwrap();
    table.span(row, 17, 4).unwrap();
    table.span(row, 40, 6).unwrap();
    for (start, version) in [(40, 7), (41, 6), (12, 9), (50, 5)] {
        assert_eq!(table.span(row, start, version).unwrap_err().kind(), Kind::Input, "{start} {version}");
    }
    let commits = store.stats().commits;
    let mut batch = store.batch();
    batch.span(&table, row, 60, 7).unwrap();
    batch.span(&table, row, 55, 8).unwrap();
    assert_eq!(batch.commit().unwrap_err().kind(), Kind::Input, "of a batch all or none");
    table.span(row, 40, 6).unwrap();
    assert_eq!(store.stats().commits, commits);
    let store = world.reopen(store);
    let spans = pick(&store, "solver", &["sample_id", "version_spans"]);
    assert_eq!(spans, [["a_0_0", "{0 3} {17 4} {40 6}"], ["b_0_0", "{0 4}"]]);
    let info = store.table("solver").unwrap().get(3, &id("a_0_0")).unwrap();
    assert_eq!(
        info.version_spans.iter().map(|s| (s.start, s.version)).collect::<Vec<_>>(),
        [(0, 3), (17, 4), (40, 6)]
    );
    let seen = scan_of(before.table("solver").unwrap(), |name| name == "version_spans");
    assert_eq!(seen, ["version_spans={0 3}", "version_spans={0 4}"], "a snapshot keeps what it saw");
    let table = store.table("solver").unwrap();
    table.exclude(row, "lost").unwrap();
    assert!(matches!(table.span(row, 99, 9).unwrap_err().cause(), Cause::RowExcluded { .. }));
}

/// In one call, and in one record: nobody sees the row without.
#[test]
fn a_new_row_says_at_once_which_versions_it_was_made_under_and_what_is_trained_on() {
    let world = World::new();
    let (store, table) = solver(&world);
    let cut = || NewRow::new(3, "a_0_0").unwrap().span(17, 4).span(40, 6).trainable_from(17).token(9);
    let commits = store.stats().commits;
    let row = table.insert_row(cut(), [("reward", 1.0.into())]).unwrap();
    assert_eq!(store.stats().commits, commits + 1);
    assert_eq!(table.insert_row(cut(), [("reward", 1.0.into())]).unwrap(), row, "told again");
    table.insert_rollouts(NewRow::new(3, "b_0_0").unwrap().span(2, 5), 2, []).unwrap();
    let left_out = NewRow::new(3, "c_0_0").unwrap().span(0, 3).span(8, 4).excluded("cut");
    table.insert_row(left_out, []).unwrap();
    for (start, version) in [(0, 4), (5, 3), (5, 2)] {
        let mut batch = store.batch();
        batch.insert(&table, NewRow::new(3, "d_0_0").unwrap(), []).unwrap();
        let wrong = NewRow::new(3, "e_0_0").unwrap().span(start, version);
        batch.insert(&table, wrong, []).unwrap();
        let refused = batch.commit().unwrap_err();
        assert_eq!(refused.kind(), Kind::Input, "{start} {version}");
        let named = format!("version {version} from token {start} on");
        assert!(refused.to_string().contains(&named), "{refused}");
        assert!(refused.to_string().contains("in the new row e_0_0 of table \"solver\""), "{refused}");
    }
    let backwards = NewRow::new(3, "e_0_0").unwrap().span(9, 5).span(8, 6);
    assert_eq!(table.insert_row(backwards, []).unwrap_err().kind(), Kind::Input);
    table.span(row, 50, 7).unwrap();
    assert_eq!(table.trainable_from(row, 16).unwrap_err().kind(), Kind::Input, "masked stays masked");
    let store = world.reopen(store);
    let shown = pick(&store, "solver", &["sample_id", "version_spans"]);
    assert_eq!(
        shown,
        [
            ["a_0_0", "{0 3} {17 4} {40 6} {50 7}"],
            ["b_0_0", "{0 3} {2 5}"],
            ["b_0_1", "{0 3} {2 5}"],
            ["c_0_0", "{0 3} {8 4}"],
        ],
        "of a batch all or none"
    );
    let table = store.table("solver").unwrap();
    assert_eq!(table.get(3, &id("a_0_0")).unwrap().trainable_from, 17);
    assert_eq!(table.get(3, &id("c_0_0")).unwrap().excluded.as_deref(), Some("cut"));
}

fn token_schema() -> Schema {
    Schema::new()
        .data("ids", DataType::list(Element::Int32))
        .role("ids", Role::InputIds)
        .data("mask", DataType::list(Element::UInt8))
        .role("mask", Role::LossMask)
        .data("logprobs", DataType::list(Element::Float32))
        .role("logprobs", Role::BehaviourLogprobs)
        .data("notes", DataType::list(Element::Int32))
        .data("reward", DataType::Float32)
        .role("reward", Role::Reward)
        .data("advantage", DataType::list(Element::Float32))
        .role("advantage", Role::Advantage)
}

#[test]
fn columns_that_belong_together_have_one_length() {
    let world = World::new();
    let store = world.open();
    let table = store.create_table("t", token_schema()).unwrap();
    let ids = || ("ids", Value::from(vec![1, 2, 3]));
    let refused = |result: Result<()>| match result.unwrap_err().cause() {
        Cause::LengthMismatch { length, other_length, .. } => BTreeSet::from([*length, *other_length]),
        other => panic!("{other}"),
    };
    let short =
        table.insert(0, "a_0_0", [ids(), ("mask", Value::Numbers(Element::UInt8, vec![1, 0].into()))]);
    assert_eq!(refused(short.map(drop)), BTreeSet::from([2, 3]));
    let row = table.insert(0, "a_0_0", [ids(), ("notes", vec![9].into()), ("reward", 0.5.into())]).unwrap();
    assert_eq!(refused(table.write(row, [("logprobs", vec![0.5_f32; 4].into())])), BTreeSet::from([3, 4]));
    table.write(row, [("advantage", Value::Null)]).unwrap();
    let store = world.reopen(store);
    let table = store.table("t").unwrap();
    assert_eq!(table.schema().data_columns(), token_schema().data_columns(), "roles are kept");
    table.append(row, "logprobs", vec![0.5_f32; 2].into()).unwrap();
    assert_eq!(refused(table.finalize(row, "logprobs")), BTreeSet::from([2, 3]));
    table.append(row, "logprobs", vec![0.5_f32; 1].into()).unwrap();
    table.finalize(row, "logprobs").unwrap();
    let other = table.insert(0, "a_0_1", []).unwrap();
    let mut batch = store.batch();
    batch.write(&table, other, [ids()]).unwrap();
    batch.write(&table, other, [("logprobs", vec![0.5_f32; 2].into())]).unwrap();
    assert_eq!(refused(batch.commit().map(drop)), BTreeSet::from([2, 3]), "over the writes of a batch");
    table.write(other, [("logprobs", Vec::<f32>::new().into()), ("ids", Vec::<i32>::new().into())]).unwrap();
}

#[test]
fn a_role_fits_its_column_and_belongs_to_one() {
    let store = World::new().open();
    let list = || DataType::list(Element::Float32);
    let cases: [(Schema, &str); 6] = [
        (Schema::new().data("a", list()).role("a", Role::InputIds), "a list of integers"),
        (Schema::new().data("a", DataType::Utf8).role("a", Role::Reward), "a number or a list of numbers"),
        (Schema::new().data("a", DataType::Float32).role("a", Role::LossMask), "a list of numbers"),
        (
            Schema::new().data("a", DataType::list(Element::Int8)).role("a", Role::ReferenceLogprobs),
            "a list of floats",
        ),
        (
            Schema::new().data("a", list()).role("a", Role::Weight).data("b", list()).role("b", Role::Weight),
            "both weight",
        ),
        (Schema::new().data("reward", list()).role("rewrd", Role::Reward), "did you mean \"reward\""),
    ];
    for (schema, expected) in cases {
        let error = store.create_table("t", schema).unwrap_err();
        assert_eq!(error.kind(), Kind::Input);
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn a_lazy_column_is_read_when_it_is_named() {
    let world = World::new();
    let store = world.open();
    let schema = Schema::new().data("image", DataType::Binary).lazy("image").data("label", DataType::Int32);
    let table = store.create_table("t", schema).unwrap();
    for i in 0..4 {
        table
            .insert(0, &format!("q_0_{i}"), [("image", (&[i as u8; 100][..]).into()), ("label", i.into())])
            .unwrap();
    }
    let store = world.reopen(store);
    let reads = store.stats().value_reads;
    let snapshot = store.snapshot();
    let shown = snapshot.table("t").unwrap();
    for batch in shown.scan(None, ScanOrder::SampleId, 2).unwrap() {
        let batch = batch.unwrap();
        assert!(batch.column_by_name("image").is_none() && batch.column_by_name("image_status").is_some());
    }
    assert_eq!(store.stats().value_reads, reads);
    let image = shown.arrow_schema().index_of("image").unwrap();
    let first = shown.scan(Some(&[image]), ScanOrder::SampleId, 1).unwrap().next().unwrap().unwrap();
    assert_eq!(
        (first.num_rows(), store.stats().value_reads),
        (1, reads + 1),
        "as many rows as were asked for"
    );
}
