//! Numbers of one type as numbers of another: where nothing is lost, and floats by rounding, as the store does it for
//! single numbers.

use std::fmt;

use forebay::store::{Element, Value};
use half::f16;

/// What an array holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Bytes that are 0 or 1.
    Bool,
    /// Numbers of a type.
    Number(Element),
}

impl Kind {
    pub(super) fn width_bytes(self) -> usize {
        match self {
            Kind::Bool => 1,
            Kind::Number(element) => element.width_bytes(),
        }
    }

    /// One element, of its little-endian bytes.
    pub(super) fn read(self, bytes: &[u8]) -> Value<'static> {
        let mut wide = [0; 8];
        wide[..bytes.len()].copy_from_slice(bytes);
        let bits = u64::from_le_bytes(wide);
        let Kind::Number(element) = self else { return Value::Bool(bits != 0) };
        match element {
            Element::Int8 => (bits as i8).into(),
            Element::Int16 => (bits as i16).into(),
            Element::Int32 => (bits as i32).into(),
            Element::Int64 => (bits as i64).into(),
            Element::Float16 => f16::from_bits(bits as u16).to_f64().into(),
            Element::BFloat16 => half::bf16::from_bits(bits as u16).to_f64().into(),
            Element::Float32 => f32::from_bits(bits as u32).into(),
            Element::Float64 => f64::from_bits(bits).into(),
            _ => bits.into(), // unsigned
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Bool => f.write_str("bool"),
            Kind::Number(element) => element.fmt(f),
        }
    }
}

/// Adds a number to the bytes of a list; gives it back when it does not fit. A bool counts as 0 or 1.
pub(super) fn push(list: &mut Vec<u8>, value: Value<'static>, to: Element) -> Result<(), Value<'static>> {
    let bits = match value {
        Value::Bool(value) => to.bits_of(&u8::from(value).into()),
        _ => to.bits_of(&value),
    };
    list.extend_from_slice(&bits.ok_or(value)?.to_le_bytes()[..to.width_bytes()]);
    Ok(())
}

/// All elements of an array as those of a list; the first that does not fit is given back.
pub(super) fn converted(bytes: &[u8], from: Kind, to: Element) -> Result<Vec<u8>, Value<'static>> {
    let width = from.width_bytes();
    let mut list = Vec::with_capacity(bytes.len() / width * to.width_bytes());
    bytes.chunks_exact(width).try_for_each(|element| push(&mut list, from.read(element), to))?;
    Ok(list)
}
