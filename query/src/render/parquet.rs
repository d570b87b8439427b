//! A Parquet file.

use std::io::{self, Write};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use super::{Form, invalid};
use crate::floats::without_bounds;

/// A file as it is written.
pub(super) struct File<'w> {
    schema: SchemaRef,
    parquet: ArrowWriter<&'w mut (dyn Write + Send)>,
}

impl<'w> File<'w> {
    pub(super) fn new(schema: SchemaRef, writer: &'w mut (dyn Write + Send)) -> io::Result<Self> {
        let compression = Compression::ZSTD(ZstdLevel::default());
        let properties = WriterProperties::builder().set_compression(compression);
        let properties = without_bounds(properties, &schema).map_err(unwritable)?.build();
        let parquet = ArrowWriter::try_new(writer, schema.clone(), Some(properties)).map_err(unwritable)?;
        Ok(File { schema, parquet })
    }
}

impl Form for File<'_> {
    fn write(&mut self, batch: &RecordBatch) -> io::Result<()> {
        let batch = RecordBatch::try_new(self.schema.clone(), batch.columns().to_vec()).map_err(invalid)?;
        self.parquet.write(&batch).map_err(unwritable)
    }

    fn finish(self: Box<Self>, _cut: bool) -> io::Result<()> {
        self.parquet.close().map(|_| ()).map_err(unwritable)
    }
}

/// What the writer said keeps its kind, so that a closed pipe is told from a value without a form.
fn unwritable(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(source) => match source.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(source) => io::Error::new(io::ErrorKind::InvalidData, source),
        },
        error => io::Error::new(io::ErrorKind::InvalidData, error),
    }
}
