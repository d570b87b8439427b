//! The types of data columns, and where each lies.

use std::fmt;
use std::str::FromStr;

use super::nearest;
use crate::error::{Cause, Error, Result};
use crate::value::{Value, encode_number};

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

    /// The bits of a number as a value of this type, low bytes first: an integer where nothing of it is lost, a float
    /// rounded to a float type. `None` for anything else.
    ///
    /// ```
    /// use forebay_store::Element;
    /// assert_eq!(Element::Int8.bits_of(&(-1_i64).into()), Some(0xFF));
    /// assert_eq!(Element::Int8.bits_of(&128_i64.into()), None);
    /// assert_eq!(Element::Float32.bits_of(&0.1_f64.into()), Some(0.1_f32.to_bits().into()));
    /// ```
    pub fn bits_of(self, number: &Value<'_>) -> Option<u64> {
        encode_number(number, self)
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

impl FromStr for Element {
    type Err = Error;

    /// The other way of [`Display`](fmt::Display).
    ///
    /// # Errors
    /// `input` when no element type has that name; the nearest is suggested.
    fn from_str(name: &str) -> Result<Self> {
        ELEMENTS.iter().find(|entry| entry.2 == name).map(|entry| entry.0).ok_or_else(|| {
            let close = nearest(name, ELEMENTS.iter().map(|entry| entry.2));
            Cause::Unknown { what: "number type", name: name.to_owned(), close }.into()
        })
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

impl FromStr for DataType {
    type Err = Error;

    /// The other way of [`Display`](fmt::Display).
    ///
    /// ```
    /// use forebay_store::{DataType, Element};
    /// assert_eq!("list<int32>".parse::<DataType>()?, DataType::list(Element::Int32));
    /// assert_eq!("tensor<float32, [2, 3]>".parse::<DataType>()?, DataType::tensor(Element::Float32, [2, 3]));
    /// # Ok::<(), forebay_store::Error>(())
    /// ```
    ///
    /// # Errors
    /// `input` when it is the name of no type.
    fn from_str(text: &str) -> Result<Self> {
        let inside = |name| text.strip_prefix(name)?.strip_prefix('<')?.strip_suffix('>');
        match text {
            "bool" => return Ok(DataType::Bool),
            "utf8" => return Ok(DataType::Utf8),
            "binary" => return Ok(DataType::Binary),
            _ => {}
        }
        if let Some(element) = inside("list") {
            return Ok(DataType::List(element.parse()?));
        }
        let Some(tensor) = inside("tensor") else { return Ok(DataType::Number(text.parse()?)) };
        // Spaces are as the writer likes them.
        let parts = tensor.split_once(',').and_then(|(element, sides)| {
            Some((element.trim(), sides.trim().strip_prefix('[')?.strip_suffix(']')?))
        });
        let sides = parts.map(|(_, sides)| sides.split(',').map(|side| side.trim().parse()).collect());
        match (parts, sides) {
            (Some((element, _)), Some(Ok(sides))) => Ok(DataType::Tensor(element.parse()?, sides)),
            _ => {
                let reason = format!("{text:?} is no tensor type; write it as tensor<float32, [2, 3]>");
                Err(Cause::Argument { what: "type", reason }.into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_read_as_it_is_shown() {
        let elements = ELEMENTS.map(|entry| entry.0);
        let of_elements = elements.into_iter().flat_map(|element| {
            [DataType::Number(element), DataType::list(element), DataType::tensor(element, [2, 3])]
        });
        let others = [DataType::Bool, DataType::Utf8, DataType::Binary, DataType::tensor(Element::Int8, [7])];
        for data_type in of_elements.chain(others) {
            assert_eq!(data_type.to_string().parse::<DataType>().unwrap(), data_type);
        }
        for text in ["tensor<int8,[2,3]>", "tensor<int8, [2,3]>", "tensor<int8 , [ 2 ,3 ]>"] {
            assert_eq!(text.parse::<DataType>().unwrap(), DataType::tensor(Element::Int8, [2, 3]), "{text}");
        }
        let refused = [
            ("int23", "did you mean \"int32\""),
            ("list<utf8>", "number type"),
            ("list<int32", "number type"),
            ("tensor<int32>", "no tensor type"),
            ("tensor<int32, [x]>", "no tensor type"),
            ("tensor<int32, []>", "no tensor type"),
            ("tensor<int32, 2>", "no tensor type"),
            ("tensor<int32,[2,,3]>", "no tensor type"),
        ];
        for (text, expected) in refused {
            let error = text.parse::<DataType>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

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
