//! An object store that fails where it is told to, and lets others look between any two operations.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::*;

/// When the chosen operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fails {
    /// It does nothing.
    Before,
    /// It does what it should, and the answer is lost. Everything after it fails as well: the process is gone.
    After,
}

type Look = Box<dyn Fn(usize) + Send + Sync>;

/// Passes operations on to a store in memory.
pub(super) struct Meddling {
    pub(super) inner: Arc<InMemory>,
    operations: AtomicUsize,
    failing: Option<(usize, Fails)>,
    look: Look,
}

impl Meddling {
    /// Calls `look` before each operation, with its number.
    pub(super) fn looked_at(inner: Arc<InMemory>, look: impl Fn(usize) + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Meddling { inner, operations: AtomicUsize::new(0), failing: None, look: Box::new(look) })
    }

    /// Fails at an operation, and at all after it.
    pub(super) fn failing(inner: Arc<InMemory>, at: usize, fails: Fails) -> Arc<Self> {
        let failing = Some((at, fails));
        Arc::new(Meddling { inner, operations: AtomicUsize::new(0), failing, look: Box::new(|_| {}) })
    }

    /// How many operations there were.
    pub(super) fn operations(&self) -> usize {
        self.operations.load(Ordering::SeqCst)
    }

    /// Counts an operation; an error where it is not to be done. Then whether its answer is to be lost.
    fn begin(&self) -> Result<bool> {
        let number = self.operations.fetch_add(1, Ordering::SeqCst);
        (self.look)(number);
        match self.failing {
            Some((at, Fails::Before)) if number >= at => Err(lost()),
            Some((at, Fails::After)) if number > at => Err(lost()),
            Some((at, Fails::After)) => Ok(number == at),
            _ => Ok(false),
        }
    }

    async fn pass<T>(&self, operation: impl Future<Output = Result<T>>) -> Result<T> {
        let is_lost = self.begin()?;
        let done = operation.await;
        if is_lost { Err(lost()) } else { done }
    }
}

fn lost() -> Error {
    Error::Generic { store: "meddling", source: "the process is gone".into() }
}

impl fmt::Debug for Meddling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Meddling")
    }
}

impl fmt::Display for Meddling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Meddling")
    }
}

#[async_trait]
impl ObjectStore for Meddling {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.pass(self.inner.put_opts(location, payload, options)).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.pass(self.inner.put_multipart_opts(location, options)).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.pass(self.inner.get_opts(location, options)).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.pass(self.inner.get_ranges(location, ranges)).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.begin() {
            Ok(_) => self.inner.list(prefix),
            Err(error) => Box::pin(futures_util::stream::once(std::future::ready(Err(error)))),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.pass(self.inner.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.pass(self.inner.copy_opts(from, to, options)).await
    }
}
