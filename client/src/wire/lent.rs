//! Where values may lie that a message only names: in what was lent to its sender, or in frames that came with it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use forebay_store::{Copied, Kind, LentExtent, PlacedKind, Spot, Value};

use super::frame::Frame;
use super::value::{kind_of, to_element, to_spot};
use super::{malformed, proto};
use crate::error::{Error, Result};

/// The cause of an error for a value in an extent or a slab that its sender was not lent.
pub const NOT_LENT: &str = "NotLent";

/// What was lent to the sender of a message, or came with it.
#[derive(Debug, Default)]
pub struct Lent {
    /// Extents of the store.
    pub extents: Vec<Arc<LentExtent>>,
    /// What was copied out of slabs, by their numbers.
    pub slabs: BTreeMap<u32, Copied>,
    /// What came behind the message.
    pub frames: Vec<Frame>,
}

/// An extent or a slab is none that its sender was lent.
pub fn not_lent(what: &str) -> Error {
    let message = format!("{what} is not lent to this session; ask for another, or send the value");
    Error::new(Kind::State, NOT_LENT, message)
}

impl Lent {
    /// A value in an extent.
    pub(super) fn placed(&self, placed: &proto::Placed) -> Result<Value<'_>> {
        let (extent, generation) = (placed.extent, placed.generation);
        let is_named = |lent: &&Arc<LentExtent>| {
            let loan = lent.loan();
            (loan.extent, loan.generation) == (extent, generation)
        };
        let lent = self.extents.iter().find(is_named);
        let lent = lent.ok_or_else(|| not_lent(&format!("generation {generation} of extent {extent}")))?;
        Ok(lent.value(kind_of(placed)?, to_spot(placed)))
    }

    /// A value in a slab.
    pub(super) fn in_slab(&self, placed: &proto::Placed) -> Result<Value<'_>> {
        let slab = self.slabs.get(&placed.extent);
        let slab = slab.ok_or_else(|| not_lent(&format!("slab {}", placed.extent)))?;
        Ok(slab.value(kind_of(placed)?, to_spot(placed))?)
    }

    /// A value in a frame.
    pub(super) fn framed(&self, framed: &proto::Framed) -> Result<Value<'_>> {
        use proto::framed::Kind;
        let bytes = content(&self.frames, framed)?;
        Ok(match framed.kind.ok_or_else(|| malformed("a value of no kind"))? {
            Kind::Text(_) => {
                let text = std::str::from_utf8(bytes).map_err(|_| malformed("a text that is none"))?;
                Value::Utf8(Cow::Borrowed(text))
            }
            Kind::Binary(_) => Value::Binary(Cow::Borrowed(bytes)),
            Kind::Numbers(element) => Value::Numbers(to_element(element)?, Cow::Borrowed(bytes)),
        })
    }
}

/// The content that is named.
fn content<'f>(frames: &'f [Frame], framed: &proto::Framed) -> Result<&'f [u8]> {
    let found = frames.get(framed.frame as usize).and_then(|frame| frame.content(framed.at as usize));
    let (at, frame) = (framed.at, framed.frame);
    found.ok_or_else(|| malformed(&format!("content {at} of frame {frame}, which did not come with it")))
}

/// How many bytes of frames changes name, which is no more than there are: a short message would else make much of little.
///
/// # Errors
/// `input` where more is named, or what is not there.
pub fn framed_bytes(changes: &proto::Changes, frames: &[Frame]) -> Result<u64> {
    let mut named = 0_u64;
    for value in changes.changes.iter().flat_map(super::values_in) {
        if let Some(proto::value::Value::Framed(framed)) = &value.value {
            named += content(frames, framed)?.len() as u64;
        }
    }
    let there: u64 = frames.iter().map(Frame::content_bytes).sum();
    if named > there {
        return Err(malformed(&format!("{named} bytes are named of frames that bring {there}")));
    }
    Ok(named)
}

/// A value on the wire that was put into a slab.
pub fn from_slab(slab: u32, kind: PlacedKind, spot: Spot) -> proto::Value {
    let placed = super::value::placed(slab, 0, kind, spot);
    proto::Value { value: Some(proto::value::Value::InSlab(placed)) }
}

/// How many bytes of slabs changes name, which is no more than are copied of them: a short message would else make much of little.
///
/// # Errors
/// `input` where more is named: values overlap.
pub fn slab_bytes(changes: &proto::Changes) -> Result<u64> {
    let named = changes.changes.iter().flat_map(super::values_in).map(|value| match &value.value {
        Some(proto::value::Value::InSlab(placed)) => u64::from(placed.length),
        _ => 0,
    });
    let named: u64 = named.sum();
    let copied: u64 = parts_of_slabs(changes).values().map(|part| u64::from(part.end - part.start)).sum();
    if named > copied {
        return Err(malformed(&format!("{named} bytes are named of slabs, in {copied} that lie there")));
    }
    Ok(named)
}

/// Which part of each slab the changes name: from the first value to the end of the last.
pub fn parts_of_slabs(changes: &proto::Changes) -> BTreeMap<u32, Range<u32>> {
    let mut parts: BTreeMap<u32, Range<u32>> = BTreeMap::new();
    for value in changes.changes.iter().flat_map(super::values_in) {
        let Some(proto::value::Value::InSlab(placed)) = &value.value else { continue };
        let end = placed.offset.saturating_add(placed.length);
        let part = parts.entry(placed.extent).or_insert(placed.offset..end);
        *part = part.start.min(placed.offset)..part.end.max(end);
    }
    parts
}
