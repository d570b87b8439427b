//! A function that looks at its arguments before it makes anything of them.

use std::sync::Arc;

use arrow_schema::{DataType, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{ExprSchema, ScalarValue};
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::udf_eq::UdfEq;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ExpressionPlacement, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, StructFieldMapping,
};

use super::argument::Argument;
use super::growth::Growth;
use super::limits::Limits;
use super::steps;

/// The call of the function within its bounds, where it needs any.
pub(super) fn bounded(expression: Expr, limits: Limits) -> Transformed<Expr> {
    let Expr::ScalarFunction(ScalarFunction { func, args }) = expression else {
        return Transformed::no(expression);
    };
    let bound = match func.name() {
        steps::LEVENSHTEIN => Some(Bound::Time),
        name => Growth::of(name).map(|growth| Bound::Memory(growth, limits)),
    };
    let (func, is_new) = match bound {
        Some(bound) if !func.inner().is::<Bounded>() => (Arc::new(of(func.inner().clone(), bound)), true),
        _ => (func, false),
    };
    let expression = Expr::ScalarFunction(ScalarFunction { func, args });
    if is_new { Transformed::yes(expression) } else { Transformed::no(expression) }
}

fn of(inner: Arc<dyn ScalarUDFImpl>, bound: Bound) -> ScalarUDF {
    ScalarUDF::new_from_impl(Bounded { inner: inner.into(), bound })
}

/// What a function is kept within.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Bound {
    Memory(Growth, Limits),
    Time,
}

/// The function inside, with a look before each call.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Bounded {
    inner: UdfEq<Arc<dyn ScalarUDFImpl>>,
    bound: Bound,
}

impl Bounded {
    fn check(&self, call: &ScalarFunctionArgs, growth: Growth, limits: Limits) -> PlanResult<()> {
        let arguments = call.args.iter().map(Argument::of).collect::<PlanResult<Vec<_>>>()?;
        let is_constant = arguments.iter().all(Argument::is_constant);
        let rows = if is_constant { 1 } else { call.number_rows };
        let bytes = growth.bytes(call, &arguments, rows, limits.most(is_constant))?;
        limits.check(self.inner.name(), bytes, rows, is_constant)
    }

    /// Texts that are written in the statement are joined when the call is simplified, and it is not made.
    fn check_literals(&self, args: &[Expr]) -> PlanResult<()> {
        let Bound::Memory(growth @ (Growth::Sum | Growth::Separated), limits) = self.bound else {
            return Ok(());
        };
        let literals = args.iter().filter_map(|arg| match arg {
            Expr::Literal(value, _) => Some(Argument::of(&ColumnarValue::Scalar(value.clone()))),
            _ => None,
        });
        let bytes = literals.map(|literal| Ok(literal?.bytes(0))).collect::<PlanResult<Vec<u64>>>()?;
        let between = match (growth, bytes.first()) {
            (Growth::Separated, Some(separator)) => separator.saturating_mul(args.len() as u64),
            _ => 0,
        };
        limits.check(self.inner.name(), between.saturating_add(bytes.iter().sum()), 1, true)
    }

    /// What became of the call when it was simplified, within the same bounds.
    fn kept(&self, simplified: ExprSimplifyResult) -> ExprSimplifyResult {
        match (simplified, self.bound) {
            (ExprSimplifyResult::Simplified(expression), Bound::Memory(_, limits)) => {
                ExprSimplifyResult::Simplified(bounded(expression, limits).data)
            }
            (ExprSimplifyResult::Original(args), _) => ExprSimplifyResult::Original(args),
            (simplified, _) => simplified,
        }
    }
}

/// All but the call itself is the function's own.
#[warn(clippy::missing_trait_methods)]
impl ScalarUDFImpl for Bounded {
    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        match self.bound {
            Bound::Time => steps::in_turns(self.inner.as_ref(), call),
            Bound::Memory(growth, limits) => {
                self.check(&call, growth, limits)?;
                self.inner.invoke_with_args(call)
            }
        }
    }

    fn with_updated_config(&self, config: &ConfigOptions) -> Option<ScalarUDF> {
        Some(of(self.inner.with_updated_config(config)?.inner().clone(), self.bound))
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> PlanResult<ExprSimplifyResult> {
        self.check_literals(&args)?;
        Ok(self.kept(self.inner.simplify(args, info)?))
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn display_name(&self, args: &[Expr]) -> PlanResult<String> {
        #[expect(deprecated, reason = "whoever has one of its own is shown by it")]
        self.inner.display_name(args)
    }

    fn schema_name(&self, args: &[Expr]) -> PlanResult<String> {
        self.inner.schema_name(args)
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> PlanResult<DataType> {
        self.inner.return_type(types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> PlanResult<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn is_nullable(&self, args: &[Expr], schema: &dyn ExprSchema) -> bool {
        #[expect(deprecated, reason = "as for the name that is shown")]
        self.inner.is_nullable(args, schema)
    }

    fn is_strict(&self) -> bool {
        self.inner.is_strict()
    }

    fn preimage(&self, args: &[Expr], literal: &Expr, info: &SimplifyContext) -> PlanResult<PreimageResult> {
        self.inner.preimage(args, literal, info)
    }

    fn conditional_arguments<'a>(&self, args: &'a [Expr]) -> Option<(Vec<&'a Expr>, Vec<&'a Expr>)> {
        self.inner.conditional_arguments(args)
    }

    fn short_circuits(&self) -> bool {
        self.inner.short_circuits()
    }

    fn evaluate_bounds(&self, inputs: &[&Interval]) -> PlanResult<Interval> {
        self.inner.evaluate_bounds(inputs)
    }

    fn propagate_constraints(
        &self,
        interval: &Interval,
        inputs: &[&Interval],
    ) -> PlanResult<Option<Vec<Interval>>> {
        self.inner.propagate_constraints(interval, inputs)
    }

    fn struct_field_mapping(&self, literals: &[Option<ScalarValue>]) -> Option<StructFieldMapping> {
        self.inner.struct_field_mapping(literals)
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> PlanResult<SortProperties> {
        self.inner.output_ordering(inputs)
    }

    fn preserves_lex_ordering(&self, inputs: &[ExprProperties]) -> PlanResult<bool> {
        self.inner.preserves_lex_ordering(inputs)
    }

    fn strictly_order_preserving(&self, inputs: &[ExprProperties]) -> PlanResult<bool> {
        self.inner.strictly_order_preserving(inputs)
    }

    fn coerce_types(&self, types: &[DataType]) -> PlanResult<Vec<DataType>> {
        self.inner.coerce_types(types)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn placement(&self, args: &[ExpressionPlacement]) -> ExpressionPlacement {
        self.inner.placement(args)
    }
}
