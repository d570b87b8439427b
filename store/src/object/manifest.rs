//! What one version of an object is: its layout, the checksums of its bytes, and what its writer said of it.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::layout::Layout;
use crate::clock::Timestamp;
use crate::error::{Cause, Result};

/// How many bytes of a payload have a checksum of their own; the last ones of a payload may be fewer.
pub const OBJECT_CHUNK_BYTES: u64 = 1 << 20;

/// One version of an object. It never changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// What the object is, for instance `solver`.
    pub key: String,
    /// Which of the key's versions.
    pub version: u64,
    /// Its tensors, and where they lie.
    pub layout: Layout,
    /// The crc32c of every chunk of every payload.
    pub checksums: Vec<Vec<u32>>,
    /// What its writer said of it.
    pub metadata: BTreeMap<String, String>,
    /// When it was committed.
    pub created_at: Timestamp,
    /// Which commit of several objects it is a member of; none for one that was committed by itself.
    pub group: Option<u64>,
}

/// A part of one payload that has a checksum of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) payload: usize,
    pub(crate) number: usize,
    pub(crate) range: Range<u64>,
}

impl Manifest {
    /// The bytes of all payloads.
    pub fn bytes(&self) -> u64 {
        self.layout.bytes()
    }

    /// Looks at bytes of a memory class that begin and end where chunks do ([`OBJECT_CHUNK_BYTES`]), as whoever moved them
    /// has them now. Gives what is wrong with the first chunk whose checksum they do not have, in words.
    ///
    /// # Errors
    /// `input` when there is no such class, or no such chunks in it.
    pub fn damage(&self, class: &str, offset: u64, bytes: &[u8]) -> Result<Option<String>> {
        let mut chunks = self.whole_chunks(class, offset, bytes.len() as u64)?;
        let wrong = chunks.find(|chunk| {
            let range = (chunk.range.start - offset) as usize..(chunk.range.end - offset) as usize;
            crate::checksum::crc32c(&bytes[range]) != self.checksum(chunk)
        });
        Ok(wrong.map(|chunk| self.mismatch(&chunk)))
    }

    /// As [`damage`](Self::damage), of bytes that somebody else has summed up: `sums` are the crc32c of each chunk of `bytes` bytes, the
    /// last one's without `rest`, which are the last of them.
    ///
    /// # Errors
    /// As [`damage`](Self::damage), and when there are not as many sums as chunks.
    pub fn damage_by_sums(
        &self,
        class: &str,
        (offset, bytes): (u64, u64),
        sums: &[u32],
        rest: &[u8],
    ) -> Result<Option<String>> {
        let chunks: Vec<Chunk> = self.whole_chunks(class, offset, bytes)?.collect();
        if chunks.len() != sums.len() {
            let reason = format!("{} checksums of {} chunks of {class:?}", sums.len(), chunks.len());
            return Err(Cause::Argument { what: "sums", reason }.into());
        }
        let last = sums.len().saturating_sub(1);
        let found = sums.iter().zip(0..).map(|(sum, at)| match at == last {
            true => crate::checksum::crc32c_append(*sum, rest),
            false => *sum,
        });
        let wrong = chunks.iter().zip(found).find(|(chunk, found)| *found != self.checksum(chunk));
        Ok(wrong.map(|(chunk, _)| self.mismatch(chunk)))
    }

    /// The chunks of a range that begins and ends where chunks do.
    fn whole_chunks(&self, class: &str, offset: u64, bytes: u64) -> Result<impl Iterator<Item = Chunk>> {
        let payload = self.layout.payload(class)?;
        let limit = self.layout.payloads()[payload].bytes;
        let end = offset.saturating_add(bytes);
        let whole = |at: u64| at.is_multiple_of(OBJECT_CHUNK_BYTES) || at == limit;
        if end > limit || !whole(offset) || !whole(end) {
            let reason =
                format!("bytes {offset} to {end} of {class:?} are no whole chunks of its {limit} bytes");
            return Err(Cause::Argument { what: "offset", reason }.into());
        }
        Ok(chunks_of(payload, offset..end, limit))
    }

    /// Every chunk, in order.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = Chunk> + '_ {
        (0..self.layout.payloads().len()).flat_map(|payload| {
            let bytes = self.layout.payloads()[payload].bytes;
            chunks_of(payload, 0..bytes, bytes)
        })
    }

    /// The checksum that a chunk has to have.
    pub(crate) fn checksum(&self, chunk: &Chunk) -> u32 {
        self.checksums[chunk.payload][chunk.number]
    }

    /// What is wrong with a chunk whose bytes have another checksum, in words.
    pub(crate) fn mismatch(&self, chunk: &Chunk) -> String {
        let named = self.layout.tensors_in(chunk.payload, chunk.range.clone());
        let others = if named.len() > 3 { format!(" and {} more", named.len() - 3) } else { String::new() };
        format!(
            "object {:?} version {}: chunk {} of {:?} (bytes {} to {}, tensors {}{others}) does not match its checksum",
            self.key,
            self.version,
            chunk.number,
            self.layout.payloads()[chunk.payload].class,
            chunk.range.start,
            chunk.range.end,
            named[..named.len().min(3)].join(", ")
        )
    }
}

/// The chunks that a range of a payload of `bytes` bytes touches.
pub(crate) fn chunks_of(payload: usize, range: Range<u64>, bytes: u64) -> impl Iterator<Item = Chunk> {
    let numbers = range.start / OBJECT_CHUNK_BYTES..range.end.div_ceil(OBJECT_CHUNK_BYTES);
    let numbers = if range.is_empty() { 0..0 } else { numbers };
    numbers.map(move |number| {
        let start = number * OBJECT_CHUNK_BYTES;
        Chunk { payload, number: number as usize, range: start..(start + OBJECT_CHUNK_BYTES).min(bytes) }
    })
}

/// How many chunks a payload of `bytes` bytes has.
pub(crate) fn chunk_count(bytes: u64) -> usize {
    bytes.div_ceil(OBJECT_CHUNK_BYTES) as usize
}

/// A manifest but for its layout, as the journal and files keep it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ManifestRecord {
    pub(crate) key: String,
    pub(crate) version: u64,
    pub(crate) fingerprint: u64,
    /// Eight hexadecimal digits a chunk.
    pub(crate) checksums: Vec<String>,
    pub(crate) metadata: BTreeMap<String, String>,
    pub(crate) created_at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) group: Option<u64>,
}

impl ManifestRecord {
    pub(crate) fn of(manifest: &Manifest) -> Self {
        let text = |sums: &Vec<u32>| {
            use std::fmt::Write;
            sums.iter().fold(String::with_capacity(8 * sums.len()), |mut text, sum| {
                let _ = write!(text, "{sum:08x}"); // a string takes everything
                text
            })
        };
        ManifestRecord {
            key: manifest.key.clone(),
            version: manifest.version,
            fingerprint: manifest.layout.fingerprint(),
            checksums: manifest.checksums.iter().map(text).collect(),
            metadata: manifest.metadata.clone(),
            created_at: manifest.created_at.0,
            group: manifest.group,
        }
    }

    /// The manifest over a layout.
    ///
    /// # Errors
    /// What does not fit together, in words.
    pub(crate) fn with(self, layout: Layout) -> Result<Manifest, String> {
        if layout.fingerprint() != self.fingerprint {
            let (found, meant) = (layout.fingerprint(), self.fingerprint);
            return Err(format!("its layout has the fingerprint {found:016x}, {meant:016x} is meant"));
        }
        let checksums: Option<Vec<Vec<u32>>> = self.checksums.iter().map(|text| parse_sums(text)).collect();
        let checksums = checksums.ok_or("its checksums are not hexadecimal")?;
        let counts = layout.payloads().iter().map(|payload| chunk_count(payload.bytes));
        if !counts.eq(checksums.iter().map(Vec::len)) {
            return Err("it has another number of checksums than of chunks".to_owned());
        }
        let ManifestRecord { key, version, metadata, created_at, group, .. } = self;
        Ok(Manifest { key, version, layout, checksums, metadata, created_at: Timestamp(created_at), group })
    }
}

fn parse_sums(text: &str) -> Option<Vec<u32>> {
    let digits = text.as_bytes().chunks(8);
    digits.map(|digits| u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Dtype;

    fn manifest() -> Manifest {
        let layout = Layout::builder()
            .tensor("weights", "a", Dtype::U8, &[OBJECT_CHUNK_BYTES + 5])
            .tensor("moments", "b", Dtype::F32, &[3])
            .build()
            .unwrap();
        Manifest {
            key: "solver".into(),
            version: 7,
            layout,
            checksums: vec![vec![1, 2], vec![0xdead_beef]],
            metadata: BTreeMap::from([("step".to_owned(), "7".to_owned())]),
            created_at: Timestamp(5),
            group: Some(u64::MAX),
        }
    }

    #[test]
    fn a_manifest_is_read_back_as_it_was_written_and_only_over_its_own_layout() {
        let manifest = manifest();
        let text = serde_json::to_string(&ManifestRecord::of(&manifest)).unwrap();
        let read = || serde_json::from_str::<ManifestRecord>(&text).unwrap();
        assert_eq!(read().with(manifest.layout.clone()).unwrap(), manifest);
        let other = Layout::builder().tensor("weights", "a", Dtype::U8, &[5]).build().unwrap();
        assert!(read().with(other).unwrap_err().contains("fingerprint"));
        let fewer = ManifestRecord { checksums: vec!["00000001".into(), "deadbeef".into()], ..read() };
        assert!(fewer.with(manifest.layout.clone()).unwrap_err().contains("number of checksums"));
        let strange = ManifestRecord { checksums: vec!["zz".into()], ..read() };
        assert!(strange.with(manifest.layout).unwrap_err().contains("hexadecimal"));
    }

    #[test]
    fn chunks_cover_every_byte_once() {
        let manifest = manifest();
        let chunks: Vec<Chunk> = manifest.chunks().collect();
        let ranges: Vec<_> = chunks.iter().map(|chunk| (chunk.payload, chunk.range.clone())).collect();
        let end = OBJECT_CHUNK_BYTES + 256;
        assert_eq!(ranges, [(0, 0..OBJECT_CHUNK_BYTES), (0, OBJECT_CHUNK_BYTES..end), (1, 0..256)]);
        assert!(
            manifest.mismatch(&chunks[1]).contains("chunk 1 of \"weights\""),
            "{}",
            manifest.mismatch(&chunks[1])
        );
        assert_eq!(chunks_of(0, 5..5, 100).count(), 0);
    }
}
