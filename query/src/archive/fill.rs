//! Columns that a file does not have, because the table got them later: no value, and no final cell.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::error::Result as PlanResult;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr_adapter::{
    DefaultPhysicalExprAdapterFactory, PhysicalExprAdapter, PhysicalExprAdapterFactory,
    replace_columns_with_literals,
};

/// Writes filters and projections over a table's columns as ones over a file's: NULL and false where it lacks one.
#[derive(Debug)]
pub(super) struct Fill;

impl PhysicalExprAdapterFactory for Fill {
    fn create(&self, table: SchemaRef, file: SchemaRef) -> PlanResult<Arc<dyn PhysicalExprAdapter>> {
        let missing = table.fields().iter().filter(|field| file.field_with_name(field.name()).is_err());
        let status = missing.filter(|field| *field.data_type() == DataType::Boolean && !field.is_nullable());
        let never = status.map(|field| (field.name().clone(), ScalarValue::Boolean(Some(false)))).collect();
        Ok(Arc::new(Filled { never, others: DefaultPhysicalExprAdapterFactory.create(table, file)? }))
    }
}

#[derive(Debug)]
struct Filled {
    /// Columns that are false.
    never: HashMap<String, ScalarValue>,
    others: Arc<dyn PhysicalExprAdapter>,
}

impl PhysicalExprAdapter for Filled {
    fn rewrite(&self, expression: Arc<dyn PhysicalExpr>) -> PlanResult<Arc<dyn PhysicalExpr>> {
        self.others.rewrite(replace_columns_with_literals(expression, &self.never)?)
    }
}
