//! What became of rows: which step and gradient used each, which rows made a step, and why the others are in none.

use std::collections::BTreeMap;

use forebay_client::{Changes, Plan, TrainedBatch};
use forebay_store::{GradientId, GroupBy, GroupRule, Kind, Rewind};

use super::*;

/// A step over what is ready, two rows a micro-batch. Gives what it was made of, as its trainer saw it.
fn trained(client: &Client, train: &ConsumerHandle, rows: u64) -> Vec<(GradientId, Vec<Row>, Vec<String>)> {
    let mut step = client.begin_step(&Plan::new().rows("train", rows)).unwrap();
    let mut made = Vec::new();
    while let Some(claim) = step.next(train, up_to(2), LONG).unwrap() {
        made.push((claim.gradient_id().unwrap().clone(), claim.rows().to_vec(), ids(&claim)));
        claim.accumulated().unwrap();
    }
    assert_eq!(step.commit([("solver", vec![])]).unwrap().rows, rows);
    made
}

// DESIGN 3.9, both ways
#[test]
fn a_step_tells_which_samples_made_it_and_a_sample_which_step_used_it() {
    on_every_way(|world| {
        let client = world.client();
        let (table, train) = (solver(&client), trainer(&client));
        (0..3).for_each(|at| _ = row(&table, 0, &format!("q{at}_0_0"), Some(1.0)));
        let unknown = client.replay(1).unwrap_err();
        assert_eq!((unknown.kind(), unknown.cause()), (Kind::Input, "Unknown"), "{unknown}");
        let made = trained(&client, &train, 3);
        let later = row(&table, 1, "q0_0_0", Some(0.0));
        let told = world.client();
        let replayed = told.replay(1).unwrap();
        let replayed = replayed.into_iter().map(|TrainedBatch { gradient, table, rows, samples }| {
            assert_eq!(table, "solver");
            (gradient, rows, samples.iter().map(ToString::to_string).collect::<Vec<_>>())
        });
        assert_eq!(replayed.collect::<Vec<_>>(), made);
        let table = told.table("solver").unwrap();
        for (gradient, rows, samples) in &made {
            for (row, sample) in rows.iter().zip(samples) {
                let shown = table.show(*row).unwrap();
                assert_eq!((shown.step, shown.gradient.as_ref()), (Some(1), Some(gradient)));
                assert_eq!(shown.sample_id.to_string(), *sample);
                assert_eq!(table.get(0, &shown.sample_id).unwrap(), Some(shown));
            }
        }
        let open = table.show(later).unwrap();
        assert_eq!((open.step, open.gradient, open.excluded), (None, None, None));
        client.rewind(0, Rewind::TrainAgain).unwrap();
        assert_eq!(told.replay(1).unwrap_err().cause(), "Unknown", "nobody trained on them any more");
        let back = table.show(made[0].1[0]).unwrap();
        assert_eq!((back.step, back.gradient, back.excluded), (None, None, None));
    });
}

#[test]
fn rows_that_are_none_and_rows_that_are_gone_are_shown_to_nobody() {
    on_every_way(|world| {
        let client = world.client();
        let table = solver(&client);
        let other = client.create_table("other", Schema::new()).unwrap();
        let gone = row(&table, 0, "gone_0_0", None);
        table.delete(&forebay_store::Delete::rows([gone])).unwrap();
        let foreign = other.insert(NewRow::new(0, "q_0_0").unwrap(), []).unwrap();
        let mut guessed = gone.to_bytes();
        guessed[8..].fill(0);
        for (row, kind, cause) in [
            (Row::from_bytes([7; 24]), Kind::Input, "Unknown"),
            (Row::from_bytes(guessed), Kind::Input, "Unknown"), // and hears nothing of the row that was there
            (gone, Kind::State, "RowDeleted"),
            (foreign, Kind::Input, "Argument"),
        ] {
            let error = table.show(row).unwrap_err();
            assert_eq!((error.kind(), error.cause()), (kind, cause), "{error}");
        }
        assert_eq!(table.show_all(&[foreign, gone]).unwrap_err().cause(), "Argument", "the first of them");
        assert_eq!(table.get(0, &"gone_0_0".parse().unwrap()).unwrap(), None);
        assert_eq!(
            client.table_named("nowhere").get(0, &"q_0_0".parse().unwrap()).unwrap_err().cause(),
            "Unknown"
        );
    });
}

/// More than a server shows in one call, be it for their number or for what is told of them.
#[test]
fn many_rows_are_shown_in_the_order_in_which_they_are_named() {
    on_every_way(|world| {
        let client = world.client();
        let (table, other) = (solver(&client), client.create_table("other", solver_schema()).unwrap());
        let parent = "p".repeat(300 << 10);
        let mut changes = Changes::new();
        changes.insert_rollouts("solver", NewRow::new(0, "short_0_0").unwrap(), 600, []);
        changes.insert_rollouts("solver", NewRow::new(0, "long_0_0").unwrap().parent(&parent), 9, []);
        let mut rows = client.write(&changes).unwrap();
        rows.reverse();
        rows.push(rows[0]);
        let shown = table.show_all(&rows).unwrap();
        assert_eq!(shown.iter().map(|shown| shown.row).collect::<Vec<_>>(), rows);
        assert_eq!(shown.iter().filter(|shown| shown.parent.as_deref() == Some(&*parent)).count(), 10);
        assert_eq!(shown[300], table.show(rows[300]).unwrap());
        assert_eq!(table.show_all(&[]).unwrap(), []);
        let theirs = row(&other, 0, "o_0_0", None);
        for at in [0, 599, rows.len()] {
            let mut wrong = rows.clone();
            wrong.insert(at, theirs);
            assert_eq!(table.show_all(&wrong).unwrap_err().kind(), Kind::Input, "at {at}");
        }
    });
}

/// What the rows of a table say of themselves: how many are in a step, how many carry each reason, how many carry nothing.
fn fates(table: &Table, rows: &[Row]) -> (u64, BTreeMap<String, u64>, u64) {
    let (mut consumed, mut excluded, mut open) = (0, BTreeMap::new(), 0);
    for shown in rows.iter().map(|row| table.show(*row).unwrap()) {
        match (shown.step, shown.excluded) {
            (Some(_), None) => consumed += 1,
            (None, Some(reason)) => *excluded.entry(reason).or_default() += 1,
            (None, None) => open += 1,
            (Some(step), Some(reason)) => panic!("{} is of step {step}, and {reason}", shown.sample_id),
        }
    }
    (consumed, excluded, open)
}

// DESIGN 3.6: every row that does not make it into a step carries the reason.
#[test]
fn every_row_is_in_a_step_or_says_why_it_is_in_none() {
    on_every_way(|world| {
        let client = world.client();
        let table = solver(&client);
        let pairs = Consumer::trainer(["solver"])
            .ready(["reward"])
            .group(GroupBy::Input, 2)
            .when_a_member_fails(GroupRule::Exclude);
        let train = client.create_consumer("train", pairs).unwrap();
        let of = |id: &str| {
            let cells = [("response", vec![1_i32].into()), ("reward", 1.0.into())];
            table.insert(NewRow::new(0, id).unwrap(), cells).unwrap()
        };
        let (kept, with_it) = (of("kept_0_0"), of("kept_0_1"));
        let surplus = of("kept_0_2");
        let (spoilt, mate) = (row(&table, 0, "spoilt_0_0", None), of("spoilt_0_1"));
        table.exclude(spoilt, "no answer").unwrap();
        let first = row(&table, 0, "again_0_0", None);
        let second = table.insert(NewRow::new(0, "again_0_0").unwrap().next_attempt(), []).unwrap();
        let origin = forebay_store::Origin { peer: "oslo".to_owned(), round: 1 };
        let theirs = table.insert(NewRow::new(0, "theirs_0_0").unwrap().external(&origin), []).unwrap();
        let never = NewRow::new(0, "never_0_0").unwrap().excluded("no turn");
        let never = table.insert(never, []).unwrap();
        let alone = of("alone_0_0");
        let all = [kept, with_it, surplus, spoilt, mate, first, second, theirs, never, alone];
        let agree = |when: &str| {
            let (consumed, excluded, open) = fates(&table, &all);
            let counts = table.counts().unwrap();
            assert_eq!(
                (counts.consumed, &counts.excluded, counts.open()),
                (consumed, &excluded, open),
                "{when}"
            );
            assert_eq!(counts.written, consumed + excluded.values().sum::<u64>() + open, "{when}");
            excluded
        };
        agree("before");
        let mut step = client.begin_step(&Plan::new().groups("train", ["kept"])).unwrap();
        step.next(&train, up_to(2), LONG).unwrap().unwrap().accumulated().unwrap();
        step.commit([("solver", vec![])]).unwrap();
        let reasons = agree("after");
        let expected = [
            ("surplus", 1),
            ("no answer", 2), // the member, and with it its group
            ("superseded", 1),
            ("external", 1),
            ("no turn", 1),
            ("stale", 2), // the second attempt, and the one whose group never came together
        ];
        assert_eq!(reasons, expected.map(|(reason, rows)| (reason.to_owned(), rows)).into());
        // And so does SQL.
        let statement = "SELECT count(*) AS n FROM solver WHERE step IS NULL AND excluded_reason IS NULL";
        let (_, asked) = client.query(statement).unwrap();
        let none =
            arrow_array::cast::AsArray::as_primitive::<arrow_array::types::Int64Type>(asked[0].column(0));
        assert_eq!(none.value(0), 0);
    });
}

#[test]
fn rows_that_a_rewind_leaves_out_say_so() {
    on_every_way(|world| {
        let client = world.client();
        let (table, train) = (solver(&client), trainer(&client));
        row(&table, 0, "q_0_0", Some(1.0));
        let made = trained(&client, &train, 1);
        client.rewind(0, Rewind::Exclude).unwrap();
        let shown = table.show(made[0].1[0]).unwrap();
        assert_eq!((shown.step, shown.excluded.as_deref()), (None, Some("rewound")));
    });
}
