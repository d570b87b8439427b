//! Record batches: what one table gave, another takes.

use std::sync::Arc;

use arrow_array::builder::{FixedSizeListBuilder, Float32Builder, Int32Builder, ListBuilder};
use arrow_array::{
    ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray, TimestampSecondArray, UInt8Array,
};
use forebay_store::*;

use crate::support::*;

const COLUMNS: [&str; 9] = ["sample_id", "text", "blob", "flag", "whole", "small", "half", "tokens", "grid"];

fn schema() -> Schema {
    Schema::new()
        .data("text", DataType::Utf8)
        .data("blob", DataType::Binary)
        .data("flag", DataType::Bool)
        .data("whole", DataType::Int64)
        .data("small", DataType::Number(Element::UInt8))
        .data("half", DataType::Float16)
        .data("tokens", DataType::list(Element::Int32))
        .data("grid", DataType::tensor(Element::Float32, [2, 3]))
}

/// A table with three rows, the second of which lacks every other cell.
fn filled(store: &Store) -> Table {
    let table = store.create_table("first", schema()).unwrap();
    for at in 0..3_u8 {
        let cells: [(&str, Value<'_>); 8] = [
            ("text", format!("text {at}").into()),
            ("blob", Value::Binary(vec![at; 40].into())),
            ("flag", (at == 1).into()),
            ("whole", i64::from(at).into()),
            ("small", at.into()),
            ("half", (f32::from(at) / 4.0).into()),
            ("tokens", vec![i32::from(at); usize::from(at) * 9].into()),
            ("grid", vec![f32::from(at); 6].into()),
        ];
        let some = cells.into_iter().enumerate().filter(|(column, _)| at != 1 || column % 2 == 0);
        table.insert(0, &format!("q_0_{at}"), some.map(|(_, cell)| cell)).unwrap();
    }
    table
}

fn taken(store: &Store, name: &str) -> RecordBatch {
    let read = store.create_consumer(&format!("read-{name}"), Consumer::task([name]).ready([])).unwrap();
    let claim = read.claim(MicroBatch::of(3), "me", Wait::No).unwrap().unwrap();
    claim.columns(COLUMNS).unwrap()
}

#[test]
fn what_a_claim_gave_another_table_takes() {
    let world = World::new();
    let store = world.open();
    filled(&store);
    let batch = taken(&store, "first");
    let second = store.create_table("second", schema()).unwrap();
    assert_eq!(second.insert_batch(0, &batch).unwrap().len(), 3);
    assert_eq!(show_batch(&taken(&store, "second")), show_batch(&batch));
    // A part of it as well, whatever of its arrays lies before; and cells after their rows.
    let third = store.create_table("third", schema()).unwrap();
    let rows: Vec<Row> = (0..3).map(|at| third.insert(0, &format!("q_0_{at}"), []).unwrap()).collect();
    let cells = batch.project(&(1..COLUMNS.len()).collect::<Vec<_>>()).unwrap();
    third.write_batch(&rows[1..], &cells.slice(1, 2)).unwrap();
    third.write_batch(&rows[..1], &cells.slice(0, 1)).unwrap();
    assert_eq!(show_batch(&taken(&store, "third")), show_batch(&batch));
    check_counts(&store);
}

fn one(name: &str, array: ArrayRef) -> RecordBatch {
    let names: ArrayRef = Arc::new(StringArray::from(vec!["q_0_0"; array.len()]));
    RecordBatch::try_from_iter([("sample_id", names), (name, array)]).unwrap()
}

#[test]
fn what_no_cell_can_hold_is_refused_by_name_and_nothing_is_written() {
    let world = World::new();
    let store = world.open();
    let table = store.create_table("first", schema()).unwrap();
    let mut with_null = ListBuilder::new(Int32Builder::new());
    with_null.append_value([Some(1), None]);
    let mut narrow = FixedSizeListBuilder::new(Float32Builder::new(), 5);
    narrow.values().append_slice(&[0.0; 5]);
    narrow.append(true);
    for (batch, named) in [
        (one("text", Arc::new(TimestampSecondArray::from(vec![1]))), "\"text\""),
        (one("tokens", Arc::new(with_null.finish())), "a null in a list"),
        (one("grid", Arc::new(narrow.finish())), "\"grid\""),
        (one("text", Arc::new(BooleanArray::from(vec![true]))), "\"text\""),
        (one("small", Arc::new(Int64Array::from(vec![256]))), "256"),
        (one("nothing", Arc::new(UInt8Array::from(vec![1]))), "\"nothing\""),
        (one("small", Arc::new(UInt8Array::from(vec![1, 2]))), "q_0_0"),
        (one("small", Arc::new(UInt8Array::from(vec![1]))).project(&[1]).unwrap(), "\"sample_id\""),
    ] {
        let error = table.insert_batch(0, &batch).unwrap_err();
        assert!(error.to_string().contains(named), "{named}: {error}");
    }
    assert_eq!(table.counts().written, 0);
    let rows = [table.insert(0, "q_0_0", []).unwrap(); 2];
    let batch = one("small", Arc::new(UInt8Array::from(vec![1]))).project(&[1]).unwrap();
    let error = table.write_batch(&rows, &batch).unwrap_err();
    assert_eq!(error.kind(), Kind::Input);
    assert!(error.to_string().contains("1 rows for 2 rows"), "{error}");
    table.write_batch(&rows[..1], &batch).unwrap();
}
