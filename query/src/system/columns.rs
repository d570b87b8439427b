//! `system.columns`: a row a column of an agent's table, with its class and where its values lie. From the query's
//! snapshot.

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, SchemaRef};
use forebay_store::{ColumnClass, StorageClass, TableSnapshot};

use super::Moment;
use super::fields::Fields;

struct Row<'a> {
    table: &'a str,
    column: String,
    position: usize,
    class: ColumnClass,
    data_type: String,
    nullable: bool,
    storage: Option<&'static str>,
}

pub(super) fn make(moment: &Moment) -> Result<RecordBatch, ArrowError> {
    let rows: Vec<Row<'_>> = moment.tables().flat_map(rows_of).collect();
    Fields::default()
        .texts("table_name", rows.iter().map(|row| row.table))
        .texts("column_name", rows.iter().map(|row| &row.column))
        .numbers("position", rows.iter().map(|row| row.position as u64))
        .texts("class", rows.iter().map(|row| row.class.as_str()))
        .texts("data_type", rows.iter().map(|row| &row.data_type))
        .bools("nullable", rows.iter().map(|row| row.nullable))
        .optional_texts("storage", rows.iter().map(|row| row.storage))
        .batch(rows.len())
}

fn rows_of(table: &TableSnapshot) -> impl Iterator<Item = Row<'_>> {
    let fields: SchemaRef = table.arrow_schema();
    table.schema().columns().enumerate().map(move |(position, (column, class))| {
        let declared = table.schema().data_columns().iter().find(|data| data.name == column);
        let field = fields.field(position);
        Row {
            table: table.name(),
            column,
            position,
            class,
            data_type: declared
                .map_or_else(|| field.data_type().to_string(), |data| data.data_type.to_string()),
            nullable: field.is_nullable(),
            storage: declared.map(|data| storage(data.data_type.storage_class())),
        }
    })
}

fn storage(class: StorageClass) -> &'static str {
    match class {
        StorageClass::Inline => "inline",
        StorageClass::View => "view",
        StorageClass::Slice => "slice",
    }
}
