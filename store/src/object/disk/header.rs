//! The header of a file: what is written, and what is believed of one that is read. Nothing, until it all fits together.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::object::layout::PAD_PREFIX;
use crate::object::manifest::{Manifest, ManifestRecord};
use crate::object::{Dtype, LayoutBuilder};

/// Where the manifest is, in a header's metadata.
pub(crate) const METADATA_KEY: &str = "forebay";
/// The longest header that stock readers take.
pub(super) const HEADER_BYTES_MAX: u64 = 100_000_000;
/// Where data and payloads begin.
const PAGE_BYTES: u64 = 4096;

/// A header as it is written, and where in the file the payloads begin.
#[derive(Debug)]
pub(super) struct Encoded {
    pub(super) bytes: Vec<u8>,
    pub(super) starts: Vec<u64>,
    pub(super) file_bytes: u64,
}

/// A header that was read and fits together.
#[derive(Debug)]
pub(super) struct Decoded {
    pub(super) manifest: Manifest,
    pub(super) once: bool,
    pub(super) starts: Vec<u64>,
    pub(super) file_bytes: u64,
}

/// What the engine says of the object, in the header's metadata.
#[derive(Debug, Serialize, Deserialize)]
struct Said {
    manifest: ManifestRecord,
    /// Class and bytes of each payload.
    payloads: Vec<(String, u64)>,
    /// The tensors in the layout's order, with their payloads.
    tensors: Vec<(String, usize)>,
    once: bool,
}

#[derive(Debug, Deserialize)]
struct TensorHeader {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

/// Where payloads of so many bytes begin in the data, and where the last one ends.
fn starts_of(payloads: impl Iterator<Item = u64>) -> Option<(Vec<u64>, u64)> {
    let (mut starts, mut end) = (Vec::new(), 0_u64);
    for bytes in payloads {
        let start = end.checked_next_multiple_of(PAGE_BYTES)?;
        starts.push(start);
        end = start.checked_add(bytes)?;
    }
    Some((starts, end))
}

/// # Errors
/// Why it cannot be, in words.
pub(super) fn encode(manifest: &Manifest, once: bool) -> Result<Encoded, String> {
    let layout = &manifest.layout;
    let payloads = layout.payloads().iter();
    let (starts, end) = starts_of(payloads.clone().map(|p| p.bytes)).ok_or("it is too large for a file")?;
    let said = Said {
        manifest: ManifestRecord::of(&Manifest { metadata: BTreeMap::new(), ..manifest.clone() }),
        payloads: payloads.map(|payload| (payload.class.clone(), payload.bytes)).collect(),
        tensors: layout.tensors().iter().map(|tensor| (tensor.name.clone(), tensor.payload)).collect(),
        once,
    };
    let mut metadata: Map<String, Value> =
        manifest.metadata.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect();
    metadata.insert(METADATA_KEY.to_owned(), Value::from(json!(said).to_string()));
    let mut header = Map::from_iter([("__metadata__".to_owned(), Value::from(metadata))]);
    let mut placed: Vec<(u64, &crate::object::Tensor)> =
        layout.tensors().iter().map(|tensor| (starts[tensor.payload] + tensor.offset, tensor)).collect();
    placed.sort_by_key(|(at, tensor)| (*at, tensor.bytes));
    let (mut at, mut pads) = (0, 0);
    let mut pad = |header: &mut Map<String, Value>, from: u64, to: u64| {
        let entry = json!({ "dtype": "U8", "shape": [to - from], "data_offsets": [from, to] });
        header.insert(format!("{PAD_PREFIX}{pads}"), entry);
        pads += 1;
    };
    for (start, tensor) in placed {
        if start > at {
            pad(&mut header, at, start);
        }
        at = start + tensor.bytes;
        let entry =
            json!({ "dtype": tensor.dtype.name(), "shape": tensor.shape, "data_offsets": [start, at] });
        header.insert(tensor.name.clone(), entry);
    }
    if end > at {
        pad(&mut header, at, end);
    }
    let mut text = Value::from(header).to_string();
    let length = (8 + text.len() as u64).next_multiple_of(PAGE_BYTES) - 8;
    if length > HEADER_BYTES_MAX {
        return Err(format!("its header would have {length} bytes, readers take {HEADER_BYTES_MAX}"));
    }
    text.extend(std::iter::repeat_n(' ', length as usize - text.len()));
    let bytes = [&length.to_le_bytes()[..], text.as_bytes()].concat();
    let data = bytes.len() as u64;
    Ok(Encoded { bytes, starts: starts.iter().map(|start| data + start).collect(), file_bytes: data + end })
}

/// Reads the JSON of a header; `None` when it is of a file that is not the engine's.
///
/// # Errors
/// What does not fit together, in words.
pub(super) fn decode(text: &[u8], file_bytes: u64) -> Result<Option<Decoded>, String> {
    let mut header: BTreeMap<String, Value> =
        serde_json::from_slice(text).map_err(|error| format!("its header is not JSON: {error}"))?;
    let metadata = header.remove("__metadata__").unwrap_or_default();
    let Ok(mut metadata) = serde_json::from_value::<BTreeMap<String, String>>(metadata) else {
        return Ok(None);
    };
    let Some(said) = metadata.remove(METADATA_KEY) else { return Ok(None) };
    let said: Said = serde_json::from_str(&said).map_err(|error| format!("its manifest: {error}"))?;
    let mut tensors = BTreeMap::new();
    for (name, value) in header {
        let tensor: TensorHeader =
            serde_json::from_value(value).map_err(|error| format!("its tensor {name:?}: {error}"))?;
        tensors.insert(name, tensor);
    }
    assemble(said, metadata, &tensors, 8 + text.len() as u64, file_bytes).map(Some)
}

fn assemble(
    said: Said,
    metadata: BTreeMap<String, String>,
    tensors: &BTreeMap<String, TensorHeader>,
    data: u64,
    file_bytes: u64,
) -> Result<Decoded, String> {
    let mut builder = LayoutBuilder::default();
    for (name, payload) in &said.tensors {
        let tensor = tensors.get(name).ok_or_else(|| format!("its tensor {name:?} is missing"))?;
        let dtype = Dtype::named(&tensor.dtype).ok_or_else(|| format!("{:?} is no type", tensor.dtype))?;
        let (class, _) = said.payloads.get(*payload).ok_or_else(|| format!("{name:?} lies in no payload"))?;
        builder = builder.tensor(class, name, dtype, &tensor.shape);
    }
    let layout = builder.build().map_err(|error| error.to_string())?;
    let found = layout.payloads().iter().map(|payload| (payload.class.clone(), payload.bytes));
    if !found.eq(said.payloads.iter().cloned()) {
        return Err("its payloads are not what its tensors make".to_owned());
    }
    let starts = starts_of(layout.payloads().iter().map(|payload| payload.bytes));
    let (starts, end) = starts.ok_or("its payloads are larger than a file")?;
    for tensor in layout.tensors() {
        let start = starts[tensor.payload] + tensor.offset;
        if tensors[&tensor.name].data_offsets != [start, start + tensor.bytes] {
            let (name, found) = (&tensor.name, tensors[&tensor.name].data_offsets);
            return Err(format!("its tensor {name:?} lies at {found:?}, not from {start} on"));
        }
    }
    if data.checked_add(end) != Some(file_bytes) {
        return Err(format!("it has {file_bytes} bytes; {data} of header and {end} of data are meant"));
    }
    let manifest = ManifestRecord { metadata, ..said.manifest }.with(layout)?;
    let starts = starts.iter().map(|start| data + start).collect();
    Ok(Decoded { manifest, once: said.once, starts, file_bytes })
}
