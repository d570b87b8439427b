//! One JSON document: an array with an object a row.

use std::io::{self, Write};

use arrow::json::writer::{JsonArray, Writer, WriterBuilder};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use super::{Form, invalid};

/// A document as it grows. Its schema has every name once, since later keys of an object hide earlier ones.
pub(super) struct Document<'w> {
    schema: SchemaRef,
    json: Writer<&'w mut (dyn Write + Send), JsonArray>,
}

impl<'w> Document<'w> {
    pub(super) fn new(schema: SchemaRef, writer: &'w mut (dyn Write + Send)) -> Self {
        Document { schema, json: WriterBuilder::new().with_explicit_nulls(true).build(writer) }
    }
}

impl Form for Document<'_> {
    fn write(&mut self, batch: &RecordBatch) -> io::Result<()> {
        let batch = RecordBatch::try_new(self.schema.clone(), batch.columns().to_vec()).map_err(invalid)?;
        self.json.write(&batch).map_err(invalid)
    }

    fn finish(mut self: Box<Self>, _cut: bool) -> io::Result<()> {
        self.json.finish().map_err(invalid)?;
        writeln!(self.json.into_inner())
    }
}
