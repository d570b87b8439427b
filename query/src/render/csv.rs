//! Comma-separated values, as RFC 4180 has them, with `\n` line ends.

use std::io::{self, Write};

use super::cell::{Cells, Style};
use super::invalid;
use crate::answer::Answer;

pub(super) fn write(answer: &Answer, writer: &mut dyn Write) -> io::Result<()> {
    let header: Vec<String> = answer.column_names().iter().map(|name| quoted(name)).collect();
    writeln!(writer, "{}", header.join(","))?;
    for batch in &answer.batches {
        let columns = batch.columns().iter().map(|array| Cells::new(array, Style::Exact));
        let columns = columns.collect::<Result<Vec<_>, _>>().map_err(invalid)?;
        for row in 0..batch.num_rows() {
            for (index, column) in columns.iter().enumerate() {
                let separator = if index == 0 { "" } else { "," };
                let value = column.text(row).map_err(invalid)?;
                write!(writer, "{separator}{}", value.as_deref().map(quoted).unwrap_or_default())?;
            }
            writeln!(writer)?;
        }
    }
    Ok(())
}

fn quoted(value: &str) -> String {
    if value.is_empty() || value.contains([',', '"', '\n', '\r']) {
        return format!("\"{}\"", value.replace('"', "\"\""));
    }
    value.to_owned()
}
