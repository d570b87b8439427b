//! Floats as whole numbers in the same order, NaN above all, for functions that only compare.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type};
use arrow_array::{ArrayRef, ArrowPrimitiveType};
use arrow_schema::DataType;

/// The types of floats.
pub(super) trait Float: ArrowPrimitiveType {
    /// The whole number of as many bits.
    type Order: ArrowPrimitiveType;

    /// Whether canonical numbers lack it: a negative zero, or a NaN other than the one.
    fn is_odd(number: Self::Native) -> bool;

    /// The canonical number that is equal to it.
    fn canonical(number: Self::Native) -> Self::Native;

    /// Its place: equal numbers have one place.
    fn place(number: Self::Native) -> <Self::Order as ArrowPrimitiveType>::Native;

    /// The canonical number at a place.
    fn at(place: <Self::Order as ArrowPrimitiveType>::Native) -> Self::Native;
}

macro_rules! float {
    ($float:ty, $order:ty, $bits:ty, $whole:ty) => {
        impl Float for $float {
            type Order = $order;

            fn is_odd(number: Self::Native) -> bool {
                let bits = number.to_bits();
                let beyond = bits << 1 > Self::Native::INFINITY.to_bits() << 1;
                bits == 1 << (<$bits>::BITS - 1) || (beyond & (bits != Self::Native::NAN.to_bits()))
            }

            fn canonical(number: Self::Native) -> Self::Native {
                match (Self::is_odd(number), number.is_nan()) {
                    (false, _) => number,
                    (true, true) => Self::Native::NAN,
                    (true, false) => Self::Native::from_bits(0),
                }
            }

            fn place(number: Self::Native) -> $whole {
                let bits = Self::canonical(number).to_bits() as $whole;
                // Of negative numbers all bits but the sign are turned around, as `total_cmp` does it.
                bits ^ (((bits >> (<$bits>::BITS - 1)) as $bits) >> 1) as $whole
            }

            fn at(place: $whole) -> Self::Native {
                let bits = place ^ (((place >> (<$bits>::BITS - 1)) as $bits) >> 1) as $whole;
                Self::Native::from_bits(bits as $bits)
            }
        }
    };
}

float!(Float16Type, Int16Type, u16, i16);
float!(Float32Type, Int32Type, u32, i32);
float!(Float64Type, Int64Type, u64, i64);

/// The type of the places of floats of a type; `None` for other types.
pub(crate) fn order_type(float: &DataType) -> Option<DataType> {
    Some(match float {
        DataType::Float16 => DataType::Int16,
        DataType::Float32 => DataType::Int32,
        DataType::Float64 => DataType::Int64,
        _ => return None,
    })
}

/// The places of floats; other columns stay as they are.
pub(crate) fn to_order(array: &ArrayRef) -> ArrayRef {
    fn places<T: Float>(array: &ArrayRef) -> ArrayRef {
        Arc::new(array.as_primitive::<T>().unary::<_, T::Order>(T::place))
    }
    match array.data_type() {
        DataType::Float16 => places::<Float16Type>(array),
        DataType::Float32 => places::<Float32Type>(array),
        DataType::Float64 => places::<Float64Type>(array),
        _ => array.clone(),
    }
}

/// The floats at places; other columns stay as they are.
pub(crate) fn from_order(array: &ArrayRef) -> ArrayRef {
    fn floats<T: Float>(array: &ArrayRef) -> ArrayRef {
        Arc::new(array.as_primitive::<T::Order>().unary::<_, T>(T::at))
    }
    match array.data_type() {
        DataType::Int16 => floats::<Float16Type>(array),
        DataType::Int32 => floats::<Float32Type>(array),
        DataType::Int64 => floats::<Float64Type>(array),
        _ => array.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_in_the_order_of_numbers_and_lead_back() {
        let rising =
            [f64::NEG_INFINITY, f64::MIN, -1.0, -5e-324, 0.0, 5e-324, 1.0, f64::MAX, f64::INFINITY, f64::NAN];
        let places = rising.map(Float64Type::place);
        assert!(places.is_sorted_by(|a, b| a < b), "{places:?}");
        assert_eq!(places.map(|place| Float64Type::at(place).to_bits()), rising.map(f64::to_bits));
        assert_eq!(Float64Type::place(-0.0), Float64Type::place(0.0));
        assert_eq!(Float32Type::place(f32::NAN.copysign(-1.0)), Float32Type::place(f32::NAN));
    }
}
