//! What is known of rows before they are read: how many there are, which columns have a value in all of them, and the
//! bounds of their policy versions. A plan counts and takes extremes from that without a look at a row, and sizes joins.

use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, ScalarValue, Statistics};
use forebay_store::{Part, ScanColumn, TableSnapshot};

use super::columns::Output;

/// The column whose bounds parts know.
pub(super) const VERSION: &str = "policy_version";

/// What is known of all rows of some parts.
pub(super) fn of_parts<'a>(
    table: &TableSnapshot,
    outputs: &[Output],
    parts: impl Iterator<Item = &'a Part> + Clone,
) -> Statistics {
    let schema = table.arrow_schema();
    let column = |output: &Output| {
        let mut known = ColumnStatistics::new_unknown();
        if !output.field.is_nullable() {
            known.null_count = Precision::Exact(0);
        }
        if let ScanColumn::Value(position) = output.column
            && schema.field(position).name() == VERSION
        {
            (known.min_value, known.max_value) = versions(parts.clone());
        }
        known
    };
    Statistics {
        num_rows: Precision::Exact(parts.clone().map(Part::row_count).sum()),
        total_byte_size: Precision::Absent,
        column_statistics: outputs.iter().map(column).collect(),
    }
}

/// The least and the greatest version. Exact where a part that has it lost no row, so that one with it is surely there.
fn versions<'a>(
    parts: impl Iterator<Item = &'a Part> + Clone,
) -> (Precision<ScalarValue>, Precision<ScalarValue>) {
    let bounds: Option<Vec<_>> = parts.map(|part| Some((part.versions()?, part.is_whole()))).collect();
    let Some(bounds) = bounds else { return (Precision::Absent, Precision::Absent) };
    let of = |bound: Option<u64>, attained: &dyn Fn(u64) -> bool| match bound {
        None => Precision::Absent,
        Some(version) if attained(version) => Precision::Exact(ScalarValue::UInt64(Some(version))),
        Some(version) => Precision::Inexact(ScalarValue::UInt64(Some(version))),
    };
    let least = bounds.iter().map(|(versions, _)| *versions.start()).min();
    let greatest = bounds.iter().map(|(versions, _)| *versions.end()).max();
    let begins = |least| bounds.iter().any(|(versions, whole)| *whole && *versions.start() == least);
    let ends = |greatest| bounds.iter().any(|(versions, whole)| *whole && *versions.end() == greatest);
    (of(least, &begins), of(greatest, &ends))
}
