//! Reads a file of the archive, every block checked before a byte of it is used.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{ParquetFileMetrics, ParquetFileReaderFactory};
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStoreExt};
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::errors::ParquetError;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};

use super::checksum::{around, first_damage};
use super::fault::ArchiveFault;
use super::folder::Archive;
use super::manifest::{ArchivedFile, PartFile};
use crate::error::{Error, Result};

/// What is read beyond the end of a footer's length at the first try, in bytes: most footers whole.
const FOOTER_BYTES_GUESSED: usize = 64 << 10;

/// Opens readers for the files of a scan.
#[derive(Debug)]
pub(super) struct Readers(pub(super) Archive);

impl ParquetFileReaderFactory for Readers {
    fn create_reader(
        &self,
        partition_index: usize,
        file: PartitionedFile,
        _metadata_size_hint: Option<usize>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> PlanResult<Box<dyn AsyncFileReader + Send>> {
        let archived = file.extension::<ArchivedFile>().cloned();
        let archived =
            archived.ok_or_else(|| DataFusionError::Internal("a file of no archive".to_owned()))?;
        let metrics = ParquetFileMetrics::new(partition_index, file.object_meta.location.as_ref(), metrics);
        Ok(Box::new(Reader::new(&self.0, archived, Some(metrics))))
    }
}

/// Reads one file.
pub(super) struct Reader {
    archive: Archive,
    file: ArchivedFile,
    path: Path,
    metrics: Option<ParquetFileMetrics>,
}

impl Reader {
    pub(super) fn new(archive: &Archive, file: ArchivedFile, metrics: Option<ParquetFileMetrics>) -> Self {
        Reader { archive: archive.clone(), path: file.path(), file, metrics }
    }

    fn part(&self) -> &PartFile {
        self.file.part()
    }

    /// The bytes of ranges, each with the blocks around it checked. Ranges whose blocks touch are fetched as one.
    async fn fetch(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let (block, size) = (u64::from(self.part().block_bytes), self.part().bytes);
        if let Some(beyond) = ranges.iter().find(|range| range.start > range.end || range.end > size) {
            let reason = format!("it points to {}..{}, beyond its end", beyond.start, beyond.end);
            return Err(self.corrupt(beyond.start, reason));
        }
        let mut wanted: Vec<Range<u64>> = ranges.iter().map(|range| around(range, block, size)).collect();
        wanted.sort_unstable_by_key(|range| range.start);
        let mut joined: Vec<Range<u64>> = Vec::with_capacity(wanted.len());
        for range in wanted.into_iter().filter(|range| !range.is_empty()) {
            match joined.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => joined.push(range),
            }
        }
        let fetched = self.archive.objects().get_ranges(&self.path, &joined).await;
        let fetched = match fetched {
            Ok(fetched) => fetched,
            Err(error) => return Err(self.diagnose(error).await),
        };
        self.note_scanned(&joined);
        for (range, bytes) in joined.iter().zip(&fetched) {
            self.check(range, bytes, block)?;
        }
        Ok(ranges.iter().map(|range| cut(&joined, &fetched, range)).collect())
    }

    fn check(&self, range: &Range<u64>, bytes: &Bytes, block: u64) -> Result<()> {
        if bytes.len() as u64 != range.end - range.start {
            let (manifest, expected) = (self.manifest(), self.part().bytes);
            let bytes = range.start + bytes.len() as u64;
            let file = self.path.to_string();
            return Err(self.archive.fault(ArchiveFault::Truncated { file, manifest, bytes, expected }));
        }
        match first_damage(bytes, range.start, block, &self.part().crc32c) {
            Some(offset) => Err(self.corrupt(offset, "its checksum does not match".to_owned())),
            None => Ok(()),
        }
    }

    /// What is behind a failed read.
    async fn diagnose(&self, error: StoreError) -> Error {
        let (file, manifest) = (self.path.to_string(), self.manifest());
        let vanished =
            || self.archive.fault(ArchiveFault::Vanished { file: file.clone(), manifest: manifest.clone() });
        if matches!(error, StoreError::NotFound { .. }) {
            return vanished();
        }
        match self.archive.objects().head(&self.path).await {
            Ok(found) if found.size != self.part().bytes => {
                let (bytes, expected) = (found.size, self.part().bytes);
                self.archive.fault(ArchiveFault::Truncated { file, manifest, bytes, expected })
            }
            Err(StoreError::NotFound { .. }) => vanished(),
            _ => self.archive.unreachable(&error),
        }
    }

    fn corrupt(&self, offset: u64, reason: String) -> Error {
        let (file, manifest) = (self.path.to_string(), self.manifest());
        self.archive.fault(ArchiveFault::Corrupt { file, manifest, offset, reason })
    }

    fn manifest(&self) -> String {
        self.file.manifest.name().path().to_string()
    }

    fn note_scanned(&self, ranges: &[Range<u64>]) {
        if let Some(metrics) = &self.metrics {
            let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
            metrics.bytes_scanned.add(usize::try_from(bytes).unwrap_or(usize::MAX));
        }
    }

    async fn footer(&mut self) -> Result<Arc<ParquetMetaData>, ParquetError> {
        if let Some(known) = self.archive.known_footer(&self.path) {
            return Ok(known);
        }
        let size = self.part().bytes;
        let footer = ParquetMetaDataReader::new()
            .with_prefetch_hint(Some(FOOTER_BYTES_GUESSED))
            .with_page_index_policy(PageIndexPolicy::Optional)
            .load_and_finish(&mut *self, size)
            .await
            .map_err(|error| match error {
                ParquetError::External(source) => ParquetError::External(source),
                other => outside(self.corrupt(0, format!("its footer cannot be read: {other}"))),
            })?;
        let footer = Arc::new(footer);
        self.archive.note_footer(self.path.clone(), footer.clone());
        Ok(footer)
    }
}

/// The bytes of a range, out of the joined ones, one of which it lies in.
fn cut(joined: &[Range<u64>], fetched: &[Bytes], range: &Range<u64>) -> Bytes {
    let within = joined.iter().zip(fetched).find(|(of, _)| of.start <= range.start && range.end <= of.end);
    within.map_or(Bytes::new(), |(of, bytes)| {
        bytes.slice((range.start - of.start) as usize..(range.end - of.start) as usize)
    })
}

fn outside(error: Error) -> ParquetError {
    ParquetError::External(Box::new(error))
}

impl AsyncFileReader for Reader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, ParquetError>> {
        async move { Ok(self.fetch(&[range]).await.map_err(outside)?.pop().unwrap_or_default()) }.boxed()
    }

    fn get_byte_ranges(
        &mut self,
        ranges: Vec<Range<u64>>,
    ) -> BoxFuture<'_, Result<Vec<Bytes>, ParquetError>> {
        async move { self.fetch(&ranges).await.map_err(outside) }.boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        _options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, Result<Arc<ParquetMetaData>, ParquetError>> {
        self.footer().boxed()
    }
}
