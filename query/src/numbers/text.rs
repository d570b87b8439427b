//! The texts of numbers, as an expression of a plan.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, FieldRef, Schema};
use datafusion::common::internal_err;
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use forebay_store::TableSnapshot;

/// The text of each number that an expression gives.
#[derive(Debug)]
pub(super) struct TextOf {
    number: Arc<dyn PhysicalExpr>,
    table: TableSnapshot,
}

impl TextOf {
    /// `table` is one that shares the texts.
    pub(super) fn new(number: Arc<dyn PhysicalExpr>, table: TableSnapshot) -> Self {
        TextOf { number, table }
    }
}

impl PartialEq for TextOf {
    fn eq(&self, other: &Self) -> bool {
        self.number.eq(&other.number) && self.table.shares_texts(&other.table)
    }
}

impl Eq for TextOf {}

impl Hash for TextOf {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

impl fmt::Display for TextOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "text_of({})", self.number)
    }
}

impl PhysicalExpr for TextOf {
    fn return_field(&self, schema: &Schema) -> PlanResult<FieldRef> {
        let number = self.number.return_field(schema)?;
        Ok(Arc::new(number.as_ref().clone().with_data_type(DataType::Utf8View)))
    }

    fn evaluate(&self, batch: &RecordBatch) -> PlanResult<ColumnarValue> {
        let numbers = self.number.evaluate(batch)?.into_array(batch.num_rows())?;
        match numbers.as_primitive_opt::<UInt32Type>() {
            Some(numbers) => Ok(ColumnarValue::Array(self.table.texts(numbers))),
            None => internal_err!("a text has no number of type {}", numbers.data_type()),
        }
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.number]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> PlanResult<Arc<dyn PhysicalExpr>> {
        match children.pop() {
            Some(number) if children.is_empty() => Ok(Arc::new(TextOf::new(number, self.table.clone()))),
            _ => internal_err!("a text is of one number"),
        }
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "text_of(")?;
        self.number.fmt_sql(f)?;
        write!(f, ")")
    }
}
