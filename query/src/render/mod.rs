//! Answers on their way out: for people as a table, for programs as JSON, CSV, Parquet or Arrow.
//!
//! Every format takes batch after batch, so that an answer need not fit into memory to be written; only the table keeps
//! what it shows, because its columns are as wide as their widest value.

mod arrow;
mod cell;
mod csv;
mod json;
mod parquet;
mod table;

use std::fmt;
use std::io::{self, Write};
use std::str::FromStr;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};

use crate::answer::Answer;

/// How an answer is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// For people: aligned columns, long values cut, NULL left blank. An answer too wide for the terminal is written as
    /// one `column | value` line for each value.
    #[default]
    Table,
    /// For programs: one array of objects. NULL and numbers that are not finite are `null`, lists are arrays, times are
    /// ISO 8601.
    Json,
    /// For spreadsheets: a header, then a line a row (RFC 4180). NULL is empty, the empty text is `""`, lists are JSON.
    Csv,
    /// For other engines and for keeping: a Parquet file, with zstd. Bytes, not text.
    Parquet,
    /// For other processes: a stream of Arrow's IPC format. Bytes, not text.
    Arrow,
}

impl Format {
    /// Every format.
    pub const ALL: [Format; 5] = [Format::Table, Format::Json, Format::Csv, Format::Parquet, Format::Arrow];

    /// The word for this format on the command line, and the usual ending of its files.
    pub fn as_str(self) -> &'static str {
        match self {
            Format::Table => "table",
            Format::Json => "json",
            Format::Csv => "csv",
            Format::Parquet => "parquet",
            Format::Arrow => "arrow",
        }
    }

    /// Whether it is bytes that no terminal can show.
    pub fn is_binary(self) -> bool {
        matches!(self, Format::Parquet | Format::Arrow)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A word that is no [`Format`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a format; use table, json, csv, parquet or arrow")]
pub struct UnknownFormat(pub String);

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(word: &str) -> Result<Self, UnknownFormat> {
        Format::ALL
            .into_iter()
            .find(|format| format.as_str() == word)
            .ok_or_else(|| UnknownFormat(word.to_owned()))
    }
}

impl Answer {
    /// Writes the answer, with a line end after the last line of text. `width` is the number of columns of the terminal,
    /// which [`Format::Table`] keeps to; `None` takes as much as the values need.
    ///
    /// # Errors
    /// What the writer says; `InvalidData` for a value that has no form in the format.
    pub fn render(
        &self,
        format: Format,
        writer: &mut (dyn Write + Send),
        width: Option<usize>,
    ) -> io::Result<()> {
        let mut renderer = Renderer::new(format, &self.schema, writer, width)?;
        self.batches.iter().try_for_each(|batch| renderer.write(batch))?;
        renderer.finish(self.cut)
    }
}

/// Writes an answer batch by batch.
///
/// ```
/// use std::sync::Arc;
/// use arrow_array::{Int64Array, RecordBatch};
/// use forebay_query::{Format, Renderer};
///
/// let batch = RecordBatch::try_from_iter([("n", Arc::new(Int64Array::from(vec![1, 2])) as _)])?;
/// let mut csv = Vec::new();
/// let mut renderer = Renderer::new(Format::Csv, &batch.schema(), &mut csv, None)?;
/// renderer.write(&batch)?;
/// renderer.write(&batch)?;
/// renderer.finish(false)?;
/// assert_eq!(csv, b"n\n1\n2\n1\n2\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Renderer<'w>(Box<dyn Form + 'w>);

impl<'w> Renderer<'w> {
    /// Begins an answer with these columns; `width` as for [`Answer::render`].
    ///
    /// # Errors
    /// As for [`Answer::render`].
    pub fn new(
        format: Format,
        schema: &SchemaRef,
        writer: &'w mut (dyn Write + Send),
        width: Option<usize>,
    ) -> io::Result<Self> {
        let schema = renamed(schema);
        Ok(Renderer(match format {
            Format::Table => Box::new(table::Grid::new(&schema, writer, width)),
            Format::Json => Box::new(json::Document::new(schema, writer)),
            Format::Csv => Box::new(csv::Lines::new(&schema, writer)?),
            Format::Parquet => Box::new(parquet::File::new(schema, writer)?),
            Format::Arrow => Box::new(arrow::Stream::new(schema, writer)?),
        }))
    }

    /// Writes the rows of a batch.
    ///
    /// # Errors
    /// As for [`Answer::render`].
    pub fn write(&mut self, batch: &RecordBatch) -> io::Result<()> {
        self.0.write(batch)
    }

    /// Writes what comes after the last row. `cut` is whether there are more than were written, which a table says.
    ///
    /// # Errors
    /// As for [`Answer::render`].
    pub fn finish(self, cut: bool) -> io::Result<()> {
        self.0.finish(cut)
    }
}

impl fmt::Debug for Renderer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Renderer")
    }
}

/// An answer in one of the formats, as it grows.
trait Form {
    fn write(&mut self, batch: &RecordBatch) -> io::Result<()>;
    fn finish(self: Box<Self>, cut: bool) -> io::Result<()>;
}

/// The schema with every name once: a second column of a name is `name_2`.
fn renamed(schema: &Schema) -> SchemaRef {
    let mut names: Vec<String> = Vec::with_capacity(schema.fields().len());
    for field in schema.fields() {
        let again = |n: usize| if n == 1 { field.name().clone() } else { format!("{}_{n}", field.name()) };
        let free = (1..).map(again).find(|name| !names.contains(name));
        names.extend(free);
    }
    let fields = schema.fields().iter().zip(names);
    let fields = fields.map(|(field, name)| field.as_ref().clone().with_name(name).with_nullable(true));
    Arc::new(Schema::new_with_metadata(fields.collect::<Vec<_>>(), schema.metadata().clone()))
}

fn invalid(error: arrow_schema::ArrowError) -> io::Error {
    match error {
        arrow_schema::ArrowError::IoError(_, error) => error,
        other => io::Error::new(io::ErrorKind::InvalidData, other),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot make its own answer should stop there")]

    use std::sync::Arc;

    use arrow_array::types::Int32Type;
    use arrow_array::{
        ArrayRef, BinaryViewArray, BooleanArray, Float32Array, Float64Array, ListArray, RecordBatch,
        StringArray, TimestampMicrosecondArray,
    };

    use super::*;

    fn answer(columns: Vec<(&str, ArrayRef)>) -> Answer {
        let batch = RecordBatch::try_from_iter_with_nullable(
            columns.into_iter().map(|(name, array)| (name, array, true)),
        )
        .unwrap();
        Answer { schema: batch.schema(), batches: vec![batch], cut: false }
    }

    fn bytes(answer: &Answer, format: Format) -> Vec<u8> {
        let mut out = Vec::new();
        answer.render(format, &mut out, None).unwrap();
        out
    }

    fn rendered(answer: &Answer, format: Format, width: Option<usize>) -> String {
        let mut out = Vec::new();
        answer.render(format, &mut out, width).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn sample() -> Answer {
        let lists = [Some((0..20).map(Some).collect::<Vec<_>>()), None];
        let times = TimestampMicrosecondArray::from(vec![Some(1_000_000), None]).with_timezone("+00:00");
        answer(vec![
            ("id", Arc::new(StringArray::from(vec!["q1, \"a\"", ""]))),
            ("score", Arc::new(Float64Array::from(vec![Some(1.0 / 3.0), Some(f64::NAN)]))),
            ("half", Arc::new(Float32Array::from(vec![Some(0.1), None]))),
            ("done", Arc::new(BooleanArray::from(vec![Some(true), None]))),
            ("tokens", Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists))),
            ("at", Arc::new(times)),
            ("blob", Arc::new(BinaryViewArray::from(vec![Some(&b"\x00\xff"[..]), None]))),
        ])
    }

    #[test]
    fn json_is_one_document_of_the_rows() {
        let document: serde_json::Value =
            serde_json::from_str(&rendered(&sample(), Format::Json, None)).unwrap();
        let numbers: Vec<i32> = (0..20).collect();
        assert_eq!(
            document,
            serde_json::json!([
                {"id": "q1, \"a\"", "score": 1.0 / 3.0, "half": 0.1, "done": true, "tokens": numbers,
                 "at": "1970-01-01T00:00:01Z", "blob": "00ff"},
                {"id": "", "score": null, "half": null, "done": null, "tokens": null, "at": null, "blob": null},
            ])
        );
    }

    #[test]
    fn an_answer_without_rows_is_a_document_and_a_header_too() {
        let empty = Answer { batches: vec![], ..sample() };
        assert_eq!(rendered(&empty, Format::Json, None), "[]\n");
        assert_eq!(rendered(&empty, Format::Csv, None), "id,score,half,done,tokens,at,blob\n");
        assert!(rendered(&empty, Format::Table, Some(80)).contains("0 rows"));
    }

    #[test]
    fn csv_quotes_what_needs_it_and_tells_null_from_empty() {
        let text = rendered(&sample(), Format::Csv, None);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "id,score,half,done,tokens,at,blob");
        assert!(
            lines[1].starts_with("\"q1, \"\"a\"\"\",0.3333333333333333,0.1,true,\"[0,1,2,"),
            "{}",
            lines[1]
        );
        assert!(lines[1].ends_with(",19]\",1970-01-01T00:00:01Z,00ff"), "{}", lines[1]);
        assert_eq!(lines[2], "\"\",NaN,,,,,");
    }

    #[test]
    fn a_table_is_for_people() {
        let text = rendered(&sample(), Format::Table, None);
        assert!(text.contains("0.333333 "), "{text}");
        assert!(text.contains("[0, 1, 2, 3, … 20 in all]"), "{text}");
        assert!(text.contains("1970-01-01 00:00:01.000Z"), "{text}");
        assert!(text.trim_end().ends_with("2 rows"), "{text}");
    }

    #[test]
    fn an_answer_too_wide_is_written_value_by_value() {
        let text = rendered(&sample(), Format::Table, Some(40));
        assert!(text.contains("row 1"), "{text}");
        assert!(text.contains("tokens | [0, 1, 2, 3, … 20 in all]"), "{text}");
        assert!(
            rendered(&sample(), Format::Table, Some(200)).lines().all(|line| line.chars().count() <= 200)
        );
    }

    #[test]
    fn generated_text_cannot_steer_the_terminal() {
        let text = answer(vec![("t", Arc::new(StringArray::from(vec!["a\u{1b}[2Jb\nc"])))]);
        let text = rendered(&text, Format::Table, None);
        assert!(!text.contains('\u{1b}'), "{text:?}");
        assert!(text.contains("a\\u{1b}[2Jb"), "{text}");
    }

    #[test]
    fn columns_of_one_name_are_told_apart() {
        let column = |n| Arc::new(StringArray::from(vec![n])) as ArrayRef;
        let twice = answer(vec![("a", column("1")), ("a", column("2"))]);
        assert_eq!(rendered(&twice, Format::Json, None), "[{\"a\":\"1\",\"a_2\":\"2\"}]\n");
    }

    #[test]
    fn bytes_hold_the_same_rows() {
        let twice = |answer: &Answer| Answer {
            batches: [answer.batches.clone(), answer.batches.clone()].concat(),
            ..answer.clone()
        };
        for answer in [twice(&sample()), Answer { batches: vec![], ..sample() }] {
            let expected = ::arrow::compute::concat_batches(&answer.schema, &answer.batches).unwrap();
            let stream = bytes(&answer, Format::Arrow);
            let stream = arrow_ipc::reader::StreamReader::try_new(&*stream, None).unwrap();
            let read: Vec<RecordBatch> = stream.map(Result::unwrap).collect();
            assert_eq!(::arrow::compute::concat_batches(&answer.schema, &read).unwrap(), expected);
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&bytes(&answer, Format::Parquet)).unwrap();
            let file = ::parquet::arrow::arrow_reader::ParquetRecordBatchReader::try_new(file, 1024).unwrap();
            let read: Vec<RecordBatch> = file.map(Result::unwrap).collect();
            assert_eq!(::arrow::compute::concat_batches(&answer.schema, &read).unwrap(), expected);
        }
    }

    #[test]
    fn a_table_says_that_it_was_cut() {
        let text = rendered(&Answer { cut: true, ..sample() }, Format::Table, None);
        assert!(text.ends_with("2 rows; there are more, beyond the row limit\n"), "{text}");
    }

    #[test]
    fn formats_have_names() {
        assert!(Format::ALL.into_iter().all(|format| format.to_string().parse() == Ok(format)));
        assert!(
            "xml".parse::<Format>().unwrap_err().to_string().contains("table, json, csv, parquet or arrow")
        );
    }
}
