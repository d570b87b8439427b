//! What a journal says, and how it stands there.

use serde::{Deserialize, Serialize};

use crate::object::layout::Layout;
use crate::object::manifest::ManifestRecord;
use crate::object::owner::ProcessRecord;
use crate::object::{Dtype, LayoutBuilder};

/// A committed object, and where its payloads lie: segment and offset of each.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) manifest: ManifestRecord,
    pub(crate) places: Vec<(u32, u64)>,
    /// Whether it goes with the first who receives it.
    pub(crate) once: bool,
    /// Whether no other process was ever given to write it.
    #[serde(default)]
    pub(crate) ours: bool,
}

/// Memory that another process was given, to fill it or to read it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LoanRecord {
    pub(crate) number: u64,
    pub(crate) process: ProcessRecord,
    /// Segment, offset and bytes of each part.
    pub(crate) places: Vec<(u32, u64, u64)>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Record {
    /// Class, name, type and dimensions of every tensor.
    Layout {
        fingerprint: u64,
        tensors: Vec<(String, String, String, Vec<u64>)>,
    },
    Committed(Vec<Entry>),
    Dropped {
        key: String,
        version: u64,
    },
    /// The greatest version that a key ever had.
    Last {
        key: String,
        version: u64,
    },
    /// Nobody is to find the version any more, whatever is left of it.
    Deleted {
        key: String,
        version: u64,
    },
    Lent(LoanRecord),
    /// Whoever was lent it has let go, or has ended.
    LetGo {
        number: u64,
    },
}

pub(super) fn layout_record(layout: &Layout) -> Record {
    let class = |payload: usize| layout.payloads()[payload].class.clone();
    let tensors = layout.tensors().iter().map(|tensor| {
        (class(tensor.payload), tensor.name.clone(), tensor.dtype.name().to_owned(), tensor.shape.clone())
    });
    Record::Layout { fingerprint: layout.fingerprint(), tensors: tensors.collect() }
}

pub(super) fn layout_of(tensors: Vec<(String, String, String, Vec<u64>)>) -> Option<Layout> {
    let mut builder = LayoutBuilder::default();
    for (class, name, dtype, shape) in tensors {
        builder = builder.tensor(&class, &name, Dtype::named(&dtype)?, &shape);
    }
    builder.build().ok()
}

/// The records up to the first that is not whole, and how many bytes are left behind each.
pub(super) fn records(mut bytes: &[u8]) -> impl Iterator<Item = (Record, usize)> {
    std::iter::from_fn(move || {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let (crc, rest) = rest.split_first_chunk::<4>()?;
        let body = rest.get(..u32::from_le_bytes(*length) as usize)?;
        bytes = &rest[body.len()..];
        let whole = crate::checksum::crc32c(body) == u32::from_le_bytes(*crc);
        let record = whole.then(|| serde_json::from_slice(body).ok()).flatten()?;
        Some((record, bytes.len()))
    })
}
