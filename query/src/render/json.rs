//! One JSON document: an array with an object a row.

use std::io::{self, Write};
use std::sync::Arc;

use arrow::json::writer::{JsonArray, WriterBuilder};
use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};

use super::invalid;
use crate::answer::Answer;

pub(super) fn write(answer: &Answer, mut writer: &mut dyn Write) -> io::Result<()> {
    let schema = renamed(answer);
    let mut json = WriterBuilder::new().with_explicit_nulls(true).build::<_, JsonArray>(&mut writer);
    for batch in &answer.batches {
        let batch = RecordBatch::try_new(schema.clone(), batch.columns().to_vec()).map_err(invalid)?;
        json.write(&batch).map_err(invalid)?;
    }
    json.finish().map_err(invalid)?;
    writeln!(writer)
}

/// The schema with every name once, since later keys of an object hide earlier ones.
fn renamed(answer: &Answer) -> SchemaRef {
    let fields = answer.schema.fields().iter().zip(answer.column_names());
    let fields = fields.map(|(field, name)| field.as_ref().clone().with_name(name).with_nullable(true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}
