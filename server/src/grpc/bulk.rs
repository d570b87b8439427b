//! Writes that are large, in pieces: the calls of `Bulk`.
//!
//! Their messages are read here and not by tonic, which copies all that comes into a buffer of its own. What comes stays where
//! the transport has put it until the store copies it into its extents; only a value that came in two parts is put together.
//!
//! # Memory
//! A call says first how much it brings, and waits until there is room for that among the calls that are under way ([`room`]).
//! Nothing of it is read meanwhile, so its client is held back by the transport. What it brings beyond what it said is refused.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use forebay_client::Error;
use forebay_client::wire::proto::{BulkPiece, WriteReply, WriteRequest};
use forebay_client::wire::{Frame, MESSAGE_BYTES_MAX, Rope, from_error, malformed};
use forebay_store::Kind;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use prost::Message;
use tokio::sync::Semaphore;
use tonic::body::Body;
use tonic::codegen::http::header::HeaderName;
use tonic::codegen::http::{
    HeaderMap, HeaderValue, Request as HttpRequest, Response as HttpResponse, header,
};
use tonic::codegen::{Body as _, Service as TowerService};
use tonic::metadata::MetadataMap;
use tonic::server::NamedService;
use tonic::{Request, Status};

use super::Limits;
use super::call::{Service, WRITE};

const PATH: &str = "/forebay.v1.Bulk/Write";
/// Before each message: whether it is packed, and its length.
const PREFIX_BYTES: usize = 5;
/// There are two frames at most, and one more for each so many bytes.
const BYTES_OF_FRAME: u64 = 32 << 10;
/// How many of the largest calls have room at the same time.
const LARGEST_AT_ONCE: u64 = 2;
/// A permit stands for so many bytes.
const PERMIT_BYTES: u64 = 1 << 10;

/// How much all calls together may bring.
pub(super) fn room(limits: &Limits) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(permits(limits.bulk_bytes_max.saturating_mul(LARGEST_AT_ONCE)) as usize))
}

fn permits(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(PERMIT_BYTES)).unwrap_or(u32::MAX)
}

fn refused(error: &Error) -> Status {
    from_error(error)
}

/// Takes writes in pieces.
#[derive(Clone)]
pub(super) struct BulkService(pub(super) Service);

impl NamedService for BulkService {
    const NAME: &'static str = "forebay.v1.Bulk";
}

impl TowerService<HttpRequest<Body>> for BulkService {
    type Response = HttpResponse<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<HttpResponse<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: HttpRequest<Body>) -> Self::Future {
        let service = self.0.clone();
        let answer = async move {
            if request.uri().path() != PATH {
                let message = format!("there is no call {:?}", request.uri().path());
                return Ok(Status::unimplemented(message).into_http());
            }
            Ok(service.bulk_written(request).await.map_or_else(Status::into_http, |reply| answer(&reply)))
        };
        answer.boxed()
    }
}

impl Service {
    async fn bulk_written(&self, request: HttpRequest<Body>) -> Result<WriteReply, Status> {
        let (parts, body) = request.into_parts();
        let metadata = MetadataMap::from_headers(parts.headers);
        let call = self.enter(&Request::from_parts(metadata, parts.extensions, ()), WRITE)?;
        let mut pieces = Pieces { body, come: Rope::default(), bytes_max: self.limits.message_bytes_max };
        let (write, bytes) = pieces.first(self.limits.bulk_bytes_max).await?;
        let _room = self.bulk.acquire_many(permits(bytes)).await; // never closed
        let frames = pieces.frames(bytes).await?;
        self.written(call, write, frames).await.map(tonic::Response::into_inner)
    }
}

/// What a client sends, message by message.
struct Pieces {
    body: Body,
    /// What has come, and was not read yet.
    come: Rope,
    /// The largest message.
    bytes_max: usize,
}

impl Pieces {
    /// The changes, and how much comes behind them.
    async fn first(&mut self, bytes_max: u64) -> Result<(WriteRequest, u64), Status> {
        let first = self.next().await?.and_then(|piece| Some((piece.write?, piece.bytes)));
        let (write, bytes) =
            first.ok_or_else(|| refused(&malformed("a write in pieces begins with its changes")))?;
        if bytes > bytes_max {
            let message = format!(
                "a write of {bytes} bytes is more than the {bytes_max} that are taken at once; make several"
            );
            return Err(refused(&Error::new(Kind::Input, "TooLarge", message)));
        }
        Ok((write, bytes))
    }

    /// All frames that follow, which take so many bytes at most.
    async fn frames(&mut self, bytes: u64) -> Result<Vec<Frame>, Status> {
        let (mut frames, mut left) = (Vec::new(), bytes);
        while let Some(piece) = self.next().await? {
            if frames.len() as u64 >= 2 + bytes / BYTES_OF_FRAME {
                return Err(refused(&malformed(
                    "more frames than are taken for so many bytes; make them larger",
                )));
            }
            let frame = Frame::read(&piece.frame, left).map_err(|error| refused(&error))?;
            left -= frame.bytes(); // it takes no more than that
            frames.push(frame);
        }
        Ok(frames)
    }

    /// The next message; none at the end.
    async fn next(&mut self) -> Result<Option<BulkPiece>, Status> {
        if !self.has_come(PREFIX_BYTES).await? {
            return match self.come.has_remaining() {
                true => Err(ends_early()),
                false => Ok(None),
            };
        }
        let (is_packed, length) = (self.come.get_u8() != 0, self.come.get_u32() as usize);
        if is_packed {
            return Err(refused(&malformed("a packed message; pack its frames instead")));
        }
        if length > self.bytes_max {
            let most = self.bytes_max;
            let message = format!("a message of {length} bytes is larger than the {most} that are taken");
            return Err(refused(&Error::new(Kind::Input, "TooLarge", message)));
        }
        if !self.has_come(length).await? {
            return Err(ends_early());
        }
        let piece = BulkPiece::decode(self.come.split_to(length));
        piece.map(Some).map_err(|error| refused(&malformed(&error.to_string())))
    }

    /// Waits until so many bytes have come; not so where no more come.
    async fn has_come(&mut self, bytes: usize) -> Result<bool, Status> {
        while self.come.remaining() < bytes {
            let frame = std::future::poll_fn(|context| Pin::new(&mut self.body).poll_frame(context)).await;
            let Some(frame) = frame else { return Ok(false) };
            frame?.into_data().into_iter().for_each(|data| self.come.push(data));
        }
        Ok(true)
    }
}

/// Nobody hears this whose connection was cut.
fn ends_early() -> Status {
    refused(&Error::new(Kind::Retry, "CutOff", "the write ended before all of it had come; send it again"))
}

/// An answer as gRPC has it.
fn answer(reply: &WriteReply) -> HttpResponse<Body> {
    let mut message = BytesMut::with_capacity(PREFIX_BYTES + reply.encoded_len());
    message.put_u8(0);
    message.put_u32(reply.encoded_len().min(MESSAGE_BYTES_MAX) as u32); // it names fewer rows than make up that
    reply.encode_raw(&mut message);
    let mut response =
        HttpResponse::new(Body::new(Answer { message: Some(message.freeze()), is_over: false }));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

/// A message, and that it went well.
struct Answer {
    message: Option<Bytes>,
    is_over: bool,
}

impl tonic::codegen::Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        let frame = match self.message.take() {
            Some(message) => Some(http_body::Frame::data(message)),
            None if self.is_over => None,
            None => {
                self.is_over = true;
                let ok = (HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"));
                Some(http_body::Frame::trailers(HeaderMap::from_iter([ok])))
            }
        };
        Poll::Ready(frame.map(Ok))
    }
}
