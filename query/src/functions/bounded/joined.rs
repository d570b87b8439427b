//! `a || b` as a function, so that what it makes is counted too.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, FieldRef, Schema};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, internal_err};
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::binary::BinaryTypeCoercer;
use datafusion::logical_expr::expr::{BinaryExpr, ScalarFunction};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::expressions::{self, Column};

/// Two texts one behind the other, by the rules of the operator: of which types, and NULL where one is.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Joined {
    signature: Signature,
}

/// The call in place of the operator, where it joins texts.
pub(super) fn joined(expression: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let Expr::BinaryExpr(BinaryExpr { left, op: Operator::StringConcat, right }) = expression else {
        return Transformed::no(expression);
    };
    let types = left.get_type(schema).and_then(|one| Ok((one, right.get_type(schema)?)));
    let makes_text = types.and_then(|(left, right)| coercer(&left, &right).get_result_type());
    let is_text = |made| matches!(made, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    if !makes_text.is_ok_and(is_text) {
        return Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op: Operator::StringConcat, right }));
    }
    let function =
        ScalarUDF::new_from_impl(Joined { signature: Signature::user_defined(Volatility::Immutable) });
    Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(function), vec![*left, *right])))
}

fn coercer<'a>(left: &'a DataType, right: &'a DataType) -> BinaryTypeCoercer<'a> {
    BinaryTypeCoercer::new(left, &Operator::StringConcat, right)
}

impl ScalarUDFImpl for Joined {
    fn name(&self) -> &str {
        "||"
    }

    fn display_name(&self, args: &[Expr]) -> PlanResult<String> {
        Ok(args.iter().map(ToString::to_string).collect::<Vec<_>>().join(" || "))
    }

    fn schema_name(&self, args: &[Expr]) -> PlanResult<String> {
        Ok(args.iter().map(|arg| arg.schema_name().to_string()).collect::<Vec<_>>().join(" || "))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> PlanResult<Vec<DataType>> {
        let [left, right] = types else { return internal_err!("|| of {} values", types.len()) };
        let (left, right) = coercer(left, right).get_input_types()?;
        Ok(vec![left, right])
    }

    fn return_type(&self, types: &[DataType]) -> PlanResult<DataType> {
        let [left, right] = types else { return internal_err!("|| of {} values", types.len()) };
        coercer(left, right).get_result_type()
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> PlanResult<FieldRef> {
        let types: Vec<DataType> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let is_nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), self.return_type(&types)?, is_nullable)))
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let is_constant = call.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { call.number_rows };
        let columns =
            call.args.into_iter().map(|arg| arg.into_array(rows)).collect::<PlanResult<Vec<_>>>()?;
        let fields = columns.iter().zip(["left", "right"]);
        let fields: Vec<Field> =
            fields.map(|(column, name)| Field::new(name, column.data_type().clone(), true)).collect();
        let schema = Arc::new(Schema::new(fields));
        let batch = RecordBatch::try_new(schema.clone(), columns)?;
        let operand = |name, at| -> Arc<dyn PhysicalExpr> { Arc::new(Column::new(name, at)) };
        let operator =
            expressions::binary(operand("left", 0), Operator::StringConcat, operand("right", 1), &schema)?;
        let made = operator.evaluate(&batch)?.into_array(rows)?;
        Ok(match is_constant {
            true => ColumnarValue::Scalar(datafusion::common::ScalarValue::try_from_array(&made, 0)?),
            false => ColumnarValue::Array(made),
        })
    }
}
