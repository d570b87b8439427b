//! What a checkpoint says: everything but the pages, and where those lie.

use std::path::{Path, PathBuf};

use rkyv::{Archive, Deserialize, Serialize};

use crate::directory::{Directory, FORMAT_VERSION};
use crate::disk::Disk;
use crate::error::{Cause, Error, Result};
use crate::header::{HEADER_BYTES, Header, HeaderFault, Magic};
use crate::log::record::{ColumnRecord, ConsumerRecord, ObjectRecord, PlanRecord};
use crate::page::StoredAt;
use crate::table::RareRecord;

/// As every file begins, then: payload bytes u64, payload crc32c u32.
pub(crate) const MANIFEST_HEADER_BYTES: usize = HEADER_BYTES;
const MAGIC: Magic = *b"FBMANIF\0";
/// No manifest is larger; a length above it is damage.
const PAYLOAD_BYTES_MAX: u64 = 1 << 30;

/// A checkpoint.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub(crate) struct Manifest {
    /// How many checkpoints were taken before this one, plus one.
    pub(crate) number: u32,
    /// The first record that is not in it.
    pub(crate) next_sequence: u64,
    pub(crate) commits: u64,
    /// No rewind goes back to a step before this one.
    pub(crate) rewind_floor: u64,
    pub(crate) incarnation: u64,
    /// The pages files that it names, with their lengths.
    pub(crate) files: Vec<FileImage>,
    pub(crate) policies: Vec<PolicyImage>,
    pub(crate) texts: TextsImage,
    pub(crate) tables: Vec<TableImage>,
    pub(crate) consumers: Vec<ConsumerImage>,
    pub(crate) claims: Vec<ClaimImage>,
    pub(crate) next_claim: u64,
    pub(crate) steps: Vec<StepImage>,
    pub(crate) liveness: LivenessImage,
}

/// What is live in the extents.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub(crate) struct LivenessImage {
    pub(crate) lives: Vec<LifeImage>,
    pub(crate) contents: Vec<ContentImage>,
    /// The greatest extent number that was ever named.
    pub(crate) greatest: u32,
}

/// A generation of an extent in which something lives.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq)]
pub(crate) struct LifeImage {
    pub(crate) extent: u32,
    pub(crate) generation: u32,
    pub(crate) bytes: u64,
    pub(crate) values: u64,
    pub(crate) first_named: u64,
    pub(crate) last_left: u64,
}

/// A value of a shared column.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq)]
pub(crate) struct ContentImage {
    pub(crate) view: [u8; 16],
    pub(crate) hash: u128,
    /// How many cells stand for it.
    pub(crate) cells: u64,
    /// Whether later equal values are to share this one.
    pub(crate) current: bool,
}

/// A pages file.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileImage {
    pub(crate) number: u32,
    pub(crate) bytes: u64,
}

#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub(crate) struct PolicyImage {
    pub(crate) name: String,
    pub(crate) version: u64,
    pub(crate) updated_at: i64,
    pub(crate) objects: Vec<ObjectRecord>,
    /// What it was before any step: version, time, objects.
    pub(crate) first: (u64, i64, Vec<ObjectRecord>),
    pub(crate) state_keys: Vec<String>,
}

/// Texts by number, and the index over them.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub(crate) struct TextsImage {
    pub(crate) pages: Vec<StoredAt>,
    pub(crate) runs: Vec<RunImage>,
}

/// A sorted run of an index.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq)]
pub(crate) struct RunImage {
    pub(crate) end: u32,
    pub(crate) entries: StoredAt,
}

#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub(crate) struct TableImage {
    pub(crate) name: String,
    pub(crate) policy: u32,
    pub(crate) columns: Vec<ColumnRecord>,
    pub(crate) written: u64,
    pub(crate) consumed: u64,
    pub(crate) excluded: Vec<(String, u64)>,
    /// Runs of chunks whose rows are all removed, first and last.
    pub(crate) gone: Vec<(u32, u32)>,
    /// The other chunks, in their order.
    pub(crate) chunks: Vec<ChunkImage>,
    pub(crate) runs: Vec<RunImage>,
    pub(crate) partials: Vec<PartialImage>,
    pub(crate) rare: RareRecord,
    pub(crate) tallies: Vec<crate::table::TallyImage>,
    pub(crate) schema_version: u32,
}

/// A chunk: its pages and what is known of it without them.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub(crate) struct ChunkImage {
    pub(crate) rows: u32,
    pub(crate) open: u32,
    pub(crate) removed_rows: u32,
    pub(crate) version_min: u64,
    pub(crate) version_max: u64,
    pub(crate) meta: StoredAt,
    pub(crate) status: StoredAt,
    pub(crate) removed: StoredAt,
    pub(crate) columns: Vec<StoredAt>,
    pub(crate) words: Vec<StoredAt>,
}

/// A cell that is still growing.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub(crate) struct PartialImage {
    pub(crate) row: u32,
    pub(crate) column: u16,
    pub(crate) views: Vec<[u8; 16]>,
}

/// A consumer: its declaration, and what does not follow from the rows' words.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub(crate) struct ConsumerImage {
    pub(crate) name: String,
    pub(crate) declaration: ConsumerRecord,
    pub(crate) state: crate::consumer::ConsumerStateImage,
}

#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub(crate) struct ClaimImage {
    pub(crate) number: u64,
    pub(crate) consumer: u32,
    pub(crate) table: u32,
    /// Of one that is live.
    pub(crate) rows: Vec<u32>,
    pub(crate) row_count: u32,
    pub(crate) owner: u32,
    pub(crate) incarnation: u64,
    pub(crate) granted_at: i64,
    pub(crate) deadline: i64,
    pub(crate) accumulated_at: Option<i64>,
    pub(crate) ended_at: Option<i64>,
    pub(crate) step: u64,
    pub(crate) sequence_in_step: u32,
    pub(crate) gang: Option<crate::log::record::GangRecord>,
    pub(crate) ranks_done: Vec<u32>,
    /// By the position in [`crate::claim::ClaimProgress::ALL`].
    pub(crate) progress: u8,
}

#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub(crate) struct StepImage {
    pub(crate) number: u64,
    /// By the position in [`crate::step::StepProgress::ALL`].
    pub(crate) progress: u8,
    pub(crate) begun_at: i64,
    pub(crate) ended_at: Option<i64>,
    pub(crate) planned: Vec<PlannedImage>,
    pub(crate) claims: Vec<u64>,
    pub(crate) batches: Vec<BatchImage>,
    pub(crate) first_cache_epoch: u32,
    /// By policy.
    pub(crate) caches_dropped: Vec<(u32, u32)>,
    pub(crate) rows: u64,
    pub(crate) deleted_rows: u64,
    pub(crate) updates: Vec<UpdateImage>,
}

/// A micro-batch of a step.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub(crate) struct BatchImage {
    pub(crate) claim: u64,
    pub(crate) consumer: u32,
    pub(crate) table: u32,
    pub(crate) sequence: u32,
}

/// How a step moved a policy.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub(crate) struct UpdateImage {
    pub(crate) policy: u32,
    pub(crate) version: u64,
    pub(crate) objects: Vec<ObjectRecord>,
}

/// What one consumer takes in a step.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub(crate) struct PlannedImage {
    pub(crate) plan: PlanRecord,
    pub(crate) claims: u32,
    /// Rows of the claims that are live.
    pub(crate) held: u64,
}

impl Manifest {
    pub(crate) fn path(directory: &Directory) -> PathBuf {
        directory.path.join("MANIFEST")
    }

    /// The store's checkpoint, if there is one.
    ///
    /// # Errors
    /// `corrupt` when it does not match its checksums, `state` when it is of another format.
    pub(crate) fn read(directory: &Directory) -> Result<Option<Self>> {
        let path = Self::path(directory);
        if !directory.disk.exists(&path).map_err(|e| Cause::io("look for", &path, e))? {
            return Ok(None);
        }
        let bytes = directory.disk.read(&path).map_err(|e| Cause::io("read", &path, e))?;
        Self::decode(&bytes, directory.store_id, &path).map(Some)
    }

    /// Puts the manifest in the place of the one before, at once and for good.
    pub(crate) fn write(&self, directory: &Directory) -> Result<()> {
        self.write_to(&*directory.disk, &Self::path(directory), directory.store_id)
    }

    /// As [`write`](Self::write), to any place: for the copy of a checkpoint.
    pub(crate) fn write_to(&self, disk: &dyn Disk, path: &Path, store_id: u64) -> Result<()> {
        let payload = self.payload(PAYLOAD_BYTES_MAX)?;
        let header = self.header(&payload, store_id);
        let io = |e| Error::from(Cause::io("write", path, e));
        disk.write_durably(path, &[&header, &payload]).map_err(io)
    }

    /// The stored form behind the header. What would be too large to be read back is not written.
    fn payload(&self, limit: u64) -> Result<rkyv::util::AlignedVec> {
        let payload = rkyv::to_bytes::<rkyv::rancor::Error>(self)
            .map_err(|error| Cause::Argument { what: "manifest", reason: error.to_string() })?;
        if payload.len() as u64 > limit {
            return Err(Cause::ManifestTooLarge { bytes: payload.len(), limit }.into());
        }
        Ok(payload)
    }

    fn header(&self, payload: &[u8], store_id: u64) -> [u8; MANIFEST_HEADER_BYTES] {
        Header::new(MAGIC, self.number, store_id)
            .with(24, (payload.len() as u64).to_le_bytes())
            .with(32, crate::checksum::crc32c(payload).to_le_bytes())
            .seal()
    }

    /// Reads the stored form, every checksum and every offset in it checked.
    pub(crate) fn decode(bytes: &[u8], store_id: u64, path: &Path) -> Result<Self> {
        let corrupt = |offset: usize, reason: &str| {
            let (offset, reason) = (offset as u64, reason.to_owned());
            Error::from(Cause::Corrupt { path: path.to_owned(), offset, reason })
        };
        let Some((header, payload)) = bytes.split_first_chunk::<MANIFEST_HEADER_BYTES>() else {
            return Err(corrupt(0, "it is shorter than a manifest's header"));
        };
        let header = Header::read(MAGIC, header).map_err(|fault| match fault {
            HeaderFault::Damaged => corrupt(0, "the manifest's header does not match its checksum"),
            HeaderFault::Format(found) => {
                Cause::FormatVersion { path: path.to_owned(), found, expected: FORMAT_VERSION }.into()
            }
        })?;
        if header.store_id() != store_id {
            return Err(corrupt(16, "the manifest belongs to another store"));
        }
        let length = header.u64_at(24);
        if length > PAYLOAD_BYTES_MAX || length != payload.len() as u64 {
            return Err(corrupt(24, "the manifest has another length than its header says"));
        }
        if crate::checksum::crc32c(payload) != header.u32_at(32) {
            return Err(corrupt(MANIFEST_HEADER_BYTES, "the manifest does not match its checksum"));
        }
        let mut aligned = rkyv::util::AlignedVec::<16>::with_capacity(payload.len());
        aligned.extend_from_slice(payload);
        let manifest = rkyv::from_bytes::<Manifest, rkyv::rancor::Error>(&aligned)
            .map_err(|error| corrupt(MANIFEST_HEADER_BYTES, &error.to_string()))?;
        if manifest.number != header.number() {
            return Err(corrupt(12, "the manifest carries another number than its header"));
        }
        Ok(manifest)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stored(manifest: &Manifest) -> Vec<u8> {
        let payload = rkyv::to_bytes::<rkyv::rancor::Error>(manifest).unwrap();
        [&manifest.header(&payload, 7)[..], &payload].concat()
    }

    #[test]
    fn a_manifest_survives_its_stored_form_and_every_flipped_byte_is_seen() {
        let policy = PolicyImage {
            name: "solver".into(),
            version: 3,
            updated_at: -1,
            objects: vec![],
            first: (0, -2, vec![]),
            state_keys: vec!["weights".into()],
        };
        let policies = vec![policy];
        let manifest = Manifest { number: 4, next_sequence: 99, policies, ..Manifest::default() };
        let bytes = stored(&manifest);
        let path = Path::new("MANIFEST");
        assert_eq!(Manifest::decode(&bytes, 7, path).unwrap(), manifest);
        assert!(Manifest::decode(&bytes, 8, path).is_err(), "of another store");
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(Manifest::decode(&damaged, 7, path).is_err(), "byte {at}");
            assert!(Manifest::decode(&bytes[..at], 7, path).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn a_manifest_that_could_not_be_read_back_is_not_made() {
        let manifest = Manifest::default();
        let bytes = stored(&manifest).len() - MANIFEST_HEADER_BYTES;
        assert_eq!(manifest.payload(bytes as u64).unwrap().len(), bytes);
        let refused = manifest.payload(bytes as u64 - 1).unwrap_err();
        assert!(
            matches!(refused.cause(), Cause::ManifestTooLarge { bytes: found, .. } if *found == bytes),
            "{refused}"
        );
    }

    proptest! {
        #[test]
        fn hostile_bytes_are_errors(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(Manifest::decode(&bytes, 7, Path::new("MANIFEST")).is_err());
        }

        #[test]
        fn hostile_payloads_with_right_checksums_do_not_panic(payload in prop::collection::vec(any::<u8>(), 0..300)) {
            let header = Manifest::default().header(&payload, 7);
            let _ = Manifest::decode(&[&header[..], &payload].concat(), 7, Path::new("MANIFEST"));
        }
    }
}
