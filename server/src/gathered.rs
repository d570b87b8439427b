//! The memory of answers that are gathered and then written out, over HTTP or as cells of rows over gRPC: that of all of them together is
//! bounded, from the first batch to the last byte that its reader has taken.

use std::io::{self, Write};
use std::sync::Arc;

use axum::body::Bytes;
use forebay_query::{Answer, Format, RowStream};
use futures_util::StreamExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::failure::Failure;

/// What is counted together, in bytes.
const UNIT_BYTES: usize = 64 << 10;

/// The memory that all answers may take.
#[derive(Clone, Debug)]
pub(crate) struct Gathered {
    units: Arc<Semaphore>,
    bytes_max: usize,
}

/// What one answer has taken of it, until it is dropped.
pub(crate) struct Taken {
    of: Gathered,
    bytes: usize,
    held: Option<OwnedSemaphorePermit>,
}

impl Gathered {
    /// So many bytes.
    pub(crate) fn new(bytes_max: usize) -> Self {
        let units = (bytes_max / UNIT_BYTES).clamp(1, Semaphore::MAX_PERMITS);
        Gathered { units: Arc::new(Semaphore::new(units)), bytes_max }
    }

    /// So much of it, for one answer; none where others have it.
    pub(crate) fn take(&self, bytes: u64) -> Option<Taken> {
        let mut taken = self.nothing();
        taken.take(usize::try_from(bytes).ok()?).ok()?;
        Some(taken)
    }

    fn nothing(&self) -> Taken {
        Taken { of: self.clone(), bytes: 0, held: None }
    }

    /// All rows of a stream, in memory that is let go of with the second.
    pub(crate) async fn collect(&self, mut rows: RowStream) -> Result<(Answer, Taken), Failure> {
        let (mut batches, mut taken) = (Vec::new(), self.nothing());
        while let Some(batch) = rows.next().await {
            let batch = batch?;
            taken.take(batch.get_array_memory_size()).map_err(|()| self.full())?;
            batches.push(batch);
        }
        Ok((Answer { schema: rows.schema().clone(), batches, cut: rows.is_cut() }, taken))
    }

    /// The answer as it goes out, in memory that is let go of with its last byte.
    pub(crate) fn rendered(&self, answer: &Answer, format: Format) -> Result<Bytes, Failure> {
        let mut written = Written { text: Vec::new(), taken: self.nothing(), is_full: false };
        match answer.render(format, &mut written, None) {
            Ok(()) => Ok(Bytes::from_owner(written)),
            Err(_) if written.is_full => Err(self.full()),
            Err(error) => Err(Failure::input(format!("the answer has no form as {format}: {error}"))),
        }
    }

    fn full(&self) -> Failure {
        Failure::capacity(format!(
            "the answer does not fit into the {} bytes that all answers over HTTP have together until their readers have taken \
             them; ask for less, or over Flight SQL or gRPC, where rows come as they are found, or raise \
             `query_memory_bytes_max`",
            self.bytes_max
        ))
    }
}

impl Taken {
    /// Takes so many bytes more, if they are there.
    fn take(&mut self, bytes: usize) -> Result<(), ()> {
        self.bytes += bytes;
        let held = self.held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let wanted = self.bytes.div_ceil(UNIT_BYTES) - held;
        let wanted = u32::try_from(wanted).map_err(drop)?;
        let more = self.of.units.clone().try_acquire_many_owned(wanted).map_err(drop)?;
        match &mut self.held {
            Some(held) => held.merge(more),
            held => *held = Some(more),
        }
        Ok(())
    }
}

/// An answer that is written, with the memory that it takes.
struct Written {
    text: Vec<u8>,
    taken: Taken,
    is_full: bool,
}

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.taken.take(bytes.len()).is_err() {
            self.is_full = true;
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsRef<[u8]> for Written {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_counted_once_and_given_back() {
        let all = Gathered::new(4 * UNIT_BYTES);
        let (mut one, mut other) = (all.nothing(), all.nothing());
        for _ in 0..UNIT_BYTES {
            assert_eq!(one.take(2), Ok(()));
        }
        assert_eq!(all.units.available_permits(), 2);
        assert_eq!((other.take(2 * UNIT_BYTES), other.take(1)), (Ok(()), Err(())));
        drop(other);
        assert_eq!(one.take(2 * UNIT_BYTES), Ok(()));
        drop(one);
        assert_eq!(all.units.available_permits(), 4);
    }
}
