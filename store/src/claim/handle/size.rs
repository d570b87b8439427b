//! How large what is read of a claim will be, before any of it is gathered.

use super::Claim;
use crate::error::Result;
use crate::extent::View;
use crate::log::record::StoredValue;
use crate::schema::{DataType, Element};
use crate::value::tensor_bytes;

/// What a row counts for in a column that is not a data column, in bytes: a name, a number, a short list.
const OTHER_BYTES: u64 = 64;
/// What a row counts for beside the bytes of its value, in bytes: a view, or an offset.
const ROW_BYTES: u64 = 16;

impl Claim {
    /// About how many bytes [`columns`](Claim::columns) of these names takes. Nothing is read for it but where values lie, so whoever
    /// has little room can refuse in time. A name that is unknown counts as some column: reading it says so.
    ///
    /// ```
    /// # use forebay_store::*;
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = Store::open(dir.path().join("store"), Options::default())?;
    /// let solver = store.create_table("solver", Schema::new().data("prompt", DataType::Utf8))?;
    /// let read = store.create_consumer("read", Consumer::task(["solver"]).ready(["prompt"]))?;
    /// solver.insert(0, "q17_0_0", [("prompt", "long".repeat(1000).as_str().into())])?;
    /// let claim = read.claim(MicroBatch::of(1), "me", Wait::No)?.unwrap();
    /// assert!((4000..5000).contains(&claim.bytes_of(["sample_id", "prompt"])?));
    /// # Ok::<(), forebay_store::Error>(())
    /// ```
    ///
    /// # Errors
    /// `state` in a process that was forked from the one that opened the store.
    pub fn bytes_of<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Result<u64> {
        let shared = &self.store.0;
        shared.check_process()?;
        let (rows, state) = (self.indexes.len() as u64, shared.state.lock());
        let table = &state.tables[self.table_id as usize];
        let bytes = |name: &str| {
            let found = table.schema.live_columns().find(|(_, column)| column.name == name);
            let Some((index, column)) = found else { return rows.saturating_mul(OTHER_BYTES) };
            let lengths = self.indexes.iter().map(|&row| length(table.cell(index, row))).sum();
            bytes_in(&column.data_type, rows, lengths)
        };
        Ok(names.into_iter().map(bytes).fold(0, u64::saturating_add))
    }
}

/// Bytes of a value that does not lie in the table itself.
fn length(value: Option<StoredValue>) -> u64 {
    match value {
        Some(StoredValue::View(view)) => View(view).length() as u64,
        _ => 0,
    }
}

/// Bytes of a column as Arrow shows it, whose values have so many bytes in all where they lie.
fn bytes_in(data_type: &DataType, rows: u64, lengths: u64) -> u64 {
    let values = match data_type {
        DataType::Bool | DataType::Number(_) | DataType::Utf8 | DataType::Binary => lengths,
        DataType::List(element) => shown(*element, lengths),
        // A cell without a value takes as much as one with it.
        DataType::Tensor(element, shape) => {
            shown(*element, rows.saturating_mul(tensor_bytes(*element, shape) as u64))
        }
    };
    values.saturating_add(rows.saturating_mul(ROW_BYTES))
}

/// What numbers take as they are shown, of what they take as they are stored.
fn shown(element: Element, bytes: u64) -> u64 {
    if element == Element::BFloat16 { bytes.saturating_mul(2) } else { bytes }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::*;

    /// A claim of rows with a value in every column but `none`.
    fn claim(store: &Store, rows: usize) -> Claim {
        let schema = Schema::new()
            .data("number", DataType::Float64)
            .data("text", DataType::Utf8)
            .data("list", DataType::list(Element::Int32))
            .data("narrow", DataType::list(Element::BFloat16))
            .data("tensor", DataType::tensor(Element::Float32, [64, 64]))
            .data("none", DataType::tensor(Element::BFloat16, [64, 64]));
        let solver = store.create_table("solver", schema).unwrap();
        for at in 0..rows {
            let text = "x".repeat(3000 + at);
            let cells = [
                ("number", 1.0.into()),
                ("text", Value::from(text.as_str())),
                ("list", vec![7_i32; 1000 + at].into()),
                ("narrow", vec![half::bf16::ONE; 1000 + at].into()),
                ("tensor", vec![0.5_f32; 64 * 64].into()),
            ];
            solver.insert(0, &format!("q{at}_0_0"), cells).unwrap();
        }
        let read = store.create_consumer("read", Consumer::task(["solver"]).ready(["text"])).unwrap();
        read.claim(MicroBatch::of(rows), "me", Wait::No).unwrap().unwrap()
    }

    #[test]
    fn what_columns_take_is_known_before_they_are_gathered() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("store"), Options::default()).unwrap();
        let claim = claim(&store, 8);
        let names = ["sample_id", "number", "text", "list", "narrow", "tensor", "none", "text_status"];
        let told = names.map(|name| claim.bytes_of([name]).unwrap() as usize);
        assert_eq!(store.stats().value_reads, 0, "nothing was read");
        for (name, told) in names.into_iter().zip(told) {
            let column = compact(&claim.columns([name]).unwrap()).unwrap().column(0).clone();
            let data = column.to_data();
            let inner = data.child_data().iter().flat_map(|child| child.buffers().iter());
            let takes: usize = data.buffers().iter().chain(inner).map(|buffer| buffer.as_slice().len()).sum();
            assert!(takes <= told && told <= 2 * takes + 1024, "{name}: {takes} bytes, {told} told");
        }
        assert_eq!(claim.bytes_of([]).unwrap(), 0);
        let all = ["text", "none"].map(|name| claim.bytes_of([name]).unwrap());
        assert_eq!(claim.bytes_of(["text", "none"]).unwrap(), all.iter().sum::<u64>());
    }

    #[test]
    fn who_shares_a_claim_ends_it_for_all_who_have_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("store"), Options::default()).unwrap();
        let claim = Arc::new(claim(&store, 2));
        let (reader, read) = (claim.clone(), store.consumer("read").unwrap());
        claim.release_shared().unwrap();
        drop(claim);
        let next = read.claim(MicroBatch::of(2), "next", Wait::No).unwrap().expect("the rows went back");
        assert_eq!(reader.columns(["text"]).unwrap().num_rows(), 2, "who reads it reads on");
        drop(reader);
        assert!(next.is_live());
        next.finish(|_| Ok(())).unwrap();
    }

    #[test]
    fn rows_of_a_shared_claim_go_back_at_once_when_its_end_fails_and_with_the_last_who_has_it_when_nobody_ends_it()
     {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("store"), Options::default()).unwrap();
        let (reader, read) = (Arc::new(claim(&store, 1)), store.consumer("read").unwrap());
        let solver = store.table("solver").unwrap();
        let mut wrong = store.batch();
        wrong.write(&solver, reader.rows()[0], [("text", "another".into())]).unwrap();
        reader.clone().finish_shared(wrong).unwrap_err();
        let next = read.claim(MicroBatch::of(1), "next", Wait::No).unwrap().expect("it went back");
        drop(reader);
        assert!(next.is_live());
        let one = Arc::new(next);
        let other = one.clone();
        drop(one);
        assert!(read.claim(MicroBatch::of(1), "third", Wait::No).unwrap().is_none(), "somebody has it");
        drop(other);
        assert!(read.claim(MicroBatch::of(1), "third", Wait::No).unwrap().is_some());
    }
}
