//! Placeholders of prepared statements: `$1`, `$name`, `?1`, and `?`, which is the next number.
//!
//! The planner knows the first two; `?` is made into a number where it stands in the text, so that what is told of a
//! statement still shows the words of whoever wrote it.

use std::borrow::Cow;
use std::collections::HashMap;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use datafusion::common::{ParamValues, ScalarValue};
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};

use crate::error::{Cause, Error, Result};

/// The most parameters of a statement; what numbers them is input.
const PARAMETERS_MAX: usize = 1000;

/// The statement with its n-th `?` as `$n`, and `?3` as `$3`. What is no SQL stays as it is: the parser says why.
///
/// # Errors
/// When some parameters have a number and others none: which of them `?` is would be a guess.
pub(crate) fn numbered(sql: &str) -> Result<Cow<'_, str>> {
    if !sql.contains('?') {
        return Ok(Cow::Borrowed(sql));
    }
    let Ok(tokens) = Tokenizer::new(&GenericDialect {}, sql).tokenize_with_location() else {
        return Ok(Cow::Borrowed(sql));
    };
    let all = tokens.iter().map(|token| (token.token.to_string(), token.span.start));
    let marks: Vec<(String, Location)> = all.filter(|(token, _)| token.starts_with('?')).collect();
    let bare = marks.iter().filter(|(mark, _)| mark == "?").count();
    let is_numbered = |token: &TokenWithSpan| matches!(&token.token, Token::Placeholder(name) if name != "?");
    if bare > 0 && tokens.iter().any(is_numbered) {
        return Err(refused(
            "`?` beside parameters that have a number or a name; number all of them".to_owned(),
        ));
    }
    let (mut text, mut number, mut at) =
        (String::with_capacity(sql.len() + marks.len()), 0, Location::new(1, 1));
    for character in sql.chars() {
        if let Some((mark, _)) = marks.get(number).filter(|(_, start)| *start == at) {
            number += 1;
            text.push('$'); // what stands behind the mark follows
            if mark == "?" {
                text.push_str(&number.to_string());
            }
        } else {
            text.push(character);
        }
        at = match character {
            '\n' => Location::new(at.line + 1, 1),
            _ => Location::new(at.line, at.column + 1),
        };
    }
    Ok(Cow::Owned(text))
}

/// What a statement wants to be told.
#[derive(Clone, Debug)]
pub(crate) struct Parameters {
    /// A field each; of numbered ones the n-th is `$n`.
    pub(crate) schema: SchemaRef,
    are_named: bool,
}

impl Parameters {
    /// The parameters of a plan.
    pub(crate) fn of(plan: &LogicalPlan) -> Result<Self> {
        let types = plan.get_parameter_types()?;
        let number = |id: &str| id.strip_prefix('$').and_then(|number| number.parse::<usize>().ok());
        let numbers: Option<Vec<usize>> = types.keys().map(|id| number(id)).collect();
        let type_of = |id: &str| types.get(id).cloned().flatten().unwrap_or(DataType::Null);
        let fields: Vec<Field> = match &numbers {
            Some(numbers) => {
                let count = numbers.iter().copied().max().unwrap_or(0);
                bounded(count)?;
                let ids = (1..=count).map(|number| format!("${number}"));
                ids.map(|id| Field::new(&id, type_of(&id), true)).collect()
            }
            None if types.keys().any(|id| number(id).is_some()) => {
                return Err(refused("number all parameters of a statement, or name all of them".to_owned()));
            }
            None => {
                bounded(types.len())?;
                let mut ids: Vec<&String> = types.keys().collect();
                ids.sort();
                ids.iter().map(|id| Field::new(id.trim_start_matches('$'), type_of(id), true)).collect()
            }
        };
        Ok(Parameters { schema: std::sync::Arc::new(Schema::new(fields)), are_named: numbers.is_none() })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.schema.fields().is_empty()
    }

    /// The values of one row of `values`: by name where parameters have names, by position where they have numbers.
    pub(crate) fn bind(&self, values: &RecordBatch, row: usize) -> Result<ParamValues> {
        let count = self.schema.fields().len();
        let value = |column: usize| Ok(ScalarValue::try_from_array(values.column(column), row)?);
        if !self.are_named {
            if values.num_columns() != count {
                let given = values.num_columns();
                return Err(refused(format!(
                    "the statement has {count} parameters, and {given} values were given"
                )));
            }
            let values = (0..count).map(value).collect::<Result<Vec<ScalarValue>>>()?;
            return Ok(values.into());
        }
        let mut named = HashMap::with_capacity(count);
        for field in self.schema.fields() {
            let Ok(column) = values.schema_ref().index_of(field.name()) else {
                return Err(refused(format!("no value was given for ${}", field.name())));
            };
            named.insert(field.name().clone(), value(column)?);
        }
        Ok(named.into())
    }
}

fn bounded(count: usize) -> Result<()> {
    match count > PARAMETERS_MAX {
        true => Err(refused(format!("{count} parameters in one statement; {PARAMETERS_MAX} are the most"))),
        false => Ok(()),
    }
}

pub(crate) fn refused(reason: String) -> Error {
    Cause::Parameters { reason }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn question_marks_are_numbered_where_they_stand_for_values() {
        for (sql, expected) in [
            ("SELECT 1", "SELECT 1"),
            ("SELECT ?", "SELECT $1"),
            ("SELECT ?, '?', \"?\", ? -- ?", "SELECT $1, '?', \"?\", $2 -- ?"),
            (
                "SELECT /* ? */ a\nFROM t\nWHERE é > ? AND b=?-1",
                "SELECT /* ? */ a\nFROM t\nWHERE é > $1 AND b=$2-1",
            ),
            ("SELECT 'open ?", "SELECT 'open ?"),
            ("SELECT a WHERE b = ?2 AND c > ?1", "SELECT a WHERE b = $2 AND c > $1"),
        ] {
            assert_eq!(numbered(sql).unwrap(), expected, "{sql}");
        }
        for sql in ["SELECT ?, $1", "SELECT $name WHERE a = ?", "SELECT ?2, ?"] {
            assert!(numbered(sql).is_err(), "{sql}");
        }
    }
}
