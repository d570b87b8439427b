//! Values, cells and names of rows.

use std::borrow::Cow;

use bytes::{BufMut, Bytes, BytesMut};
use forebay_store::{Element, Loan, PlacedKind, Row, Spot, Value};

use super::lent::Lent;
use super::{malformed, proto};
use crate::cell::CellValue;
use crate::error::Result;

/// Bytes of a row's name.
const ROW_BYTES: usize = 24;

/// Every element with its number on the wire, which is its place.
const ELEMENTS: [Element; 12] = [
    Element::Int8,
    Element::Int16,
    Element::Int32,
    Element::Int64,
    Element::UInt8,
    Element::UInt16,
    Element::UInt32,
    Element::UInt64,
    Element::Float16,
    Element::BFloat16,
    Element::Float32,
    Element::Float64,
];

/// A number type on the wire.
pub(super) fn from_element(element: Element) -> i32 {
    ELEMENTS.iter().position(|other| *other == element).map_or(0, |at| at as i32 + 1)
}

/// The number type that a number on the wire stands for.
pub(super) fn to_element(number: i32) -> Result<Element> {
    let element = usize::try_from(number).ok().and_then(|number| ELEMENTS.get(number.checked_sub(1)?));
    element.copied().ok_or_else(|| malformed(&format!("{number} is no number type")))
}

/// A value on the wire. An integer beyond 64 bits goes as the float that is nearest, which no integer column takes.
pub fn from_value(value: &Value<'_>) -> proto::Value {
    use proto::value::Value as Wire;
    let value = match value {
        Value::Null => Wire::Null(true),
        Value::Bool(value) => Wire::Boolean(*value),
        Value::Integer(value) => match (i64::try_from(*value), u64::try_from(*value)) {
            (Ok(value), _) => Wire::Integer(value),
            (_, Ok(value)) => Wire::Large(value),
            _ => Wire::Float(*value as f64),
        },
        Value::Float(value) => Wire::Float(*value),
        Value::Utf8(text) => Wire::Text(text.to_string()),
        Value::Binary(bytes) => Wire::Binary(Bytes::copy_from_slice(bytes)),
        Value::Numbers(element, bytes) => Wire::Numbers(proto::Numbers {
            element: from_element(*element),
            bytes: Bytes::copy_from_slice(bytes),
        }),
        Value::Placed(placed) => return from_placed(placed.loan(), placed.kind(), placed.spot()),
    };
    proto::Value { value: Some(value) }
}

/// A value on the wire that was put into a lent extent.
pub fn from_placed(loan: Loan, kind: PlacedKind, spot: Spot) -> proto::Value {
    let placed = placed(loan.extent, loan.generation, kind, spot);
    proto::Value { value: Some(proto::value::Value::Placed(placed)) }
}

/// A value on the wire that comes in a frame.
pub fn from_framed(frame: u32, at: u32, kind: PlacedKind) -> proto::Value {
    use proto::framed::Kind;
    let kind = Some(match kind {
        PlacedKind::Utf8 => Kind::Text(true),
        PlacedKind::Binary => Kind::Binary(true),
        PlacedKind::Numbers(element) => Kind::Numbers(from_element(element)),
    });
    proto::Value { value: Some(proto::value::Value::Framed(proto::Framed { frame, at, kind })) }
}

pub(super) fn placed(extent: u32, generation: u32, kind: PlacedKind, spot: Spot) -> proto::Placed {
    use proto::placed::Kind;
    let kind = Some(match kind {
        PlacedKind::Utf8 => Kind::Text(true),
        PlacedKind::Binary => Kind::Binary(true),
        PlacedKind::Numbers(element) => Kind::Numbers(from_element(element)),
    });
    let Spot { offset, length, crc32c } = spot;
    proto::Placed { extent, generation, offset, length, crc32c, kind }
}

/// Puts a value's bytes where its place was said.
pub(super) fn unplace(
    value: &mut proto::Value,
    find: &mut dyn FnMut(&proto::Placed) -> Result<Vec<u8>>,
) -> Result<()> {
    use proto::placed::Kind;
    use proto::value::Value as Wire;
    let Some(Wire::Placed(placed) | Wire::InSlab(placed)) = &value.value else { return Ok(()) };
    let bytes = find(placed)?;
    value.value = Some(match placed.kind.ok_or_else(|| malformed("a value of no kind"))? {
        Kind::Text(_) => Wire::Text(String::from_utf8(bytes).map_err(|_| malformed("a text that is none"))?),
        Kind::Binary(_) => Wire::Binary(bytes.into()),
        Kind::Numbers(element) => Wire::Numbers(proto::Numbers { element, bytes: bytes.into() }),
    });
    Ok(())
}

/// Where in its extent a value is said to lie.
pub fn to_spot(placed: &proto::Placed) -> Spot {
    Spot { offset: placed.offset, length: placed.length, crc32c: placed.crc32c }
}

/// What kind of value was put somewhere.
pub(super) fn kind_of(placed: &proto::Placed) -> Result<PlacedKind> {
    use proto::placed::Kind;
    Ok(match placed.kind.ok_or_else(|| malformed("a value of no kind"))? {
        Kind::Text(_) => PlacedKind::Utf8,
        Kind::Binary(_) => PlacedKind::Binary,
        Kind::Numbers(element) => PlacedKind::Numbers(to_element(element)?),
    })
}

/// What is said of an extent that is lent.
pub fn from_loan(loan: Loan) -> proto::Loan {
    let Loan { extent, generation, capacity } = loan;
    proto::Loan { extent, generation, capacity }
}

/// The loan that is meant.
pub fn to_loan(loan: &proto::Loan) -> Loan {
    Loan { extent: loan.extent, generation: loan.generation, capacity: loan.capacity }
}

/// The value that is meant; bytes are borrowed from the message, or lie in what was `lent` to its sender.
///
/// # Errors
/// `input` where there is none; `state` ([`NOT_LENT`](super::NOT_LENT)) where it is said to lie in what is another's.
pub fn to_value<'v>(value: Option<&'v proto::Value>, lent: &'v Lent) -> Result<Value<'v>> {
    use proto::value::Value as Wire;
    let value =
        value.and_then(|value| value.value.as_ref()).ok_or_else(|| malformed("a cell has no value"))?;
    Ok(match value {
        Wire::Null(_) => Value::Null,
        Wire::Boolean(value) => Value::Bool(*value),
        Wire::Integer(value) => Value::Integer((*value).into()),
        Wire::Large(value) => Value::Integer((*value).into()),
        Wire::Float(value) => Value::Float(*value),
        Wire::Text(text) => Value::Utf8(Cow::Borrowed(text)),
        Wire::Binary(bytes) => Value::Binary(Cow::Borrowed(bytes)),
        Wire::Numbers(numbers) => Value::Numbers(to_element(numbers.element)?, Cow::Borrowed(&numbers.bytes)),
        Wire::Placed(placed) => lent.placed(placed)?,
        Wire::InSlab(placed) => lent.in_slab(placed)?,
        Wire::Framed(framed) => lent.framed(framed)?,
    })
}

/// A row's name on the wire.
pub fn from_row(row: Row) -> Bytes {
    Bytes::copy_from_slice(&row.to_bytes())
}

/// The row that is named.
///
/// # Errors
/// `input` for anything but 24 bytes.
pub fn to_row(bytes: &[u8]) -> Result<Row> {
    let bytes = bytes
        .try_into()
        .map_err(|_| malformed(&format!("a row is named by 24 bytes, not {}", bytes.len())))?;
    Ok(Row::from_bytes(bytes))
}

/// The names of rows in one piece.
pub fn from_rows(rows: impl Iterator<Item = Row>) -> Bytes {
    let mut names = BytesMut::with_capacity(ROW_BYTES * rows.size_hint().1.unwrap_or(0));
    rows.for_each(|row| names.put_slice(&row.to_bytes()));
    names.freeze()
}

/// The rows whose names lie in one piece, as [`from_rows`] lays them.
pub fn rows_in(names: &[u8]) -> impl ExactSizeIterator<Item = Result<Row>> {
    names.chunks(ROW_BYTES).map(to_row)
}

/// The rows that are named.
///
/// # Errors
/// As for [`to_row`].
pub fn to_rows(rows: &[Bytes]) -> Result<Vec<Row>> {
    rows.iter().map(|row| to_row(row)).collect()
}

/// What a cell holds, on the wire.
pub fn from_cell(cell: CellValue) -> proto::ReadCellReply {
    use proto::read_cell_reply::Cell as Wire;
    let cell = match cell {
        CellValue::Empty => Wire::Empty(true),
        CellValue::Partial(bytes) => Wire::Partial(bytes),
        CellValue::Null => Wire::Null(true),
        CellValue::Inline(bits) => Wire::Inline(bits),
        CellValue::Bytes(bytes) => Wire::Bytes(bytes),
    };
    proto::ReadCellReply { cell: Some(cell) }
}

/// What the wire says that a cell holds.
///
/// # Errors
/// `input` when it says nothing.
pub fn to_cell(reply: proto::ReadCellReply) -> Result<CellValue> {
    use proto::read_cell_reply::Cell as Wire;
    Ok(match reply.cell.ok_or_else(|| malformed("a cell without content"))? {
        Wire::Empty(_) => CellValue::Empty,
        Wire::Partial(bytes) => CellValue::Partial(bytes),
        Wire::Null(_) => CellValue::Null,
        Wire::Inline(bits) => CellValue::Inline(bits),
        Wire::Bytes(bytes) => CellValue::Bytes(bytes),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_elements_come_back_as_they_went() {
        let values = [
            Value::Null,
            Value::Bool(true),
            Value::Integer(-5),
            Value::Integer(u64::MAX.into()),
            Value::Float(0.1),
            "text".into(),
            Value::Binary(Cow::Borrowed(b"bytes")),
        ];
        let numbers =
            ELEMENTS.map(|element| Value::Numbers(element, Cow::Borrowed(&[1, 2, 3, 4, 5, 6, 7, 8])));
        for value in values.iter().chain(&numbers) {
            assert_eq!(to_value(Some(&from_value(value)), &Lent::default()).unwrap(), *value);
        }
    }

    #[test]
    fn what_is_no_value_or_row_is_refused() {
        assert!(
            to_value(None, &Lent::default()).is_err()
                && to_value(Some(&proto::Value::default()), &Lent::default()).is_err()
        );
        let loan = Loan { extent: 1, generation: 2, capacity: 4096 };
        let spot = Spot { offset: 64, length: 5, crc32c: 7 };
        let stranger = from_placed(loan, PlacedKind::Numbers(Element::Int8), spot);
        assert_eq!(to_value(Some(&stranger), &Lent::default()).unwrap_err().cause(), crate::wire::NOT_LENT);
        for number in [-1, 0, 13, i32::MAX] {
            assert!(to_element(number).is_err(), "{number}");
        }
        for bytes in [&[][..], &[0; 23], &[0; 25]] {
            assert!(to_row(bytes).is_err(), "{bytes:?}");
        }
    }
}
