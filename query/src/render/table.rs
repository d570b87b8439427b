//! Tables for people: aligned columns, or a line a value when the columns would not fit.

use std::io::{self, Write};

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Schema};
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};

use super::cell::{Cells, Style};
use super::{Form, invalid};

/// A column narrower than this is not worth wrapping into.
const COLUMN_WIDTH_LEAST: usize = 16;

/// A table whose rows are kept until their widths are known.
pub(super) struct Grid<'w> {
    names: Vec<String>,
    alignments: Vec<CellAlignment>,
    /// All values as text; NULL is blank.
    rows: Vec<Vec<String>>,
    writer: &'w mut (dyn Write + Send),
    width: Option<usize>,
}

impl<'w> Grid<'w> {
    pub(super) fn new(schema: &Schema, writer: &'w mut (dyn Write + Send), width: Option<usize>) -> Self {
        let names = schema.fields().iter().map(|field| field.name().clone()).collect();
        let alignments = schema.fields().iter().map(|field| alignment(field.data_type())).collect();
        Grid { names, alignments, rows: Vec::new(), writer, width }
    }
}

impl Form for Grid<'_> {
    fn write(&mut self, batch: &RecordBatch) -> io::Result<()> {
        let columns = batch.columns().iter().map(|array| Cells::new(array, Style::Short));
        let columns = columns.collect::<Result<Vec<_>, _>>().map_err(invalid)?;
        for row in 0..batch.num_rows() {
            let texts = columns.iter().map(|column| Ok(column.text(row)?.unwrap_or_default()));
            self.rows.push(texts.collect::<Result<Vec<_>, _>>().map_err(invalid)?);
        }
        Ok(())
    }

    fn finish(self: Box<Self>, cut: bool) -> io::Result<()> {
        let Grid { names, alignments, rows, writer, width } = *self;
        match width {
            Some(width) if least_width(&names, &rows) > width => write_values(&names, &rows, writer)?,
            _ if names.is_empty() => {}
            _ => writeln!(writer, "{}", grid(&names, &alignments, &rows, width))?,
        }
        let plural = if rows.len() == 1 { "" } else { "s" };
        let more = if cut { "; there are more, beyond the row limit" } else { "" };
        writeln!(writer, "{} row{plural}{more}", rows.len())
    }
}

/// The width below which a grid would be hard to read.
fn least_width(names: &[String], rows: &[Vec<String>]) -> usize {
    let widest = |column: usize, name: &String| {
        let values = rows.iter().map(|row| line_width(&row[column]));
        values.chain([name.chars().count()]).max().unwrap_or(0)
    };
    let columns =
        names.iter().enumerate().map(|(index, name)| widest(index, name).min(COLUMN_WIDTH_LEAST) + 3);
    columns.sum::<usize>() + 1
}

fn line_width(text: &str) -> usize {
    text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
}

fn grid(names: &[String], alignments: &[CellAlignment], rows: &[Vec<String>], width: Option<usize>) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED).set_header(names);
    for row in rows {
        let cells = row.iter().zip(alignments);
        table.add_row(cells.map(|(text, alignment)| Cell::new(text).set_alignment(*alignment)));
    }
    match width {
        Some(width) => {
            table.set_content_arrangement(ContentArrangement::Dynamic);
            table.set_width(u16::try_from(width).unwrap_or(u16::MAX))
        }
        None => table.set_content_arrangement(ContentArrangement::Disabled),
    };
    table
}

fn alignment(data_type: &DataType) -> CellAlignment {
    if data_type.is_numeric() { CellAlignment::Right } else { CellAlignment::Left }
}

fn write_values(names: &[String], rows: &[Vec<String>], writer: &mut dyn Write) -> io::Result<()> {
    let name_width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    for (number, row) in rows.iter().enumerate() {
        writeln!(writer, "── row {} {}", number + 1, "─".repeat(24))?;
        for (name, value) in names.iter().zip(row) {
            let indented = value.replace('\n', &format!("\n{:name_width$} | ", ""));
            writeln!(writer, "{name:name_width$} | {indented}")?;
        }
    }
    Ok(())
}
