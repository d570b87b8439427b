//! The manifest of a version: the one small object that puts it into the archive.
//!
//! It is a line of JSON and a line with the crc32c of that. It is put where none is, and never changed. One without rows says that the
//! version is not in the archive, whatever was before it.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;

use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, Schema, SchemaRef};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use object_store::path::Path;
use serde::{Deserialize, Serialize};

use super::checksum::BLOCK_BYTES;
use super::folder::FORMAT;
use super::layout::{ManifestName, is_part, version_folder};
use super::places::Places;
use crate::history::CommittedStep;

/// More than any manifest has, in bytes: one of a terabyte has 42 MB.
pub(super) const MANIFEST_BYTES_MAX: u64 = 64 << 20;
/// The largest block that a manifest may speak of: it is read whole.
const BLOCK_BYTES_MAX: u32 = 16 << 20;

/// What is known of an archived version of a table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub(super) format: u32,
    pub(super) store: String,
    pub(super) table: String,
    pub(super) version: u64,
    pub(super) generation: u32,
    /// The number of the store's last record in the snapshot that the rows are from.
    pub(super) commit: u64,
    pub(super) rows: u64,
    /// The digest of the meta and status columns, in hexadecimal.
    pub(super) digest: String,
    /// When it was made, by the store's clock; for people.
    pub(super) archived_at: String,
    /// The columns: an Arrow IPC stream without batches, in base64.
    pub(super) schema: String,
    pub(super) files: Vec<PartFile>,
    /// The steps that were committed while the version was current, the one that ended it included. Empty where a program
    /// wrote it that did not keep them.
    #[serde(default)]
    pub(super) steps: Vec<CommittedStep>,
    /// Which place in the table each data column has. Empty where a program wrote it that did not keep them: columns are then
    /// found by name.
    #[serde(default)]
    pub(super) places: Places,
    /// Whether the store says of this version that it was moved out, once it was: beside the store the manifest counts only then.
    /// False where a program wrote it that did not say so: it counts once the store has no row of the version.
    #[serde(default)]
    pub(super) told: bool,
    /// What [`renames_of`](super::places::renames_of) said of the table's columns. None where a program wrote it that did not keep
    /// that.
    #[serde(default)]
    pub(super) renames: Option<i64>,
}

/// One file of a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PartFile {
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) rows: u64,
    pub(super) block_bytes: u32,
    /// Of each block.
    pub(super) crc32c: Vec<u32>,
}

impl Manifest {
    /// Its name.
    pub(super) fn name(&self) -> ManifestName {
        ManifestName { table: self.table.clone(), version: self.version, generation: self.generation }
    }

    /// Whether it says that the version is not in the archive, for its rows left the store otherwise.
    pub(super) fn is_void(&self) -> bool {
        self.rows == 0
    }

    /// The next generation, which says that the version is not in the archive.
    pub(super) fn void(&self, commit: u64, archived_at: String) -> Self {
        Manifest {
            format: FORMAT,
            generation: self.generation.saturating_add(1),
            commit,
            rows: 0,
            digest: String::new(),
            archived_at,
            files: Vec::new(),
            steps: Vec::new(),
            ..self.clone()
        }
    }

    /// Where a file of it lies.
    pub(super) fn path_of(&self, file: &PartFile) -> Path {
        version_folder(&self.table, self.version).join(file.name.as_str())
    }

    /// As it is written.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut text = serde_json::to_string(self).unwrap_or_default(); // strings and numbers cannot fail
        let crc = forebay_store::checksum::crc32c(text.as_bytes());
        let _ = writeln!(text, "\ncrc32c {crc:08x}");
        text.into_bytes()
    }

    /// Reads what lies at the place of `name`.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub(super) fn decode(bytes: &[u8], name: &ManifestName) -> Result<Self, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "it is not text".to_owned())?;
        let mut lines = text.lines();
        let (Some(json), Some(crc), None) = (lines.next(), lines.next(), lines.next()) else {
            return Err("it does not have two lines".to_owned());
        };
        if crc.strip_prefix("crc32c ")
            != Some(&format!("{:08x}", forebay_store::checksum::crc32c(json.as_bytes())))
        {
            return Err("its checksum does not match".to_owned());
        }
        let manifest: Manifest = serde_json::from_str(json).map_err(|error| error.to_string())?;
        if manifest.format > FORMAT {
            return Err(format!(
                "it is written in format {}, and this program reads {FORMAT}",
                manifest.format
            ));
        }
        if manifest.name() != *name {
            return Err(format!("it is the manifest of {}", manifest.name().path()));
        }
        manifest.files.iter().try_for_each(PartFile::check)?;
        let rows = manifest.files.iter().try_fold(0_u64, |sum, file| sum.checked_add(file.rows));
        if rows != Some(manifest.rows) {
            return Err(format!("it has {} rows, and its files have others", manifest.rows));
        }
        manifest.columns().map_err(|error| format!("its columns cannot be read: {error}"))?;
        let places: BTreeSet<u32> = manifest.places.values().copied().collect();
        if places.len() != manifest.places.len() {
            return Err("two of its columns have one place".to_owned());
        }
        Ok(manifest)
    }

    /// The columns of its files.
    pub(super) fn columns(&self) -> Result<SchemaRef, ArrowError> {
        let bytes = BASE64.decode(&self.schema).map_err(|error| ArrowError::ParseError(error.to_string()))?;
        Ok(StreamReader::try_new(bytes.as_slice(), None)?.schema())
    }
}

/// Columns as a manifest holds them.
pub(super) fn encode_columns(schema: &Schema) -> Result<String, ArrowError> {
    let mut bytes = Vec::new();
    StreamWriter::try_new(&mut bytes, schema)?.finish()?;
    Ok(BASE64.encode(bytes))
}

impl PartFile {
    /// A file that was written in blocks of the usual size.
    pub(super) fn new(name: String, bytes: u64, rows: u64, crc32c: Vec<u32>) -> Self {
        PartFile { name, bytes, rows, block_bytes: BLOCK_BYTES, crc32c }
    }

    fn check(&self) -> Result<(), String> {
        let PartFile { name, bytes, block_bytes, crc32c, .. } = self;
        if !is_part(name) {
            return Err(format!("it names {name:?}, which is no file of a version"));
        }
        let sound = (1..=BLOCK_BYTES_MAX).contains(block_bytes)
            && bytes.div_ceil(u64::from(*block_bytes)) == crc32c.len() as u64;
        if sound { Ok(()) } else { Err(format!("the checksums of {name} do not fit its size")) }
    }
}

/// A manifest and one of its files, for whoever reads that.
#[derive(Clone, Debug)]
pub(super) struct ArchivedFile {
    pub(super) manifest: Arc<Manifest>,
    pub(super) number: usize,
}

impl ArchivedFile {
    /// Every file of a manifest.
    pub(super) fn all_of(manifest: &Arc<Manifest>) -> impl Iterator<Item = ArchivedFile> + use<> {
        let manifest = manifest.clone();
        (0..manifest.files.len()).map(move |number| ArchivedFile { manifest: manifest.clone(), number })
    }

    pub(super) fn part(&self) -> &PartFile {
        &self.manifest.files[self.number]
    }

    pub(super) fn path(&self) -> Path {
        self.manifest.path_of(self.part())
    }
}

#[cfg(test)]
mod tests {
    use arrow_schema::{DataType, Field};

    use super::*;

    fn manifest() -> Manifest {
        let schema = Schema::new(vec![Field::new("reward", DataType::Float32, true)]);
        Manifest {
            format: FORMAT,
            store: "00ff".to_owned(),
            table: "solver".to_owned(),
            version: 3,
            generation: 1,
            commit: 77,
            rows: 8,
            digest: String::new(),
            archived_at: String::new(),
            schema: encode_columns(&schema).unwrap(),
            files: vec![PartFile::new("part-00-0.parquet".to_owned(), 300_000, 8, vec![1, 2])],
            steps: Vec::new(),
            places: Places::from([("reward".to_owned(), 0)]),
            told: true,
            renames: Some(-1),
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let written = manifest();
        let read = Manifest::decode(&written.encode(), &written.name()).unwrap();
        assert_eq!((&read.files, read.commit, read.rows), (&written.files, 77, 8));
        assert_eq!(read.columns().unwrap().field(0).name(), "reward");
    }

    #[test]
    fn one_that_was_written_without_what_came_later_is_read_as_having_none_of_it() {
        let written = String::from_utf8(manifest().encode()).unwrap();
        let line = written.lines().next().unwrap().replace(r#","steps":[]"#, "");
        let line = line.replace(r#","places":{"reward":0},"told":true,"renames":-1"#, "");
        assert!(!["steps", "places", "told", "renames"].iter().any(|word| line.contains(word)), "{line}");
        let bytes = format!("{line}\ncrc32c {:08x}\n", forebay_store::checksum::crc32c(line.as_bytes()));
        let read = Manifest::decode(bytes.as_bytes(), &manifest().name()).unwrap();
        assert_eq!((read.rows, read.steps, read.places, read.told), (8, Vec::new(), Places::new(), false));
        assert_eq!(read.renames, None);
    }

    #[test]
    fn one_without_rows_is_the_next_generation() {
        let void = manifest().void(99, String::new());
        let read = Manifest::decode(&void.encode(), &void.name()).unwrap();
        assert_eq!((read.generation, read.commit, read.files.len()), (2, 99, 0));
        assert!(read.is_void() && read.told && !manifest().is_void());
    }

    #[test]
    fn what_is_not_a_manifest_is_refused_with_the_reason() {
        type Change = fn(&mut Manifest);
        let changes: [(Change, &str); 7] = [
            (|m| m.format = FORMAT + 1, "format 2"),
            (|m| m.version = 4, "_commits/solver/4.1.json"),
            (|m| m.files[0].name = "../x.parquet".to_owned(), "no file of a version"),
            (|m| m.files[0].block_bytes = 0, "do not fit"),
            (|m| m.files[0].crc32c.truncate(1), "do not fit"),
            (|m| m.rows = 9, "9 rows"),
            (|m| _ = m.places.insert("score".to_owned(), 0), "one place"),
        ];
        for (change, reason) in changes {
            let mut other = manifest();
            change(&mut other);
            let error = Manifest::decode(&other.encode(), &manifest().name()).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
        let sound = manifest().encode();
        for at in (0..sound.len() - 1).step_by(7) {
            let mut damaged = sound.clone();
            damaged[at] ^= 4;
            assert!(Manifest::decode(&damaged, &manifest().name()).is_err(), "byte {at}");
        }
        for length in [0, 1, sound.len() / 2, sound.len() - 5] {
            assert!(Manifest::decode(&sound[..length], &manifest().name()).is_err(), "{length} bytes");
        }
    }
}
