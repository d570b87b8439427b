//! Versions that left the store otherwise than for the archive, though a manifest of theirs is there.
//!
//! Beside the store such a manifest is not read, for the store says which versions were moved out. Who asks the archive alone
//! has no store to say so: for him the next generation is put, a manifest without rows. What makes that safe is that it is
//! put only of what cannot change any more, however many archivers there are:
//!
//! - A version that was moved out stays moved out, so none that counts is ever taken for one of these.
//! - One that is gone and was not moved out can come into the archive only by rows that come into it, and so by a generation of
//!   its own. Of two that put the same generation one finds it there, and goes by what it says.
//! - The log is brought to stable storage before, so no power failure takes it back behind this manifest, as behind none.
//! - Stopped before it is put, the manifest is as it was, and the next `clean` puts it.
//!
//! It hides a version and destroys nothing: the files that the generation before it names stay. A store that was made again from a
//! damaged one, or from an older copy, may know less of what was moved out than the archive does.

use forebay_store::{Snapshot, Store};
use object_store::path::Path;
use object_store::{Error as StoreError, PutMode, PutPayload};

use super::contents::newest;
use super::folder::{Archive, is_damage};
use super::layout::{COMMITS, ManifestName};
use super::manifest::Manifest;
use super::moving::from_store;
use crate::error::Result;

/// Puts a manifest without rows for every version that left the store otherwise. How many there were.
pub(super) async fn settle_all(store: &Store, archive: &Archive) -> Result<u64> {
    let names = archive.manifest_names(&Path::from(COMMITS)).await?;
    let snapshot = store.snapshot_for("archive");
    let mut settled = 0;
    for name in newest(&names) {
        settled += u64::from(settle(store, archive, &snapshot, name).await?);
    }
    Ok(settled)
}

/// The same for one version.
pub(super) async fn settle_version(
    store: &Store,
    archive: &Archive,
    table: &str,
    version: u64,
) -> Result<()> {
    let names = archive.manifests_of(table, version).await?;
    let snapshot = store.snapshot_for("archive");
    if let Some(name) = names.last() {
        settle(store, archive, &snapshot, name).await?;
    }
    Ok(())
}

/// Whether a manifest without rows was put behind the newest one of a version.
async fn settle(store: &Store, archive: &Archive, snapshot: &Snapshot, name: &ManifestName) -> Result<bool> {
    let Ok(seen) = snapshot.table(&name.table) else { return Ok(false) };
    if seen.has_version(name.version) || seen.is_moved_out(name.version) || !seen.came_to(name.version) {
        return Ok(false);
    }
    let manifest = match archive.manifest(name).await {
        Err(error) if is_damage(&error) => return Ok(false), // who needs the version is told
        found => found?,
    };
    let Some(manifest) = manifest else { return Ok(false) };
    // Of an older program's the store may not say that it was moved out; to a later instant it has not come.
    if !manifest.told || manifest.is_void() || manifest.commit > snapshot.commit() {
        return Ok(false);
    }
    store.sync().map_err(from_store)?;
    put(archive, manifest.void(snapshot.commit(), store.clock().now().to_string())).await
}

async fn put(archive: &Archive, manifest: Manifest) -> Result<bool> {
    let path = manifest.name().path();
    let payload = PutPayload::from(manifest.encode());
    match archive.objects().put_opts(&path, payload, PutMode::Create.into()).await {
        Ok(_) => {}
        Err(StoreError::AlreadyExists { .. }) => return Ok(false), // another archiver's
        Err(error) => return Err(archive.unreachable(&error)),
    }
    archive.sync(std::slice::from_ref(&path))?;
    tracing::info!(manifest = %path, "a version left the store before it was moved; it is not in the archive");
    Ok(true)
}
