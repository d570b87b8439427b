//! The rows of a table of a snapshot, batch by batch: which they are, and how many fit into one.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType as ArrowType;
use forebay_store::{Cause, DataType, ScanColumn, ScanOrder, TableSnapshot};

use super::calls::ReadRows;
use crate::error::{Error, Result};

/// How many rows a batch has at most where nothing else is said, and ever.
const BATCH_ROWS: usize = 4096;
const BATCH_ROWS_MAX: usize = 1 << 16;
/// How many bytes the values of a batch have at most, where it has more than one row.
const BATCH_BYTES_MAX: u64 = 16 << 20;

/// The numbers of the rows that are read, in their order.
pub(super) fn numbers_of(table: &TableSnapshot, read: &ReadRows) -> Vec<u32> {
    match (read.version, read.order) {
        (Some(version), ScanOrder::SampleId) => table.rows_of_version(version),
        (None, ScanOrder::SampleId) => {
            let versions = table.versions_up_to(u64::MAX);
            versions.keys().flat_map(|version| table.rows_of_version(*version)).collect()
        }
        (None, ScanOrder::Arrival) => table.parts().flat_map(|part| table.rows_of(&part)).collect(),
        (Some(version), ScanOrder::Arrival) => {
            let mut rows = table.rows_of_version(version);
            rows.sort_unstable(); // they are numbered as they arrived
            rows
        }
    }
}

/// The columns that are read.
pub(super) fn columns_of(table: &TableSnapshot, names: Option<&[String]>) -> Result<Vec<ScanColumn>> {
    let (schema, arrow) = (table.schema(), table.arrow_schema());
    let Some(names) = names else {
        let is_lazy = |name: &str| schema.index_of(name).is_ok_and(|index| schema.data_columns()[index].lazy);
        let eager = arrow.fields().iter().enumerate().filter(|(_, field)| !is_lazy(field.name()));
        return Ok(eager.map(|(position, _)| ScanColumn::Value(position)).collect());
    };
    let mut columns = Vec::with_capacity(names.len());
    for name in names {
        let Ok(position) = arrow.index_of(name) else {
            schema.index_of(name)?; // says which name is close
            let cause = Cause::Unknown { what: "column", name: name.clone(), close: None };
            return Err(forebay_store::Error::from(cause).into());
        };
        let column = ScanColumn::Value(position);
        if columns.contains(&column) {
            let message = format!("column {name:?} was asked for twice; name each column once");
            return Err(Error::input("ColumnTwice", message));
        }
        columns.push(column);
    }
    Ok(columns)
}

/// The next batch of rows after the first `from`; none where there are no more. The first is there also without a row, so that its
/// columns are known.
pub(super) fn batch_of(
    table: &TableSnapshot,
    rows: &Arc<Vec<u32>>,
    columns: &[ScanColumn],
    read: &ReadRows,
    from: u64,
) -> Result<Option<RecordBatch>> {
    let from = usize::try_from(from).unwrap_or(usize::MAX);
    let Some(rest) = rows.get(from..).filter(|rest| from == 0 || !rest.is_empty()) else { return Ok(None) };
    let most = read.batch_rows.unwrap_or(BATCH_ROWS).clamp(1, BATCH_ROWS_MAX);
    let part = &rest[..rest.len().min(most)];
    let fitting = fitting(table, part, columns)?;
    Ok(Some(table.read(&part[..fitting], columns)?))
}

/// How many of these rows have values that fit into a batch: at least one.
fn fitting(table: &TableSnapshot, rows: &[u32], columns: &[ScanColumn]) -> Result<usize> {
    let mut bytes = vec![0_u64; rows.len()];
    for column in columns {
        let width = width_of(table, *column);
        let sized = match width {
            Width::Fixed(width) => {
                bytes.iter_mut().for_each(|bytes| *bytes += width);
                continue;
            }
            Width::Elements(_) => ScanColumn::Length(column.position()),
            Width::Bytes => *column, // views, whose values are not touched
        };
        let values = table.read(rows, &[sized])?;
        add(&mut bytes, values.column(0).as_ref(), width);
    }
    let mut sum = 0;
    let beyond = bytes.iter().position(|bytes| {
        sum += bytes;
        sum > BATCH_BYTES_MAX
    });
    Ok(beyond.map_or(rows.len(), |beyond| beyond.max(1)))
}

/// What a value of a column takes.
#[derive(Clone, Copy)]
enum Width {
    Fixed(u64),
    /// So many bytes for each element of a list.
    Elements(u64),
    /// As many as it has.
    Bytes,
}

fn width_of(table: &TableSnapshot, column: ScanColumn) -> Width {
    let field = table.arrow_schema().field(column.position()).clone();
    let declared = table.schema().index_of(field.name()).ok();
    match declared.map(|index| &table.schema().data_columns()[index].data_type) {
        Some(DataType::List(element)) => Width::Elements(element.width_bytes() as u64),
        Some(DataType::Tensor(element, shape)) => Width::Fixed(
            shape.iter().map(|size| u64::from(*size)).product::<u64>() * element.width_bytes() as u64,
        ),
        _ => match field.data_type() {
            ArrowType::Utf8View | ArrowType::BinaryView => Width::Bytes,
            _ => Width::Fixed(16), // numbers, times, and texts of the engine's own, which are short
        },
    }
}

fn add(bytes: &mut [u64], values: &dyn Array, width: Width) {
    for (at, bytes) in bytes.iter_mut().enumerate().filter(|(at, _)| values.is_valid(*at)) {
        *bytes += match (width, values.data_type()) {
            (Width::Elements(width), ArrowType::UInt64) => {
                width * values.as_primitive::<UInt64Type>().value(at)
            }
            (_, ArrowType::Utf8View) => values.as_string_view().value(at).len() as u64,
            (_, ArrowType::BinaryView) => values.as_binary_view().value(at).len() as u64,
            _ => 0,
        };
    }
}
