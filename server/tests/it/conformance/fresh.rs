//! Which rows a trainer gets: of its policy's version or a window of them, of its own run or of peers, and for training.

use forebay_client::{Changes, Plan};
use forebay_store::{Kind, Origin, Origins, Purpose, VersionSpan};

use super::*;

/// A trainer that waits for rewards, as a case declares it further.
fn declared(client: &Client, further: impl Fn(Consumer) -> Consumer) -> ConsumerHandle {
    client.create_consumer("train", further(Consumer::trainer(["solver"]).ready(["reward"]))).unwrap()
}

/// Moves the policy on by a step over a row of its own; what else came goes back.
pub(super) fn move_on(client: &Client, table: &Table, train: &ConsumerHandle) {
    let version = client.policy("solver").unwrap().version;
    let own = row(table, version, &format!("step{version}_0_0"), Some(1.0));
    let mut step = client.begin_step(&Plan::new().rows("train", 10_000)).unwrap();
    let mut others = Vec::new();
    loop {
        let claim = step.next(train, up_to(1), Wait::No).unwrap().expect("its own row is there");
        if claim.rows() == [own] {
            claim.accumulated().unwrap();
            break;
        }
        others.push(claim);
    }
    others.into_iter().for_each(|claim| claim.release().unwrap());
    step.commit([("solver", vec![])]).unwrap();
}

/// What a step over everything that is ready gets, in its order; nothing of it is kept.
pub(super) fn obtainable(client: &Client, train: &ConsumerHandle) -> Vec<String> {
    let step = client.begin_step(&Plan::new().rows("train", 10_000)).unwrap();
    let mut claims = Vec::new();
    while let Some(claim) = step.next(train, up_to(1), Wait::No).unwrap() {
        claims.push(claim);
    }
    claims.iter().flat_map(ids).collect()
}

/// What became of a row: the reason why it was left out.
pub(super) fn reason(table: &Table, row: Row) -> Option<String> {
    table.show(row).unwrap().excluded
}

// PL-21, DESIGN 3.6
#[test]
fn without_a_window_only_rows_of_the_policy_s_version_are_trained_on() {
    on_every_way(|world| {
        let client = world.client();
        let (table, train) = (solver(&client), declared(&client, |trainer| trainer));
        let left = row(&table, 0, "left_0_0", Some(1.0));
        let unfinished = row(&table, 0, "unfinished_0_0", None);
        move_on(&client, &table, &train);
        let future = row(&table, 2, "future_0_0", Some(1.0));
        row(&table, 1, "now_0_0", Some(1.0));
        assert_eq!(obtainable(&client, &train), ["now_0_0"]);
        for row in [left, unfinished] {
            assert_eq!(reason(&table, row).as_deref(), Some("stale"));
        }
        let late = table.insert(NewRow::new(0, "late_0_0").unwrap(), []).unwrap_err();
        assert_eq!((late.kind(), late.cause()), (Kind::State, "Stale"), "{late}");
        let kept = table.insert(NewRow::new(0, "late_0_0").unwrap().late(), []).unwrap();
        assert_eq!(
            reason(&table, kept).as_deref(),
            Some("stale"),
            "what began in time is kept, and left out"
        );
        move_on(&client, &table, &train);
        assert_eq!(obtainable(&client, &train), ["future_0_0"]);
        assert_eq!(reason(&table, future), None);
        let counts = table.counts().unwrap();
        assert_eq!((counts.excluded.get("stale"), counts.open()), (Some(&4), 1), "{counts:?}");
    });
}

// DESIGN 3.6: the window is on the oldest *trainable* span.
#[test]
fn a_window_is_on_the_oldest_span_that_is_trained_on() {
    on_every_way(|world| {
        let client = world.client();
        let (table, train) = (solver(&client), declared(&client, |trainer| trainer.staleness(1)));
        let rows = ["plain_0_0", "cut_0_0", "masked_0_0", "half_0_0"].map(|id| row(&table, 0, id, Some(1.0)));
        move_on(&client, &table, &train);
        let mut changes = Changes::new();
        for row in &rows[1..] {
            changes.span("solver", *row, 10, 1); // a part is of version 1, the part before it still counts
        }
        changes.trainable_from("solver", rows[2], 10);
        changes.trainable_from("solver", rows[3], 9); // one token of version 0 is trained on
        client.write(&changes).unwrap();
        assert_eq!(obtainable(&client, &train).len(), 4);
        let masked = table.show(rows[2]).unwrap();
        let spans = [VersionSpan { start: 0, version: 0 }, VersionSpan { start: 10, version: 1 }];
        assert_eq!((&masked.version_spans[..], masked.trainable_from), (&spans[..], 10));
        let mut unmask = Changes::new();
        unmask.trainable_from("solver", rows[3], 8);
        assert_eq!(client.write(&unmask).unwrap_err().kind(), Kind::Input, "masked stays masked");
        move_on(&client, &table, &train);
        assert_eq!(obtainable(&client, &train), ["masked_0_0"]);
        for old in [rows[0], rows[1], rows[3]] {
            assert_eq!(reason(&table, old).as_deref(), Some("stale"));
        }
        move_on(&client, &table, &train);
        assert!(obtainable(&client, &train).is_empty(), "and a window ends");
        assert_eq!(table.counts().unwrap().excluded.get("stale"), Some(&4));
    });
}

// PL-21: nothing that a version from the future made is trained on, not even a part of a row.
#[test]
fn a_row_with_a_part_from_the_future_waits_for_it() {
    on_every_way(|world| {
        let client = world.client();
        let (table, train) = (solver(&client), declared(&client, |trainer| trainer.staleness(1)));
        let ahead = row(&table, 0, "ahead_0_0", Some(1.0));
        assert_eq!(obtainable(&client, &train), ["ahead_0_0"]);
        let mut changes = Changes::new();
        changes.span("solver", ahead, 2, 1);
        client.write(&changes).unwrap();
        assert!(obtainable(&client, &train).is_empty(), "it was ready and is no more");
        move_on(&client, &table, &train);
        assert_eq!(obtainable(&client, &train), ["ahead_0_0"]);
    });
}

/// Alone, of rows that are alike, and of replicas: whichever form they have on their way.
#[test]
fn new_rows_say_at_once_what_made_them_and_what_is_trained_on() {
    on_every_way(|world| {
        let client = world.client();
        let (table, train) = (solver(&client), declared(&client, |trainer| trainer.staleness(1)));
        let new = |id: &str| NewRow::new(0, id).unwrap().span(2, 1);
        let reward = || [("reward", 1.0.into())];
        let mut changes = Changes::new();
        changes.insert("solver", new("a_0_0").trainable_from(2), reward());
        changes.insert("solver", new("a_0_1").trainable_from(2), reward());
        changes.insert("solver", new("a_0_2"), reward());
        changes.insert("solver", NewRow::new(0, "a_0_3").unwrap(), reward());
        changes.insert_rollouts("solver", new("b_0_0").span(3, 2), 2, reward());
        let rows = client.write(&changes).unwrap();
        let said = rows.iter().map(|row| {
            let shown = table.show(*row).unwrap();
            let spans = shown.version_spans.iter().map(|span| (span.start, span.version));
            (spans.collect::<Vec<_>>(), shown.trainable_from)
        });
        let (one, two) = (vec![(0, 0), (2, 1)], vec![(0, 0), (2, 1), (3, 2)]);
        let expected =
            [(one.clone(), 2), (one.clone(), 2), (one, 0), (vec![(0, 0)], 0), (two.clone(), 0), (two, 0)];
        assert_eq!(said.collect::<Vec<_>>(), expected);
        assert_eq!(obtainable(&client, &train), ["a_0_3"], "the others wait for what made a part of them");
        move_on(&client, &table, &train);
        let mut obtainable = obtainable(&client, &train);
        obtainable.sort();
        assert_eq!(obtainable, ["a_0_0", "a_0_1", "a_0_2", "a_0_3"]);
        let wrong = table.insert(new("c_0_0").span(9, 1), reward()).unwrap_err();
        assert_eq!((wrong.kind(), wrong.cause()), (Kind::Input, "Argument"), "{wrong}");
    });
}

/// A row of a peer that a trainer is ready for.
fn received(table: &Table, version: u64, id: &str, origin: &Origin) -> Row {
    let new = NewRow::new(version, id).unwrap().external(origin);
    table.insert(new, [("prompt", id.into()), ("reward", 1.0.into())]).unwrap()
}

// SP-27: the default filter leaves external rows out, and says so.
#[test]
fn rows_of_peers_are_left_out_with_the_reason_unless_they_are_asked_for() {
    let oslo = Origin { peer: "oslo/3".to_owned(), round: 17 };
    on_every_way(|world| {
        let client = world.client();
        let (table, train) = (solver(&client), declared(&client, |trainer| trainer));
        row(&table, 0, "own_0_0", Some(1.0));
        let theirs = received(&table, 0, "theirs_0_0", &oslo);
        assert_eq!(obtainable(&client, &train), ["own_0_0"]);
        let shown = table.show(theirs).unwrap();
        assert_eq!((shown.excluded.as_deref(), shown.origin), (Some("external"), Some(oslo.clone())));
    });
    on_every_way(|world| {
        let client = world.client();
        let (table, train) = (solver(&client), declared(&client, |trainer| trainer.origins(Origins::All)));
        received(&table, 9, "ahead_0_0", &oslo); // versions are the peer's own affair
        row(&table, 9, "future_0_0", Some(1.0));
        move_on(&client, &table, &train);
        received(&table, 0, "behind_0_0", &oslo);
        assert_eq!(
            obtainable(&client, &train),
            ["ahead_0_0", "behind_0_0"],
            "and no own row passes by the rule"
        );
        assert!(table.counts().unwrap().excluded.is_empty(), "they do not turn stale");
    });
}

// SP-08
#[test]
fn groups_are_of_one_origin_and_planned_by_it() {
    let oslo = Origin { peer: "oslo".to_owned(), round: 3 };
    on_every_way(|world| {
        let client = world.client();
        let pairs = |trainer: Consumer| trainer.group(forebay_store::GroupBy::Input, 2).origins(Origins::All);
        let (table, train) = (solver(&client), declared(&client, pairs));
        row(&table, 0, "q_0_0", Some(1.0));
        received(&table, 5, "q_0_1", &oslo);
        let plan = || Plan::new().groups("train", ["q".to_owned(), oslo.group("q")]);
        let step = client.begin_step(&plan()).unwrap();
        assert!(step.next(&train, up_to(8), Wait::No).unwrap().is_none(), "two halves are no pair");
        drop(step);
        received(&table, 7, "q_0_2", &oslo);
        row(&table, 0, "q_0_3", Some(0.0));
        let step = client.begin_step(&plan()).unwrap();
        let mut pairs = [(); 2].map(|()| ids(&step.next(&train, up_to(8), LONG).unwrap().unwrap()));
        pairs.sort();
        assert_eq!(pairs, [["q_0_0", "q_0_3"], ["q_0_1", "q_0_2"]]);
    });
}

#[test]
fn only_rows_for_training_count_and_are_trained_on() {
    on_every_way(|world| {
        let client = world.client();
        let pairs = |trainer: Consumer| trainer.group(forebay_store::GroupBy::Input, 2);
        let (table, train) = (solver(&client), declared(&client, pairs));
        let judge = judge(&client);
        let insert_at = |version: u64, id: &str, purpose: Purpose| {
            let cells = [("response", vec![1_i32].into()), ("reward", 1.0.into())];
            table.insert(NewRow::new(version, id).unwrap().purpose(purpose), cells).unwrap()
        };
        let insert = |id: &str, purpose: Purpose| insert_at(0, id, purpose);
        insert("q_0_0", Purpose::Train);
        let eval = insert("q_0_1", Purpose::Eval);
        insert("q_0_2", Purpose::WarmUp);
        assert_eq!(table.show(eval).unwrap().purpose, Purpose::Eval);
        let step = client.begin_step(&Plan::new().groups("train", ["q"])).unwrap();
        assert!(step.next(&train, up_to(8), Wait::No).unwrap().is_none(), "one of two members has come");
        insert("q_0_3", Purpose::Train);
        let claim = step.next(&train, up_to(8), LONG).unwrap().unwrap();
        assert_eq!(ids(&claim), ["q_0_0", "q_0_3"]);
        claim.accumulated().unwrap();
        let mut step = step;
        assert_eq!(step.commit([("solver", vec![])]).unwrap().rows, 2);
        let counts = table.counts().unwrap();
        assert_eq!(
            (counts.written, counts.consumed, counts.open()),
            (2, 2, 0),
            "what is measured is not counted"
        );
        insert_at(1, "later_0_0", Purpose::Train);
        insert_at(1, "measured_0_0", Purpose::Eval);
        let judged = judge.claim(up_to(8), Wait::No).unwrap().unwrap();
        assert_eq!(ids(&judged), ["later_0_0", "measured_0_0"], "a task takes rows of any purpose");
        drop(judged);
        let measured = Consumer::task(["solver"]).ready(["reward"]).purposes([Purpose::Eval]);
        let measured = client.create_consumer("measured", measured).unwrap();
        let claim = measured.claim(up_to(8), Wait::No).unwrap().unwrap();
        assert_eq!(ids(&claim), ["measured_0_0"], "and of one alone where it says so");
    });
}
