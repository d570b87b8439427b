//! Parquet files without bounds of floats.
//!
//! The least and the greatest number that a file tells of a column leave NaN out, and NaN is greater than both. Whoever
//! leaves out pages by them loses rows, here and in other programs.

use arrow_schema::Schema;
use parquet::arrow::ArrowSchemaConverter;
use parquet::basic::{LogicalType, Type};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterPropertiesBuilder};

/// The properties of a file with these columns, without statistics of floats, in lists too.
pub(crate) fn without_bounds(
    mut properties: WriterPropertiesBuilder,
    schema: &Schema,
) -> Result<WriterPropertiesBuilder, ParquetError> {
    for column in ArrowSchemaConverter::new().convert(schema)?.columns() {
        let is_half = column.logical_type_ref().is_some_and(|of| *of == LogicalType::Float16);
        if is_half || matches!(column.physical_type(), Type::FLOAT | Type::DOUBLE) {
            properties =
                properties.set_column_statistics_enabled(column.path().clone(), EnabledStatistics::None);
        }
    }
    Ok(properties)
}
