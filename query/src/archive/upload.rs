//! Writes rows of a version into Parquet files.
//!
//! Memory is bounded whatever the rows are: they are read a few at a time, by the bytes of those before; a row group ends
//! at [`ROW_GROUP_BYTES`], a file at [`FILE_BYTES`]. Of floats no statistics are written ([`without_bounds`]).

use std::sync::Arc;

use arrow::compute::cast;
use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_schema::{ArrowError, DataType, FieldRef, Fields, Schema, SchemaRef};
use bytes::Bytes;
use forebay_store::{ScanColumn, TableSnapshot};
use futures_util::future::BoxFuture;
use object_store::buffered::BufWriter;
use object_store::path::Path;
use parquet::arrow::AsyncArrowWriter;
use parquet::arrow::async_writer::AsyncFileWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

use super::checksum::Blocks;
use super::digest::{Digest, digested};
use super::folder::Archive;
use super::layout::version_folder;
use super::manifest::PartFile;
use crate::error::{Cause, Error, Result};
use crate::floats::without_bounds;

/// Where a row group ends unless the archiver is told otherwise, in bytes as they are encoded.
pub(super) const ROW_GROUP_BYTES: usize = 64 << 20;
/// Where a file ends, in bytes.
const FILE_BYTES: u64 = 512 << 20;
/// How much is read at a time, in bytes of values.
const BATCH_BYTES: usize = 8 << 20;
/// The most rows that are read at a time.
const BATCH_ROWS: usize = 4096;
/// How many rows are read before it is known how large they are.
const FIRST_ROWS: usize = 16;
/// How much of a file is sent at a time, in bytes.
const PART_BYTES: usize = 8 << 20;

/// What was written of a version.
pub(super) struct Written {
    pub(super) files: Vec<PartFile>,
    pub(super) digest: String,
}

/// Writes the rows of a table with these numbers, which are of `version`, into new files.
pub(super) async fn write(
    archive: &Archive,
    table: &TableSnapshot,
    version: u64,
    rows: &[u32],
    row_group_bytes: usize,
) -> Result<Written> {
    let (schema, plain) = (table.arrow_schema(), plain(&table.arrow_schema()));
    let all: Vec<ScanColumn> = (0..schema.fields().len()).map(ScanColumn::Value).collect();
    let (shown, unique) = (digested(&schema), unique_name()?);
    let mut digest = Digest::new(&schema.project(&shown).map_err(arrow)?).map_err(arrow)?;
    let (mut files, mut open): (Vec<PartFile>, Option<OpenFile>) = (Vec::new(), None);
    let (mut at, mut take) = (0, FIRST_ROWS);
    while at < rows.len() {
        let part = &rows[at..rows.len().min(at + take)];
        let batch = table.read(part, &all).map_err(|source| Cause::Store { source })?;
        digest.update(&batch.project(&shown).map_err(arrow)?).map_err(arrow)?;
        let file = match &mut open {
            Some(file) => file,
            none => {
                let name = format!("part-{unique}-{}.parquet", files.len());
                let folder = version_folder(table.name(), version);
                none.insert(OpenFile::new(archive, folder, name, &plain, row_group_bytes)?)
            }
        };
        file.write(archive, &without_views(&batch, &plain).map_err(arrow)?).await?;
        at += part.len();
        take =
            (BATCH_BYTES.min(row_group_bytes) / (bytes_of(&batch) / part.len()).max(1)).clamp(1, BATCH_ROWS);
        if file.bytes() >= FILE_BYTES
            && let Some(full) = open.take()
        {
            files.push(full.finish(archive).await?);
        }
    }
    if let Some(last) = open.take() {
        files.push(last.finish(archive).await?);
    }
    Ok(Written { files, digest: digest.finish() })
}

/// A name that nobody else has.
fn unique_name() -> Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| Cause::Bug { reason: format!("no randomness: {error}") })?;
    Ok(format!("{:032x}", u128::from_le_bytes(bytes)))
}

fn arrow(error: ArrowError) -> Error {
    Cause::Bug { reason: error.to_string() }.into()
}

/// The bytes that a batch shows. Its text and binary columns are views over windows that may be far larger.
fn bytes_of(batch: &RecordBatch) -> usize {
    let views = |views: &[u128]| views.iter().map(|view| *view as u32 as usize + 16).sum::<usize>();
    let column = |array: &arrow_array::ArrayRef| match array.data_type() {
        DataType::Utf8View => views(array.as_string_view().views()),
        DataType::BinaryView => views(array.as_binary_view().views()),
        _ => array.get_array_memory_size(),
    };
    batch.columns().iter().map(column).sum()
}

/// The type of a column as files have it: views are for what lies in memory, and many programs cannot read them.
pub(super) fn plain_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        other => other.clone(),
    }
}

/// The columns as files have them.
fn plain(schema: &Schema) -> SchemaRef {
    let plain =
        |field: &FieldRef| Arc::new(field.as_ref().clone().with_data_type(plain_type(field.data_type())));
    Arc::new(Schema::new(schema.fields().iter().map(plain).collect::<Fields>()))
}

/// The same rows in those columns.
fn without_views(batch: &RecordBatch, plain: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let columns = batch.columns().iter().zip(plain.fields());
    let columns = columns.map(|(column, field)| cast(column, field.data_type()));
    RecordBatch::try_new(plain.clone(), columns.collect::<Result<_, _>>()?)
}

fn properties(schema: &Schema, row_group_bytes: usize) -> Result<WriterProperties, ParquetError> {
    let sample_id = ColumnPath::from("sample_id");
    let mut properties = WriterProperties::builder()
        .set_created_by(concat!("forebay ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_max_row_group_bytes(Some(row_group_bytes));
    if schema.field_with_name("sample_id").is_ok() {
        properties = properties
            .set_column_bloom_filter_enabled(sample_id.clone(), true)
            .set_column_dictionary_enabled(sample_id, false); // every one is another
    }
    Ok(without_bounds(properties, schema)?.build())
}

/// A file that is being written.
struct OpenFile {
    name: String,
    writer: AsyncArrowWriter<Upload>,
    rows: u64,
    row_group_bytes: usize,
}

impl OpenFile {
    fn new(
        archive: &Archive,
        folder: Path,
        name: String,
        schema: &SchemaRef,
        row_group_bytes: usize,
    ) -> Result<Self> {
        let path = folder.join(name.as_str());
        let sink = BufWriter::with_capacity(archive.objects().clone(), path, PART_BYTES);
        let upload = Upload { sink, blocks: Blocks::default() };
        let writer = properties(schema, row_group_bytes)
            .and_then(|properties| AsyncArrowWriter::try_new(upload, schema.clone(), Some(properties)));
        let writer = writer.map_err(|error| failed(archive, error))?;
        Ok(OpenFile { name, writer, rows: 0, row_group_bytes })
    }

    async fn write(&mut self, archive: &Archive, batch: &RecordBatch) -> Result<()> {
        self.rows += batch.num_rows() as u64;
        self.writer.write(batch).await.map_err(|error| failed(archive, error))?;
        if self.writer.in_progress_size() >= self.row_group_bytes {
            self.writer.flush().await.map_err(|error| failed(archive, error))?;
        }
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.writer.bytes_written() as u64
    }

    async fn finish(mut self, archive: &Archive) -> Result<PartFile> {
        self.writer.finish().await.map_err(|error| failed(archive, error))?;
        let blocks = self.writer.into_inner().blocks;
        Ok(PartFile::new(self.name, blocks.bytes(), self.rows, blocks.finish()))
    }
}

fn failed(archive: &Archive, error: ParquetError) -> Error {
    match error {
        ParquetError::External(source) => match source.downcast::<object_store::Error>() {
            Ok(error) => archive.unreachable(&error),
            Err(other) => Cause::Bug { reason: other.to_string() }.into(),
        },
        other => Cause::Bug { reason: other.to_string() }.into(),
    }
}

/// Sends a file while it is written, and takes its checksums on the way.
struct Upload {
    sink: BufWriter,
    blocks: Blocks,
}

impl AsyncFileWriter for Upload {
    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<(), ParquetError>> {
        Box::pin(async move {
            self.blocks.update(&bytes);
            self.sink.put(bytes).await.map_err(|error| ParquetError::External(Box::new(error)))
        })
    }

    fn complete(&mut self) -> BoxFuture<'_, Result<(), ParquetError>> {
        Box::pin(async move {
            use tokio::io::AsyncWriteExt;
            self.sink.shutdown().await.map_err(|error| match error.downcast::<object_store::Error>() {
                Ok(error) => ParquetError::External(Box::new(error)),
                Err(error) => ParquetError::External(Box::new(error)),
            })
        })
    }
}
