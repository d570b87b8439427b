//! Which columns are wanted, and how they are gathered from rows.
//!
//! Gathering has two halves. The first reads pages and is quick enough to run under the state's lock: meta and status
//! columns come out as finished arrays, data columns as stored values. The second ([`Gathered::into_batch`]) resolves
//! values in their extents, and runs with no lock held.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::{StringBuilder, UInt64Builder};
use arrow_array::{
    ArrayRef, BooleanArray, ListArray, RecordBatch, RecordBatchOptions, StructArray,
    TimestampMicrosecondArray, UInt32Array, UInt64Array,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{
    DataType as ArrowType, Field, FieldRef, Fields, Schema as ArrowSchema, SchemaRef, TimeUnit,
};

use super::array::{arrow_type, data_array};
use crate::consumer::GroupBy;
use crate::error::{Cause, Result};
use crate::extent::Extents;
use crate::log::record::StoredValue;
use crate::origin;
use crate::schema::{ColumnClass, META_COLUMNS, Schema, nearest};
use crate::table::{CHUNK_ROWS, Chunk, Progress, RarePages, RowMeta, RowStatus, TableState, VersionSpan};
use crate::texts::{TextId, TextPages};

/// One column of a table as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    /// By position in [`META_COLUMNS`].
    Meta(usize),
    Data(usize),
    /// Whether the data column is final.
    Status(usize),
    /// When the data column turned final.
    FinalAt(usize),
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

/// Columns in the order in which they are wanted, each with its field.
#[derive(Clone, Debug)]
pub(crate) struct ColumnSet(Vec<(Column, FieldRef)>);

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

    /// Some of these columns, by position.
    pub(super) fn picked(&self, positions: &[usize]) -> Result<Self> {
        let pick = |&position: &usize| {
            let reason = || format!("there is no column {position}; the table has {}", self.0.len());
            self.0
                .get(position)
                .cloned()
                .ok_or_else(|| Cause::Argument { what: "projection", reason: reason() }.into())
        };
        positions.iter().map(pick).collect::<Result<_>>().map(ColumnSet)
    }

    fn arrow_schema(&self) -> SchemaRef {
        Arc::new(ArrowSchema::new(self.0.iter().map(|(_, field)| field.clone()).collect::<Fields>()))
    }
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
        "origin_peer" | "parent" | "weights" | "excluded_reason" => (ArrowType::Utf8, true),
        _ => (ArrowType::Utf8, false),
    }
}

fn span_fields() -> Fields {
    Fields::from(vec![
        Field::new("start", ArrowType::UInt32, false),
        Field::new("version", ArrowType::UInt64, false),
    ])
}

fn span_field() -> Arc<Field> {
    Arc::new(Field::new("item", ArrowType::Struct(span_fields()), false))
}

/// Where rows are read from.
pub(crate) struct Source<'a> {
    pub(super) schema: &'a Schema,
    pub(super) chunks: &'a [Arc<Chunk>],
    pub(super) texts: &'a TextPages,
    pub(super) trainer: Option<usize>,
    pub(super) group_by: Option<GroupBy>,
    pub(super) spans: &'a RarePages<VersionSpan>,
}

/// Columns of some rows, with data values not yet resolved.
pub(crate) struct Gathered {
    schema: SchemaRef,
    rows: usize,
    columns: Vec<GatheredColumn>,
}

enum GatheredColumn {
    Array(ArrayRef),
    Values(crate::schema::DataType, Vec<Option<StoredValue>>),
}

/// The first half of gathering, for rows of a live table.
pub(crate) fn gather_rows(
    table: &TableState,
    texts: &TextPages,
    rows: &[u32],
    columns: ColumnSet,
) -> Gathered {
    let TableState { schema, chunks, trainer, group_by, .. } = table;
    let spans = table.rare.spans();
    gather(&Source { schema, chunks, texts, trainer: *trainer, group_by: *group_by, spans }, rows, columns)
}

/// The first half of gathering.
pub(super) fn gather(source: &Source<'_>, rows: &[u32], columns: ColumnSet) -> Gathered {
    let schema = columns.arrow_schema();
    let columns = columns.0.into_iter().map(|(column, _)| source.column(column, rows)).collect();
    Gathered { schema, rows: rows.len(), columns }
}

impl Gathered {
    /// The second half: finds the values and makes the batch.
    pub(crate) fn into_batch(self, extents: &Extents) -> Result<RecordBatch> {
        let mut arrays = Vec::with_capacity(self.columns.len());
        for column in self.columns {
            arrays.push(match column {
                GatheredColumn::Array(array) => array,
                GatheredColumn::Values(data_type, values) => data_array(&data_type, &values, extents)?,
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        RecordBatch::try_new_with_options(self.schema, arrays, &options)
            .map_err(|error| Cause::Argument { what: "columns", reason: error.to_string() }.into())
    }
}

impl Source<'_> {
    fn chunk(&self, row: u32) -> (&Chunk, usize) {
        (&self.chunks[row as usize / CHUNK_ROWS], row as usize % CHUNK_ROWS)
    }

    fn metas(&self, rows: &[u32]) -> impl Iterator<Item = RowMeta> {
        rows.iter().map(|&row| {
            let (chunk, at) = self.chunk(row);
            chunk.meta(at)
        })
    }

    fn statuses(&self, rows: &[u32]) -> impl Iterator<Item = RowStatus> {
        rows.iter().map(|&row| {
            let (chunk, at) = self.chunk(row);
            chunk.status(at)
        })
    }

    fn column(&self, column: Column, rows: &[u32]) -> GatheredColumn {
        GatheredColumn::Array(match column {
            Column::Meta(index) => self.meta_column(META_COLUMNS[index], rows),
            Column::Status(index) => Arc::new(BooleanArray::from_iter(
                self.statuses(rows).map(|status| Some(status.finals >> index & 1 == 1)),
            )),
            Column::FinalAt(index) => Arc::new(self.final_times(index, rows)),
            Column::Data(index) => {
                let data_type = &self.schema.data_columns()[index].data_type;
                let width = data_type.width_bytes();
                let values = rows.iter().map(|&row| {
                    let (chunk, at) = self.chunk(row);
                    chunk.cell(index, width, at)
                });
                return GatheredColumn::Values(data_type.clone(), values.collect());
            }
        })
    }

    fn final_times(&self, column: usize, rows: &[u32]) -> TimestampMicrosecondArray {
        let times = rows.iter().map(|&row| {
            let (chunk, at) = self.chunk(row);
            let is_final = chunk.status(at).finals >> column & 1 == 1;
            let after_us = || i64::try_from(chunk.final_after_ms(column, at) * 1_000).unwrap_or(i64::MAX);
            is_final.then(|| chunk.meta(at).created_at.saturating_add(after_us()))
        });
        TimestampMicrosecondArray::from_iter(times).with_timezone("+00:00")
    }

    fn meta_column(&self, name: &str, rows: &[u32]) -> ArrayRef {
        let metas = || self.metas(rows);
        match name {
            "sample_id" => texts(metas().map(|meta| Some(meta.sample(self.texts).to_string()))),
            "policy_version" => {
                Arc::new(UInt64Array::from_iter_values(metas().map(|meta| meta.policy_version)))
            }
            "version_spans" => self.span_lists(rows),
            "input_id" => texts(metas().map(|meta| Some(self.texts.get(meta.input)))),
            "turn" => Arc::new(UInt32Array::from_iter_values(metas().map(|meta| meta.turn))),
            "trajectory_id" => Arc::new(UInt32Array::from_iter_values(metas().map(|meta| meta.trajectory))),
            "group_key" => {
                let by = self.group_by.unwrap_or(GroupBy::Input);
                let text = |id| self.texts.get(id);
                texts(
                    metas().map(|meta| {
                        Some(by.text(meta.sample(self.texts), text(meta.agent), text(meta.parent)))
                    }),
                )
            }
            "agent" => texts(metas().map(|meta| Some(self.texts.get(meta.agent)))),
            "purpose" => texts(metas().map(|meta| Some(meta.purpose().as_str()))),
            "origin_peer" => texts(metas().map(|meta| Some(origin::parts(self.texts.get(meta.origin))?.0))),
            "origin_round" => {
                optional_numbers(metas().map(|meta| Some(origin::parts(self.texts.get(meta.origin))?.1)))
            }
            "parent" => texts(metas().map(|meta| self.present(meta.parent))),
            "weights" => texts(metas().map(|meta| self.present(meta.weights))),
            "attempt" => Arc::new(UInt32Array::from_iter_values(metas().map(|meta| meta.attempt))),
            "created_at" => {
                let times = metas().map(|meta| meta.created_at);
                Arc::new(TimestampMicrosecondArray::from_iter_values(times).with_timezone("+00:00"))
            }
            "excluded_reason" => texts(self.statuses(rows).map(|status| self.present(status.excluded))),
            "step" => {
                let steps = self.statuses(rows).map(|status| u64::from(status.step));
                optional_numbers(steps.map(|step| (step != 0).then_some(step)))
            }
            _ => self.progress_column(name, rows),
        }
    }

    fn present(&self, text: TextId) -> Option<&str> {
        (text != TextId::EMPTY).then(|| self.texts.get(text))
    }

    /// From which token on the response was made under which version, beginning with the row's own.
    fn span_lists(&self, rows: &[u32]) -> ArrayRef {
        let (mut starts, mut versions, mut lengths) =
            (Vec::new(), Vec::new(), Vec::with_capacity(rows.len()));
        for (&row, meta) in rows.iter().zip(self.metas(rows)) {
            let first = VersionSpan { start: 0, version: meta.policy_version };
            let spans = [&[first], self.spans.get(row)].concat();
            starts.extend(spans.iter().map(|span| span.start));
            versions.extend(spans.iter().map(|span| span.version));
            lengths.push(spans.len());
        }
        let columns: Vec<ArrayRef> =
            vec![Arc::new(UInt32Array::from(starts)), Arc::new(UInt64Array::from(versions))];
        let structs = StructArray::new(span_fields(), columns, None);
        Arc::new(ListArray::new(span_field(), OffsetBuffer::from_lengths(lengths), Arc::new(structs), None))
    }

    /// `is_processing`, `state` and `claim`: where the row stands with the table's trainer.
    fn progress_column(&self, name: &str, rows: &[u32]) -> ArrayRef {
        let words = rows.iter().map(|&row| {
            let (chunk, at) = self.chunk(row);
            let word = self.trainer.map(|slot| chunk.word(slot, at)).unwrap_or_default();
            (word, chunk.status(at))
        });
        let held = |progress| matches!(progress, Progress::Leased | Progress::Accumulated);
        match name {
            "is_processing" => {
                Arc::new(BooleanArray::from_iter(words.map(|(word, _)| Some(held(word.progress)))))
            }
            "claim" => optional_numbers(words.map(|(word, _)| {
                (held(word.progress) || word.progress == Progress::Done).then_some(word.ticket_or_claim)
            })),
            _ => texts(words.map(|(word, status)| Some(state_word(word.progress, status)))),
        }
    }
}

fn state_word(progress: Progress, status: RowStatus) -> &'static str {
    if status.is_excluded() {
        return "excluded";
    }
    match progress {
        Progress::Waiting => "waiting",
        Progress::Ready => "ready",
        Progress::Leased => "leased",
        Progress::Accumulated => "accumulated",
        Progress::Done => "consumed",
        Progress::Out => "aside", // eval and warm-up rows: no trainer takes them
    }
}

fn texts<T: AsRef<str>>(values: impl Iterator<Item = Option<T>>) -> ArrayRef {
    let mut builder = StringBuilder::new();
    values.for_each(|value| builder.append_option(value));
    Arc::new(builder.finish())
}

fn optional_numbers(values: impl Iterator<Item = Option<u64>>) -> ArrayRef {
    let mut builder = UInt64Builder::new();
    values.for_each(|value| builder.append_option(value));
    Arc::new(builder.finish())
}
