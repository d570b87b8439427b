//! The columns that rollouts write, and how they are read back.

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Float32Type, UInt32Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use forebay_store::{DataType, Element, Schema};

use crate::error::{Cause, Result};

/// Token ids that the agent was given: list of uint32. Final from the start.
pub const PROMPT: &str = "prompt";
/// Token ids that the agent wrote, its end token included: list of uint32.
pub const RESPONSE: &str = "response";
/// Natural logarithms of the probabilities with which the response's tokens were sampled: list of float32, as long as
/// the response.
pub const LOGPROBS: &str = "logprobs";
/// The response as text, for people.
pub const RESPONSE_TEXT: &str = "response_text";
/// What the environment says the response is worth: float32.
pub const REWARD: &str = "reward";
/// The agent that continues the trajectory: int32; null where it ends.
pub const NEXT_AGENT_ID: &str = "next_agent_id";

/// The schema of an agent's table, for rows of the policy `policy`.
pub fn rollout_schema(policy: &str) -> Schema {
    Schema::new()
        .policy(policy)
        .data(PROMPT, DataType::list(Element::UInt32))
        .data(RESPONSE, DataType::list(Element::UInt32))
        .data(LOGPROBS, DataType::list(Element::Float32))
        .data(RESPONSE_TEXT, DataType::Utf8)
        .data(REWARD, DataType::Float32)
        .data(NEXT_AGENT_ID, DataType::Int32)
}

/// The token ids of a list column, row by row.
///
/// # Errors
/// `input` when the column is not a list of uint32, or a row of it is null.
pub fn token_lists<'a>(table: &str, batch: &'a RecordBatch, column: &'static str) -> Result<Vec<&'a [u32]>> {
    lists::<UInt32Type>(table, batch, column)
}

/// The log-probabilities of a list column, row by row.
///
/// # Errors
/// `input` when the column is not a list of float32, or a row of it is null.
pub fn log_prob_lists<'a>(
    table: &str,
    batch: &'a RecordBatch,
    column: &'static str,
) -> Result<Vec<&'a [f32]>> {
    lists::<Float32Type>(table, batch, column)
}

fn lists<'a, T: ArrowPrimitiveType>(
    table: &str,
    batch: &'a RecordBatch,
    column: &'static str,
) -> Result<Vec<&'a [T::Native]>> {
    let wrong = || Cause::Column { table: table.to_owned(), column };
    let lists =
        batch.column_by_name(column).and_then(|array| array.as_list_opt::<i32>()).ok_or_else(wrong)?;
    let values = lists.values().as_primitive_opt::<T>().ok_or_else(wrong)?.values();
    if lists.null_count() > 0 {
        return Err(wrong().into());
    }
    let offsets = lists.value_offsets();
    Ok(offsets.windows(2).map(|ends| &values[ends[0] as usize..ends[1] as usize]).collect())
}

/// The rewards of a batch that has the column, row by row.
///
/// # Errors
/// `input` when the column is missing, is no float32, or a reward is null: an unknown reward is not 0.
pub fn rewards(table: &str, batch: &RecordBatch) -> Result<Vec<f64>> {
    let array = batch.column_by_name(REWARD).and_then(|array| array.as_primitive_opt::<Float32Type>());
    match array.filter(|array| array.null_count() == 0) {
        Some(array) => Ok(array.values().iter().map(|&reward| f64::from(reward)).collect()),
        None => Err(Cause::Column { table: table.to_owned(), column: REWARD }.into()),
    }
}

/// A meta column of whole numbers: `policy_version` (uint64) or `attempt` (uint32).
pub(crate) fn numbers(table: &str, batch: &RecordBatch, column: &'static str) -> Result<Vec<u64>> {
    let array = batch.column_by_name(column);
    let wide = array.and_then(|array| array.as_primitive_opt::<UInt64Type>());
    let narrow = array.and_then(|array| array.as_primitive_opt::<UInt32Type>());
    match (wide, narrow) {
        (Some(wide), _) => Ok(wide.values().to_vec()),
        (_, Some(narrow)) => Ok(narrow.values().iter().map(|&value| value.into()).collect()),
        _ => Err(Cause::Column { table: table.to_owned(), column }.into()),
    }
}

/// A text column, row by row.
pub(crate) fn texts(table: &str, batch: &RecordBatch, column: &'static str) -> Result<Vec<String>> {
    let array = batch.column_by_name(column).and_then(|array| array.as_string_view_opt());
    let array = array.ok_or_else(|| Cause::Column { table: table.to_owned(), column })?;
    Ok(array.iter().map(|text| text.unwrap_or_default().to_owned()).collect())
}
