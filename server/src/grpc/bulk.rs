//! Writes that are large, in pieces: the calls of `Bulk`.
//!
//! Their messages are read here and not by tonic, which copies all that comes into a buffer of its own. What comes stays where
//! the transport has put it until the store copies it into its extents; only a value that came in two parts is put together.
//!
//! # Memory
//! A call says first how much it brings, and waits for a while until there is room for that ([`Room`](super::room::Room)), which it has until its
//! frames are gone. Nothing of it is read meanwhile, so its client is held back by the transport. What it brings beyond what it
//! said is refused before it is taken, and so is what comes more slowly than [`PACE_BYTES`] a second.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use forebay_client::Error;
use forebay_client::wire::proto::{BulkPiece, WriteReply, WriteRequest};
use forebay_client::wire::{
    Frame, MESSAGE_BYTES_MAX, Rope, decode, framed_bytes, from_error, kept_by, malformed,
};
use forebay_store::Kind;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use prost::Message;
use tonic::body::Body;
use tonic::codegen::http::header::HeaderName;
use tonic::codegen::http::{
    HeaderMap, HeaderValue, Request as HttpRequest, Response as HttpResponse, header,
};
use tonic::codegen::{Body as _, Service as TowerService};
use tonic::metadata::MetadataMap;
use tonic::server::NamedService;
use tonic::{Request, Status};

use super::call::{Service, WRITE, blocking};
use super::pace::{Clock, late};
use super::room::Taken;

const PATH: &str = "/forebay.v1.Bulk/Write";
/// Before each message: whether it is packed, and its length.
const PREFIX_BYTES: usize = 5;
/// There are two frames at most, and one more for each so many bytes.
const BYTES_OF_FRAME: u64 = 32 << 10;
/// As fast as this a whole call has to come, beside the time that it has for a piece: it holds room meanwhile.
const PACE_BYTES: u64 = 512 << 10;

/// What came behind changes, and the room for it.
#[derive(Default)]
pub(super) struct Brought {
    pub(super) frames: Vec<Frame>,
    /// Given back after the frames are gone.
    pub(super) room: Option<Taken>,
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
        let clock = parts.extensions.get::<Clock>().cloned();
        let call = self.enter(&Request::from_parts(metadata, parts.extensions, ()), WRITE)?;
        let mut pieces = Pieces { body, come: Rope::default(), bytes_max: self.limits.message_bytes_max };
        let (write, bytes) = pieces.first(self.limits.bulk_bytes_max).await?;
        call.check_tables(&write)?;
        if let Some(answer) = call.session.changed.known::<WriteReply>(call.name)? {
            return answer.await; // it was sent again: the first has the room
        }
        let all_bytes = bytes.saturating_add(write.encoded_len() as u64);
        let room = self.room.take(&call.session.room, all_bytes).await.map_err(|error| refused(&error))?;
        clock.into_iter().for_each(|clock| clock.restart());
        let frames = self.in_time(bytes, pieces.frames(bytes)).await?;
        // What ended early is no answer to keep.
        let changes = write.changes.as_ref().ok_or_else(|| refused(&malformed("no changes")))?;
        framed_bytes(changes, &frames).map_err(|error| refused(&error))?;
        let brought = Brought { frames, room: Some(room) };
        self.written(call, write, brought).await.map(tonic::Response::into_inner)
    }

    /// What comes of so many bytes, if they come soon.
    async fn in_time<T>(
        &self,
        bytes: u64,
        coming: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Status> {
        let time = self.limits.piece_time_max.saturating_add(Duration::from_secs(bytes / PACE_BYTES));
        let come = tokio::time::timeout(time, coming).await;
        come.unwrap_or_else(|_| Err(late("a write in pieces", bytes, time)))
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
        let first = self.next(u64::MAX).await?.filter(|piece| piece.frame.is_empty());
        let first = first.and_then(|piece| Some((piece.write?, piece.bytes)));
        let no_first = || refused(&malformed("a write in pieces begins with its changes, and nothing else"));
        let (write, bytes) = first.ok_or_else(no_first)?;
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
        while let Some(piece) = self.next(left).await? {
            if frames.len() as u64 >= 2 + bytes / BYTES_OF_FRAME {
                return Err(refused(&malformed(
                    "more frames than are taken for so many bytes; make them larger",
                )));
            }
            if piece.write.is_some() || piece.bytes > 0 {
                return Err(refused(&malformed("changes behind the first piece of a write")));
            }
            let kept = kept_by(piece.frame.len() as u64);
            let frame = read(piece.frame, left).await?;
            left = left.saturating_sub(frame.bytes().max(kept));
            frames.push(frame);
        }
        Ok(frames)
    }

    /// The next message, which may keep so many bytes; none at the end.
    async fn next(&mut self, left: u64) -> Result<Option<BulkPiece>, Status> {
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
        if kept_by(length as u64) > left {
            let message = format!("a message of {length} bytes where {left} bytes are left of what was said");
            return Err(refused(&Error::new(Kind::Input, "TooLarge", message)));
        }
        if !self.has_come(length).await? {
            return Err(ends_early());
        }
        decode(self.come.split_to(length)).map(Some).map_err(|error| refused(&error))
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

/// A frame that takes so many bytes at most: on another thread where that takes long.
async fn read(frame: Bytes, left: u64) -> Result<Frame, Status> {
    match Frame::takes_long(&frame) {
        true => blocking(move || Frame::read(&frame, left)).await,
        false => Frame::read(&frame, left).map_err(|error| refused(&error)),
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
    answer_of(Body::new(Answer { message: Some(message.freeze()), is_over: false }))
}

/// An answer that is written by hand.
pub(super) fn answer_of(body: Body) -> HttpResponse<Body> {
    let mut response = HttpResponse::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

/// What stands behind an answer that is whole.
pub(super) fn went_well() -> HeaderMap {
    let ok = (HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"));
    HeaderMap::from_iter([ok])
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
                Some(http_body::Frame::trailers(went_well()))
            }
        };
        Poll::Ready(frame.map(Ok))
    }
}
