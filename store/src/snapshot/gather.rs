//! Gathers columns from rows.
//!
//! Gathering has two halves. The first reads pages and is quick enough to run under the state's lock: meta and status
//! columns and numbers come out as finished arrays, other data columns as stored values. The second
//! ([`Gathered::into_batch`]) resolves values in their extents, and runs with no lock held.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::builder::UInt64Builder;
use arrow_array::{
    ArrayRef, BooleanArray, ListArray, RecordBatch, RecordBatchOptions, StructArray,
    TimestampMicrosecondArray, UInt32Array, UInt64Array,
};
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder, MutableBuffer, NullBuffer, OffsetBuffer};
use arrow_schema::{Fields, Schema as ArrowSchema, SchemaRef};

use super::array::{Lists, data_array, numbers};
use super::columns::{Column, ColumnSet, span_field, span_fields};
use super::text_array::{repeated, written};
use crate::consumer::{GroupBy, GroupName};
use crate::error::{Cause, Result};
use crate::extent::{Extents, View};
use crate::local::Places;
use crate::log::record::StoredValue;
use crate::origin;
use crate::page::CowArc;
use crate::schema::{DataType, Element, META_COLUMNS, Schema};
use crate::table::{
    CHUNK_ROWS, Chunk, ColumnPage, Progress, Purpose, RarePages, RowMeta, RowStatus, TableState, VersionSpan,
};
use crate::texts::{TextId, TextPages};

/// What a row that was removed reads as.
static NO_META: RowMeta = RowMeta::NONE;

fn place(row: u32) -> usize {
    row as usize % CHUNK_ROWS
}

/// Where rows are read from.
pub(crate) struct Source<'a> {
    pub(super) schema: &'a Schema,
    pub(super) chunks: &'a [CowArc<Chunk>],
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

/// One column on its way: finished, or values with their type.
pub(crate) enum GatheredColumn {
    Array(ArrayRef),
    Values(DataType, Vec<Option<StoredValue>>),
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
    /// The other second half: says where the values lie. `commits` is how many records there were.
    pub(crate) fn into_places(self, commits: u64) -> Result<Places> {
        Places::new(&self.schema, self.rows, self.columns, commits)
    }

    /// The second half: finds the values and makes the batch.
    pub(crate) fn into_batch(self, extents: &Extents) -> Result<RecordBatch> {
        self.into_batch_with(Lists::Together, extents)
    }

    /// As [`into_batch`](Self::into_batch), with lists as they are wished.
    pub(crate) fn into_batch_with(self, lists: Lists, extents: &Extents) -> Result<RecordBatch> {
        let mut arrays = Vec::with_capacity(self.columns.len());
        for column in self.columns {
            arrays.push(match column {
                GatheredColumn::Array(array) => array,
                GatheredColumn::Values(data_type, values) => data_array(&data_type, &values, extents, lists)?,
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        let schema = match lists {
            Lists::Together => self.schema,
            Lists::InPlace => Arc::new(of_types(&self.schema, &arrays)),
        };
        RecordBatch::try_new_with_options(schema, arrays, &options)
            .map_err(|error| Cause::Argument { what: "columns", reason: error.to_string() }.into())
    }
}

/// The schema with the types that the arrays have.
fn of_types(schema: &ArrowSchema, arrays: &[ArrayRef]) -> ArrowSchema {
    let fields = schema.fields().iter().zip(arrays);
    ArrowSchema::new(
        fields
            .map(|(f, array)| f.as_ref().clone().with_data_type(array.data_type().clone()))
            .collect::<Fields>(),
    )
}

impl Source<'_> {
    /// The rows in runs that lie in one chunk, so that its pages are looked up once a run.
    pub(super) fn runs<'r>(&self, rows: &'r [u32]) -> impl Iterator<Item = (&Chunk, &'r [u32])> {
        let in_one = |a: &u32, b: &u32| *a as usize / CHUNK_ROWS == *b as usize / CHUNK_ROWS;
        rows.chunk_by(in_one).map(|run| (&*self.chunks[run[0] as usize / CHUNK_ROWS], run))
    }

    /// Each row's chunk and its place in it.
    fn places(&self, rows: &[u32]) -> impl Iterator<Item = (&Chunk, usize)> {
        self.runs(rows).flat_map(|(chunk, run)| run.iter().map(move |&row| (chunk, place(row))))
    }

    /// Something of the record of each row.
    pub(super) fn metas<T>(&self, rows: &[u32], of: impl Fn(&RowMeta) -> T) -> Vec<T> {
        let mut found = Vec::with_capacity(rows.len());
        for (chunk, run) in self.runs(rows) {
            each(&chunk.meta, &NO_META, run, &of, &mut found);
        }
        found
    }

    /// Something of the record of each row that a chunk may know to be the same in all of its rows: then nothing is read.
    fn shared<T: Copy>(
        &self,
        rows: &[u32],
        all: impl Fn(&Chunk) -> Option<T>,
        of: impl Fn(&RowMeta) -> T,
    ) -> Vec<T> {
        let mut found = Vec::with_capacity(rows.len());
        for (chunk, run) in self.runs(rows) {
            match all(chunk) {
                Some(value) => found.resize(found.len() + run.len(), value),
                None => each(&chunk.meta, &NO_META, run, &of, &mut found),
            }
        }
        found
    }

    /// The policy version of each row: rows of one version lie together.
    pub(super) fn versions(&self, rows: &[u32]) -> Vec<u64> {
        self.shared(rows, Chunk::only_version, |meta| meta.policy_version)
    }

    /// Something of the status of each row.
    pub(super) fn statuses<T>(&self, rows: &[u32], of: impl Fn(&RowStatus) -> T) -> Vec<T> {
        let (mut found, none) = (Vec::with_capacity(rows.len()), RowStatus::default());
        for (chunk, run) in self.runs(rows) {
            each(&chunk.status, &none, run, &of, &mut found);
        }
        found
    }

    fn column(&self, column: Column, rows: &[u32]) -> GatheredColumn {
        GatheredColumn::Array(match column {
            Column::Meta(index) => self.meta_column(META_COLUMNS[index], rows),
            Column::Status(index) => Arc::new(BooleanArray::from(self.finals(index, rows))),
            Column::FinalAt(index) => Arc::new(self.final_times(index, rows)),
            Column::Number(index) => self.text_numbers(META_COLUMNS[index], rows),
            Column::Data(index) => {
                let data_type = &self.schema.data_columns()[index].data_type;
                let width = data_type.width_bytes();
                if let DataType::Number(element) = data_type {
                    return GatheredColumn::Array(self.number_column(index, *element, rows));
                }
                return GatheredColumn::Values(data_type.clone(), self.cells((index, width), rows));
            }
            Column::Length(index) => {
                let width = match self.schema.data_columns()[index].data_type {
                    DataType::List(element) => element.width_bytes() as u64,
                    _ => 1, // only lists are picked so
                };
                optional_numbers(self.places(rows).map(|(chunk, at)| match chunk.cell(index, 16, at) {
                    Some(StoredValue::View(view)) => Some(View(view).length() as u64 / width),
                    _ => None,
                }))
            }
        })
    }

    /// The stored values of a column. Pages are looked up once a run, so that little is between one cell and the
    /// next: they lie far apart in memory, and come at once.
    fn cells(&self, (index, width): (usize, usize), rows: &[u32]) -> Vec<Option<StoredValue>> {
        let mut cells = Vec::with_capacity(rows.len());
        for (chunk, run) in self.runs(rows) {
            let page = chunk.columns.get(index).map(|page| &**page);
            let value = |at| page.map_or(StoredValue::Null, |page| page.get(at, width));
            let cell = |&row: &u32| chunk.is_final(index, place(row)).then(|| value(place(row)));
            cells.extend(run.iter().map(cell));
        }
        cells
    }

    /// Whether each row's cell of a column is final.
    fn finals(&self, index: usize, rows: &[u32]) -> BooleanBuffer {
        let mut finals = BooleanBufferBuilder::new(rows.len());
        for (chunk, run) in self.runs(rows) {
            finals.append_buffer(&finals_of(chunk, index, run, neighbours(run)));
        }
        finals.finish()
    }

    /// Numbers lie in their pages as Arrow wants them: a run of neighbours is copied as it is.
    fn number_column(&self, index: usize, element: Element, rows: &[u32]) -> ArrayRef {
        let width = element.width_bytes();
        let mut bytes = MutableBuffer::with_capacity(rows.len() * width);
        let mut there = BooleanBufferBuilder::new(rows.len());
        for (chunk, run) in self.runs(rows) {
            let empty = ColumnPage::default();
            let page = chunk.columns.get(index).map_or(&empty, |page| &**page);
            let places = neighbours(run);
            page.gather(width, places.clone(), run.iter().map(|row| place(*row)), &mut bytes);
            let finals = finals_of(chunk, index, run, places.clone());
            match places.and_then(|places| page.has_until(&places, width)) {
                Some(end) => {
                    there.append_buffer(&finals.slice(0, end));
                    there.append_n(run.len() - end, false);
                }
                None => {
                    let has = |at: usize| page.has(place(run[at]), width);
                    there.append_buffer(&(&finals & &BooleanBuffer::collect_bool(run.len(), has)));
                }
            }
        }
        let nulls = Some(NullBuffer::new(there.finish())).filter(|nulls| nulls.null_count() > 0);
        numbers(element, bytes.into(), nulls)
    }

    fn final_times(&self, column: usize, rows: &[u32]) -> TimestampMicrosecondArray {
        let times = self.places(rows).map(|(chunk, at)| {
            let after_us = || i64::try_from(chunk.final_after_ms(column, at) * 1_000).unwrap_or(i64::MAX);
            chunk.is_final(column, at).then(|| chunk.meta(at).created_at.saturating_add(after_us()))
        });
        TimestampMicrosecondArray::from_iter(times).with_timezone("+00:00")
    }

    fn meta_column(&self, name: &str, rows: &[u32]) -> ArrayRef {
        match name {
            "sample_id" => written(self.metas(rows, |meta| meta.sample(self.texts)).into_iter()),
            "policy_version" => Arc::new(UInt64Array::from(self.versions(rows))),
            "version_spans" => self.span_lists(rows),
            "input_id" => self.texts_of(self.metas(rows, |meta| Some(meta.input))),
            "turn" => Arc::new(UInt32Array::from(self.metas(rows, |meta| meta.turn))),
            "trajectory_id" => Arc::new(UInt32Array::from(self.metas(rows, |meta| meta.trajectory))),
            "group_key" => {
                let by = self.group_by.unwrap_or(GroupBy::Input);
                // Without its origin, which has columns of its own.
                let key = |meta: &RowMeta| Some(GroupName { origin: TextId::EMPTY, ..by.name(meta) });
                repeated(self.metas(rows, key).into_iter(), |name| by.show(name, self.texts))
            }
            "agent" => self.texts_of(self.metas(rows, |meta| Some(meta.agent))),
            "purpose" => repeated(self.metas(rows, |meta| Some(meta.purpose())).into_iter(), Purpose::as_str),
            "origin_peer" => {
                let peer = |origin| origin::parts(self.texts.get(origin)).map(|(peer, _)| peer);
                repeated(self.metas(rows, |meta| peer(meta.origin)).into_iter(), |peer| peer)
            }
            "origin_round" => {
                let round = |origin| origin::parts(self.texts.get(origin)).map(|(_, round)| round);
                Arc::new(UInt64Array::from(self.metas(rows, |meta| round(meta.origin))))
            }
            "parent" => self.texts_of(self.metas(rows, |meta| present(meta.parent))),
            "weights" => self.texts_of(self.metas(rows, |meta| present(meta.weights))),
            "attempt" => Arc::new(UInt32Array::from(self.metas(rows, RowMeta::attempt))),
            "created_at" => {
                let times = self.metas(rows, |meta| meta.created_at);
                Arc::new(TimestampMicrosecondArray::from(times).with_timezone("+00:00"))
            }
            "excluded_reason" => self.texts_of(self.statuses(rows, |status| present(status.excluded))),
            "step" => {
                let step = |status: &RowStatus| (status.step != 0).then_some(u64::from(status.step));
                Arc::new(UInt64Array::from(self.statuses(rows, step)))
            }
            _ => self.progress_column(name, rows),
        }
    }

    /// The numbers of the texts of a column that has some ([`has_numbers`](super::numbers::has_numbers)).
    fn text_numbers(&self, name: &str, rows: &[u32]) -> ArrayRef {
        let nullable = matches!(name, "parent" | "weights" | "excluded_reason");
        let numbers = self.numbers(name, rows);
        let there = nullable.then(|| numbers.iter().map(|number| TextId(*number) != TextId::EMPTY));
        let nulls = there.map(NullBuffer::from_iter).filter(|nulls| nulls.null_count() > 0);
        Arc::new(UInt32Array::new(numbers.into(), nulls))
    }

    /// The same as they are kept: that of the empty text where there is none.
    pub(super) fn numbers(&self, name: &str, rows: &[u32]) -> Vec<u32> {
        let by = self.group_by.unwrap_or(GroupBy::Input);
        match name {
            "input_id" => self.metas(rows, |meta| meta.input.0),
            "agent" => {
                self.shared(rows, |chunk| chunk.only_agent().map(|agent| agent.0), |meta| meta.agent.0)
            }
            "parent" => self.metas(rows, |meta| meta.parent.0),
            "weights" => self.metas(rows, |meta| meta.weights.0),
            "excluded_reason" => self.statuses(rows, |status| status.excluded.0),
            _ => self.metas(rows, |meta| by.name(meta).text.0), // group_key
        }
    }

    fn texts_of(&self, ids: Vec<Option<TextId>>) -> ArrayRef {
        repeated(ids.into_iter(), |id| self.texts.get(id))
    }

    /// From which token on the response was made under which version, beginning with the row's own.
    fn span_lists(&self, rows: &[u32]) -> ArrayRef {
        let (mut starts, mut versions, mut lengths) =
            (Vec::new(), Vec::new(), Vec::with_capacity(rows.len()));
        for (&row, version) in rows.iter().zip(self.metas(rows, |meta| meta.policy_version)) {
            let first = VersionSpan { start: 0, version };
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
        let words = self.places(rows).map(|(chunk, at)| {
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
            _ => repeated(words.map(|(word, status)| Some(state_word(word.progress, status))), |word| word),
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

/// Whether each cell of a run in one chunk is final; `places` are those of the run where they are neighbours.
fn finals_of(chunk: &Chunk, index: usize, run: &[u32], places: Option<Range<usize>>) -> BooleanBuffer {
    let places = places.filter(|_| chunk.summary.removed == 0);
    match places.and_then(|places| chunk.status.get(places)) {
        Some(statuses) => BooleanBuffer::collect_bool(run.len(), |at| statuses[at].finals >> index & 1 == 1),
        None => BooleanBuffer::collect_bool(run.len(), |at| chunk.is_final(index, place(run[at]))),
    }
}

/// Adds something of each row of a run in one chunk. Neighbours, which is what a scan asks for, are a slice of the page.
fn each<S, T>(page: &[S], none: &S, run: &[u32], of: impl Fn(&S) -> T, into: &mut Vec<T>) {
    match neighbours(run).and_then(|places| page.get(places)) {
        Some(slice) => into.extend(slice.iter().map(of)),
        None => into.extend(run.iter().map(|row| of(page.get(place(*row)).unwrap_or(none)))),
    }
}

/// The places of a run in one chunk, if it is of rows one after the other. Looks at all of it, for that needs no branch.
fn neighbours(run: &[u32]) -> Option<Range<usize>> {
    let first = *run.first()?;
    let in_order = |all: bool, (at, row): (usize, &u32)| all & (*row == first.wrapping_add(at as u32));
    let all = run.iter().enumerate().fold(true, in_order);
    all.then(|| place(first)..place(first) + run.len())
}

fn present(text: TextId) -> Option<TextId> {
    (text != TextId::EMPTY).then_some(text)
}

fn optional_numbers(values: impl Iterator<Item = Option<u64>>) -> ArrayRef {
    let mut builder = UInt64Builder::new();
    values.for_each(|value| builder.append_option(value));
    Arc::new(builder.finish())
}
