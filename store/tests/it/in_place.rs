//! Lists and tensors of a claim where they lie: the same values, not copied, and held for as long as anybody has them.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, ListViewArray, RecordBatch, UInt8Array};
use arrow_schema::{ArrowError, DataType as ArrowType, Field};
use forebay_store::*;

use crate::support::*;

const LISTS: [&str; 4] = ["tokens", "logprobs", "half", "small"];
const COLUMNS: [&str; 7] = ["sample_id", "tokens", "logprobs", "half", "small", "matrix", "prompt"];

fn schema() -> Schema {
    Schema::new()
        .data("prompt", DataType::Utf8)
        .data("tokens", DataType::list(Element::Int32))
        .data("logprobs", DataType::list(Element::Float64))
        .data("half", DataType::list(Element::BFloat16))
        .data("small", DataType::list(Element::UInt8))
        .data("matrix", DataType::Tensor(Element::Float32, vec![2, 3]))
}

/// Rows of lists of every length from none on, some of them null and some not there.
fn fill(store: &Store, rows: usize) -> (Table, ConsumerHandle) {
    let table = store.create_table("solver", schema()).unwrap();
    let read = store.create_consumer("read", Consumer::task(["solver"]).ready(["prompt"])).unwrap();
    for at in 0..rows {
        let list = |of: usize| (0..of as i32).map(|element| element * 7 + at as i32).collect::<Vec<_>>();
        let bytes: Vec<u8> = list(at * 5).iter().map(|element| *element as u8).collect();
        let half: Vec<u8> = list(at).iter().flat_map(|element| (*element as u16).to_le_bytes()).collect();
        let mut cells: Vec<(&str, Value<'_>)> = vec![
            ("tokens", list(at * 3).into()),
            ("half", Value::Numbers(Element::BFloat16, half.into())),
            ("small", Value::Numbers(Element::UInt8, bytes.into())),
        ];
        if at % 3 != 1 {
            cells.push(("logprobs", list(at + 1).iter().map(|n| f64::from(*n)).collect::<Vec<_>>().into()));
        }
        cells.push(("matrix", if at % 4 == 2 { Value::Null } else { vec![at as f32; 6].into() }));
        cells.push(("prompt", "the prompt, which does not fit into a view".into()));
        table.insert(0, &format!("q{at:02}_0_0"), cells).unwrap();
    }
    (table, read)
}

fn claim(read: &ConsumerHandle) -> Claim {
    read.claim(MicroBatch::up_to(100), "me", Wait::No).unwrap().unwrap()
}

/// The elements of each row, whatever its lists are.
fn rows_of(array: &ArrayRef) -> Vec<Option<ArrayRef>> {
    match array.data_type() {
        ArrowType::List(_) => array.as_list::<i32>().iter().collect(),
        ArrowType::FixedSizeList(..) => array.as_fixed_size_list().iter().collect(),
        _ => array.as_list_view::<i32>().iter().collect(),
    }
}

fn views<'b>(batch: &'b RecordBatch, name: &str) -> &'b ListViewArray {
    batch.column_by_name(name).unwrap().as_list_view()
}

/// Every column is what it is otherwise, and every list a list view.
fn check_same(together: &RecordBatch, in_place: &RecordBatch) {
    assert_eq!(together.num_rows(), in_place.num_rows());
    for (field, (there, here)) in
        together.schema().fields().iter().zip(together.columns().iter().zip(in_place.columns()))
    {
        let name = field.name();
        if LISTS.contains(&name.as_str()) || name == "matrix" {
            assert!(matches!(here.data_type(), ArrowType::ListView(_)), "{name}: {}", here.data_type());
            assert_eq!(rows_of(here), rows_of(there), "{name}");
        } else {
            assert_eq!(here, there, "{name}");
        }
        let shown = in_place.schema().field_with_name(name).unwrap().clone();
        assert_eq!((shown.metadata(), shown.is_nullable()), (field.metadata(), field.is_nullable()));
    }
}

#[test]
fn lists_in_place_are_what_they_are_together_whatever_their_type_and_wherever_they_lie() {
    for extent_bytes in [4096, 1 << 20] {
        let world = World::new();
        let options = world.options().extent_bytes(extent_bytes, extent_bytes);
        let store = Store::open(ROOT, options).unwrap();
        let (_, read) = fill(&store, 40);
        let claim = claim(&read);
        check_same(&claim.columns(COLUMNS).unwrap(), &claim.columns_in_place(COLUMNS).unwrap());
        let none = claim.columns_in_place(["nothing"]).unwrap_err();
        assert_eq!(none.kind(), Kind::Input);
    }
}

#[test]
fn lists_in_place_lie_in_their_extent_and_compact_leaves_only_what_they_are() {
    let world = World::new();
    let store = Store::open(ROOT, world.options().extent_bytes(1 << 20, 1 << 20)).unwrap();
    let (_, read) = fill(&store, 30);
    let claim = claim(&read);
    let batch = claim.columns_in_place(COLUMNS).unwrap();
    for name in ["tokens", "small", "matrix"] {
        let Cell::Bytes(bytes) = &claim.cells(name).unwrap()[5] else { panic!("no bytes") };
        let row = views(&batch, name).value(5);
        let data = row.to_data();
        let start =
            data.buffers()[0].as_ptr() as usize + data.offset() * data.data_type().primitive_width().unwrap();
        assert_eq!(start, bytes.as_ptr() as usize, "{name}: it is the very place");
    }
    let compacted = compact(&batch).unwrap();
    assert_eq!(compacted.schema(), batch.schema());
    for name in LISTS.into_iter().chain(["matrix"]) {
        let (whole, left) = (views(&batch, name), views(&compacted, name));
        let elements: usize = left.value_sizes().iter().map(|size| *size as usize).sum();
        assert_eq!(left.values().len(), elements, "{name}");
        assert!(whole.iter().eq(left.iter()), "{name}");
    }
    assert!(views(&batch, "tokens").values().len() > views(&compacted, "tokens").values().len());
}

/// How many bytes a batch keeps alive, whole buffers counted.
fn kept_bytes(batch: &RecordBatch, name: &str) -> usize {
    views(batch, name).values().get_buffer_memory_size()
}

#[test]
fn what_is_compacted_holds_nothing_else_however_few_rows_it_has() {
    let world = World::new();
    let store = Store::open(ROOT, world.options().extent_bytes(1 << 20, 1 << 20)).unwrap();
    let (table, read) = fill(&store, 30);
    let (compacted, rows) = {
        let claim = claim(&read);
        let batch = claim.columns_in_place(COLUMNS).unwrap();
        let few = [(0, 0), (0, 1), (5, 1), (5, 2), (29, 1)];
        let compacted = few.map(|(first, rows)| {
            let (slice, compacted) = (batch.slice(first, rows), compact(&batch.slice(first, rows)).unwrap());
            assert_eq!((compacted.num_rows(), compacted.schema()), (rows, batch.schema()));
            assert!(views(&slice, "tokens").iter().eq(views(&compacted, "tokens").iter()));
            assert!(kept_bytes(&compacted, "tokens") < 2000, "{first}, {rows}");
            compacted
        });
        (compacted, claim.rows().to_vec())
    };
    table.delete(&Delete::rows(rows).force()).unwrap();
    // The second does not fit beside the first, so the extent of all that is over is sealed.
    let beside = table.insert(0, "later_0_0", [("tokens", vec![1; 200_000].into())]).unwrap();
    table.insert(0, "later_0_1", [("tokens", vec![1; 200_000].into())]).unwrap();
    table.delete(&Delete::rows([beside]).force()).unwrap();
    store.sync().unwrap();
    table.insert(0, "proof_0_0", [("tokens", vec![1; 10].into())]).unwrap();
    store.sync().unwrap();
    store.run_once().unwrap();
    assert!(store.stats().free_extent_bytes > 0 || store.stats().extents_recycled > 0, "{:?}", store.stats());
    drop(compacted);
}

#[test]
fn lists_that_are_more_than_an_array_counts_are_refused_and_not_copied() {
    let values: ArrayRef = Arc::new(UInt8Array::from(vec![0; 1 << 30]));
    let item = Arc::new(Field::new_list_field(ArrowType::UInt8, false));
    let lists = ListViewArray::new(item, vec![0; 3].into(), vec![1 << 30; 3].into(), values, None);
    let batch = RecordBatch::try_from_iter([("shared", Arc::new(lists) as ArrayRef)]).unwrap();
    assert!(matches!(compact(&batch), Err(ArrowError::OffsetOverflowError(elements)) if elements == 3 << 30));
}

// FX-B10
#[test]
fn lists_in_place_stay_what_they_are_while_their_rows_go_and_space_is_used_again() {
    let world = World::new();
    let store = Store::open(ROOT, world.options().extent_bytes(1 << 16, 1 << 16)).unwrap();
    let (table, read) = fill(&store, 20);
    let claim = claim(&read);
    let (batch, before) = (claim.columns_in_place(["tokens"]).unwrap(), claim.columns(["tokens"]).unwrap());
    let rows = claim.rows().to_vec();
    claim.release().unwrap();
    table.delete(&Delete::rows(rows).force()).unwrap();
    for at in 0..200 {
        let row = table.insert(0, &format!("later{at}_0_0"), [("tokens", vec![-1; 3000].into())]).unwrap();
        table.delete(&Delete::rows([row]).force()).unwrap();
        store.sync().unwrap();
        store.run_once().unwrap();
    }
    assert!(store.stats().extents_recycled > 10, "{:?}", store.stats());
    drop((table, read, store));
    check_same(&before, &batch);
}

#[test]
fn lists_in_place_go_into_another_table_as_they_are() {
    let world = World::new();
    let store = world.open();
    let (_, read) = fill(&store, 12);
    let (copy, copied) = {
        let copy = store.create_table("copy", schema().policy("copy")).unwrap();
        (copy, store.create_consumer("copied", Consumer::task(["copy"]).ready(["small"])).unwrap())
    };
    let names = ["sample_id", "tokens", "logprobs", "small", "matrix"];
    let batch = claim(&read).columns_in_place(names).unwrap();
    copy.insert_batch(0, &batch).unwrap();
    check_same(&claim(&copied).columns(names).unwrap(), &batch);
}
