//! Rows, cells and tables.

use std::borrow::Cow;
use std::ops::ControlFlow;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int32Type};
use forebay_client::{CellValue, Changes, Writing};
use forebay_store::{
    Consumer, DataColumn, DataType, Delete, Durability, Element, GroupBy, Kind, NewRow, Role, Schema, Value,
    Wait,
};

use super::*;

#[test]
fn tables_are_described_as_they_were_declared() {
    on_every_way(|world| {
        let client = world.client();
        let schema = Schema::new()
            .data_shared("prompt", DataType::list(Element::Int32))
            .role("prompt", Role::InputIds)
            .data("image", DataType::Binary)
            .lazy("image")
            .data("hidden", DataType::Tensor(Element::BFloat16, vec![2, 3]))
            .policy("shared");
        let table = client.create_table("solver", schema.clone()).unwrap();
        assert_eq!(table.schema().unwrap(), schema);
        assert_eq!(client.policy("shared").unwrap().version, 0);
        table.add_column(DataColumn::new("score", DataType::Float32)).unwrap();
        table.rename_column("score", "reward").unwrap();
        table.retire_column("image").unwrap();
        let columns = world.client().table("solver").unwrap().schema().unwrap();
        let named: Vec<_> =
            columns.data_columns().iter().map(|column| (&*column.name, column.retired)).collect();
        assert_eq!(named, [("prompt", false), ("image", true), ("hidden", false), ("reward", false)]);
        assert_eq!(client.tables().unwrap(), ["solver"]);
    });
}

#[test]
fn large_values_come_back_as_they_went_whoever_wrote_them_and_reads_them() {
    on_every_way(|world| {
        let schema = Schema::new()
            .data("text", DataType::Utf8)
            .data("bytes", DataType::Binary)
            .data("list", DataType::list(Element::Int32))
            .data("tensor", DataType::Tensor(Element::Float32, vec![32, 32]))
            .data_shared("system", DataType::Utf8)
            .data("verdict", DataType::Utf8);
        let client = world.client();
        let table = client.create_table("solver", schema).unwrap();
        let read =
            client.create_consumer("read", Consumer::task(["solver"]).ready(["text", "list"])).unwrap();
        let text = |at: usize| format!("{at} ").repeat(500 << (at % 8));
        let list = |at: usize| (0..5000).map(|number| number * at as i32).collect::<Vec<_>>();
        let tensor = vec![0.5_f32; 32 * 32];
        let system = "you are one who counts things ".repeat(100);
        for round in 0..4 {
            let mut changes = Changes::new(); // of two versions at once, more than the first extents hold
            for at in round * 16..round * 16 + 16 {
                let new = NewRow::new(at as u64 % 2, &format!("q{at:02}_0_0")).unwrap();
                let bytes = Value::Binary(vec![at as u8; 20_000].into());
                let cells = [("text", text(at).into()), ("bytes", bytes), ("tensor", tensor.clone().into())];
                let cells = cells.into_iter().chain([("system", Value::from(&*system))]);
                changes.insert("solver", new, cells.chain([("list", list(at).into())]));
            }
            client.write(&changes).unwrap();
        }
        let other = world.client();
        let mut seen = 0;
        while let Some(claim) = other.consumer("read").unwrap().claim(up_to(16), Wait::No).unwrap() {
            let names = ["sample_id", "text", "bytes", "list", "tensor", "system"];
            let columns = claim.columns(names).unwrap();
            let cells = claim.cells(["text", "list"]).unwrap();
            let mut verdicts = Changes::new();
            for (at, id) in claim.sample_ids().iter().enumerate() {
                let number: usize = id.input()[1..].parse().unwrap();
                assert_eq!(columns.column(1).as_string_view().value(at), text(number));
                assert_eq!(columns.column(2).as_binary_view().value(at), vec![number as u8; 20_000]);
                let numbers = columns.column(3).as_list::<i32>().value(at);
                assert_eq!(numbers.as_primitive::<Int32Type>().values().to_vec(), list(number));
                let halves = columns.column(4).as_fixed_size_list().value(at);
                assert_eq!(halves.as_primitive::<Float32Type>().values().to_vec(), tensor);
                assert_eq!(columns.column(5).as_string_view().value(at), system);
                assert_eq!(cells[0][at], CellValue::Bytes(text(number).into()));
                let raw: Vec<u8> = list(number).into_iter().flat_map(i32::to_le_bytes).collect();
                assert_eq!(cells[1][at], CellValue::Bytes(raw.into()));
                let verdict = format!("{number} is right ").repeat(200);
                verdicts.write("solver", claim.rows()[at], [("verdict", verdict.into())]);
                seen += 1;
            }
            claim.finish(&verdicts).unwrap();
        }
        assert_eq!(seen, 32, "those of the version that the policy stands at");
        let row = read.claim(up_to(1), Wait::No).unwrap();
        assert!(row.is_none(), "all are done");
        let row = table.find(0, &"q32_0_0".parse().unwrap()).unwrap().unwrap();
        assert_eq!(table.cell(row, "verdict").unwrap(), CellValue::Bytes("32 is right ".repeat(200).into()));
        let faults =
            forebay_store::verify(
                world.store.path(),
                &Options::default(),
                &mut |_| ControlFlow::Continue(()),
            );
        assert!(faults.unwrap().faults.is_empty());
    });
}

#[test]
fn cells_hold_what_was_written_of_every_type() {
    on_every_way(|world| {
        let client = world.client();
        let long: String = "a text that is longer than a view ".repeat(40);
        let raw = |bytes: &'static [u8]| Cow::Borrowed(bytes);
        let list = Value::Numbers(Element::Float32, raw(&[0, 0, 128, 63, 0, 0, 0, 64]));
        let tensor = Value::Numbers(Element::Int8, raw(&[1, 2, 3, 4]));
        let columns = [
            ("flag", DataType::Bool, Value::Bool(true), CellValue::Inline(1)),
            ("small", DataType::Number(Element::Int8), Value::Integer(-1), CellValue::Inline(0xFF)),
            ("large", DataType::UInt64, Value::Integer(u64::MAX.into()), CellValue::Inline(u64::MAX)),
            ("reward", DataType::Float32, Value::Float(1.0), CellValue::Inline(1.0_f32.to_bits().into())),
            (
                "text",
                DataType::Utf8,
                Value::Utf8(Cow::Borrowed(&long)),
                CellValue::Bytes(long.clone().into()),
            ),
            ("short", DataType::Utf8, "hi".into(), CellValue::Bytes("hi".into())),
            (
                "bytes",
                DataType::Binary,
                Value::Binary(raw(b"\0\xff")),
                CellValue::Bytes(raw(b"\0\xff").to_vec().into()),
            ),
            (
                "list",
                DataType::list(Element::Float32),
                list,
                CellValue::Bytes(vec![0, 0, 128, 63, 0, 0, 0, 64].into()),
            ),
            (
                "tensor",
                DataType::Tensor(Element::Int8, vec![2, 2]),
                tensor,
                CellValue::Bytes(vec![1, 2, 3, 4].into()),
            ),
            ("half", DataType::BFloat16, Value::Float(1.5), CellValue::Inline(0x3FC0)),
            (
                "halves",
                DataType::list(Element::BFloat16),
                Value::Numbers(Element::BFloat16, raw(&[0xC0, 0x3F, 0, 0])),
                CellValue::Bytes(vec![0xC0, 0x3F, 0, 0].into()),
            ),
            ("nothing", DataType::Utf8, Value::Null, CellValue::Null),
        ];
        let schema =
            columns.iter().fold(Schema::new(), |schema, (name, of, ..)| schema.data(name, of.clone()));
        let table = client.create_table("solver", schema.data("later", DataType::Utf8)).unwrap();
        let read = client.create_consumer("read", Consumer::task(["solver"]).ready(["nothing"])).unwrap();
        let cells = columns.iter().map(|(name, _, value, _)| (*name, value.clone()));
        let row = table.insert(NewRow::new(0, "q_0_0").unwrap(), cells).unwrap();
        for (name, _, _, stored) in &columns {
            assert_eq!(table.cell(row, name).unwrap(), *stored, "{name}");
        }
        assert_eq!(table.cell(row, "later").unwrap(), CellValue::Empty);
        let claim = read.claim(up_to(1), Wait::No).unwrap().unwrap();
        let all = || columns.iter().map(|(name, ..)| *name).chain(["later"]);
        for (name, _, _, stored) in &columns {
            assert_eq!(table.cells(&[row, row], name).unwrap(), [stored.clone(), stored.clone()], "{name}");
        }
        assert!(table.cells(&[], "text").unwrap().is_empty());
        assert_eq!(table.cells(&[], "txt").unwrap_err().cause(), "Unknown");
        let claimed = claim.cells(all()).unwrap();
        let stored = columns.iter().map(|(.., stored)| vec![stored.clone()]);
        assert_eq!(claimed, stored.chain([vec![CellValue::Empty]]).collect::<Vec<_>>());
        assert!(claim.cells([]).unwrap().is_empty());
        for unknown in ["txt", "sample_id", "text_status"] {
            let error = claim.cells(["text", unknown]).unwrap_err();
            assert_eq!((error.kind(), error.cause()), (Kind::Input, "Unknown"), "{unknown}");
        }
        assert_eq!(table.find(0, &"q_0_0".parse().unwrap()).unwrap(), Some(row));
        assert_eq!(table.find(1, &"q_0_0".parse().unwrap()).unwrap(), None);
    });
}

#[test]
fn a_cell_grows_until_it_is_closed() {
    on_every_way(|world| {
        let client = world.client();
        let (table, judge) = (solver(&client), judge(&client));
        let row = table.insert(NewRow::new(0, "q_0_0").unwrap(), [("prompt", "?".into())]).unwrap();
        table.append(row, "response", vec![1_i32, 2].into()).unwrap();
        table.append(row, "response", vec![3_i32].into()).unwrap();
        let bytes = bytes::Bytes::from_static(&[1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0]);
        assert_eq!(table.cell(row, "response").unwrap(), CellValue::Partial(bytes.clone()));
        assert!(judge.claim(up_to(1), Wait::No).unwrap().is_none(), "nobody sees it who does not ask for it");
        table.finalize(row, "response").unwrap();
        assert_eq!(table.cell(row, "response").unwrap(), CellValue::Bytes(bytes));
        let claim = judge.claim(up_to(1), Wait::No).unwrap().unwrap();
        let batch = claim.columns(["response"]).unwrap();
        let response = batch.column(0).as_list::<i32>().value(0);
        assert_eq!(response.as_primitive::<Int32Type>().values(), &[1, 2, 3]);
    });
}

#[test]
fn changes_happen_all_or_not_at_all() {
    on_every_way(|world| {
        let client = world.client();
        let table = solver(&client);
        client.create_table("checker", Schema::new().data("verdict", DataType::Utf8)).unwrap();
        let mut changes = Changes::new();
        changes.durability(Durability::Synced);
        changes.insert("solver", NewRow::new(0, "q_0_0").unwrap(), [("prompt", "a".into())]);
        changes.insert(
            "checker",
            NewRow::new(0, "q_1_0").unwrap().parent("solver/q_0_0"),
            [("verdict", "b".into())],
        );
        let rows = client.write(&changes).unwrap();
        assert_eq!(rows.len(), 2);
        assert_eq!(
            client.table("checker").unwrap().cell(rows[1], "verdict").unwrap(),
            CellValue::Bytes("b".into())
        );
        let mut wrong = Changes::new();
        wrong.insert("solver", NewRow::new(0, "q_0_1").unwrap(), [("prompt", "a".into())]);
        wrong.write("checker", rows[1], [("verdict", "another".into())]);
        let error = client.write(&wrong).unwrap_err();
        assert_eq!((error.kind(), error.cause()), (Kind::State, "CellFinal"));
        assert_eq!(table.counts().unwrap().written, 1);
        let rollouts =
            table.insert_rollouts(NewRow::new(0, "many_0_0").unwrap(), 8, [("prompt", "p".into())]);
        assert_eq!(rollouts.unwrap().len(), 8);
        let numbered = NewRow::new(0, "many_0_?").unwrap();
        let ninth = table.insert(numbered, [("prompt", "p".into())]).unwrap();
        assert_eq!(table.find(0, &"many_0_8".parse().unwrap()).unwrap(), Some(ninth));
    });
}

// Dropped ones are made, too, for the client is there until all others are answered and closes after that.
#[test]
fn writes_that_are_not_waited_for_are_made_and_answered() {
    const WRITES: usize = 150; // more than may be under way
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    on_every_way(|world| {
        let client = world.client();
        let table = solver(&client);
        let long = "a long prompt ".repeat(20_000); // longer than a socket takes at once
        let begin = |at: usize| {
            let mut changes = Changes::new();
            let prompt = if at.is_multiple_of(10) { &*long } else { "short" };
            let row = NewRow::new(0, &format!("q{at}_0_0")).unwrap();
            changes.insert("solver", row, [("prompt", prompt.into())]);
            client.write_async(&changes).unwrap()
        };
        let mut under_way: Vec<_> = (0..WRITES).map(|at| (at, begin(at))).collect();
        drop(under_way.remove(3));
        for (at, write) in under_way {
            let rows = if at.is_multiple_of(2) { write.wait() } else { runtime.block_on(write) }.unwrap();
            let prompt = if at.is_multiple_of(10) { &*long } else { "short" };
            let CellValue::Bytes(found) = table.cell(rows[0], "prompt").unwrap() else { panic!("{at}") };
            assert!(rows.len() == 1 && found == prompt.as_bytes(), "{at}");
        }
        let dropped = table.find(0, &"q3_0_0".parse().unwrap()).unwrap();
        assert!(dropped.is_some(), "it was sent before the ones behind it");
        let refused = begin(7).wait().unwrap_err();
        assert_eq!((refused.kind(), refused.cause()), (Kind::State, "DuplicateRow"));
        assert_eq!(table.counts().unwrap().written, WRITES as u64);
        drop(begin(WRITES)); // a long one
        client.close().unwrap();
        assert_eq!(
            world.store.table("solver").unwrap().counts().written,
            WRITES as u64 + 1,
            "closing waits for it"
        );
        let closed = client.write_async(&Changes::new()).and_then(Writing::wait).unwrap_err();
        assert_eq!(closed.kind(), Kind::Closed);
    });
}

#[test]
fn what_is_repeated_is_there_once() {
    on_every_way(|world| {
        let client = world.client();
        let table = solver(&client);
        let new = || NewRow::new(0, "q_0_0").unwrap().token(17);
        let row = table.insert(new(), [("prompt", "a".into())]).unwrap();
        assert_eq!(table.insert(new(), [("prompt", "a".into())]).unwrap(), row);
        table.write(row, [("reward", 1.0.into())]).unwrap();
        table.write(row, [("reward", 1.0.into())]).unwrap();
        assert_eq!(table.write(row, [("reward", 2.0.into())]).unwrap_err().cause(), "CellFinal");
        let other = table.insert(NewRow::new(0, "q_0_0").unwrap(), [("prompt", "a".into())]).unwrap_err();
        assert_eq!((other.kind(), other.cause()), (Kind::State, "DuplicateRow"));
        let second =
            table.insert(NewRow::new(0, "q_0_0").unwrap().next_attempt(), [("prompt", "b".into())]).unwrap();
        assert_ne!(second, row);
        assert_eq!(table.write(row, [("response", vec![1_i32].into())]).unwrap_err().cause(), "RowExcluded");
        let counts = table.counts().unwrap();
        assert_eq!((counts.written, counts.excluded.get("superseded")), (2, Some(&1)));
    });
}

#[test]
fn rows_are_left_out_and_deleted_by_rule() {
    on_every_way(|world| {
        let client = world.client();
        let table = solver(&client);
        let rows = ["a_0_0", "b_0_0", "c_0_0"].map(|id| row(&table, 0, id, None));
        table.exclude(rows[0], "too long").unwrap();
        assert_eq!(table.counts().unwrap().excluded.get("too long"), Some(&1));
        let deleted = table.delete(&Delete::rows([rows[0], rows[1]])).unwrap();
        assert_eq!((deleted.rows, deleted.open), (2, 1));
        assert_eq!(table.find(0, &"b_0_0".parse().unwrap()).unwrap(), None);
        let gone = rows[1];
        let refused = [
            table.write(gone, [("reward", 1.0.into())]),
            table.exclude(gone, "too late"),
            table.append(gone, "response", vec![1_i32].into()),
            table.cell(gone, "reward").map(drop),
            table.cells(&[rows[2], gone], "reward").map(drop),
            table.delete(&Delete::rows([gone])).map(drop),
        ];
        for refused in refused {
            let error = refused.unwrap_err();
            assert_eq!((error.kind(), error.cause()), (Kind::State, "RowDeleted"), "{error}");
            assert!(error.to_string().contains("b_0_0"), "{error}");
        }
        let error = table.delete(&Delete::version(0)).unwrap_err();
        assert_eq!((error.kind(), error.cause()), (Kind::State, "VersionCurrent"));
        assert_eq!(table.delete(&Delete::version(0).force()).unwrap().rows, 1);
        assert_eq!(table.delete(&Delete::default()).unwrap_err().kind(), Kind::Input);
    });
}

#[test]
fn groups_are_as_large_as_they_are_told() {
    on_every_way(|world| {
        let client = world.client();
        let table = solver(&client);
        let by_input = Consumer::task(["solver"]).ready(["reward"]).group(GroupBy::Input, 4);
        let consumer = client.create_consumer("group", by_input).unwrap();
        let mut changes = Changes::new();
        changes.expect_group("group", "solver", 0, "small", 1);
        client.write(&changes).unwrap();
        row(&table, 0, "small_0_0", Some(1.0));
        row(&table, 0, "cut_0_0", Some(0.5));
        row(&table, 0, "open_0_0", Some(0.0));
        let claim = consumer.claim(up_to(8), Wait::No).unwrap().unwrap();
        assert_eq!(ids(&claim), ["small_0_0"]);
        let mut changes = Changes::new();
        changes.close_group("group", "solver", 0, "cut");
        client.write(&changes).unwrap();
        let cut = consumer.claim_with(up_to(8), Wait::No, &["reward"]).unwrap().unwrap();
        let rewards = cut.columns(["reward"]).unwrap();
        assert_eq!(rewards.column(0).as_primitive::<Float32Type>().values(), &[0.5]);
        assert_eq!(consumer.open_groups().unwrap(), ["open"]);
    });
}
