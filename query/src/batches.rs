//! Streams whose next batch is made when they are polled.

use std::pin::Pin;
use std::task::{Context, Poll};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use datafusion::error::Result as PlanResult;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream};
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::metrics::BaselineMetrics;
use futures_core::Stream;

/// Batches of `schema`, each made by `next` on the thread that asks for it, until that gives none. The time that it takes is
/// counted, and other streams of the thread get their turn in between.
pub(crate) fn batches(
    schema: SchemaRef,
    metrics: BaselineMetrics,
    next: impl FnMut() -> PlanResult<Option<RecordBatch>> + Send + Unpin + 'static,
) -> SendableRecordBatchStream {
    Box::pin(cooperative(Made { schema, metrics, next }))
}

struct Made<F> {
    schema: SchemaRef,
    metrics: BaselineMetrics,
    next: F,
}

impl<F: FnMut() -> PlanResult<Option<RecordBatch>> + Unpin> Stream for Made<F> {
    type Item = PlanResult<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let time = self.metrics.elapsed_compute().clone();
        let timer = time.timer();
        let batch = (self.next)().transpose();
        drop(timer);
        self.metrics.record_poll(Poll::Ready(batch))
    }
}

impl<F: FnMut() -> PlanResult<Option<RecordBatch>> + Unpin> RecordBatchStream for Made<F> {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}
