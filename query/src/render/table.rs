//! Tables for people: aligned columns, or a line a value when the columns would not fit.

use std::io::{self, Write};

use arrow_schema::DataType;
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};

use super::cell::{Cells, Style};
use super::invalid;
use crate::answer::Answer;

/// A column narrower than this is not worth wrapping into.
const COLUMN_WIDTH_LEAST: usize = 16;

pub(super) fn write(answer: &Answer, writer: &mut dyn Write, width: Option<usize>) -> io::Result<()> {
    let names = answer.column_names();
    let rows = rows(answer)?;
    match width {
        Some(width) if least_width(&names, &rows) > width => write_values(&names, &rows, writer)?,
        _ if names.is_empty() => {}
        _ => writeln!(writer, "{}", grid(answer, &names, &rows, width))?,
    }
    writeln!(writer, "{} row{}", rows.len(), if rows.len() == 1 { "" } else { "s" })
}

/// All values as text; NULL is blank.
fn rows(answer: &Answer) -> io::Result<Vec<Vec<String>>> {
    let mut rows = Vec::with_capacity(answer.row_count());
    for batch in &answer.batches {
        let columns = batch.columns().iter().map(|array| Cells::new(array, Style::Short));
        let columns = columns.collect::<Result<Vec<_>, _>>().map_err(invalid)?;
        for row in 0..batch.num_rows() {
            let texts = columns.iter().map(|column| Ok(column.text(row)?.unwrap_or_default()));
            rows.push(texts.collect::<Result<Vec<_>, _>>().map_err(invalid)?);
        }
    }
    Ok(rows)
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

fn grid(answer: &Answer, names: &[String], rows: &[Vec<String>], width: Option<usize>) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED).set_header(names);
    let alignments: Vec<CellAlignment> =
        answer.schema.fields().iter().map(|field| alignment(field.data_type())).collect();
    for row in rows {
        let cells = row.iter().zip(&alignments);
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
