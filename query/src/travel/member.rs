//! A row as far as ancestry goes, and how it is read from a table.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{TimestampMicrosecondType, UInt32Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, SchemaRef};
use datafusion::common::{Column, ScalarValue};
use datafusion::logical_expr::{Expr, cast};
use forebay_store::SampleId;

/// The column that says which agent goes on where a row ends.
const NEXT_AGENT_ID: &str = "next_agent_id";

/// A row: one version and one attempt of a sample of a table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Member {
    pub(super) table: Arc<str>,
    pub(super) sample: SampleId,
    pub(super) version: u64,
    pub(super) attempt: u32,
    pub(super) parent: Option<String>,
    /// Microseconds since the Unix epoch.
    pub(super) created_at: i64,
    pub(super) agent: String,
    /// Which agent goes on, by number or by name; `None` where the trajectory ends, or that is not known yet.
    pub(super) next: Option<String>,
}

impl Member {
    /// What a row that continues this one has as its parent.
    pub(super) fn name(&self) -> String {
        format!("{}/{}", self.table, self.sample)
    }
}

/// Whether rows of such a table may say which agent goes on.
pub(super) fn names_next_agents(schema: &SchemaRef) -> bool {
    let is_name = |data_type: &DataType| data_type.is_integer() || data_type.is_string();
    schema.field_with_name(NEXT_AGENT_ID).is_ok_and(|field| is_name(field.data_type()))
}

/// What is read of a row of such a table, in the order of [`members`].
pub(super) fn columns(schema: &SchemaRef) -> Vec<Expr> {
    let column = |name: &str| Expr::Column(Column::from_name(name));
    let next = match names_next_agents(schema) {
        true => cast(column(NEXT_AGENT_ID), DataType::Utf8View),
        false => Expr::Literal(ScalarValue::Utf8View(None), None),
    };
    let mut columns = ["sample_id", "policy_version", "attempt", "parent", "created_at"].map(column).to_vec();
    columns.extend([cast(column("agent"), DataType::Utf8View).alias("agent"), next.alias("next")]);
    columns
}

/// The rows of a batch of [`columns`].
pub(super) fn members(table: &Arc<str>, batch: &RecordBatch) -> Vec<Member> {
    let text = |column: usize| batch.column(column).as_string_view();
    let (samples, parents, agents, next) = (text(0), text(3), text(5), text(6));
    let versions = batch.column(1).as_primitive::<UInt64Type>().values();
    let attempts = batch.column(2).as_primitive::<UInt32Type>().values();
    let created = batch.column(4).as_primitive::<TimestampMicrosecondType>().values();
    let member = |row| {
        Some(Member {
            table: table.clone(),
            sample: samples.value(row).parse().ok()?, // the store takes no others
            version: versions[row],
            attempt: attempts[row],
            parent: parents.is_valid(row).then(|| parents.value(row).to_owned()),
            created_at: created[row],
            agent: agents.value(row).to_owned(),
            next: next.is_valid(row).then(|| next.value(row).to_owned()),
        })
    };
    (0..batch.num_rows()).filter_map(member).collect()
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::Member;

    /// A row of the agent that the table is named after.
    pub(in crate::travel) fn row(
        table: &str,
        sample: &str,
        version: u64,
        created_at: i64,
        next: Option<&str>,
    ) -> Member {
        Member {
            table: table.into(),
            sample: sample.parse().unwrap(),
            version,
            attempt: 0,
            parent: None,
            created_at,
            agent: table.to_owned(),
            next: next.map(str::to_owned),
        }
    }
}
