//! Comma-separated values, as RFC 4180 has them, with `\n` line ends.

use std::io::{self, Write};

use arrow_array::RecordBatch;
use arrow_schema::Schema;

use super::cell::{Cells, Style};
use super::{Form, invalid};

/// Lines as they are written.
pub(super) struct Lines<'w>(&'w mut (dyn Write + Send));

impl<'w> Lines<'w> {
    pub(super) fn new(schema: &Schema, writer: &'w mut (dyn Write + Send)) -> io::Result<Self> {
        let header: Vec<String> = schema.fields().iter().map(|field| quoted(field.name())).collect();
        writeln!(writer, "{}", header.join(","))?;
        Ok(Lines(writer))
    }
}

impl Form for Lines<'_> {
    fn write(&mut self, batch: &RecordBatch) -> io::Result<()> {
        let columns = batch.columns().iter().map(|array| Cells::new(array, Style::Exact));
        let columns = columns.collect::<Result<Vec<_>, _>>().map_err(invalid)?;
        for row in 0..batch.num_rows() {
            for (index, column) in columns.iter().enumerate() {
                let separator = if index == 0 { "" } else { "," };
                let value = column.text(row).map_err(invalid)?;
                write!(self.0, "{separator}{}", value.as_deref().map(quoted).unwrap_or_default())?;
            }
            writeln!(self.0)?;
        }
        Ok(())
    }

    fn finish(self: Box<Self>, _cut: bool) -> io::Result<()> {
        Ok(())
    }
}

fn quoted(value: &str) -> String {
    if value.is_empty() || value.contains([',', '"', '\n', '\r']) {
        return format!("\"{}\"", value.replace('"', "\"\""));
    }
    value.to_owned()
}
