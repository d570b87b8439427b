//! Which columns a scan gives and looks at, and how expressions name them.
//!
//! Filters are kept over the *wide* schema: every column of the table by its position, then the length of every column at
//! its position plus the count of columns, then the number of its text at its position plus twice that. So whatever is
//! pushed into a scan later (a projection that leaves columns out or asks for lengths), its filters stay as they are.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, internal_err};
use datafusion::error::Result as PlanResult;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::projection::ProjectionExpr;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use forebay_store::{ScanColumn, TableSnapshot};

use crate::functions::LENGTHS;

/// One column that a scan gives.
#[derive(Clone, Debug)]
pub(super) struct Output {
    pub(super) column: ScanColumn,
    pub(super) field: FieldRef,
}

impl Output {
    /// A column of the table as it is.
    pub(super) fn column(table: &SchemaRef, position: usize) -> Self {
        Output { column: ScanColumn::Value(position), field: table.fields()[position].clone() }
    }

    /// The number of a text in place of the text, under its name; `None` where texts have none.
    pub(super) fn number(&self, table: &TableSnapshot) -> Option<Self> {
        let ScanColumn::Value(position) = self.column else { return None };
        let field = Arc::new(self.field.as_ref().clone().with_data_type(DataType::UInt32));
        table.has_numbers(position).then_some(Output { column: ScanColumn::Number(position), field })
    }

    /// What an expression over other outputs gives under a name of its own; `None` when that has to be computed.
    pub(super) fn of(outputs: &[Output], expression: &Arc<dyn PhysicalExpr>, alias: &str) -> Option<Self> {
        let renamed =
            |column, field: &Field| Some(Output { column, field: Arc::new(field.clone().with_name(alias)) });
        if let Some(column) = expression.downcast_ref::<Column>() {
            let output = outputs.get(column.index())?;
            return renamed(output.column, &output.field);
        }
        let of = outputs.get(length_of(expression)?.index())?;
        match (of.column, of.field.data_type()) {
            (ScanColumn::Value(position), data_type) if has_length(data_type) => {
                renamed(ScanColumn::Length(position), &Field::new("", DataType::UInt64, true))
            }
            _ => None,
        }
    }
}

/// Expressions over outputs as expressions over others that have lengths in place of lists whose length is all that is
/// asked; `None` when no length is.
pub(super) fn with_lengths(
    outputs: &[Output],
    expressions: &[ProjectionExpr],
) -> PlanResult<Option<(Vec<Output>, Vec<ProjectionExpr>)>> {
    let (mut narrower, mut found): (Vec<Output>, bool) = (Vec::new(), false);
    let mut given = |output: Output| {
        let at = narrower.iter().position(|known| known.column == output.column).unwrap_or_else(|| {
            narrower.push(output.clone());
            narrower.len() - 1
        });
        Arc::new(Column::new(narrower[at].field.name(), at)) as Arc<dyn PhysicalExpr>
    };
    let mut rewritten = Vec::new();
    for ProjectionExpr { expr, alias } in expressions {
        let replace = |node: Arc<dyn PhysicalExpr>| {
            if let Some(list) = length_of(&node)
                && let Some(output) = Output::of(outputs, &node, &format!("{}_length", list.name()))
            {
                found = true;
                return Ok(Transformed::new(given(output), true, TreeNodeRecursion::Jump));
            }
            let Some(column) = node.downcast_ref::<Column>() else { return Ok(Transformed::no(node)) };
            let Some(output) = outputs.get(column.index()) else {
                return internal_err!("an expression on column {column}, which the scan does not give");
            };
            Ok::<_, DataFusionError>(Transformed::new(given(output.clone()), true, TreeNodeRecursion::Jump))
        };
        let expr = expr.clone().transform_down(replace).data()?;
        rewritten.push(ProjectionExpr { expr, alias: alias.clone() });
    }
    Ok(found.then_some((narrower, rewritten)))
}

/// The column whose length an expression is.
fn length_of(expression: &Arc<dyn PhysicalExpr>) -> Option<&Column> {
    let function = expression.downcast_ref::<ScalarFunctionExpr>()?;
    let [argument] = function.args() else { return None };
    LENGTHS.contains(&function.fun().name()).then_some(())?;
    argument.downcast_ref::<Column>()
}

/// Whether the store tells the lengths of a column of that type: it does of data columns, and those hold numbers.
fn has_length(data_type: &DataType) -> bool {
    matches!(data_type, DataType::List(item) if !item.data_type().is_nested())
}

/// Where a column stands in the wide schema.
fn wide(column: ScanColumn, columns: usize) -> usize {
    match column {
        ScanColumn::Value(position) => position,
        ScanColumn::Length(position) => columns + position,
        ScanColumn::Number(position) => 2 * columns + position,
    }
}

/// The wide schema of a table.
pub(super) fn wide_schema(table: &SchemaRef) -> SchemaRef {
    let of = |kind: &str, data_type: DataType| {
        let named = move |field: &FieldRef| format!("{}_{kind}", field.name());
        let fields = table.fields().iter();
        fields.map(|field| Arc::new(Field::new(named(field), data_type.clone(), true))).collect::<Vec<_>>()
    };
    let (lengths, numbers) = (of("length", DataType::UInt64), of("number", DataType::UInt32));
    Arc::new(Schema::new([table.fields().to_vec(), lengths, numbers].concat()))
}

/// An expression over a scan's outputs as one over the wide schema of its table.
pub(super) fn widened(
    expression: Arc<dyn PhysicalExpr>,
    outputs: &[Output],
    table: &SchemaRef,
) -> PlanResult<Arc<dyn PhysicalExpr>> {
    let columns = table.fields().len();
    let names = wide_schema(table);
    let named = |at: usize| Arc::new(Column::new(names.field(at).name(), at)) as Arc<dyn PhysicalExpr>;
    // From the root down, so that a length is seen before the list that it is of.
    let widen = |expression: Arc<dyn PhysicalExpr>| {
        if let Some(list) = length_of(&expression)
            && let Some(Output { column: ScanColumn::Value(position), field }) = outputs.get(list.index())
            && has_length(field.data_type())
        {
            let length = named(wide(ScanColumn::Length(*position), columns));
            return Ok(Transformed::new(length, true, TreeNodeRecursion::Jump));
        }
        let Some(column) = expression.downcast_ref::<Column>() else {
            return Ok(Transformed::no(expression));
        };
        let Some(output) = outputs.get(column.index()) else {
            return internal_err!("a filter on column {column}, which the scan does not give");
        };
        let column = named(wide(output.column, columns));
        Ok::<_, DataFusionError>(Transformed::new(column, true, TreeNodeRecursion::Jump))
    };
    expression.transform_down(widen).data()
}

/// The type of what is read of a column of a table.
pub(super) fn type_of(column: ScanColumn, table: &SchemaRef) -> DataType {
    match column {
        ScanColumn::Value(position) => table.field(position).data_type().clone(),
        ScanColumn::Length(_) => DataType::UInt64,
        ScanColumn::Number(_) => DataType::UInt32,
    }
}

/// The columns that expressions over the wide schema look at.
pub(super) fn looked_at(
    expressions: &[Arc<dyn PhysicalExpr>],
    table: &SchemaRef,
) -> PlanResult<Vec<ScanColumn>> {
    let columns = table.fields().len();
    let mut found = BTreeSet::new();
    for expression in expressions {
        expression.apply(|node| {
            found.extend(node.downcast_ref::<Column>().map(Column::index));
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    let narrow = |at: usize| match at / columns.max(1) {
        0 => ScanColumn::Value(at),
        1 => ScanColumn::Length(at - columns),
        _ => ScanColumn::Number(at - 2 * columns),
    };
    Ok(found.into_iter().map(narrow).collect())
}

/// An expression over the wide schema as one over a batch of just these columns.
pub(super) fn narrowed(
    expression: Arc<dyn PhysicalExpr>,
    batch: &[ScanColumn],
    table: &SchemaRef,
) -> PlanResult<Arc<dyn PhysicalExpr>> {
    let columns = table.fields().len();
    let narrow = |node: Arc<dyn PhysicalExpr>| {
        let Some(column) = node.downcast_ref::<Column>() else { return Ok(Transformed::no(node)) };
        let Some(at) = batch.iter().position(|read| wide(*read, columns) == column.index()) else {
            return internal_err!("column {column} was not read");
        };
        Ok(Transformed::yes(Arc::new(Column::new(column.name(), at)) as Arc<dyn PhysicalExpr>))
    };
    expression.transform_up(narrow).data()
}

/// Whether reading a column goes to the extents.
pub(super) fn is_heavy(column: ScanColumn, table: &TableSnapshot) -> bool {
    let ScanColumn::Value(position) = column else { return false };
    let schema = table.arrow_schema();
    let field = schema.field(position);
    let is_data = field.metadata().get("class").is_some_and(|class| class == "data");
    is_data
        && (field.data_type().is_nested()
            || matches!(field.data_type(), DataType::Utf8View | DataType::BinaryView))
}
