//! The types of data columns, and where each lies.

use std::fmt;

use crate::error::{Cause, Result};

/// A number type: what a scalar column holds, or the element of a list or tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each variant is named for the type it stands for")]
pub enum Element {
    Int8,
    Int16,
    Int32,
    Int64,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
    Float16,
    BFloat16,
    Float32,
    Float64,
}

/// Every element type with its width in bytes, its name and its tag in files. Tags are never used for another type.
const ELEMENTS: [(Element, usize, &str, u8); 12] = [
    (Element::Int8, 1, "int8", 1),
    (Element::Int16, 2, "int16", 2),
    (Element::Int32, 4, "int32", 3),
    (Element::Int64, 8, "int64", 4),
    (Element::UInt8, 1, "uint8", 5),
    (Element::UInt16, 2, "uint16", 6),
    (Element::UInt32, 4, "uint32", 7),
    (Element::UInt64, 8, "uint64", 8),
    (Element::Float16, 2, "float16", 9),
    (Element::BFloat16, 2, "bfloat16", 10),
    (Element::Float32, 4, "float32", 11),
    (Element::Float64, 8, "float64", 12),
];

impl Element {
    fn entry(self) -> (usize, &'static str, u8) {
        let (_, width, name, tag) = ELEMENTS[self as usize];
        (width, name, tag)
    }

    /// Bytes that one value takes.
    pub fn width_bytes(self) -> usize {
        self.entry().0
    }

    /// Whether values are numbers with a fraction.
    pub fn is_float(self) -> bool {
        matches!(self, Element::Float16 | Element::BFloat16 | Element::Float32 | Element::Float64)
    }

    pub(crate) fn tag(self) -> u8 {
        self.entry().2
    }

    pub(crate) fn from_tag(tag: u8) -> Option<Self> {
        ELEMENTS.iter().find(|entry| entry.3 == tag).map(|entry| entry.0)
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.entry().1)
    }
}

/// The type of a data column.
///
/// The type alone decides where values lie ([`DataType::storage_class`]); it never depends on the shapes that happen to
/// be in a batch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DataType {
    /// True or false.
    Bool,
    /// One number.
    Number(Element),
    /// Text.
    Utf8,
    /// Bytes.
    Binary,
    /// Any number of numbers.
    List(Element),
    /// Numbers in a fixed shape, row-major.
    Tensor(Element, Vec<u32>),
}

#[allow(non_upper_case_globals, missing_docs, reason = "they read as the variants they stand for")]
impl DataType {
    pub const Int32: DataType = DataType::Number(Element::Int32);
    pub const Int64: DataType = DataType::Number(Element::Int64);
    pub const UInt32: DataType = DataType::Number(Element::UInt32);
    pub const UInt64: DataType = DataType::Number(Element::UInt64);
    pub const Float16: DataType = DataType::Number(Element::Float16);
    pub const BFloat16: DataType = DataType::Number(Element::BFloat16);
    pub const Float32: DataType = DataType::Number(Element::Float32);
    pub const Float64: DataType = DataType::Number(Element::Float64);
}

/// Where the values of a column lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StorageClass {
    /// In the table itself.
    Inline,
    /// In an extent, with a 16-byte view in the table; 12 bytes or fewer lie in the view.
    View,
    /// In an extent, 64-byte aligned, as raw little-endian numbers ready for a tensor library.
    Slice,
}

impl DataType {
    /// A list of numbers.
    pub fn list(element: Element) -> Self {
        DataType::List(element)
    }

    /// A tensor of a fixed shape.
    pub fn tensor(element: Element, shape: impl Into<Vec<u32>>) -> Self {
        DataType::Tensor(element, shape.into())
    }

    /// Where values of this type lie.
    pub fn storage_class(&self) -> StorageClass {
        match self {
            DataType::Bool | DataType::Number(_) => StorageClass::Inline,
            DataType::Utf8 | DataType::Binary => StorageClass::View,
            DataType::List(_) | DataType::Tensor(..) => StorageClass::Slice,
        }
    }

    /// A tensor has at least one element, and fits into an extent.
    pub(crate) fn validate(&self, column: &str) -> Result<()> {
        let DataType::Tensor(element, shape) = self else { return Ok(()) };
        let bytes = shape.iter().try_fold(element.width_bytes(), |n, &side| n.checked_mul(side as usize));
        if bytes.is_some_and(|bytes| (1..=1 << 30).contains(&bytes)) {
            return Ok(());
        }
        let reason = format!("{column:?} is a {self}, whose values take no bytes or more than 1 GiB");
        Err(Cause::Argument { what: "shape", reason }.into())
    }

    /// Bytes that one element of a value takes: what a value's length is divided by to count them.
    pub(crate) fn element_bytes(&self) -> usize {
        match self {
            DataType::Number(element) | DataType::List(element) | DataType::Tensor(element, _) => {
                element.width_bytes()
            }
            DataType::Bool | DataType::Utf8 | DataType::Binary => 1,
        }
    }

    /// Bytes that one value takes in the table itself: its width, or a view.
    pub fn width_bytes(&self) -> usize {
        match self {
            DataType::Bool => 1,
            DataType::Number(element) => element.width_bytes(),
            _ => 16,
        }
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DataType::Bool => f.write_str("bool"),
            DataType::Number(element) => element.fmt(f),
            DataType::Utf8 => f.write_str("utf8"),
            DataType::Binary => f.write_str("binary"),
            DataType::List(element) => write!(f, "list<{element}>"),
            DataType::Tensor(element, shape) => write!(f, "tensor<{element}, {shape:?}>"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // FX-21
    #[test]
    fn the_type_alone_decides_where_a_value_lies() {
        let elements = ELEMENTS.map(|entry| entry.0);
        for element in elements {
            assert_eq!(DataType::Number(element).storage_class(), StorageClass::Inline);
            assert_eq!(DataType::list(element).storage_class(), StorageClass::Slice);
            assert_eq!(DataType::tensor(element, [2, 3]).storage_class(), StorageClass::Slice);
        }
        assert_eq!(DataType::Bool.storage_class(), StorageClass::Inline);
        assert_eq!(DataType::Utf8.storage_class(), StorageClass::View);
        assert_eq!(DataType::Binary.storage_class(), StorageClass::View);
    }

    #[test]
    fn every_element_stands_at_its_own_place_in_the_table() {
        for (index, (element, width, _, tag)) in ELEMENTS.into_iter().enumerate() {
            assert_eq!((element as usize, element.width_bytes()), (index, width));
            assert_eq!(Element::from_tag(tag), Some(element));
        }
        assert_eq!(Element::from_tag(0), None);
    }
}
