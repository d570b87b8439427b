//! An answer on its way: batch by batch, within the limits of its session.
//!
//! Invariants
//! - Nothing runs while nobody polls, unless a runtime drives it; dropping the stream ends the query.
//! - A batch that goes out owns its bytes: it holds no window of a mapped extent, so it ships its own size, and whoever
//!   keeps it keeps nothing else.
//! - After an error, the last batch or a cut the query is gone, and with it the memory and the files that it took.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use datafusion::error::Result as PlanResult;
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use futures_core::Stream;
use futures_util::StreamExt;

use crate::answer::Answer;
use crate::compact::compact;
use crate::ending::Ending;
use crate::error::{Cause, Error, Result};
use crate::threads::QueryThreads;

/// What runs below: the batches of the engine.
pub(crate) type Batches = Pin<Box<dyn Stream<Item = PlanResult<RecordBatch>> + Send>>;

/// Comes when a statement's time is up. It wakes whoever waits for the statement, so that one which waits for ever ends too.
type Alarm = Pin<Box<dyn Future<Output = Cause> + Send>>;

/// The rows of an answer, as they are found.
///
/// A `Stream` of record batches. Dropping it cancels the query.
///
/// ```
/// use forebay_query::Session;
/// use forebay_store::{DataType, Options, Schema, Store};
/// use futures_util::StreamExt;
/// # let dir = tempfile::tempdir()?;
/// # let store = Store::open(dir.path().join("store"), Options::default())?;
/// let solver = store.create_table("solver", Schema::new().data("reward", DataType::Float32))?;
/// solver.insert(0, "q17_0_0", [("reward", 1.0.into())])?;
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let mut rows = Session::new(&store)?.stream("SELECT sample_id, reward FROM solver").await?;
/// assert_eq!(rows.schema().field(1).name(), "reward");
/// while let Some(batch) = rows.next().await {
///     assert_eq!(batch?.num_rows(), 1);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "nothing runs before the stream is polled"]
pub struct RowStream {
    schema: SchemaRef,
    batches: Option<Batches>,
    ending: Ending,
    alarm: Alarm,
    rows_left: Option<usize>,
    cut: bool,
}

impl RowStream {
    pub(crate) fn new(schema: SchemaRef, batches: Batches, ending: Ending, rows_max: Option<usize>) -> Self {
        let alarm = Box::pin(ending.clone().expired());
        RowStream { schema, batches: Some(batches), ending, alarm, rows_left: rows_max, cut: false }
    }

    /// The same rows, computed on other threads, and at most two batches before they are asked for: for a caller who has to be
    /// there while the query computes for long without a pause. `keeps` is dropped when the computing has ended, which may be
    /// after the stream was.
    pub fn driven_by(mut self, threads: &QueryThreads, keeps: impl Send + 'static) -> Self {
        if let Some(mut batches) = self.batches.take() {
            let mut driven = RecordBatchReceiverStreamBuilder::new(self.schema.clone(), 1);
            let given = driven.tx();
            let drive = async move {
                let _until_the_end = keeps;
                while let Some(batch) = batches.next().await {
                    if given.send(batch).await.is_err() {
                        break; // nobody is there any more
                    }
                }
                Ok(())
            };
            driven.spawn_on(drive, threads.handle());
            self.batches = Some(driven.build());
        }
        self
    }

    /// The columns, known before the first row is.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Whether there are more rows than [`Options::rows_max`](crate::Options::rows_max) lets through. Known at the end.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// All rows at once.
    ///
    /// # Errors
    /// The first error of the stream.
    pub async fn collect(mut self) -> Result<Answer> {
        let mut batches = Vec::new();
        while let Some(batch) = self.next().await {
            batches.push(batch?);
        }
        Ok(Answer { schema: self.schema.clone(), batches, cut: self.cut })
    }

    /// A batch of the engine as it goes out; none when no row of it may.
    fn admit(&mut self, batch: RecordBatch) -> Result<Option<RecordBatch>> {
        let batch = match self.rows_left {
            Some(left) if batch.num_rows() > left => {
                self.cut = true;
                self.end();
                batch.slice(0, left)
            }
            _ => batch,
        };
        self.rows_left = self.rows_left.map(|left| left - batch.num_rows());
        if batch.num_rows() == 0 {
            return Ok(None);
        }
        compact(&batch).map(Some).map_err(|error| Cause::Bug { reason: error.to_string() }.into())
    }

    fn fail(&mut self, error: Error) -> Poll<Option<Result<RecordBatch>>> {
        self.end();
        Poll::Ready(Some(Err(error)))
    }

    /// The query is gone, also where other threads are at it.
    fn end(&mut self) {
        self.batches = None;
        self.ending.stop();
    }
}

impl Stream for RowStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let this = &mut *self;
            let Some(batches) = &mut this.batches else { return Poll::Ready(None) };
            if let Poll::Ready(cause) = this.alarm.as_mut().poll(context) {
                return this.fail(cause.into());
            }
            match ready!(batches.as_mut().poll_next(context)).transpose() {
                Ok(None) => this.batches = None,
                Err(error) => return this.fail(error.into()),
                Ok(Some(batch)) => match this.admit(batch) {
                    Ok(None) => {}
                    Ok(Some(batch)) => return Poll::Ready(Some(Ok(batch))),
                    Err(error) => return this.fail(error),
                },
            }
        }
    }
}

impl Drop for RowStream {
    fn drop(&mut self) {
        self.end();
    }
}

impl std::fmt::Debug for RowStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowStream").field("schema", &self.schema).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop where it stands")]

    use std::sync::Arc;
    use std::time::Duration;

    use arrow_array::Int64Array;
    use arrow_schema::{DataType, Field, Schema};
    use futures_util::stream;

    use super::*;
    use crate::error::Kind;

    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]))
    }

    fn batches(sizes: &[i64]) -> Batches {
        let batch = |rows: &i64| {
            let column = Arc::new(Int64Array::from_iter_values(0..*rows));
            Ok(RecordBatch::try_new(schema(), vec![column]).unwrap())
        };
        Box::pin(stream::iter(sizes.iter().map(batch).collect::<Vec<_>>()))
    }

    fn collected(rows: impl FnOnce() -> RowStream) -> Result<Answer> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async { rows().collect().await })
    }

    #[test]
    fn a_cut_is_told_and_only_where_a_row_was_left_out() {
        for (sizes, rows_max, rows, cut) in [
            (&[3, 3][..], None, 6, false),
            (&[3, 3], Some(6), 6, false),
            (&[3, 3, 0], Some(6), 6, false),
            (&[3, 3], Some(5), 5, true),
            (&[3, 3], Some(3), 3, true),
            (&[3, 0], Some(3), 3, false),
            (&[3], Some(0), 0, true),
            (&[], Some(0), 0, false),
        ] {
            let answer =
                collected(|| RowStream::new(schema(), batches(sizes), Ending::default(), rows_max)).unwrap();
            assert_eq!((answer.row_count(), answer.cut), (rows, cut), "{sizes:?} {rows_max:?}");
        }
    }

    #[test]
    fn a_statement_that_waits_for_ever_ends_in_its_time() {
        let limit = Duration::from_millis(1);
        let never =
            || RowStream::new(schema(), Box::pin(stream::pending()), Ending::after(Some(limit)), None);
        let error = collected(never).unwrap_err();
        assert_eq!(error.kind(), Kind::Capacity);
        assert!(matches!(error.cause(), Cause::Time { limit: told } if *told == limit), "{error}");
        assert!(error.to_string().contains("statement_time_max"), "{error}");
    }

    #[test]
    fn an_error_is_the_end() {
        let broken: PlanResult<RecordBatch> = datafusion::common::exec_err!("no value");
        let one = batches(&[1]).chain(stream::iter([broken])).chain(batches(&[1]));
        let rows = || RowStream::new(schema(), Box::pin(one), Ending::default(), None);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let items = runtime.block_on(rows().map(|item| item.is_ok()).collect::<Vec<_>>());
        assert_eq!(items, [true, false]);
    }
}
