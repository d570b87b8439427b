//! Arrow record batches on their way in: what each cell holds, as a [`Value`] that lies where Arrow has it.
//!
//! The arrays that claims and snapshots give are among what is taken, so what one table gave another takes; but for lists of
//! bfloat16, which Arrow has no type for. What is null is no cell: it is not written.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType as ArrowType;

use crate::batch::{NewRow, WriteBatch};
use crate::error::{Cause, Result};
use crate::schema::Element;
use crate::table::{Row, Table};
use crate::value::Value;

/// The column of a batch that names its rows.
const SAMPLE_ID: &str = "sample_id";

/// What is in a row of a column.
type CellOf<'b> = Arc<dyn Fn(usize) -> Value<'b> + Send + Sync + 'b>;

/// The columns of a record batch as cells, row by row.
///
/// Numbers and booleans are taken as they are, texts and bytes of every layout, and lists of numbers, of one size or of several, in each
/// other of one size for a tensor.
///
/// ```
/// use std::sync::Arc;
/// use arrow_array::{ArrayRef, Int32Array, RecordBatch, StringArray};
/// use forebay_store::{BatchCells, Value};
///
/// let text: ArrayRef = Arc::new(StringArray::from(vec![Some("two"), None]));
/// let batch = RecordBatch::try_from_iter([("prompt", text), ("answer", Arc::new(Int32Array::from(vec![2, 3])) as ArrayRef)]).unwrap();
/// let cells = BatchCells::of(&batch)?;
/// assert_eq!(cells.row(0).collect::<Vec<_>>(), [("prompt", Value::from("two")), ("answer", Value::from(2))]);
/// assert_eq!(cells.row(1).collect::<Vec<_>>(), [("answer", Value::from(3))]);
/// # Ok::<(), forebay_store::Error>(())
/// ```
#[derive(Clone)]
pub struct BatchCells<'b> {
    columns: Vec<(&'b str, &'b dyn Array, CellOf<'b>)>,
    rows: usize,
}

impl fmt::Debug for BatchCells<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.columns.iter().map(|(name, ..)| name);
        write!(f, "BatchCells({} rows of ", self.rows)?;
        f.debug_list().entries(names).finish()?;
        f.write_str(")")
    }
}

impl<'b> BatchCells<'b> {
    /// The cells of a batch.
    ///
    /// # Errors
    /// `input` for a column of a type that no column of a table has, with its name, or one with a null in a list.
    pub fn of(batch: &'b RecordBatch) -> Result<Self> {
        let columns = batch.schema_ref().fields().iter().zip(batch.columns()).map(|(field, array)| {
            let cell = cell_of(array.as_ref()).map_err(|reason| {
                let reason = format!("column {:?} of the batch {reason}", field.name());
                Cause::Argument { what: "batch", reason }
            })?;
            Ok((field.name().as_str(), array.as_ref(), cell))
        });
        Ok(BatchCells { columns: columns.collect::<Result<_>>()?, rows: batch.num_rows() })
    }

    /// The same without the column that names the rows, and what it says of each.
    ///
    /// # Errors
    /// As for [`of`](BatchCells::of); `input` when the column `sample_id` is not there, is no text, or lacks a name.
    pub fn named(batch: &'b RecordBatch) -> Result<(Vec<Cow<'b, str>>, Self)> {
        let mut cells = Self::of(batch)?;
        let refuse = |reason: &str| Cause::Argument { what: "batch", reason: reason.to_owned() };
        let at = cells.columns.iter().position(|(name, ..)| *name == SAMPLE_ID);
        let at = at.ok_or_else(|| refuse("there is no column \"sample_id\", which names the rows"))?;
        let (_, array, cell) = cells.columns.remove(at);
        let name = |row: usize| match cell(row) {
            Value::Utf8(text) if !array.is_null(row) => Ok(text),
            _ => {
                Err(refuse(&format!("row {row} of the batch has no text in its column \"sample_id\"")).into())
            }
        };
        Ok(((0..cells.rows).map(name).collect::<Result<_>>()?, cells))
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The cells of a row, but for those that are null.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn row(&self, row: usize) -> impl Iterator<Item = (&'b str, Value<'b>)> + '_ {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        let there = self.columns.iter().filter(move |(_, array, _)| !array.is_null(row));
        there.map(move |(name, _, cell)| (*name, cell(row)))
    }
}

/// What is in a row of an array; or why it is nothing that a cell can hold.
fn cell_of<'b>(array: &'b dyn Array) -> Result<CellOf<'b>, String> {
    macro_rules! numbers {
        ($($kind:ident => $arrow:ty, $of:ty);*) => {
            match array.data_type() {
                $(ArrowType::$kind => {
                    let values = array.as_primitive::<$arrow>().values();
                    return Ok(Arc::new(move |row| Value::from(<$of>::from(values[row]))));
                })*
                _ => {}
            }
        };
    }
    numbers!(Int8 => Int8Type, i64; Int16 => Int16Type, i64; Int32 => Int32Type, i64; Int64 => Int64Type, i64;
        UInt8 => UInt8Type, u64; UInt16 => UInt16Type, u64; UInt32 => UInt32Type, u64; UInt64 => UInt64Type, u64;
        Float16 => Float16Type, f64; Float32 => Float32Type, f64; Float64 => Float64Type, f64);
    Ok(match array.data_type() {
        ArrowType::Boolean => {
            let values = array.as_boolean();
            Arc::new(move |row| values.value(row).into())
        }
        ArrowType::Utf8 => text(array.as_string::<i32>(), |array, row| array.value(row)),
        ArrowType::LargeUtf8 => text(array.as_string::<i64>(), |array, row| array.value(row)),
        ArrowType::Utf8View => text(array.as_string_view(), |array, row| array.value(row)),
        ArrowType::Binary => bytes(array.as_binary::<i32>(), |array, row| array.value(row)),
        ArrowType::LargeBinary => bytes(array.as_binary::<i64>(), |array, row| array.value(row)),
        ArrowType::BinaryView => bytes(array.as_binary_view(), |array, row| array.value(row)),
        ArrowType::FixedSizeBinary(_) => bytes(array.as_fixed_size_binary(), |array, row| array.value(row)),
        ArrowType::List(_) => {
            let lists = array.as_list::<i32>();
            let (offsets, numbers) = (lists.value_offsets(), numbers_of(lists.values().as_ref())?);
            Arc::new(move |row| numbers(offsets[row] as usize..offsets[row + 1] as usize))
        }
        ArrowType::LargeList(_) => {
            let lists = array.as_list::<i64>();
            let (offsets, numbers) = (lists.value_offsets(), numbers_of(lists.values().as_ref())?);
            Arc::new(move |row| numbers(offsets[row] as usize..offsets[row + 1] as usize))
        }
        ArrowType::ListView(_) => {
            let lists = array.as_list_view::<i32>();
            let (offsets, sizes) = (lists.value_offsets(), lists.value_sizes());
            let is_inside = |row: usize| {
                let [offset, size] = [offsets[row], sizes[row]].map(usize::try_from);
                let end = offset.and_then(|offset| size.map(|size| offset + size));
                lists.is_null(row) || end.is_ok_and(|end| end <= lists.values().len())
            };
            if let Some(row) = (0..lists.len()).find(|row| !is_inside(*row)) {
                return Err(format!("has a list view of values that are not there, in row {row}"));
            }
            let numbers = numbers_of(lists.values().as_ref())?;
            Arc::new(move |row| {
                let start = offsets[row] as usize;
                numbers(start..start + sizes[row] as usize)
            })
        }
        ArrowType::FixedSizeList(_, size) => {
            let (size, lists) = (*size as usize, array.as_fixed_size_list());
            let (each, numbers) = tensor_of(lists.values().as_ref())?;
            Arc::new(move |row| numbers(row * size * each..(row + 1) * size * each))
        }
        other => return Err(format!("has the type {other}, which no column has; cast it first")),
    })
}

fn text<'b, A: Sync>(array: &'b A, at: fn(&'b A, usize) -> &'b str) -> CellOf<'b> {
    Arc::new(move |row| at(array, row).into())
}

fn bytes<'b, A: Sync>(array: &'b A, at: fn(&'b A, usize) -> &'b [u8]) -> CellOf<'b> {
    Arc::new(move |row| at(array, row).into())
}

/// The numbers of a range of elements.
type NumbersOf<'b> = Box<dyn Fn(Range<usize>) -> Value<'b> + Send + Sync + 'b>;

/// Elements of lists, which are numbers.
fn numbers_of<'b>(elements: &'b dyn Array) -> Result<NumbersOf<'b>, String> {
    if elements.null_count() > 0 {
        return Err("has a null in a list; cells hold numbers alone".to_owned());
    }
    macro_rules! numbers {
        ($($kind:ident => $arrow:ty),*) => {
            match elements.data_type() {
                $(ArrowType::$kind => {
                    let values = elements.as_primitive::<$arrow>().values();
                    Ok(Box::new(move |range: Range<usize>| {
                        Value::Numbers(Element::$kind, Cow::Borrowed(bytemuck::cast_slice(&values[range])))
                    }))
                })*
                other => Err(format!("has lists of {other}, and cells hold lists of numbers; cast it first")),
            }
        };
    }
    numbers!(Int8 => Int8Type, Int16 => Int16Type, Int32 => Int32Type, Int64 => Int64Type, UInt8 => UInt8Type,
        UInt16 => UInt16Type, UInt32 => UInt32Type, UInt64 => UInt64Type, Float16 => Float16Type,
        Float32 => Float32Type, Float64 => Float64Type)
}

/// Elements of lists of one size: how many numbers each has, and those.
fn tensor_of<'b>(elements: &'b dyn Array) -> Result<(usize, NumbersOf<'b>), String> {
    let ArrowType::FixedSizeList(_, size) = elements.data_type() else {
        return Ok((1, numbers_of(elements)?));
    };
    if elements.null_count() > 0 {
        return Err("has a null in a list; cells hold numbers alone".to_owned());
    }
    let (each, numbers) = tensor_of(elements.as_fixed_size_list().values().as_ref())?;
    Ok((*size as usize * each, numbers))
}

impl WriteBatch<'_> {
    /// Inserts the rows of a record batch, of one policy version. Its column `sample_id` names them, as [`NewRow::new`] takes names; the
    /// others are cells, and what is null is left for later.
    ///
    /// # Errors
    /// `input` for a column that the table does not have or of another type, and as for [`BatchCells::named`].
    pub fn insert_batch(&mut self, table: &Table, policy_version: u64, batch: &RecordBatch) -> Result<()> {
        let (names, cells) = BatchCells::named(batch)?;
        let mut rows = names.iter().enumerate();
        rows.try_for_each(|(at, name)| self.insert(table, NewRow::new(policy_version, name)?, cells.row(at)))
    }

    /// Turns cells of rows final, a row of the record batch each; what is null is left as it is.
    ///
    /// # Errors
    /// `input` when there are not as many rows in both, and as for [`insert_batch`](WriteBatch::insert_batch).
    pub fn write_batch(&mut self, table: &Table, rows: &[Row], batch: &RecordBatch) -> Result<()> {
        let cells = BatchCells::of(batch)?;
        cells.check_rows(rows)?;
        rows.iter().enumerate().try_for_each(|(at, row)| self.write(table, *row, cells.row(at)))
    }
}

impl BatchCells<'_> {
    /// Refuses rows that are not as many as the batch has.
    ///
    /// # Errors
    /// `input`, with both numbers.
    pub fn check_rows(&self, rows: &[Row]) -> Result<()> {
        if rows.len() == self.rows {
            return Ok(());
        }
        let reason = format!("the batch has {} rows for {} rows of the table", self.rows, rows.len());
        Err(Cause::Argument { what: "batch", reason }.into())
    }
}

impl Table {
    /// Inserts the rows of a record batch, all or none; see [`WriteBatch::insert_batch`].
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use arrow_array::{ArrayRef, Float32Array, RecordBatch, StringArray};
    /// # use forebay_store::*;
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = Store::open(dir.path().join("store"), Options::default())?;
    /// let solver = store.create_table("solver", Schema::new().data("reward", DataType::Float32))?;
    /// let names: ArrayRef = Arc::new(StringArray::from(vec!["q17_0_0", "q17_0_1"]));
    /// let rewards: ArrayRef = Arc::new(Float32Array::from(vec![1.0, 0.0]));
    /// let batch = RecordBatch::try_from_iter([("sample_id", names), ("reward", rewards)]).unwrap();
    /// assert_eq!(solver.insert_batch(0, &batch)?.len(), 2);
    /// # Ok::<(), forebay_store::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`WriteBatch::insert_batch`] and [`Table::insert`].
    pub fn insert_batch(&self, policy_version: u64, batch: &RecordBatch) -> Result<Vec<Row>> {
        let mut writes = self.store().batch();
        writes.insert_batch(self, policy_version, batch)?;
        writes.commit()
    }

    /// Turns cells of rows final, all or none; see [`WriteBatch::write_batch`].
    ///
    /// # Errors
    /// As for [`WriteBatch::write_batch`] and [`Table::write`].
    pub fn write_batch(&self, rows: &[Row], batch: &RecordBatch) -> Result<()> {
        let mut writes = self.store().batch();
        writes.write_batch(self, rows, batch)?;
        writes.commit().map(drop)
    }
}
