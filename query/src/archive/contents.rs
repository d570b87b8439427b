//! What is in an archive, as one query or one archiver's step sees it.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::common::plan_err;
use datafusion::error::{DataFusionError, Result as PlanResult};
use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStoreExt};

use super::fault::ArchiveFault;
use super::folder::Archive;
use super::layout::{COMMITS, ManifestName};
use super::manifest::{MANIFEST_BYTES_MAX, Manifest};
use crate::error::{Cause, Error, Result};
use crate::history::{CommittedStep, History};

/// How many manifests are read at the same time.
const READS_AT_ONCE: usize = 16;

/// The newest manifest of each version of each table. Nothing, where a session has no archive.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contents {
    archive: Option<Archive>,
    tables: BTreeMap<String, BTreeMap<u64, Found>>,
}

/// The manifest of a version, or what is wrong with it: only who needs the version is told.
pub(super) type Found = std::result::Result<Arc<Manifest>, ArchiveFault>;

impl Contents {
    /// The names of the tables that have a version in the archive.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &str> {
        self.tables.keys().map(String::as_str)
    }

    /// Whether a version of that table is in the archive.
    pub(crate) fn has_table(&self, name: &str) -> bool {
        self.tables.contains_key(name)
    }

    /// A step that was committed while an archived version of a table was current.
    ///
    /// # Errors
    /// When it is not in the archive, or the archive does not tell; what is wrong with a manifest that may hold it.
    pub(crate) fn step(&self, table: &str, wanted: u64) -> PlanResult<CommittedStep> {
        let history = self.history(table);
        match (history.step(wanted), self.damage(table), history.last()) {
            (Some(step), ..) => Ok(step),
            (None, Some(fault), _) => Err(fault),
            (None, None, Some(last)) if self.has_history(table) => {
                plan_err!("step {wanted} is not in the archive; the last one that is is {}", last.step)
            }
            _ => Err(self.no_history(table)),
        }
    }

    /// The step that ended an archived version of a table. Its own manifest holds it, and where a step passed over a version, that of
    /// the nearest one before it does; those of later versions hold the steps that ended these.
    ///
    /// # Errors
    /// As for [`step`](Self::step).
    pub(crate) fn end_of_version(&self, table: &str, version: u64) -> PlanResult<CommittedStep> {
        let Some((archive, versions)) = self.of_table(table) else { return Err(self.no_history(table)) };
        if let Some((nearest, found)) = versions.range(..=version).next_back() {
            let manifest = found.as_ref().map_err(|fault| archive.plan_fault(fault.clone()))?;
            let history: History = manifest.steps.iter().copied().collect();
            if let Some(step) = history.end_of(version) {
                return Ok(step);
            }
            if *nearest == version || manifest.steps.is_empty() {
                return Err(self.no_history(table));
            }
        }
        let newest = versions.keys().next_back().copied().unwrap_or_default();
        plan_err!("version {version} is not in the archive; the newest one that is is {newest}")
    }

    fn history(&self, table: &str) -> History {
        self.manifests(table).flat_map(|manifest| manifest.steps.iter().copied()).collect()
    }

    /// Whether every sound manifest of a table came with its steps.
    fn has_history(&self, table: &str) -> bool {
        self.manifests(table).all(|manifest| !manifest.steps.is_empty())
    }

    fn no_history(&self, table: &str) -> DataFusionError {
        let fault = ArchiveFault::NoHistory { table: table.to_owned() };
        match &self.archive {
            Some(archive) => archive.plan_fault(fault),
            None => DataFusionError::Plan(format!("table '{table}' not found")),
        }
    }

    /// What is wrong with the first damaged manifest of a table.
    fn damage(&self, table: &str) -> Option<DataFusionError> {
        let (archive, versions) = self.of_table(table)?;
        let fault = versions.values().find_map(|found| found.as_ref().err())?;
        Some(archive.plan_fault(fault.clone()))
    }

    /// The sound manifests of a table.
    fn manifests(&self, table: &str) -> impl Iterator<Item = &Manifest> {
        let versions = self.tables.get(table).into_iter().flat_map(BTreeMap::values);
        versions.filter_map(|found| found.as_deref().ok())
    }

    /// The archive and what it holds of a table, if it holds something.
    pub(super) fn of_table(&self, name: &str) -> Option<(&Archive, &BTreeMap<u64, Found>)> {
        Some((self.archive.as_ref()?, self.tables.get(name)?))
    }
}

impl Archive {
    /// What the archive held at an instant of the store: after `commit` of its records. To be called once that instant
    /// has been fixed.
    ///
    /// # Errors
    /// [`Kind::Archive`](crate::Kind::Archive) when there is no archive, or not of this store, or out of reach.
    pub(crate) async fn contents(&self, store: Option<u64>, commit: u64) -> Result<Contents> {
        self.check(store.map(store_name).as_deref()).await?;
        let names = self.manifest_names(&Path::from(COMMITS)).await?;
        if names.is_empty() {
            self.look_again().await?; // an archive without manifests may be none any more
        }
        let found: Vec<(ManifestName, Option<Found>)> = futures_util::stream::iter(names)
            .map(|name| async move {
                let found = self.manifest(&name).await;
                Ok::<_, Error>((name, self.or_fault(found)?))
            })
            .buffered(READS_AT_ONCE)
            .try_collect()
            .await?;
        let mut tables: BTreeMap<String, BTreeMap<u64, Found>> = BTreeMap::new();
        for (name, found) in found {
            let is_later = |found: &Found| found.as_ref().is_ok_and(|manifest| manifest.commit > commit);
            let Some(found) = found.filter(|found| !is_later(found)) else { continue };
            // Names are sorted: the newest generation comes last.
            tables.entry(name.table).or_default().insert(name.version, found);
        }
        for versions in tables.values_mut() {
            versions.retain(|_, found| !found.as_ref().is_ok_and(|manifest| manifest.is_void()));
        }
        tables.retain(|_, versions| !versions.is_empty());
        Ok(Contents { archive: Some(self.clone()), tables })
    }

    /// A damaged manifest is a fault of its version; everything else is one of the archive.
    fn or_fault(&self, found: Result<Option<Arc<Manifest>>>) -> Result<Option<Found>> {
        match found {
            Ok(manifest) => Ok(manifest.map(Ok)),
            Err(error) => match error.cause() {
                Cause::Archive { fault: fault @ ArchiveFault::Manifest { .. }, .. } => {
                    Ok(Some(Err(fault.clone())))
                }
                _ => Err(error),
            },
        }
    }

    /// The manifests of a version that are there, the newest last.
    pub(super) async fn manifests_of(&self, table: &str, version: u64) -> Result<Vec<ManifestName>> {
        let mut names = self.manifest_names(&Path::from_iter([COMMITS, table])).await?;
        names.retain(|name| name.version == version);
        Ok(names)
    }

    /// The names of all manifests in a folder, sorted.
    pub(super) async fn manifest_names(&self, folder: &Path) -> Result<Vec<ManifestName>> {
        let listed = self.objects().list(Some(folder)).map_err(|error| self.unreachable(&error));
        let named = listed.try_filter_map(|object| async move { Ok(ManifestName::parse(&object.location)) });
        let mut names: Vec<ManifestName> = named.try_collect().await?;
        names.sort_unstable();
        Ok(names)
    }

    /// Reads a manifest. `None` when it has gone since it was listed.
    pub(super) async fn manifest(&self, name: &ManifestName) -> Result<Option<Arc<Manifest>>> {
        let path = name.path();
        if let Some(known) = self.known_manifest(&path) {
            return Ok(Some(known));
        }
        let damaged =
            |reason: String| self.fault(ArchiveFault::Manifest { manifest: path.to_string(), reason });
        let found = match self.objects().get(&path).await {
            Ok(found) => found,
            Err(StoreError::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(self.unreachable(&error)),
        };
        if found.meta.size > MANIFEST_BYTES_MAX {
            return Err(damaged(format!("it has {} bytes", found.meta.size)));
        }
        let bytes = found.bytes().await.map_err(|error| self.unreachable(&error))?;
        let manifest = Arc::new(Manifest::decode(&bytes, name).map_err(damaged)?);
        self.note_manifest(path, manifest.clone());
        Ok(Some(manifest))
    }
}

/// Of sorted names, that of the newest manifest of each version.
pub(super) fn newest(names: &[ManifestName]) -> Vec<&ManifestName> {
    by_version(names).filter_map(<[ManifestName]>::last).collect()
}

/// The manifests of each version, of names in their order: by generation.
pub(super) fn by_version(names: &[ManifestName]) -> impl Iterator<Item = &[ManifestName]> {
    names.chunk_by(|a, b| (&a.table, a.version) == (&b.table, b.version))
}

/// A store's identity as archives hold it.
pub(super) fn store_name(id: u64) -> String {
    format!("{id:016x}")
}
