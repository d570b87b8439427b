//! Objects: what they are made of, what is asked of them.

use std::path::PathBuf;

use forebay_store::{Dtype, Expected, Layout, Manifest, OBJECT_CHUNK_BYTES, Tier, Timestamp};

use super::{malformed, proto};
use crate::error::{Error, Result};
use crate::objects::{ObjectCommit, ObjectShown, Relocation};

/// What a message may name at most; the store looks more closely.
const CLASSES_MAX: usize = 256;
const CLASS_BYTES_MAX: usize = 64;
const TENSORS_MAX: usize = 200_000;

/// A layout, with its classes and tensors in their order.
pub fn from_layout(layout: &Layout) -> proto::ObjectLayout {
    let classes = layout.payloads().iter().map(|payload| payload.class.clone()).collect();
    let spec = |tensor: &forebay_store::Tensor| proto::TensorSpec {
        class: tensor.payload as u32,
        name: tensor.name.clone(),
        dtype: tensor.dtype.name().to_owned(),
        shape: tensor.shape.clone(),
    };
    proto::ObjectLayout { classes, tensors: layout.tensors().iter().map(spec).collect() }
}

/// The layout of a message.
///
/// # Errors
/// `input` for a type that is none, or what cannot be laid out.
pub fn to_layout(layout: &proto::ObjectLayout) -> Result<Layout> {
    // Before anything is copied: a short message may name a long class many times.
    let longest = layout.classes.iter().map(String::len).max().unwrap_or(0);
    if layout.classes.len() > CLASSES_MAX || longest > CLASS_BYTES_MAX || layout.tensors.len() > TENSORS_MAX {
        let (classes, tensors) = (layout.classes.len(), layout.tensors.len());
        let message = format!(
            "{tensors} tensors in {classes} memory classes with names of up to {longest} bytes; there are {TENSORS_MAX} in \
             {CLASSES_MAX} with names of {CLASS_BYTES_MAX} at most"
        );
        return Err(Error::input("Argument", message));
    }
    let mut builder = Layout::builder();
    for tensor in &layout.tensors {
        let class =
            layout.classes.get(tensor.class as usize).ok_or_else(|| malformed("a tensor of no class"))?;
        let dtype = Dtype::named(&tensor.dtype).ok_or_else(|| {
            let known = Dtype::ALL.map(Dtype::name).join(", ");
            let message =
                format!("tensor {:?} has the type {:?}; there are {known}", tensor.name, tensor.dtype);
            Error::input("Argument", message)
        })?;
        builder = builder.tensor(class, &tensor.name, dtype, &tensor.shape);
    }
    Ok(builder.build()?)
}

/// What is known of a version; its layout only for who does not know it.
pub fn from_manifest(manifest: &Manifest, knows_layout: bool) -> proto::ObjectManifest {
    proto::ObjectManifest {
        key: manifest.key.clone(),
        version: manifest.version,
        fingerprint: manifest.layout.fingerprint(),
        layout: (!knows_layout).then(|| from_layout(&manifest.layout)),
        checksums: from_sums(&manifest.checksums),
        metadata: manifest.metadata.clone().into_iter().collect(),
        created_at: manifest.created_at.0,
        group: manifest.group,
    }
}

/// What is known of a version, with a layout that was known already where the message has none.
///
/// # Errors
/// `input` where it does not fit together.
pub fn to_manifest(
    message: proto::ObjectManifest,
    known: impl FnOnce(u64) -> Option<Layout>,
) -> Result<Manifest> {
    let layout = match &message.layout {
        Some(layout) => to_layout(layout)?,
        None => known(message.fingerprint).ok_or_else(|| malformed("an object without a layout"))?,
    };
    if layout.fingerprint() != message.fingerprint {
        return Err(malformed("an object of another layout than it says"));
    }
    let checksums = to_sums(&message.checksums);
    let counts = layout.payloads().iter().map(|payload| payload.bytes.div_ceil(OBJECT_CHUNK_BYTES));
    if !counts.eq(checksums.iter().map(|sums| sums.len() as u64)) {
        return Err(malformed("an object with another number of checksums than of chunks"));
    }
    let (metadata, created_at) = (message.metadata.into_iter().collect(), Timestamp(message.created_at));
    let (key, version, group) = (message.key, message.version, message.group);
    Ok(Manifest { key, version, layout, checksums, metadata, created_at, group })
}

/// What the newest version has to be.
pub fn from_expected(expected: Expected) -> proto::ExpectedVersion {
    use proto::expected_version::Expected as Wire;
    let expected = match expected {
        Expected::Any => Wire::Any(true),
        Expected::Absent => Wire::Absent(true),
        Expected::Version(version) => Wire::Version(version),
    };
    proto::ExpectedVersion { expected: Some(expected) }
}

/// The same, read. Nothing said is no expectation.
pub fn to_expected(message: Option<proto::ExpectedVersion>) -> Expected {
    use proto::expected_version::Expected as Wire;
    match message.and_then(|message| message.expected) {
        None | Some(Wire::Any(_)) => Expected::Any,
        Some(Wire::Absent(_)) => Expected::Absent,
        Some(Wire::Version(version)) => Expected::Version(version),
    }
}

fn from_sums(sums: &[Vec<u32>]) -> Vec<bytes::Bytes> {
    let bytes = |sums: &Vec<u32>| sums.iter().flat_map(|sum| sum.to_le_bytes()).collect::<Vec<u8>>().into();
    sums.iter().map(bytes).collect()
}

fn to_sums(sums: &[bytes::Bytes]) -> Vec<Vec<u32>> {
    let words = |bytes: &bytes::Bytes| -> Vec<u32> {
        let (words, _) = bytes.as_chunks::<4>();
        words.iter().map(|word| u32::from_le_bytes(*word)).collect()
    };
    sums.iter().map(words).collect()
}

/// A commit of a version; with the checksums of its payloads where a neighbour has filled it through its mappings.
pub fn from_commit(commit: &ObjectCommit, filled: Option<&[Vec<u32>]>) -> proto::CommitObject {
    proto::CommitObject {
        filling: commit.filling,
        expected: commit.expected.map(from_expected),
        metadata: commit.metadata.clone().into_iter().collect(),
        filled: filled.is_some(),
        checksums: filled.map(from_sums).unwrap_or_default(),
    }
}

/// The same, read.
pub fn to_commit(message: proto::CommitObject) -> (ObjectCommit, Option<Vec<Vec<u32>>>) {
    let proto::CommitObject { filling, expected, metadata, filled, checksums } = message;
    let filled = filled.then(|| to_sums(&checksums));
    let expected = expected.map(|expected| to_expected(Some(expected)));
    (ObjectCommit { filling, expected, metadata: metadata.into_iter().collect() }, filled)
}

/// Where payloads lie; none where one of them lies in no segment.
pub fn from_places(folder: &str, places: &[Option<(u32, u64)>]) -> Option<proto::SegmentPlaces> {
    let place =
        |place: &Option<(u32, u64)>| place.map(|(segment, offset)| proto::SegmentPlace { segment, offset });
    let places = places.iter().map(place).collect::<Option<Vec<_>>>()?;
    Some(proto::SegmentPlaces { folder: folder.to_owned(), places })
}

/// The same, read.
pub fn to_places(message: proto::SegmentPlaces) -> (PathBuf, Vec<(u32, u64)>) {
    let places = message.places.into_iter().map(|place| (place.segment, place.offset)).collect();
    (PathBuf::from(message.folder), places)
}

/// One version, as a list shows it.
pub fn from_shown(shown: ObjectShown) -> proto::ShownObject {
    proto::ShownObject {
        in_memory: shown.tiers.contains(&Tier::Host),
        on_disk: shown.tiers.contains(&Tier::Disk),
        key: shown.key,
        version: shown.version,
        bytes: shown.bytes,
        tensors: shown.tensors,
        leases: shown.leases,
        once: shown.once,
        created_at: shown.created_at.0,
        metadata: shown.metadata.into_iter().collect(),
    }
}

/// The same, read.
pub fn to_shown(message: proto::ShownObject) -> ObjectShown {
    let tiers = [(message.in_memory, Tier::Host), (message.on_disk, Tier::Disk)];
    ObjectShown {
        key: message.key,
        version: message.version,
        bytes: message.bytes,
        tensors: message.tensors,
        tiers: tiers.into_iter().filter(|(there, _)| *there).map(|(_, tier)| tier).collect(),
        leases: message.leases,
        once: message.once,
        created_at: Timestamp(message.created_at),
        metadata: message.metadata.into_iter().collect(),
    }
}

/// A move of a version.
pub fn from_relocation(relocation: &Relocation<'_>) -> proto::MoveObjectRequest {
    use proto::move_object_request::Move;
    let of = |key: &str, version| proto::ObjectVersion { key: key.to_owned(), version };
    let one = |(key, version): (&str, Option<u64>)| Some(of(key, version));
    let named = match *relocation {
        Relocation::Spill { key, version } => Move::Spill(of(key, version)),
        Relocation::Demote { key, version } => Move::Demote(of(key, version)),
        Relocation::Delete { key, version } => Move::Delete(of(key, Some(version))),
        Relocation::Reference { key, version } => Move::Reference(of(key, Some(version))),
        Relocation::Exchange { out, into } => {
            Move::Exchange(proto::ExchangeObjects { out: one(out), into: one(into) })
        }
    };
    proto::MoveObjectRequest { r#move: Some(named) }
}

/// The number of a version that has to be named.
///
/// # Errors
/// `input` where it is not.
pub fn to_version(version: Option<u64>) -> Result<u64> {
    version.ok_or_else(|| malformed("a version without its number"))
}
