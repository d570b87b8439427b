//! What a cell holds, wherever its store is.

use bytes::Bytes;
use forebay_store::Cell;

/// What a data cell holds. Bytes of a store in this process are where they lie, not copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CellValue {
    /// Nothing yet.
    Empty,
    /// A value that is still growing: its fragments so far, in one piece.
    Partial(Bytes),
    /// Known to be absent.
    Null,
    /// The bits of a bool or number, low bytes first.
    Inline(u64),
    /// The bytes of a text, binary, list or tensor.
    Bytes(Bytes),
}

impl From<Cell> for CellValue {
    fn from(cell: Cell) -> Self {
        match cell {
            Cell::Empty => CellValue::Empty,
            Cell::Partial(bytes) => CellValue::Partial(bytes.into()),
            Cell::Null => CellValue::Null,
            Cell::Inline(bits) => CellValue::Inline(bits),
            Cell::Bytes(bytes) => CellValue::Bytes(Bytes::from_owner(bytes)),
        }
    }
}
