//! Cells of a claim, byte for byte, as an Arrow batch: two columns for each of the claim's, kinds and contents.
//!
//! [`Connection::columns`](crate::Connection::columns) carries what Arrow shows of a column, which is not always what is
//! stored: a bfloat16 is shown as a float32, and a cell without a value as one that is null. This carries what is stored.
//! The contents of a column lie in one buffer, each behind the one before; since all are multiples of their element, each
//! begins where its elements want it.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt8Type;
use arrow_array::{Array, ArrayRef, LargeBinaryArray, RecordBatch, RecordBatchOptions, UInt8Array};
use arrow_buffer::ScalarBuffer;
use arrow_schema::{DataType, Field, Schema};
use bytes::Bytes;
use forebay_store::{Cell, ValuePlace};

use super::malformed;
use crate::cell::CellValue;
use crate::error::Result;

const EMPTY: u8 = 0;
const NULL: u8 = 1;
const INLINE: u8 = 2;
const BYTES: u8 = 3;
const PARTIAL: u8 = 4;
const PLACED: u8 = 5;

/// A cell on its way.
#[derive(Clone, Debug)]
pub enum SentCell {
    /// What it holds.
    Held(CellValue),
    /// Where a neighbour finds what it holds.
    Placed([u8; ValuePlace::BYTES]),
}

impl SentCell {
    /// A cell for a neighbour: bytes that lie in a file stay there.
    pub fn for_neighbour(cell: Cell) -> Self {
        match &cell {
            Cell::Bytes(bytes) => bytes.place().map_or_else(
                || SentCell::Held(cell.clone().into()),
                |place| SentCell::Placed(place.to_bytes()),
            ),
            _ => SentCell::Held(cell.into()),
        }
    }
}

/// Columns of cells as a batch.
///
/// # Errors
/// `input` when the columns are not of one length: nobody's but a program's fault.
pub fn from_cells(columns: &[Vec<SentCell>]) -> Result<RecordBatch> {
    let rows = columns.first().map_or(0, Vec::len);
    let arrays: Vec<ArrayRef> = columns.iter().flat_map(|cells| from_column(cells)).collect();
    let fields = arrays.iter().zip(["kind", "content"].into_iter().cycle());
    let fields: Vec<Field> =
        fields.map(|(array, name)| Field::new(name, array.data_type().clone(), false)).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)
        .map_err(|error| malformed(&format!("columns of several lengths ({error})")).because(error))
}

/// How many bytes a batch of these cells takes, before it is made: the same value may be in it many times.
pub fn bytes_of_cells(columns: &[Vec<SentCell>]) -> u64 {
    let content = |cell: &SentCell| match cell {
        SentCell::Held(CellValue::Bytes(bytes) | CellValue::Partial(bytes)) => bytes.len() as u64,
        SentCell::Held(CellValue::Inline(_)) => 8,
        SentCell::Held(CellValue::Empty | CellValue::Null) => 0,
        SentCell::Placed(place) => place.len() as u64,
    };
    columns.iter().flatten().map(|cell| content(cell).saturating_add(9)).fold(0, u64::saturating_add)
}

fn from_column(cells: &[SentCell]) -> [ArrayRef; 2] {
    let mut bits = Vec::with_capacity(cells.len()); // what an inline cell has as its content
    let kind = |cell: &SentCell| match cell {
        SentCell::Held(CellValue::Empty) => EMPTY,
        SentCell::Held(CellValue::Null) => NULL,
        SentCell::Held(CellValue::Inline(_)) => INLINE,
        SentCell::Held(CellValue::Bytes(_)) => BYTES,
        SentCell::Held(CellValue::Partial(_)) => PARTIAL,
        SentCell::Placed(_) => PLACED,
    };
    let kinds = UInt8Array::from_iter_values(cells.iter().map(kind));
    bits.extend(cells.iter().map(|cell| match cell {
        SentCell::Held(CellValue::Inline(bits)) => bits.to_le_bytes(),
        _ => [0; 8],
    }));
    let contents = cells.iter().zip(&bits).map(|(cell, bits)| match cell {
        SentCell::Held(CellValue::Empty | CellValue::Null) => &[][..],
        SentCell::Held(CellValue::Inline(_)) => &bits[..],
        SentCell::Held(CellValue::Bytes(bytes) | CellValue::Partial(bytes)) => &bytes[..],
        SentCell::Placed(place) => &place[..],
    });
    [Arc::new(kinds), Arc::new(LargeBinaryArray::from_iter_values(contents))]
}

/// The cells that a batch stands for. Bytes are slices of the batch, or what `find` finds at their place.
///
/// # Errors
/// `input` for a batch that stands for none; what `find` says.
pub fn to_cells(
    batch: &RecordBatch,
    find: &dyn Fn(ValuePlace) -> Result<Bytes>,
) -> Result<Vec<Vec<CellValue>>> {
    let (pairs, []) = batch.columns().as_chunks::<2>() else {
        return Err(malformed("cells without contents"));
    };
    pairs.iter().map(|pair| to_column(pair, find)).collect()
}

fn to_column(
    [kinds, contents]: &[ArrayRef; 2],
    find: &dyn Fn(ValuePlace) -> Result<Bytes>,
) -> Result<Vec<CellValue>> {
    let types = (kinds.data_type(), contents.data_type());
    if types != (&DataType::UInt8, &DataType::LargeBinary) || kinds.null_count() + contents.null_count() > 0 {
        return Err(malformed("cells in columns of other types"));
    }
    let (kinds, contents) = (kinds.as_primitive::<UInt8Type>(), contents.as_binary::<i64>());
    let all = Bytes::from_owner(ScalarBuffer::<u8>::from(contents.values().clone()));
    let spans = contents.value_offsets().windows(2).map(|span| span[0] as usize..span[1] as usize);
    let cell = |(kind, span): (&u8, std::ops::Range<usize>)| {
        Ok(match *kind {
            EMPTY => CellValue::Empty,
            NULL => CellValue::Null,
            INLINE => {
                let bits = all.get(span).and_then(|bits| bits.try_into().ok());
                CellValue::Inline(u64::from_le_bytes(bits.ok_or_else(|| malformed("a number has 8 bytes"))?))
            }
            BYTES => CellValue::Bytes(all.slice(span)),
            PARTIAL => CellValue::Partial(all.slice(span)),
            PLACED => {
                let place = all.get(span).and_then(|place| place.try_into().ok());
                let place = place.ok_or_else(|| malformed("a place has 16 bytes"))?;
                CellValue::Bytes(find(ValuePlace::from_bytes(place))?)
            }
            other => return Err(malformed(&format!("{other} is no kind of cell"))),
        })
    };
    kinds.values().iter().zip(spans).map(cell).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Assembler, write_stream};

    fn sent(batch: RecordBatch) -> RecordBatch {
        let stream = write_stream(&batch.schema(), &[batch]).unwrap();
        Assembler::of(stream).into_batch().unwrap()
    }

    fn nowhere(_: ValuePlace) -> Result<Bytes> {
        Err(malformed("a place where none is due"))
    }

    fn held(columns: &[Vec<CellValue>]) -> Vec<Vec<SentCell>> {
        columns.iter().map(|cells| cells.iter().cloned().map(SentCell::Held).collect()).collect()
    }

    fn cells() -> Vec<Vec<CellValue>> {
        let bytes = |length: usize| CellValue::Bytes(Bytes::from(vec![7; length]));
        let partial = CellValue::Partial(Bytes::from_static(b"so far"));
        vec![
            vec![CellValue::Empty, CellValue::Null, bytes(0), bytes(1 << 20)],
            vec![CellValue::Inline(0), CellValue::Inline(u64::MAX), CellValue::Inline(1), CellValue::Null],
            vec![partial, bytes(3), bytes(1), CellValue::Empty],
        ]
    }

    #[test]
    fn cells_come_back_as_they_went() {
        for columns in [cells(), vec![], vec![vec![], vec![]]] {
            let back = to_cells(&sent(from_cells(&held(&columns)).unwrap()), &nowhere);
            assert_eq!(back.unwrap(), columns);
        }
    }

    #[test]
    fn values_begin_where_their_elements_want_it() {
        let column: Vec<CellValue> =
            [8, 0, 24, 16].map(|length| CellValue::Bytes(Bytes::from(vec![1; length]))).into();
        let back = sent(from_cells(&held(&[column])).unwrap());
        for cell in to_cells(&back, &nowhere).unwrap().into_iter().flatten() {
            let CellValue::Bytes(bytes) = cell else { panic!("{cell:?}") };
            assert_eq!(bytes.as_ptr().addr() % 8, 0);
        }
    }

    #[test]
    fn what_is_no_cell_is_refused() {
        let read = |batch: &RecordBatch| to_cells(batch, &nowhere);
        let good = from_cells(&held(&cells())).unwrap();
        let kinds = |kinds: [u8; 4]| Arc::new(UInt8Array::from_iter_values(kinds)) as ArrayRef;
        let texts: ArrayRef = Arc::new(LargeBinaryArray::from_iter_values([b"a", b"b", b"c", b"d"]));
        let batch = |columns: Vec<ArrayRef>| {
            RecordBatch::try_from_iter(columns.into_iter().enumerate().map(|(at, a)| (at.to_string(), a)))
        };
        assert!(read(&good.project(&[0, 1, 2]).unwrap()).is_err(), "a kind without its content");
        assert!(read(&good.project(&[1, 0]).unwrap()).is_err(), "the other way round");
        assert!(read(&batch(vec![kinds([0, 1, 9, 0]), texts.clone()]).unwrap()).is_err(), "no kind");
        assert!(read(&batch(vec![kinds([0, 1, 2, 0]), texts]).unwrap()).is_err(), "a number of one byte");
        let placed = from_cells(&[vec![SentCell::Placed([7; ValuePlace::BYTES])]]).unwrap();
        assert!(read(&placed).is_err(), "a place, for who is no neighbour");
        let found = to_cells(&placed, &|place| Ok(Bytes::copy_from_slice(&place.to_bytes()))).unwrap();
        assert_eq!(found, [[CellValue::Bytes(Bytes::from_static(&[7; 16]))]]);
        assert!(from_cells(&held(&[vec![CellValue::Null], vec![]])).is_err(), "columns of several lengths");
    }
}
