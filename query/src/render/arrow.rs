//! A stream of Arrow's IPC format.

use std::io::{self, Write};

use arrow_array::RecordBatch;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::SchemaRef;

use super::{Form, invalid};

/// A stream as it is written.
pub(super) struct Stream<'w> {
    schema: SchemaRef,
    ipc: StreamWriter<&'w mut (dyn Write + Send)>,
}

impl<'w> Stream<'w> {
    pub(super) fn new(schema: SchemaRef, writer: &'w mut (dyn Write + Send)) -> io::Result<Self> {
        let ipc = StreamWriter::try_new(writer, &schema).map_err(invalid)?;
        Ok(Stream { schema, ipc })
    }
}

impl Form for Stream<'_> {
    fn write(&mut self, batch: &RecordBatch) -> io::Result<()> {
        let batch = RecordBatch::try_new(self.schema.clone(), batch.columns().to_vec()).map_err(invalid)?;
        self.ipc.write(&batch).map_err(invalid)
    }

    fn finish(mut self: Box<Self>, _cut: bool) -> io::Result<()> {
        self.ipc.finish().map_err(invalid)
    }
}
