//! Values on their way in: what a caller hands to a cell, checked against the column's type.

use std::borrow::Cow;

use crate::error::{Cause, Result};
use crate::local::{Placed, PlacedKind};
use crate::schema::{DataColumn, DataType, Element};

/// A value for one cell. Borrowed where it can be: bytes are copied once, into their extent.
///
/// Numbers convert to the column's number type when nothing is lost (`1_i64` into an int32 column, `1.5_f64` into a
/// float32 column by rounding); anything else is a type error that names the column.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// Known to be absent. The cell becomes final and null.
    Null,
    /// True or false.
    Bool(bool),
    /// A whole number.
    Integer(i128),
    /// A number with a fraction.
    Float(f64),
    /// Text.
    Utf8(Cow<'a, str>),
    /// Bytes.
    Binary(Cow<'a, [u8]>),
    /// Raw little-endian numbers, for a list or tensor column.
    Numbers(Element, Cow<'a, [u8]>),
    /// A value that another process has put into an extent that it was lent.
    Placed(Placed<'a>),
}

/// A value in the form that it is stored in.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Encoded<'a> {
    Null,
    /// The low bytes, as many as the column is wide.
    Inline(u64),
    /// Bytes for an extent, or for the view itself when they are few.
    Bytes(Cow<'a, [u8]>),
    /// Bytes that lie in an extent.
    Placed(Placed<'a>),
}

impl<'a> Value<'a> {
    fn kind(&self) -> String {
        match self {
            Value::Null => "null".into(),
            Value::Bool(_) => "a bool".into(),
            Value::Integer(value) => format!("the integer {value}"),
            Value::Float(value) => format!("the float {value}"),
            Value::Utf8(text) => format!("text of {} bytes", text.len()),
            Value::Binary(bytes) => format!("binary of {} bytes", bytes.len()),
            Value::Numbers(element, bytes) => format!("{} x {element}", bytes.len() / element.width_bytes()),
            Value::Placed(placed) => match placed.kind {
                PlacedKind::Utf8 => format!("text of {} bytes", placed.bytes()),
                PlacedKind::Binary => format!("binary of {} bytes", placed.bytes()),
                PlacedKind::Numbers(element) => {
                    format!("{} x {element}", placed.bytes() / element.width_bytes())
                }
            },
        }
    }

    /// Checks the value against a column and brings it into the stored form.
    pub(crate) fn encode(self, column: &DataColumn) -> Result<Encoded<'a>> {
        let mismatch = |value: &Value<'_>| {
            let (column, expected) = (column.name.clone(), column.data_type.to_string());
            Cause::TypeMismatch { column, expected, found: value.kind() }.into()
        };
        Ok(match (self, &column.data_type) {
            (Value::Null, _) => Encoded::Null,
            (Value::Bool(value), DataType::Bool) => Encoded::Inline(u64::from(value)),
            (value @ (Value::Integer(_) | Value::Float(_)), DataType::Number(element)) => {
                Encoded::Inline(encode_number(&value, *element).ok_or_else(|| mismatch(&value))?)
            }
            (Value::Utf8(text), DataType::Utf8) => Encoded::Bytes(match text {
                Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
                Cow::Owned(text) => Cow::Owned(text.into_bytes()),
            }),
            (Value::Binary(bytes), DataType::Binary) => Encoded::Bytes(bytes),
            (Value::Numbers(found, bytes), DataType::List(element))
                if found == *element && bytes.len() % element.width_bytes() == 0 =>
            {
                Encoded::Bytes(bytes)
            }
            (Value::Numbers(found, bytes), DataType::Tensor(element, shape))
                if found == *element && bytes.len() == tensor_bytes(*element, shape) =>
            {
                Encoded::Bytes(bytes)
            }
            (Value::Placed(placed), data_type) if placed.fits(data_type) => Encoded::Placed(placed),
            (value, _) => return Err(mismatch(&value)),
        })
    }
}

pub(crate) fn tensor_bytes(element: Element, shape: &[u32]) -> usize {
    shape.iter().fold(element.width_bytes(), |bytes, &side| bytes.saturating_mul(side as usize))
}

fn float_of(bits: u64, element: Element) -> f64 {
    match element {
        Element::Float16 => half::f16::from_bits(bits as u16).to_f64(),
        Element::BFloat16 => half::bf16::from_bits(bits as u16).to_f64(),
        Element::Float32 => f32::from_bits(bits as u32).into(),
        _ => f64::from_bits(bits),
    }
}

/// The stored bits of a number, or `None` when it does not fit the element type.
pub(crate) fn encode_number(value: &Value<'_>, element: Element) -> Option<u64> {
    let integer = |value: i128| -> Option<u64> {
        Some(match element {
            Element::Int8 => u64::from(i8::try_from(value).ok()? as u8),
            Element::Int16 => u64::from(i16::try_from(value).ok()? as u16),
            Element::Int32 => u64::from(i32::try_from(value).ok()? as u32),
            Element::Int64 => i64::try_from(value).ok()? as u64,
            Element::UInt8 => u64::from(u8::try_from(value).ok()?),
            Element::UInt16 => u64::from(u16::try_from(value).ok()?),
            Element::UInt32 => u64::from(u32::try_from(value).ok()?),
            Element::UInt64 => u64::try_from(value).ok()?,
            _ => return None,
        })
    };
    let float = |value: f64| -> Option<u64> {
        Some(match element {
            Element::Float16 => u64::from(half::f16::from_f64(value).to_bits()),
            Element::BFloat16 => u64::from(half::bf16::from_f64(value).to_bits()),
            Element::Float32 => u64::from((value as f32).to_bits()),
            Element::Float64 => value.to_bits(),
            _ => return None,
        })
    };
    match value {
        Value::Integer(value) => integer(*value).or_else(|| {
            let wide = *value as f64; // exact whenever a narrower one is
            float(wide).filter(|&bits| wide as i128 == *value && float_of(bits, element) == wide)
        }),
        Value::Float(value) => float(*value),
        _ => None,
    }
}

macro_rules! integers {
    ($($t:ty),*) => {$(
        impl From<$t> for Value<'_> {
            fn from(value: $t) -> Self {
                Value::Integer(value.into())
            }
        }
    )*};
}
integers!(i8, i16, i32, i64, u8, u16, u32, u64);

macro_rules! number_lists {
    ($($t:ty => $element:ident),*) => {$(
        impl<'a> From<&'a [$t]> for Value<'a> {
            fn from(values: &'a [$t]) -> Self {
                Value::Numbers(Element::$element, Cow::Borrowed(bytemuck::cast_slice(values)))
            }
        }
        impl<'a> From<&'a Vec<$t>> for Value<'a> {
            fn from(values: &'a Vec<$t>) -> Self {
                values.as_slice().into()
            }
        }
        impl From<Vec<$t>> for Value<'_> {
            fn from(values: Vec<$t>) -> Self {
                Value::Numbers(Element::$element, Cow::Owned(bytemuck::cast_slice(&values).to_vec()))
            }
        }
    )*};
}
number_lists!(i8 => Int8, i16 => Int16, i32 => Int32, i64 => Int64, u16 => UInt16, u32 => UInt32, u64 => UInt64,
    f32 => Float32, f64 => Float64, half::f16 => Float16, half::bf16 => BFloat16);

impl From<bool> for Value<'_> {
    fn from(value: bool) -> Self {
        Value::Bool(value)
    }
}

impl From<f32> for Value<'_> {
    fn from(value: f32) -> Self {
        Value::Float(value.into())
    }
}

impl From<f64> for Value<'_> {
    fn from(value: f64) -> Self {
        Value::Float(value)
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Value::Utf8(Cow::Borrowed(text))
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Value::Utf8(Cow::Owned(text))
    }
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Value::Binary(Cow::Borrowed(bytes))
    }
}

impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::Null, Into::into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(data_type: DataType) -> DataColumn {
        DataColumn::new("c", data_type)
    }

    #[test]
    fn numbers_convert_where_nothing_is_lost() {
        let cases: [(Value<'_>, DataType, u64); 7] = [
            (65_504_i32.into(), DataType::Float16, 0x7BFF),
            ((1_i64 << 60).into(), DataType::Float64, ((1_i64 << 60) as f64).to_bits()),
            ((-1_i64).into(), DataType::Int32, 0xFFFF_FFFF),
            (7_u8.into(), DataType::Int64, 7),
            (1_i32.into(), DataType::Float32, u64::from(1_f32.to_bits())),
            (0.5_f64.into(), DataType::Float32, u64::from(0.5_f32.to_bits())),
            (1.0_f32.into(), DataType::BFloat16, 0x3F80),
        ];
        for (value, data_type, bits) in cases {
            assert_eq!(value.encode(&column(data_type)).unwrap(), Encoded::Inline(bits));
        }
    }

    // FX-B11
    #[test]
    fn a_value_of_another_type_is_refused_by_name() {
        let cases: [(Value<'_>, DataType, &str); 10] = [
            (16_777_217_i32.into(), DataType::Float32, "the integer 16777217"),
            (257_i32.into(), DataType::BFloat16, "the integer 257"),
            (65_520_i32.into(), DataType::Float16, "the integer 65520"),
            (u64::MAX.into(), DataType::Float64, "the integer 18446744073709551615"),
            ((1_i64 << 40).into(), DataType::Int32, "the integer 1099511627776"),
            (0.5_f64.into(), DataType::Int32, "the float 0.5"),
            ("x".into(), DataType::Binary, "text of 1 bytes"),
            ((&[1_i32][..]).into(), DataType::list(Element::Float32), "1 x int32"),
            ((&[1_f32][..]).into(), DataType::tensor(Element::Float32, [2]), "1 x float32"),
            (true.into(), DataType::Float32, "a bool"),
        ];
        for (value, data_type, found) in cases {
            let error = value.encode(&column(data_type)).unwrap_err().to_string();
            assert!(error.contains("column \"c\"") && error.contains(found), "{error}");
        }
    }
}
