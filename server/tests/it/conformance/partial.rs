//! Partial rollouts: responses that go on while new weights come.

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use forebay_client::{CellValue, Changes};
use forebay_store::{Kind, VersionSpan};

use super::fresh::{move_on, obtainable, reason};
use super::*;

/// A row whose response has begun under the version.
fn begun(table: &Table, version: u64, id: &str) -> Row {
    let row = table.insert(NewRow::new(version, id).unwrap(), [("prompt", "?".into())]).unwrap();
    table.append(row, "response", vec![1_i32, 2].into()).unwrap();
    row
}

#[test]
fn a_response_that_was_cut_by_new_weights_goes_on_under_them_and_is_trained_on() {
    on_every_way(|world| {
        let (client, rollouts) = (world.client(), world.client());
        let table = solver(&client);
        let train = Consumer::trainer(["solver"]).ready(["response", "reward"]).staleness(1);
        let train = client.create_consumer("train", train).unwrap();
        let table_there = rollouts.table("solver").unwrap();
        let cut = begun(&table_there, 0, "cut_0_0");
        table.write(cut, [("reward", 1.0.into())]).unwrap();
        assert!(obtainable(&client, &train).is_empty(), "nobody sees it before it is closed");
        move_on(&client, &table, &train);
        let mut resumed = Changes::new();
        resumed.span("solver", cut, 2, 1);
        rollouts.write(&resumed).unwrap();
        table_there.append(cut, "response", vec![3_i32].into()).unwrap();
        let partial = table.cell(cut, "response").unwrap();
        assert!(matches!(&partial, CellValue::Partial(bytes) if bytes.len() == 12), "{partial:?}");
        table_there.finalize(cut, "response").unwrap();
        let late = table_there.append(cut, "response", vec![4_i32].into()).unwrap_err();
        assert_eq!((late.kind(), late.cause()), (Kind::State, "CellNotPartial"), "{late}");
        let step = client.begin_step(&forebay_client::Plan::new().rows("train", 1)).unwrap();
        let claim = step.next(&train, up_to(1), LONG).unwrap().unwrap();
        assert_eq!(claim.rows(), [cut]);
        let response = claim.columns(["response"]).unwrap().column(0).as_list::<i32>().value(0);
        assert_eq!(response.as_primitive::<Int32Type>().values(), &[1, 2, 3]);
        let shown = table.show(cut).unwrap();
        let spans = [VersionSpan { start: 0, version: 0 }, VersionSpan { start: 2, version: 1 }];
        assert_eq!((shown.policy_version, &shown.version_spans[..]), (0, &spans[..]));
    });
}

#[test]
fn a_response_that_outlives_its_version_is_left_out_where_no_window_is_declared() {
    on_every_way(|world| {
        let client = world.client();
        let (table, train) = (solver(&client), trainer(&client));
        let cut = begun(&table, 0, "cut_0_0");
        move_on(&client, &table, &train);
        assert_eq!(reason(&table, cut).as_deref(), Some("stale"));
        for refused in [table.append(cut, "response", vec![3_i32].into()), table.finalize(cut, "response")] {
            let error = refused.unwrap_err();
            assert_eq!((error.kind(), error.cause()), (Kind::State, "RowExcluded"), "{error}");
            assert!(error.to_string().contains("stale"), "{error}");
        }
    });
}

#[test]
fn a_rollout_that_starts_over_takes_the_place_of_the_one_before() {
    on_every_way(|world| {
        let client = world.client();
        let (table, judge) = (solver(&client), judge(&client));
        let first = begun(&table, 0, "q_0_0");
        let again = NewRow::new(0, "q_0_0").unwrap().next_attempt();
        let second = table.insert(again, [("prompt", "?".into())]).unwrap();
        let late = table.append(first, "response", vec![9_i32].into()).unwrap_err();
        assert_eq!((late.kind(), late.cause()), (Kind::State, "RowExcluded"), "{late}");
        table.append(second, "response", vec![5_i32].into()).unwrap();
        table.finalize(second, "response").unwrap();
        let claim = judge.claim(up_to(4), Wait::No).unwrap().unwrap();
        assert_eq!(claim.rows(), [second]);
        let [first, second] = [first, second].map(|row| table.show(row).unwrap());
        assert_eq!((first.attempt, first.excluded.as_deref()), (0, Some("superseded")));
        assert_eq!((second.attempt, second.excluded), (1, None));
        let live = table.get(0, &"q_0_0".parse().unwrap()).unwrap().unwrap();
        assert_eq!(live.row, second.row, "by its identity a row is its live attempt");
        assert_eq!(table.get(1, &"q_0_0".parse().unwrap()).unwrap(), None);
    });
}
