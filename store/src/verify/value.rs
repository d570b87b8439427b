//! One value: its place, its trailer, its bytes.

use super::extents::OpenExtent;
use super::fault::FaultKind;
use super::named::NamedValue;
use crate::extent::{HEADER_BYTES, TRAILER_BYTES, Trailer};
use crate::schema::{DataType, StorageClass};
use crate::state::State;
use crate::table::Row;

/// How much of a value is held at once.
const PIECE_BYTES: usize = 1 << 20;

/// # Errors
/// Why the bytes are not what the row's writer wrote.
pub(super) fn check_value(
    extent: &OpenExtent,
    state: &State,
    value: &NamedValue,
) -> Result<(), (FaultKind, String)> {
    check(extent, state, value).map_err(|reason| (FaultKind::Value, reason))
}

fn check(extent: &OpenExtent, state: &State, value: &NamedValue) -> Result<(), String> {
    let table = &state.tables[value.table as usize];
    let data_type = &table.schema.data_columns()[usize::from(value.column)].data_type;
    let (start, length) = (u64::from(value.offset), u64::from(value.length));
    let end = (start + length).next_multiple_of(8);
    let align = if data_type.storage_class() == StorageClass::Slice { 64 } else { 8 };
    if start < HEADER_BYTES as u64 || start % align != 0 {
        return Err(format!("a value cannot begin at {start}"));
    }
    if end + TRAILER_BYTES as u64 > extent.length {
        return Err(format!(
            "its {length} bytes and their trailer lie outside the file of {} bytes",
            extent.length
        ));
    }
    let trailer = read_trailer(extent, value.extent, end)?;
    check_trailer(&trailer, state, value)?;
    check_bytes(extent, start, end, value.length as usize, trailer.crc32c, data_type)
}

fn read_trailer(extent: &OpenExtent, number: u32, at: u64) -> Result<Trailer, String> {
    let mut bytes = [0; TRAILER_BYTES];
    extent.file.read_at(&mut bytes, at).map_err(|e| format!("its trailer cannot be read: {e}"))?;
    Trailer::decode(&bytes, number).ok_or_else(|| format!("the trailer at {at} does not match its checksum"))
}

/// A trailer says whose value it follows: of a shared column, the first row's that brought it.
fn check_trailer(trailer: &Trailer, state: &State, value: &NamedValue) -> Result<(), String> {
    let meta = state.tables[value.table as usize].meta(value.row);
    let key = Row::key(meta.policy_version, meta.sample(state.texts.pages()));
    let owner = &trailer.owner;
    let shared = state.tables[value.table as usize].schema.data_columns()[value.column as usize].shared;
    let place = (value.length, value.generation) == (trailer.length, trailer.generation);
    let expected = (value.table, u32::from(value.column), key);
    if place && (shared || (owner.table, owner.column, owner.row_key) == expected) {
        return Ok(());
    }
    let found = (trailer.length, trailer.generation, owner.table, owner.column, owner.row_key);
    Err(format!(
        "its trailer speaks of another value: {} bytes, generation {}, table {}, column {}, row key {:x}",
        found.0, found.1, found.2, found.3, found.4
    ))
}

/// Reads the value piece by piece: checksum, form, and the zeros up to the trailer.
fn check_bytes(
    extent: &OpenExtent,
    start: u64,
    end: u64,
    length: usize,
    crc32c: u32,
    data_type: &DataType,
) -> Result<(), String> {
    let mut buffer = vec![0; ((end - start) as usize).min(PIECE_BYTES)];
    let (mut at, mut crc, mut text) = (0, 0, Text::default());
    while at < length {
        let piece = &mut buffer[..PIECE_BYTES.min((end - start) as usize - at)];
        extent.file.read_at(piece, start + at as u64).map_err(|e| format!("it cannot be read: {e}"))?;
        let (bytes, padding) = piece.split_at(piece.len().min(length - at));
        crc = crate::checksum::crc32c_append(crc, bytes);
        if *data_type == DataType::Utf8 {
            text.take(bytes);
        }
        if padding.iter().any(|&byte| byte != 0) {
            return Err("the bytes between it and its trailer are not zero".to_owned());
        }
        at += bytes.len();
    }
    if crc != crc32c {
        return Err("its bytes do not match the checksum of its trailer".to_owned());
    }
    check_form(length, data_type, &text)
}

fn check_form(length: usize, data_type: &DataType, text: &Text) -> Result<(), String> {
    let fits = match data_type {
        DataType::Utf8 => text.is_sound(),
        DataType::List(element) => length.is_multiple_of(element.width_bytes()),
        DataType::Tensor(element, shape) => {
            let sides = shape.iter().map(|&side| side as usize);
            sides.fold(element.width_bytes(), usize::saturating_mul) == length
        }
        DataType::Bool | DataType::Number(_) | DataType::Binary => true,
    };
    if fits { Ok(()) } else { Err(format!("its {length} bytes are not a value of type {data_type}")) }
}

/// Text that comes in pieces which may cut a character in two.
#[derive(Default)]
struct Text {
    /// The beginning of a character whose end has not come yet.
    open: Vec<u8>,
    broken: bool,
}

impl Text {
    fn take(&mut self, bytes: &[u8]) {
        let mut bytes = bytes;
        while !self.open.is_empty() && !bytes.is_empty() && !self.broken {
            self.open.push(bytes[0]);
            bytes = &bytes[1..];
            match std::str::from_utf8(&self.open) {
                Ok(_) => self.open.clear(),
                Err(error) => self.broken = error.error_len().is_some(),
            }
        }
        if let Err(error) = std::str::from_utf8(bytes) {
            self.broken |= error.error_len().is_some();
            self.open = bytes[error.valid_up_to()..].to_vec();
        }
    }

    fn is_sound(&self) -> bool {
        !self.broken && self.open.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::Text;

    #[test]
    fn text_is_judged_alike_however_it_is_cut() {
        let cases: [(&[u8], bool); 6] = [
            (b"", true),
            ("a€𝄞z".as_bytes(), true),
            (b"ab\xff", false),
            (&"€".as_bytes()[..2], false),
            (b"\xe2\x82a", false),
            (b"\x82", false),
        ];
        for (bytes, sound) in cases {
            for piece in 1..=bytes.len().max(1) {
                let mut text = Text::default();
                bytes.chunks(piece).for_each(|bytes| text.take(bytes));
                assert_eq!(text.is_sound(), sound, "{bytes:?} in pieces of {piece}");
            }
        }
    }
}
