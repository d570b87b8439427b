//! Floating-point numbers as SQL counts them: zero is one value, and so is what is no number.
//!
//! A float has two zeros, and some millions of bit patterns for NaN, one of which x86 makes of 0/0 with its sign set. Plans
//! compare, hash and sort by these bits in one place and by value in another. So numbers become *canonical* where they enter
//! a plan: `-0.0` is `0.0`, and NaN is the one NaN that is greater than every number, as in DuckDB and PostgreSQL.
//!
//! - [`canonical`] does it to columns that are read of the store, and copies nothing where nothing is to be changed.
//! - [`Canonical`] is the same as an expression, over what is read of an archive.
//! - [`without_bounds`] keeps bounds of floats out of Parquet files: these leave NaN out, and rows would be left out by them.
//! - [`FloatLiterals`] has a number in a statement mean a float32 where it is compared with one.
//! - [`ComputedFloats`] does the same to what a query computes, where it is compared, sorted, grouped or joined.
//!
//! What lies in lists stays as it was written.

mod bounds;
mod computed;
mod function;
mod literals;
mod order;

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float32Type, Float64Type};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::DataType;
use datafusion::error::Result as PlanResult;

pub(crate) use bounds::without_bounds;
pub(crate) use computed::ComputedFloats;
pub(crate) use function::Canonical;
pub(crate) use literals::FloatLiterals;
use order::Float;
pub(crate) use order::{from_order, order_type, to_order};

/// A column with canonical numbers, where it has floats: the same column where they are already.
pub(crate) fn canonical(array: ArrayRef) -> ArrayRef {
    match array.data_type() {
        DataType::Float16 => made_canonical::<Float16Type>(array),
        DataType::Float32 => made_canonical::<Float32Type>(array),
        DataType::Float64 => made_canonical::<Float64Type>(array),
        _ => array,
    }
}

fn made_canonical<T: Float>(array: ArrayRef) -> ArrayRef {
    let numbers = array.as_primitive::<T>();
    // All of them, without a branch: the compiler makes vectors of it.
    match numbers.values().iter().fold(false, |odd, number| odd | T::is_odd(*number)) {
        true => Arc::new(numbers.unary::<_, T>(T::canonical)),
        false => array,
    }
}

/// The same for all columns of a batch.
pub(crate) fn canonical_batch(batch: RecordBatch) -> PlanResult<RecordBatch> {
    if !batch.schema_ref().fields().iter().any(|field| field.data_type().is_floating()) {
        return Ok(batch);
    }
    let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let (schema, columns, _) = batch.into_parts();
    let columns = columns.into_iter().map(canonical).collect();
    Ok(RecordBatch::try_new_with_options(schema, columns, &rows)?)
}

#[cfg(test)]
mod tests {
    use arrow_array::{Array, Float32Array, Float64Array, Int32Array};

    use super::*;

    #[test]
    fn zeros_and_nans_are_one_and_what_is_canonical_is_not_copied() {
        let odd = [-0.0, f32::NAN.copysign(-1.0), f32::from_bits(0x7F80_0001), 0.0, -1.5, f32::NEG_INFINITY];
        let made = canonical(Arc::new(Float32Array::from(odd.to_vec())));
        let bits: Vec<u32> =
            made.as_primitive::<Float32Type>().values().iter().map(|n| n.to_bits()).collect();
        assert_eq!(bits, [0.0, f32::NAN, f32::NAN, 0.0, -1.5, f32::NEG_INFINITY].map(f32::to_bits));
        let plain =
            Float64Array::from(vec![Some(0.0), None, Some(f64::NAN), Some(f64::INFINITY), Some(-5e-324)]);
        for same in [Arc::new(plain) as ArrayRef, Arc::new(Int32Array::from(vec![0, i32::MIN]))] {
            assert!(Arc::ptr_eq(&same, &canonical(same.clone())), "{}", same.data_type());
        }
    }
}
