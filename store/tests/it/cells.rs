//! Cells: empty, partial, final; every type there and back.

use forebay_store::*;
use half::{bf16, f16};

use crate::support::*;

fn bytes_of(table: &Table, row: Row, column: &str) -> Option<Vec<u8>> {
    match table.cell(row, column).unwrap() {
        Cell::Bytes(bytes) => Some(bytes.to_vec()),
        _ => None,
    }
}

// FX-17: row 3 of figure 3
#[test]
fn a_row_is_staged_cell_by_cell() {
    let store = World::new().open();
    let schema = Schema::new()
        .data("prompt", DataType::Utf8)
        .data("response", DataType::Utf8)
        .data("reward", DataType::Float32);
    let table = store.create_table("agent", schema).unwrap();
    let row = table.insert(0, "3_0_0", [("prompt", "Write a letter".into())]).unwrap();
    table.append(row, "response", "Thanks for".into()).unwrap();
    let shown = ["prompt", "prompt_status", "response", "response_status", "reward", "reward_status"];
    assert_eq!(pick(&store, "agent", &shown), [["Write a letter", "true", "null", "false", "null", "false"]]);
    assert!(matches!(table.cell(row, "response").unwrap(), Cell::Partial(b) if b == b"Thanks for"));
    assert!(matches!(table.cell(row, "reward").unwrap(), Cell::Empty));
}

// FX-18
#[test]
fn a_partial_cell_turns_final_once_and_is_not_seen_before() {
    for parts in [
        vec!["ab", "c"],
        vec!["", "x"],
        vec![""],
        vec!["a part longer than any view", "", "and one more of them"],
    ] {
        let (store, table) = solver(&World::new());
        let task = store.create_consumer("read", Consumer::task(["solver"]).ready(["prompt"])).unwrap();
        let row = table.insert(0, "q_0_0", []).unwrap();
        for part in &parts {
            table.append(row, "prompt", (*part).into()).unwrap();
            assert_eq!(
                pick(&store, "solver", &["prompt", "prompt_status", "prompt_at"]),
                [["null", "false", "null"]]
            );
            assert!(task.claim(MicroBatch::of(1), "me", Wait::No).unwrap().is_none());
        }
        let error = table.write(row, [("prompt", "abc".into())]).unwrap_err();
        assert!(matches!(error.cause(), Cause::CellPartial { .. }), "{error}");
        table.finalize(row, "prompt").unwrap();
        let claim = task.claim(MicroBatch::of(1), "me", Wait::No).unwrap().unwrap();
        let batch = claim.columns(["prompt"]).unwrap();
        assert_eq!(show(batch.column(0), 0), parts.concat());
        for refused in [table.append(row, "prompt", "d".into()), table.finalize(row, "prompt")] {
            assert!(matches!(refused.unwrap_err().cause(), Cause::CellNotPartial { found: "final", .. }));
        }
    }
}

#[test]
fn only_what_can_grow_is_appended_to() {
    let (store, table) = solver(&World::new());
    let row = table.insert(0, "q_0_0", []).unwrap();
    let commits = store.stats().commits;
    assert_eq!(table.append(row, "reward", 1.0.into()).unwrap_err().kind(), Kind::Input);
    assert_eq!(table.append(row, "prompt", Value::Null).unwrap_err().kind(), Kind::Input);
    assert_eq!(table.append(row, "prompt", 1.into()).unwrap_err().kind(), Kind::Input);
    assert!(matches!(
        table.finalize(row, "prompt").unwrap_err().cause(),
        Cause::CellNotPartial { found: "empty", .. }
    ));
    assert_eq!(store.stats().commits, commits);
}

#[test]
fn a_final_cell_is_written_again_with_the_same_bytes_only() {
    let cases: [(&str, Value<'static>, Value<'static>); 6] = [
        ("prompt", "short".into(), "other".into()),
        ("prompt", "long enough to lie in an extent".into(), "long enough to lie in an_extent".into()),
        ("prompt", "".into(), Value::Null),
        ("response", vec![1_i32, 2].into(), vec![1_i32].into()),
        ("response", Vec::<i32>::new().into(), vec![0_i32].into()),
        ("reward", 0.5.into(), (-0.5).into()),
    ];
    for (column, value, other) in cases {
        let (store, table) = solver(&World::new());
        let row = table.insert(0, "q_0_0", [(column, value.clone())]).unwrap();
        let commits = store.stats().commits;
        table.write(row, [(column, value.clone())]).unwrap();
        let error = table.write(row, [(column, other)]).unwrap_err();
        assert!(matches!(error.cause(), Cause::CellFinal { .. }), "{error}");
        assert_eq!(store.stats().commits, commits, "{column} {value:?}");
    }
}

#[test]
fn a_write_of_which_one_cell_is_refused_changes_no_cell() {
    let (_, table) = solver(&World::new());
    let row = table.insert(0, "q_0_0", [("prompt", "a".into())]).unwrap();
    assert!(table.write(row, [("reward", 1.0.into()), ("prompt", "b".into())]).is_err());
    assert!(table.write(row, [("reward", 1.0.into()), ("reward", 1.0.into())]).is_err());
    assert!(table.write(row, [("reward", 1.0.into()), ("nothing", 1.0.into())]).is_err());
    assert!(matches!(table.cell(row, "reward").unwrap(), Cell::Empty));
}

// AW-11
#[test]
fn turns_accumulate_into_one_sequence_of_equal_lengths() {
    let (store, table) = solver(&World::new());
    let row = table.insert(0, "episode_0_0", [("prompt", "p".into())]).unwrap();
    let turns: [&[i32]; 3] = [&[1, 2, 3], &[4], &[5, 6]];
    for turn in turns {
        let logprobs: Vec<f32> = turn.iter().map(|&token| -(token as f32) / 8.0).collect();
        table.append(row, "response", turn.into()).unwrap();
        table.append(row, "logprobs", logprobs.into()).unwrap();
    }
    table.finalize(row, "response").unwrap();
    table.finalize(row, "logprobs").unwrap();
    table.write(row, [("reward", 1.0.into())]).unwrap();
    let shown = pick(&store, "solver", &["response", "logprobs"]).remove(0);
    assert_eq!(shown, ["1 2 3 4 5 6", "-0.125 -0.25 -0.375 -0.5 -0.625 -0.75"]);
    assert_eq!(
        bytes_of(&table, row, "response").unwrap().len(),
        bytes_of(&table, row, "logprobs").unwrap().len()
    );
}

#[test]
fn every_type_survives_the_log_and_a_scan() {
    macro_rules! numbers {
        ($($element:ident $t:ty: $values:expr),* $(,)?) => {
            vec![$((
                Element::$element,
                $values.iter().map(|v: &$t| v.to_le_bytes()).collect::<Vec<_>>().concat(),
                $values.iter().map(|v: &$t| numbers!(@show $element v)).collect::<Vec<String>>(),
            )),*]
        };
        (@show BFloat16 $v:ident) => { format!("{:?}", $v.to_f32()) };
        (@show $other:ident $v:ident) => { format!("{:?}", $v) };
    }
    let cases: Vec<(Element, Vec<u8>, Vec<String>)> = numbers! {
        Int8 i8: [i8::MIN, -1, i8::MAX], Int16 i16: [i16::MIN, -1, i16::MAX], Int32 i32: [i32::MIN, -1, i32::MAX],
        Int64 i64: [i64::MIN, -1, i64::MAX], UInt8 u8: [0, 1, u8::MAX], UInt16 u16: [0, 1, u16::MAX],
        UInt32 u32: [0, 1, u32::MAX], UInt64 u64: [0, 1, u64::MAX],
        Float16 f16: [f16::MIN_POSITIVE_SUBNORMAL, f16::NEG_INFINITY, f16::MAX],
        BFloat16 bf16: [bf16::MIN_POSITIVE_SUBNORMAL, bf16::NEG_INFINITY, bf16::MAX],
        Float32 f32: [f32::MIN_POSITIVE, f32::NEG_INFINITY, f32::MAX], Float64 f64: [5e-324, f64::NEG_INFINITY, f64::MAX],
    };
    for (element, bytes, shown) in cases {
        let world = World::new();
        let store = world.open();
        let schema = Schema::new()
            .data("list", DataType::list(element))
            .data("tensor", DataType::tensor(element, [3, 1]))
            .data("none", DataType::tensor(element, [3]));
        let table = store.create_table("t", schema).unwrap();
        let value = || Value::Numbers(element, bytes.clone().into());
        table.insert(0, "q_0_0", [("list", value()), ("tensor", value())]).unwrap();
        table.insert(0, "q_0_1", [("list", Value::Numbers(element, Vec::new().into()))]).unwrap();
        table.insert(0, "q_0_2", [("list", Value::Null), ("none", Value::Null)]).unwrap();
        let text = shown.join(" ");
        let none = || "null".to_owned();
        let expected = [
            [text.clone(), text, none(), "false".to_owned()],
            [String::new(), none(), none(), "false".to_owned()],
            [none(), none(), none(), "true".to_owned()],
        ];
        assert_eq!(pick(&store, "t", &["list", "tensor", "none", "none_status"]), expected, "{element}");
        let store = world.reopen(store);
        assert_eq!(pick(&store, "t", &["list", "tensor", "none", "none_status"]), expected, "{element}");
    }
}

#[test]
fn scalars_survive_the_log_and_a_scan() {
    let world = World::new();
    let store = world.open();
    let cases: [(DataType, Value<'static>, &str); 13] = [
        (DataType::Bool, true.into(), "true"),
        (DataType::Bool, false.into(), "false"),
        (DataType::Int32, i32::MIN.into(), "-2147483648"),
        (DataType::Int64, i64::MIN.into(), "-9223372036854775808"),
        (DataType::UInt64, u64::MAX.into(), "18446744073709551615"),
        (DataType::Number(Element::Int8), (-128).into(), "-128"),
        (DataType::Float16, 0.5.into(), "0.5"),
        (DataType::BFloat16, (-1.5).into(), "-1.5"),
        (DataType::Float32, 1e-45.into(), "1e-45"),
        (DataType::Float64, f64::MAX.into(), "1.7976931348623157e308"),
        (DataType::Utf8, "ümlaut, 13 bytes and more".into(), "ümlaut, 13 bytes and more"),
        (DataType::Utf8, "exactly 12 b".into(), "exactly 12 b"),
        (DataType::Binary, (&[0_u8, 255, 7][..]).into(), "[0, 255, 7]"),
    ];
    for (index, (data_type, value, shown)) in cases.into_iter().enumerate() {
        let name = format!("t{index}");
        let schema = Schema::new().data("c", data_type.clone()).data("null", data_type.clone());
        let table = store.create_table(&name, schema).unwrap();
        table.insert(0, "q_0_0", [("c", value), ("null", Value::Null)]).unwrap();
        assert_eq!(
            pick(&store, &name, &["c", "null", "null_status"]),
            [[shown, "null", "true"]],
            "{data_type}"
        );
    }
    let before = scan(&store);
    assert_eq!(scan(&world.reopen(store)), before);
}

#[test]
fn text_of_every_length_around_a_view_survives() {
    let world = World::new();
    let (store, table) = solver(&world);
    for length in 0..70_usize {
        table.insert(0, &format!("q{length}_0_0"), [("prompt", "x".repeat(length).into())]).unwrap();
    }
    let store = world.reopen(store);
    let found = pick(&store, "solver", &["prompt"]);
    assert!(found.iter().enumerate().all(|(length, row)| row[0] == "x".repeat(length)));
}

#[test]
fn values_around_the_size_of_an_extent() {
    let world = World::new();
    let (store, table) = solver(&world);
    let greatest = (1 << 16) - 64 - 64 - 32; // header, room to align, trailer
    for (index, length) in [4096 - 160, 4096 - 159, 4096, 40_000, greatest].into_iter().enumerate() {
        let text: String = (0..length).map(|i| char::from(b'a' + (i % 26) as u8)).collect();
        let row = table.insert(0, &format!("q{index}_0_0"), [("prompt", (&*text).into())]).unwrap();
        assert_eq!(bytes_of(&table, row, "prompt").unwrap(), text.as_bytes());
        table.append(row, "response", vec![index as i32; length / 8].into()).unwrap();
        table.append(row, "response", vec![-1_i32; length / 8 - 2].into()).unwrap();
        table.finalize(row, "response").unwrap();
    }
    let before = scan(&store);
    let error = table.insert(0, "q9_0_0", [("prompt", "x".repeat(greatest + 1).into())]).unwrap_err();
    assert!(matches!(error.cause(), Cause::ValueTooLarge { .. }), "{error}");
    let store = world.reopen(store);
    assert_eq!(scan(&store), before);
    assert!(store.stats().extents > 3);
}

#[test]
fn a_scan_over_many_extents_gives_every_text() {
    let (store, table) = solver(&World::new());
    let text = |i: usize| format!("{i} ").repeat(20 + i % 50);
    for i in 0..800 {
        table.insert(0, &format!("q_0_{i}"), [("prompt", text(i).into())]).unwrap();
    }
    assert!(store.stats().extents >= 3, "{:?}", store.stats());
    let found = pick(&store, "solver", &["prompt"]);
    assert!(found.iter().enumerate().all(|(i, row)| row[0] == text(i)));
}
