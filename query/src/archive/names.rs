//! What files call the columns of a table: how a query over the table becomes one over them.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_schema::{Field, FieldRef, Schema, SchemaRef};
use datafusion::common::Column;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::logical_expr::Expr;

/// What columns are called in files where they are not called as in the table: by their names in the table. One that is not
/// in the files, though another of its name is, has a name there that is nobody's.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Names(pub(super) BTreeMap<String, String>);

impl Names {
    pub(super) fn are_the_same(&self) -> bool {
        self.0.is_empty()
    }

    /// The table's columns as the files call them.
    pub(super) fn of_schema(&self, schema: &SchemaRef) -> SchemaRef {
        if self.are_the_same() {
            return schema.clone();
        }
        let renamed = |field: &FieldRef| match self.0.get(field.name()) {
            Some(name) => Arc::new(Field::clone(field).with_name(name)),
            None => field.clone(),
        };
        Arc::new(Schema::new(schema.fields().iter().map(renamed).collect::<Vec<_>>()))
    }

    /// A condition on the table's columns as one on those of the files.
    pub(super) fn of_filter(&self, filter: Expr) -> PlanResult<Expr> {
        let renamed = |node: Expr| match node {
            Expr::Column(column) if self.0.contains_key(&column.name) => {
                let name = self.0[&column.name].clone();
                Ok::<_, DataFusionError>(Transformed::yes(Expr::Column(Column { name, ..column })))
            }
            other => Ok(Transformed::no(other)),
        };
        filter.transform_up(renamed).data()
    }
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{col, lit};

    use super::*;

    #[test]
    fn a_condition_is_asked_of_the_column_of_its_place() {
        let names = [("points", "reward"), ("reward", "reward (not there)")];
        let names = Names(names.map(|(table, file)| (table.to_owned(), file.to_owned())).into());
        let filter = col("points").gt(lit(1)).and(col("reward").is_null());
        let expected =
            col("reward").gt(lit(1)).and(Expr::Column(Column::from_name("reward (not there)")).is_null());
        assert_eq!(names.of_filter(filter).unwrap(), expected);
    }
}
