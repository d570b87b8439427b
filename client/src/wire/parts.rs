//! Bytes that are sent part by part, each as it was made.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// The body of a call in parts, which nothing on the way copies. Cheap to clone.
///
/// ```
/// use bytes::Bytes;
/// use forebay_client::wire::Parts;
/// let parts: Parts = [Bytes::from_static(b"one"), Bytes::from_static(b"other")].into_iter().collect();
/// assert_eq!(parts.length(), 8);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Parts {
    parts: VecDeque<Bytes>,
    left: usize,
}

impl Parts {
    /// What is left to send, in bytes.
    pub fn length(&self) -> usize {
        self.left
    }
}

impl FromIterator<Bytes> for Parts {
    fn from_iter<I: IntoIterator<Item = Bytes>>(parts: I) -> Self {
        let parts = VecDeque::from_iter(parts);
        let left = parts.iter().map(Bytes::len).sum();
        Parts { parts, left }
    }
}

impl Body for Parts {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let part = self.parts.pop_front();
        self.left -= part.as_ref().map_or(0, Bytes::len);
        Poll::Ready(part.map(|part| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.parts.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left as u64)
    }
}
