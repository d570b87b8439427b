//! Answers of Arrow's pieces, each read where the transport has put it: tonic's reader copies all that comes into a buffer of its own.
//!
//! An answer that is packed is tonic's to unpack. What comes is bounded as everything is that a peer says: a message says its length first.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;
use tonic::body::Body;
use tonic::codec::Streaming;
use tonic::codegen::http::HeaderMap;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Code, Request, Response, Status};

use super::line::Line;
use crate::wire::proto::{
    ArrowPiece, ColumnsRequest, PeekRequest, QueryRequest, ReadCellsRequest, ReadSnapshotRequest,
};
use crate::wire::{BoundedCodec, MESSAGE_BYTES_MAX, Parts, Rope, decode, from_error};

/// Before each message: that it is not packed, and its length.
pub(super) const PREFIX_BYTES: usize = 5;

/// The message of a call that is answered with Arrow's pieces.
pub(super) trait InPieces: Message + Clone + Send + Sync + 'static {
    /// The call.
    const PATH: &'static str;
}

macro_rules! in_pieces {
    ($($path:literal: $message:ty,)*) => {
        $(impl InPieces for $message {
            const PATH: &'static str = concat!("/forebay.v1.", $path);
        })*
    };
}

in_pieces! {
    "Store/Columns": ColumnsRequest,
    "Store/ReadCells": ReadCellsRequest,
    "Store/Query": QueryRequest,
    "Store/ReadSnapshot": ReadSnapshotRequest,
    "Admin/Peek": PeekRequest,
}

/// An answer, piece by piece.
pub(super) enum ArrowPieces {
    Packed(Streaming<ArrowPiece>),
    Plain(Plain),
}

impl ArrowPieces {
    /// The next piece; none at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        match self {
            ArrowPieces::Packed(pieces) => Ok(pieces.message().await?.map(|piece| piece.bytes)),
            ArrowPieces::Plain(pieces) => pieces.next().await,
        }
    }
}

/// An answer as it comes.
pub(super) struct Plain {
    body: Body,
    /// What has come, and was not read yet.
    come: Rope,
}

impl Plain {
    async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        if !self.has_come(PREFIX_BYTES).await? {
            return Ok(None);
        }
        let (is_packed, length) = (self.come.get_u8() != 0, self.come.get_u32() as usize);
        if is_packed {
            return Err(Status::internal("a packed answer, which was not asked for"));
        }
        if length > MESSAGE_BYTES_MAX {
            let message =
                format!("a piece of {length} bytes is larger than the {MESSAGE_BYTES_MAX} that are taken");
            return Err(Status::out_of_range(message));
        }
        if !self.has_come(length).await? {
            return Err(Status::internal("an answer that ends within a piece"));
        }
        let piece: ArrowPiece = decode(self.come.split_to(length)).map_err(|error| from_error(&error))?;
        Ok(Some(piece.bytes))
    }

    /// Waits until so many bytes have come. Not so at the end of an answer that went well; how it went else.
    async fn has_come(&mut self, bytes: usize) -> Result<bool, Status> {
        use std::future::poll_fn;
        use std::pin::Pin;
        use tonic::codegen::Body as _;
        while self.come.remaining() < bytes {
            let frame = poll_fn(|context| Pin::new(&mut self.body).poll_frame(context)).await;
            let frame = frame.ok_or_else(|| Status::unavailable("the answer was cut off"))??;
            match frame.into_data() {
                Ok(data) => self.come.push(data),
                Err(frame) => {
                    let trailers = frame.into_trailers().unwrap_or_default();
                    ended_well(&trailers)?;
                    return match self.come.has_remaining() {
                        true => Err(Status::internal("an answer that ends within a message")),
                        false => Ok(false),
                    };
                }
            }
        }
        Ok(true)
    }
}

/// How a call went, where that is said.
pub(super) fn ended(headers: &HeaderMap) -> Result<(), Status> {
    match Status::from_header_map(headers) {
        Some(status) if status.code() != Code::Ok => Err(status),
        _ => Ok(()),
    }
}

/// How a call went by what stands behind its answer. Where nothing is said there somebody on the way has cut it off.
fn ended_well(trailers: &HeaderMap) -> Result<(), Status> {
    match Status::from_header_map(trailers) {
        Some(status) if status.code() == Code::Ok => Ok(()),
        Some(status) => Err(status),
        None => Err(Status::unavailable("the answer ended, and how it went was not said")),
    }
}

/// A message as it is sent.
fn message(of: &impl Message) -> Parts {
    let mut bytes = BytesMut::with_capacity(PREFIX_BYTES + of.encoded_len());
    put_prefix(&mut bytes, of.encoded_len());
    of.encode_raw(&mut bytes);
    std::iter::once(bytes.freeze()).collect()
}

/// What stands before a message of so many bytes.
pub(super) fn put_prefix(into: &mut BytesMut, length: usize) {
    into.put_u8(0);
    into.put_u32(length as u32); // messages are bounded
}

impl Line {
    /// Makes a call that is answered with Arrow's pieces.
    pub(super) async fn in_pieces<Q: InPieces>(mut self, request: Request<Q>) -> Result<ArrowPieces, Status> {
        if self.is_packed {
            self.calls.ready().await.map_err(|error| Status::from_error(error.into()))?;
            let (path, codec) = (PathAndQuery::from_static(Q::PATH), BoundedCodec::default());
            let answer = self.calls.server_streaming(request, path, codec).await;
            return answer.map(Response::into_inner).map(ArrowPieces::Packed);
        }
        let request = request.map(|asked| message(&asked));
        let body = Line::posted(&mut self.channel, Q::PATH, request).await?.into_body();
        Ok(ArrowPieces::Plain(Plain { body, come: Rope::default() }))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream;
    use http_body::Frame;
    use http_body_util::StreamBody;
    use tonic::codegen::http::{HeaderMap, HeaderValue};

    use super::*;

    fn piece(bytes: &'static [u8]) -> Vec<u8> {
        let piece = ArrowPiece { bytes: Bytes::from_static(bytes) };
        let mut framed = vec![0];
        framed.extend((piece.encoded_len() as u32).to_be_bytes());
        framed.extend(piece.encode_to_vec());
        framed
    }

    fn status(code: &'static str) -> HeaderMap {
        HeaderMap::from_iter([("grpc-status".parse().unwrap(), HeaderValue::from_static(code))])
    }

    /// All pieces of an answer, and how it ended.
    async fn read(data: Vec<Vec<u8>>, trailers: Option<HeaderMap>) -> (Vec<Bytes>, Result<(), Code>) {
        let frames = data.into_iter().map(|data| Frame::data(data.into()));
        let frames = stream::iter(frames.chain(trailers.map(Frame::trailers)).map(Ok::<_, Infallible>));
        let mut plain = Plain { body: Body::new(StreamBody::new(frames)), come: Rope::default() };
        let mut pieces = Vec::new();
        loop {
            match plain.next().await {
                Ok(Some(piece)) => pieces.push(piece),
                Ok(None) => return (pieces, Ok(())),
                Err(status) => return (pieces, Err(status.code())),
            }
        }
    }

    #[tokio::test]
    async fn an_answer_is_whole_only_where_it_is_said_behind_it_that_it_went_well() {
        let whole = || [piece(b"one"), piece(b"two")].concat();
        let cases = [
            (Some(status("0")), Ok(())),
            (Some(status("5")), Err(Code::NotFound)),
            (Some(HeaderMap::new()), Err(Code::Unavailable)), // from somebody on the way
            (None, Err(Code::Unavailable)),
        ];
        for (trailers, ended) in cases {
            for cut in 0..=whole().len() {
                let whole = whole();
                let (first, second) = whole.split_at(cut);
                let data = vec![first.to_vec(), second.to_vec()];
                assert_eq!(
                    read(data, trailers.clone()).await,
                    (vec!["one".into(), "two".into()], ended),
                    "{cut}"
                );
            }
        }
        let within = piece(b"one")[..6].to_vec();
        assert_eq!(read(vec![within], Some(status("0"))).await, (vec![], Err(Code::Internal)));
    }
}
