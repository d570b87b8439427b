//! An archive as its users hold it: an address, what is known of what lies there, and how to reach it.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path as FilePath, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{Error as StoreError, ObjectStore, ObjectStoreExt, PutMode, PutPayload};
use parquet::file::metadata::ParquetMetaData;
use serde::{Deserialize, Serialize};
use url::Url;

use super::fault::ArchiveFault;
use super::layout::{COMMITS, MARKER};
use super::manifest::Manifest;
use super::stable::{Answered, Directory, Stable};
use crate::error::{Cause, Error, Result};

/// The version of the layout that this program writes, and the newest that it reads.
pub(super) const FORMAT: u32 = 1;
/// More than any marker has.
const MARKER_BYTES_MAX: u64 = 64 << 10;
/// How much of the footers of files is kept for the next query, in bytes.
const FOOTERS_BYTES_MAX: usize = 64 << 20;

/// An archive at some address. Clones are handles on the same; what one has learned of the archive, all know.
///
/// ```
/// use forebay_query::{Archive, ArchiveRule, Archiver, Options, Session};
/// use forebay_store::{DataType, Schema, Store};
/// # let dir = tempfile::tempdir().unwrap();
/// let store = Store::open(dir.path().join("store"), forebay_store::Options::default())?;
/// let solver = store.create_table("solver", Schema::new().data("reward", DataType::Float32))?;
///
/// let archive = Archive::open(dir.path().join("archive").to_str().unwrap())?;
/// let archiver = Archiver::new(&store, &archive, ArchiveRule::keep_versions(4))?;
/// assert!(archiver.run_once()?.is_none(), "no version is over yet");
///
/// let session = Session::with_options(&store, &Options::default().archive(&archive))?;
/// assert_eq!(session.sql_blocking("SELECT reward FROM solver")?.row_count(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Archive(Arc<Inner>);

struct Inner {
    url: String,
    objects: Arc<dyn ObjectStore>,
    /// Its directory, where it is one.
    local: Option<PathBuf>,
    stable: Box<dyn Stable>,
    known: Mutex<Known>,
}

/// What was read and cannot change: an archive's files are written once. A leaf among the locks.
#[derive(Default)]
struct Known {
    marker: Option<Marker>,
    manifests: HashMap<Path, Arc<Manifest>>,
    footers: HashMap<Path, Arc<ParquetMetaData>>,
    footer_bytes: usize,
}

/// Whose archive it is.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Marker {
    format: u32,
    store: String,
}

impl Archive {
    /// The archive at an address: a directory, `file:///PATH`, or `s3://BUCKET/PREFIX`. For S3 the usual environment
    /// variables hold (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, `AWS_ENDPOINT_URL`, `AWS_ALLOW_HTTP`,
    /// ...). Nothing is read yet, and there need not be an archive.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::Kind::Input) when it is no such address.
    pub fn open(address: &str) -> Result<Self> {
        let refuse = |reason: String| -> Error {
            Cause::Archive { url: address.to_owned(), fault: ArchiveFault::Address { reason } }.into()
        };
        if address.is_empty() {
            return Err(refuse("it is empty".to_owned()));
        }
        let Some((scheme, _)) = address.split_once("://") else {
            let path = std::path::absolute(address).map_err(|error| refuse(error.to_string()))?;
            return Self::in_directory(&path).map_err(|error| refuse(error.to_string()));
        };
        let url = Url::parse(address).map_err(|error| refuse(error.to_string()))?;
        if scheme == "file" {
            let path = url.to_file_path().map_err(|()| refuse("it names no directory".to_owned()))?;
            return Self::in_directory(&path).map_err(|error| refuse(error.to_string()));
        }
        let settings = std::env::vars().filter(|(name, _)| name.starts_with("AWS_"));
        let settings = settings.map(|(name, value)| (name.to_ascii_lowercase(), value));
        let (objects, prefix) =
            object_store::parse_url_opts(&url, settings).map_err(|error| refuse(error.to_string()))?;
        Ok(Self::in_store(address, Arc::new(PrefixStore::new(objects, prefix))))
    }

    /// An archive in an object store that the caller has opened, with credentials from wherever he has them. `name` is
    /// what messages call it.
    pub fn in_store(name: &str, objects: Arc<dyn ObjectStore>) -> Self {
        let url = name.trim_end_matches('/').to_owned();
        let stable = Box::new(Answered);
        Archive(Arc::new(Inner { url, objects, local: None, stable, known: Mutex::default() }))
    }

    fn in_directory(path: &FilePath) -> std::result::Result<Self, object_store::Error> {
        Self::with_stable(path, Box::new(Directory(path.to_owned())))
    }

    /// The archive in a directory, whose files become stable in that way.
    pub(super) fn with_stable(
        path: &FilePath,
        stable: Box<dyn Stable>,
    ) -> std::result::Result<Self, object_store::Error> {
        let root = Path::from_absolute_path(path)?;
        let objects = PrefixStore::new(LocalFileSystem::new(), root);
        let (url, local) = (path.display().to_string(), Some(path.to_owned()));
        let (objects, known) = (Arc::new(objects), Mutex::default());
        Ok(Archive(Arc::new(Inner { url, objects, local, stable, known })))
    }

    /// Its address, without a slash at the end.
    pub fn url(&self) -> &str {
        &self.0.url
    }

    pub(super) fn objects(&self) -> &Arc<dyn ObjectStore> {
        &self.0.objects
    }

    pub(super) fn local(&self) -> Option<&FilePath> {
        self.0.local.as_deref()
    }

    pub(super) fn fault(&self, fault: ArchiveFault) -> Error {
        Cause::Archive { url: self.0.url.clone(), fault }.into()
    }

    pub(super) fn unreachable(&self, error: &StoreError) -> Error {
        let mut reason = error.to_string();
        reason.truncate(reason.floor_char_boundary(600)); // an object store may answer with a page of XML
        self.fault(ArchiveFault::Unreachable { reason })
    }

    /// Begins the archive of a store, or finds that it is one already.
    pub(super) async fn begin(&self, store: &str) -> Result<()> {
        if let Some(directory) = self.local() {
            let made = Directory::make(directory);
            made.map_err(|reason| self.fault(ArchiveFault::Unreachable { reason }))?;
        }
        let marker = Marker { format: FORMAT, store: store.to_owned() };
        let text = serde_json::to_vec_pretty(&marker).unwrap_or_default();
        let path = Path::from(MARKER);
        let text = PutPayload::from(text);
        match self.0.objects.put_opts(&path, text.clone(), PutMode::Create.into()).await {
            Ok(_) => {}
            Err(StoreError::AlreadyExists { .. }) => match self.check(Some(store)).await {
                Err(error) if is_damage(&error) && self.is_without_versions().await? => {
                    // A power failure came before the marker was stable, and so before anything else was put.
                    let again = self.0.objects.put(&path, text).await;
                    again.map_err(|error| self.unreachable(&error))?;
                }
                checked => checked?,
            },
            Err(error) => return Err(self.unreachable(&error)),
        }
        self.sync(&[path])?;
        self.check(Some(store)).await
    }

    async fn is_without_versions(&self) -> Result<bool> {
        Ok(self.manifest_names(&Path::from(COMMITS)).await?.is_empty())
    }

    /// That there is an archive, in a known format, and of this store, if one is named.
    pub(super) async fn check(&self, store: Option<&str>) -> Result<()> {
        let known = self.known().marker.clone();
        let marker = match known {
            Some(marker) => marker,
            None => self.read_marker().await?,
        };
        if marker.format > FORMAT {
            return Err(self.fault(ArchiveFault::Format { format: marker.format, known: FORMAT }));
        }
        match store {
            Some(ours) if ours != marker.store => {
                let (theirs, ours) = (marker.store, ours.to_owned());
                Err(self.fault(ArchiveFault::Foreign { theirs, ours }))
            }
            _ => Ok(()),
        }
    }

    /// That the archive is still there, whatever was known of it.
    pub(super) async fn look_again(&self) -> Result<()> {
        self.known().marker = None;
        self.check(None).await
    }

    async fn read_marker(&self) -> Result<Marker> {
        let path = Path::from(MARKER);
        let damaged =
            |reason: String| self.fault(ArchiveFault::Manifest { manifest: MARKER.to_owned(), reason });
        let found = self.0.objects.get(&path).await.map_err(|error| match error {
            StoreError::NotFound { .. } => self.fault(ArchiveFault::NotThere),
            other => self.unreachable(&other),
        })?;
        if found.meta.size > MARKER_BYTES_MAX {
            return Err(damaged(format!("it has {} bytes", found.meta.size)));
        }
        let bytes = found.bytes().await.map_err(|error| self.unreachable(&error))?;
        let marker: Marker = serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
        self.known().marker = Some(marker.clone());
        Ok(marker)
    }

    pub(super) fn known_manifest(&self, path: &Path) -> Option<Arc<Manifest>> {
        self.known().manifests.get(path).cloned()
    }

    /// Keeps a manifest in mind, for it never changes.
    pub(super) fn note_manifest(&self, path: Path, manifest: Arc<Manifest>) {
        self.known().manifests.insert(path, manifest);
    }

    pub(super) fn known_footer(&self, path: &Path) -> Option<Arc<ParquetMetaData>> {
        self.known().footers.get(path).cloned()
    }

    /// Keeps the footer of a file in mind; all of them go when they are too many.
    pub(super) fn note_footer(&self, path: Path, footer: Arc<ParquetMetaData>) {
        let mut known = self.known();
        if known.footer_bytes + footer.memory_size() > FOOTERS_BYTES_MAX {
            known.footers.clear();
            known.footer_bytes = 0;
        }
        known.footer_bytes += footer.memory_size();
        known.footers.insert(path, footer);
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Brings files and the names that lead to them to stable storage.
    pub(super) fn sync(&self, files: &[Path]) -> Result<()> {
        self.0.stable.sync(files).map_err(|reason| self.fault(ArchiveFault::Unreachable { reason }))
    }
}

/// Whether an error says that a marker or a manifest is not what was written.
pub(super) fn is_damage(error: &Error) -> bool {
    matches!(error.cause(), Cause::Archive { fault: ArchiveFault::Manifest { .. }, .. })
}

impl PartialEq for Archive {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Archive {}

impl fmt::Debug for Archive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Archive").field(&self.0.url).finish()
    }
}
