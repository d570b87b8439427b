//! Answers on their way out: for people as a table, for programs as JSON or CSV.

mod cell;
mod csv;
mod json;
mod table;

use std::fmt;
use std::io::{self, Write};
use std::str::FromStr;

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
}

impl Format {
    /// Every format.
    pub const ALL: [Format; 3] = [Format::Table, Format::Json, Format::Csv];

    /// The word for this format on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Format::Table => "table",
            Format::Json => "json",
            Format::Csv => "csv",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A word that is no [`Format`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a format; use table, json or csv")]
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
    /// Writes the answer, with a line end after the last line. `width` is the number of columns of the terminal, which [`Format::Table`] keeps to; `None`
    /// takes as much as the values need.
    ///
    /// # Errors
    /// What the writer says; `InvalidData` for a value that has no form in the format.
    pub fn render(&self, format: Format, writer: &mut dyn Write, width: Option<usize>) -> io::Result<()> {
        match format {
            Format::Table => table::write(self, writer, width),
            Format::Json => json::write(self, writer),
            Format::Csv => csv::write(self, writer),
        }
    }

    /// The columns' names, each once: a second column of a name is `name_2`.
    fn column_names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::with_capacity(self.schema.fields().len());
        for field in self.schema.fields() {
            let again =
                |n: usize| if n == 1 { field.name().clone() } else { format!("{}_{n}", field.name()) };
            let free = (1..).map(again).find(|name| !names.contains(name));
            names.extend(free);
        }
        names
    }
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
    fn formats_have_names() {
        assert!(Format::ALL.into_iter().all(|format| format.to_string().parse() == Ok(format)));
        assert!("xml".parse::<Format>().unwrap_err().to_string().contains("table, json or csv"));
    }
}
