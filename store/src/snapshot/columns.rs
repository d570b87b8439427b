//! Which columns are wanted, and what each is to Arrow.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{
    DataType as ArrowType, Field, FieldRef, Fields, Schema as ArrowSchema, SchemaRef, TimeUnit,
};

use super::array::arrow_type;
use super::parts::ScanColumn;
use crate::error::{Cause, Result};
use crate::schema::{ColumnClass, DataType, META_COLUMNS, Schema, nearest};

/// One column of a table as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    /// By position in [`META_COLUMNS`].
    Meta(usize),
    Data(usize),
    /// Whether the data column is final.
    Status(usize),
    /// When the data column turned final.
    FinalAt(usize),
    /// How many elements the lists of a data column have.
    Length(usize),
    /// The numbers of the texts of a meta column.
    Number(usize),
}

/// Every column, in the order of [`Schema::columns`].
fn every_column(schema: &Schema) -> impl Iterator<Item = Column> {
    let data = || schema.live_columns().map(|(index, _)| index);
    let status = data().flat_map(|index| [Column::Status(index), Column::FinalAt(index)]);
    (0..META_COLUMNS.len()).map(Column::Meta).chain(data().map(Column::Data)).chain(status)
}

/// The Arrow schema of every column: made once for each version of a table's schema, since it takes longer than reading
/// a few rows does.
pub(crate) fn arrow_schema(schema: &Schema) -> SchemaRef {
    Arc::new(ArrowSchema::new(every_column(schema).map(|column| column.field(schema)).collect::<Vec<_>>()))
}

impl Schema {
    /// The Arrow schema of all columns of such a table, as claims and snapshots show them: meta, data and status columns.
    pub fn arrow_schema(&self) -> SchemaRef {
        arrow_schema(self)
    }
}

/// Columns in the order in which they are wanted, each with its field.
#[derive(Clone, Debug)]
pub(crate) struct ColumnSet(pub(super) Vec<(Column, FieldRef)>);

impl ColumnSet {
    /// Every column; `arrow` is [`arrow_schema()`] of this schema, here and below.
    pub(super) fn all(schema: &Schema, arrow: &ArrowSchema) -> Self {
        ColumnSet(every_column(schema).zip(arrow.fields().iter().cloned()).collect())
    }

    /// Every column that is not read by name only.
    pub(super) fn eager(schema: &Schema, arrow: &ArrowSchema) -> Self {
        let mut columns = ColumnSet::all(schema, arrow);
        columns
            .0
            .retain(|(column, _)| !matches!(column, Column::Data(at) if schema.data_columns()[*at].lazy));
        columns
    }

    /// Columns by name.
    pub(crate) fn named<'a>(
        schema: &Schema,
        arrow: &ArrowSchema,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self> {
        let all = || every_column(schema).zip(arrow.fields());
        let find = |name: &str| {
            let found = all().find(|(_, field)| field.name() == name);
            found.map(|(column, field)| (column, field.clone())).ok_or_else(|| {
                let close = nearest(name, all().map(|(_, field)| field.name().as_str()));
                Cause::Unknown { what: "column", name: name.to_owned(), close }.into()
            })
        };
        names.into_iter().map(find).collect::<Result<_>>().map(ColumnSet)
    }

    /// Some of these columns, or the lengths of their lists, by position.
    pub(super) fn picked(
        &self,
        schema: &Schema,
        wanted: impl IntoIterator<Item = ScanColumn>,
    ) -> Result<Self> {
        let pick = |wanted: ScanColumn| {
            let position = wanted.position();
            let reason = || format!("there is no column {position}; the table has {}", self.0.len());
            let found = self.0.get(position).cloned();
            let (column, field) =
                found.ok_or_else(|| Cause::Argument { what: "projection", reason: reason() })?;
            match (wanted, column) {
                (ScanColumn::Value(_), column) => Ok((column, field)),
                (ScanColumn::Length(_), Column::Data(index)) if is_list(schema, index) => {
                    let length = Column::Length(index);
                    Ok((length, Arc::new(length.field(schema))))
                }
                (ScanColumn::Number(_), Column::Meta(index)) => {
                    let number = Column::Number(index);
                    Ok((number, Arc::new(number.field(schema))))
                }
                (ScanColumn::Length(_), _) => {
                    let reason = format!("column {} holds no lists", field.name());
                    Err(Cause::Argument { what: "length", reason }.into())
                }
                (ScanColumn::Number(_), _) => {
                    let reason = format!("the texts of column {} have no numbers", field.name());
                    Err(Cause::Argument { what: "number", reason }.into())
                }
            }
        };
        wanted.into_iter().map(pick).collect::<Result<_>>().map(ColumnSet)
    }

    pub(super) fn arrow_schema(&self) -> SchemaRef {
        Arc::new(ArrowSchema::new(self.0.iter().map(|(_, field)| field.clone()).collect::<Fields>()))
    }
}

fn is_list(schema: &Schema, index: usize) -> bool {
    matches!(schema.data_columns()[index].data_type, DataType::List(_))
}

impl Column {
    fn field(self, schema: &Schema) -> Field {
        let name = |index: usize| schema.data_columns()[index].name.as_str();
        let (name, data_type, nullable, class) = match self {
            Column::Meta(index) => {
                let (data_type, nullable) = meta_type(META_COLUMNS[index]);
                (META_COLUMNS[index].to_owned(), data_type, nullable, ColumnClass::Meta)
            }
            Column::Data(index) => {
                let data_type = arrow_type(&schema.data_columns()[index].data_type);
                (name(index).to_owned(), data_type, true, ColumnClass::Data)
            }
            Column::Status(index) => {
                (format!("{}_status", name(index)), ArrowType::Boolean, false, ColumnClass::Status)
            }
            Column::FinalAt(index) => {
                (format!("{}_at", name(index)), timestamp_type(), true, ColumnClass::Status)
            }
            Column::Length(index) => {
                (format!("{}_length", name(index)), ArrowType::UInt64, true, ColumnClass::Data)
            }
            Column::Number(index) => {
                let (name, (_, nullable)) = (META_COLUMNS[index], meta_type(META_COLUMNS[index]));
                (format!("{name}_number"), ArrowType::UInt32, nullable, ColumnClass::Meta)
            }
        };
        let metadata = HashMap::from([("class".to_owned(), class.as_str().to_owned())]);
        Field::new(name, data_type, nullable).with_metadata(metadata)
    }
}

fn timestamp_type() -> ArrowType {
    ArrowType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into()))
}

/// The Arrow type of a meta column, and whether it may be null.
fn meta_type(name: &str) -> (ArrowType, bool) {
    match name {
        "policy_version" => (ArrowType::UInt64, false),
        "version_spans" => (ArrowType::List(span_field()), false),
        "turn" | "trajectory_id" | "attempt" => (ArrowType::UInt32, false),
        "created_at" => (timestamp_type(), false),
        "is_processing" => (ArrowType::Boolean, false),
        "step" | "claim" | "origin_round" => (ArrowType::UInt64, true),
        "origin_peer" | "parent" | "weights" | "excluded_reason" => (ArrowType::Utf8View, true),
        _ => (ArrowType::Utf8View, false),
    }
}

pub(super) fn span_fields() -> Fields {
    Fields::from(vec![
        Field::new("start", ArrowType::UInt32, false),
        Field::new("version", ArrowType::UInt64, false),
    ])
}

pub(super) fn span_field() -> Arc<Field> {
    Arc::new(Field::new("item", ArrowType::Struct(span_fields()), false))
}
