//! Moves one version of one table: the steps that the head of this module's folder lists.

use std::sync::Arc;

use forebay_store::{Kind as StoreKind, ScanColumn, Store, Table, TableSnapshot};
use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{Error as StoreError, PutMode, PutPayload};
use parquet::arrow::ParquetRecordBatchStreamBuilder;
use parquet::arrow::ProjectionMask;
use parquet::errors::ParquetError;

use super::archiver::{Archiver, Moved};
use super::contents::store_name;
use super::digest::{Digest, digested};
use super::fault::ArchiveFault;
use super::folder::{Archive, FORMAT, is_damage};
use super::layout::ManifestName;
use super::manifest::{ArchivedFile, Manifest, encode_columns};
use super::places::{places_of, renames_of};
use super::reader::Reader;
use super::upload::{self, Written};
use crate::error::{Cause, Error, Result};
use crate::history::History;

/// How many rows are digested at a time.
const DIGEST_ROWS: usize = 4096;

/// One version on its way.
pub(super) struct Move<'a> {
    store: &'a Store,
    archive: &'a Archive,
    table: Table,
    version: u64,
    row_group_bytes: usize,
}

impl<'a> Move<'a> {
    pub(super) fn new(archiver: &'a Archiver, table: &str, version: u64) -> Result<Self> {
        let (store, archive) = (archiver.store(), archiver.archive());
        let table = store.table(table).map_err(from_store)?;
        Ok(Move { store, archive, table, version, row_group_bytes: archiver.group_bytes() })
    }

    /// Takes the version through all steps, from the first that it has not gone through. One that has a manifest of which the store is
    /// to tell, and that the store would not let go, is left as it is: it is compared and read back when it would.
    pub(super) async fn run(&self) -> Result<Moved> {
        let snapshot = self.store.snapshot_for("archive");
        let seen = snapshot.table(self.table.name()).map_err(from_store)?;
        let rows = seen.rows_of_version(self.version);
        if rows.is_empty() {
            return Ok(Moved::default()); // somebody else was faster
        }
        if let Some(reason) = self.holds_back(seen)?
            && self.is_put(snapshot.commit()).await?
        {
            return Ok(Moved { held_back: Some(reason), ..Moved::default() });
        }
        let manifest = match self.manifest_of(snapshot.commit(), seen, &rows).await? {
            Ok(committed) => {
                self.sync(&committed)?; // whoever put it may have ended before he could
                committed
            }
            Err(generation) => self.commit(snapshot.commit(), seen, &rows, generation).await?,
        };
        self.read_back(&manifest).await?;
        self.delete(&manifest, seen)
    }

    /// Deletes the version from the store, where it is still as it was seen.
    fn delete(&self, manifest: &Manifest, seen: &TableSnapshot) -> Result<Moved> {
        match self.table.delete_unchanged(self.version, seen) {
            Ok(deleted) => Ok(Moved {
                rows: deleted.rows,
                bytes: manifest.files.iter().map(|file| file.bytes).sum(),
                files: manifest.files.len(),
                held_back: None,
            }),
            Err(error) if error.kind() == StoreKind::State => {
                Ok(Moved { held_back: Some(error.to_string()), ..Moved::default() })
            }
            Err(error) => Err(from_store(error)),
        }
    }

    /// Why the store would not let the version go now, where it would not.
    fn holds_back(&self, seen: &TableSnapshot) -> Result<Option<String>> {
        match self.table.check_unchanged(self.version, seen) {
            Ok(()) => Ok(None),
            Err(error) if error.kind() == StoreKind::State => Ok(Some(error.to_string())),
            Err(error) => Err(from_store(error)),
        }
    }

    /// Whether an earlier try put a manifest of the version that need not be put anew: a sound one with rows, which counts only once the
    /// store says so, or one of a later instant than `commit`. What cannot be read now is left for the next try: others are not to wait for it.
    async fn is_put(&self, commit: u64) -> Result<bool> {
        let names = self.archive.manifests_of(self.table.name(), self.version).await?;
        let Some(name) = names.last() else { return Ok(false) };
        match self.archive.manifest(name).await {
            Ok(Some(manifest)) => Ok(manifest.told && !manifest.is_void() || manifest.commit > commit),
            Ok(None) => Ok(false),
            Err(error) if is_damage(&error) => Ok(false), // the rows are here: the next generation has them
            Err(error) => {
                let (table, version) = (self.table.name(), self.version);
                tracing::warn!(%error, table, version, "the manifest of a version that is held back cannot be read");
                Ok(true)
            }
        }
    }

    /// The manifest that holds these rows already, or the generation that the next one has.
    async fn manifest_of(
        &self,
        commit: u64,
        seen: &TableSnapshot,
        rows: &[u32],
    ) -> Result<std::result::Result<Arc<Manifest>, u32>> {
        let names = self.archive.manifests_of(self.table.name(), self.version).await?;
        let Some(name) = names.last() else { return Ok(Err(1)) };
        let next = Err(name.generation.saturating_add(1));
        let manifest = match self.archive.manifest(name).await {
            Ok(Some(manifest)) => manifest,
            Ok(None) => return Ok(next),
            // Cut short by a power failure, say; the rows are here, so the next one has them again.
            Err(error) if is_damage(&error) => return Ok(next),
            Err(error) => return Err(error),
        };
        if manifest.commit > commit {
            return self.of_later(&manifest).map(|()| next);
        }
        let same = manifest.rows == rows.len() as u64 && manifest.digest == digest_of(seen, rows)?;
        let same = same && manifest.columns().is_ok_and(|columns| columns == seen.arrow_schema());
        let same = same && manifest.told && manifest.places == places_of(seen.schema());
        Ok(if same { Ok(manifest) } else { next })
    }

    /// Refuses to go on behind a manifest of a later instant: the greatest generation counts, and would be of an earlier one. Where
    /// the store has not come to that instant itself it was brought back from a copy, and the manifest tells of a life that it
    /// never had.
    fn of_later(&self, manifest: &Manifest) -> Result<()> {
        if manifest.commit > self.store.snapshot_for("archive").commit() {
            return Ok(());
        }
        let name = manifest.name().path();
        Err(self.mismatch(format!("another archiver has put {name} meanwhile, of a later instant")))
    }

    /// Writes the files, and puts the manifest where none is.
    async fn commit(
        &self,
        commit: u64,
        seen: &TableSnapshot,
        rows: &[u32],
        generation: u32,
    ) -> Result<Arc<Manifest>> {
        let size = self.row_group_bytes;
        let Written { files, digest } = upload::write(self.archive, seen, self.version, rows, size).await?;
        let manifest = Manifest {
            format: FORMAT,
            store: store_name(self.store.id()),
            table: self.table.name().to_owned(),
            version: self.version,
            generation,
            commit,
            rows: rows.len() as u64,
            digest,
            archived_at: self.store.clock().now().to_string(),
            schema: encode_columns(&seen.arrow_schema()).map_err(|error| self.mismatch(error.to_string()))?,
            files,
            steps: History::of_policy(self.store, seen.policy()).of_version(self.version),
            places: places_of(seen.schema()),
            told: true,
            renames: Some(renames_of(seen.schema())),
        };
        let paths: Vec<Path> = manifest.files.iter().map(|file| manifest.path_of(file)).collect();
        self.archive.sync(&paths)?;
        self.store.sync().map_err(from_store)?;
        self.put(manifest).await
    }

    async fn put(&self, manifest: Manifest) -> Result<Arc<Manifest>> {
        let name: ManifestName = manifest.name();
        let payload = PutPayload::from(manifest.encode());
        match self.archive.objects().put_opts(&name.path(), payload, PutMode::Create.into()).await {
            Ok(_) => {}
            Err(StoreError::AlreadyExists { .. }) => {
                return Err(self.mismatch(format!("another archiver has put {} meanwhile", name.path())));
            }
            Err(error) => return Err(self.archive.unreachable(&error)),
        }
        let manifest = Arc::new(manifest);
        self.sync(&manifest)?;
        self.archive.note_manifest(name.path(), manifest.clone());
        Ok(manifest)
    }

    /// Brings a manifest and its files to stable storage: rows may leave the store only then.
    fn sync(&self, manifest: &Manifest) -> Result<()> {
        let files = manifest.files.iter().map(|file| manifest.path_of(file));
        self.archive.sync(&files.chain([manifest.name().path()]).collect::<Vec<_>>())
    }

    /// Checks that what lies in the archive are the rows that the manifest speaks of.
    async fn read_back(&self, manifest: &Arc<Manifest>) -> Result<()> {
        let mut digest: Option<Digest> = None;
        for file in ArchivedFile::all_of(manifest) {
            let reader = Reader::new(self.archive, file, None);
            let builder =
                ParquetRecordBatchStreamBuilder::new(reader).await.map_err(|error| self.unread(error))?;
            let shown = digested(builder.schema());
            let mask = ProjectionMask::roots(builder.parquet_schema(), shown.iter().copied());
            let schema =
                builder.schema().project(&shown).map_err(|error| self.mismatch(error.to_string()))?;
            if digest.is_none() {
                digest = Some(Digest::new(&schema).map_err(|error| self.mismatch(error.to_string()))?);
            }
            let Some(digest) = &mut digest else { continue };
            let batches = builder.with_projection(mask).with_batch_size(DIGEST_ROWS).build();
            let mut batches = batches.map_err(|error| self.unread(error))?;
            while let Some(batch) = batches.try_next().await.map_err(|error| self.unread(error))? {
                digest.update(&batch).map_err(|error| self.mismatch(error.to_string()))?;
            }
        }
        let (rows, found) = digest.map_or((0, String::new()), |digest| (digest.rows(), digest.finish()));
        if (rows, &found) != (manifest.rows, &manifest.digest) {
            return Err(self.mismatch(format!("{rows} rows were read back, of {} rows", manifest.rows)));
        }
        Ok(())
    }

    fn unread(&self, error: ParquetError) -> Error {
        let error = Error::from(datafusion::error::DataFusionError::from(error));
        match error.cause() {
            Cause::Archive { .. } | Cause::Store { .. } => error,
            other => self.mismatch(other.to_string()),
        }
    }

    fn mismatch(&self, reason: String) -> Error {
        let table = self.table.name().to_owned();
        self.archive.fault(ArchiveFault::Mismatch { table, version: self.version, reason })
    }
}

fn digest_of(seen: &TableSnapshot, rows: &[u32]) -> Result<String> {
    let schema = seen.arrow_schema();
    let shown = digested(&schema);
    let arrow = |error: arrow_schema::ArrowError| Error::from(Cause::Bug { reason: error.to_string() });
    let mut digest = Digest::new(&schema.project(&shown).map_err(arrow)?).map_err(arrow)?;
    let columns: Vec<ScanColumn> = shown.iter().copied().map(ScanColumn::Value).collect();
    for part in rows.chunks(DIGEST_ROWS) {
        digest.update(&seen.read(part, &columns).map_err(from_store)?).map_err(arrow)?;
    }
    Ok(digest.finish())
}

pub(super) fn from_store(source: forebay_store::Error) -> Error {
    Cause::Store { source }.into()
}
