//! Large answers as they were made: the calls whose pieces bring values go around tonic's encoder, which copies each message into a
//! buffer of its own.
//!
//! A piece is given to the transport behind the few bytes that make a message of it. Everything else is as tonic has it; whoever asks for
//! packed answers is answered by tonic.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{BufMut, Bytes, BytesMut};
use forebay_client::wire::proto::store_server::StoreServer;
use forebay_client::wire::{BoundedDecoder, Weighed, from_error, malformed};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, Stream};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use tonic::body::Body;
use tonic::codec::Streaming;
use tonic::codegen::Service as TowerService;
use tonic::codegen::http::{HeaderMap, Request as HttpRequest, Response as HttpResponse};
use tonic::metadata::MetadataMap;
use tonic::server::NamedService;
use tonic::{Request, Response, Status};

use super::bulk::{answer_of, went_well};
use super::call::{Reply, Service};
use super::sending::Part;
use super::streams::Answers;

const COLUMNS: &str = "/forebay.v1.Store/Columns";
const READ_SNAPSHOT: &str = "/forebay.v1.Store/ReadSnapshot";
/// The number of `ArrowPiece.bytes`.
const BYTES: u32 = 1;
/// What may stand before a piece: that the message is not packed, its length, and the field.
const HEAD_BYTES: usize = 32;

/// The calls of `Store`.
#[derive(Clone)]
pub(super) struct Uncopied {
    inner: StoreServer<Service>,
    service: Service,
}

impl Uncopied {
    pub(super) fn new(inner: StoreServer<Service>, service: Service) -> Self {
        Uncopied { inner, service }
    }
}

impl NamedService for Uncopied {
    const NAME: &'static str = <StoreServer<Service> as NamedService>::NAME;
}

impl TowerService<HttpRequest<Body>> for Uncopied {
    type Response = HttpResponse<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<HttpResponse<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: HttpRequest<Body>) -> Self::Future {
        let is_packed = ["grpc-encoding", "grpc-accept-encoding"];
        if is_packed.iter().any(|name| request.headers().contains_key(*name)) {
            return self.inner.call(request);
        }
        let service = self.service.clone();
        match request.uri().path() {
            COLUMNS => async move {
                let answered = match asked(request, service.limits.message_bytes_max).await {
                    Ok(request) => service.columns_sent(request).await,
                    Err(status) => Err(status),
                };
                Ok(as_http(answered))
            }
            .boxed(),
            READ_SNAPSHOT => async move {
                let answered = match asked(request, service.limits.message_bytes_max).await {
                    Ok(request) => service.snapshot_read(request).await,
                    Err(status) => Err(status),
                };
                Ok(as_http(answered))
            }
            .boxed(),
            _ => self.inner.call(request),
        }
    }
}

/// The message of a call that has one.
async fn asked<Q>(request: HttpRequest<Body>, bytes_max: usize) -> Result<Request<Q>, Status>
where
    Q: Message + Default + Weighed + Send + 'static,
{
    let (parts, body) = request.into_parts();
    let mut messages = Streaming::new_request(BoundedDecoder::<Q>::default(), body, None, Some(bytes_max));
    let none = || from_error(&malformed("a call without a message"));
    let message = messages.message().await?.ok_or_else(none)?;
    Ok(Request::from_parts(MetadataMap::from_headers(parts.headers), parts.extensions, message))
}

fn as_http(answered: Reply<Answers<Part>>) -> HttpResponse<Body> {
    match answered.map(Response::into_inner) {
        Ok(parts) => answer_of(Body::new(Sent { parts, behind: None, is_over: false })),
        Err(status) => status.into_http(),
    }
}

/// What stands before a piece of so many bytes to make a message of it.
fn head_of(bytes: usize) -> Bytes {
    let mut field = BytesMut::with_capacity(HEAD_BYTES);
    if bytes > 0 {
        encode_key(BYTES, WireType::LengthDelimited, &mut field);
        encode_varint(bytes as u64, &mut field);
    }
    let mut head = BytesMut::with_capacity(HEAD_BYTES);
    head.put_u8(0);
    head.put_u32((field.len() + bytes) as u32); // a piece is about a mebibyte
    head.put(field);
    head.freeze()
}

/// An answer in pieces, and how it went.
struct Sent {
    parts: Answers<Part>,
    /// The piece whose head is gone.
    behind: Option<Bytes>,
    is_over: bool,
}

impl tonic::codegen::Body for Sent {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Status>>> {
        if let Some(piece) = self.behind.take() {
            return Poll::Ready(Some(Ok(http_body::Frame::data(piece))));
        }
        if self.is_over {
            return Poll::Ready(None);
        }
        match ready!(Pin::new(&mut self.parts).poll_next(cx)) {
            Some(Ok(part)) => {
                let piece = part.into_sent();
                let head = head_of(piece.len());
                self.behind = Some(piece).filter(|piece| !piece.is_empty());
                Poll::Ready(Some(Ok(http_body::Frame::data(head))))
            }
            ended => {
                self.is_over = true;
                let trailers = match ended {
                    Some(Err(status)) => {
                        let mut trailers = HeaderMap::new();
                        status.add_header(&mut trailers).map(|()| trailers)
                    }
                    _ => Ok(went_well()),
                };
                Poll::Ready(Some(trailers.map(http_body::Frame::trailers)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_client::wire::proto::ArrowPiece;
    use futures_util::{StreamExt, stream};
    use tonic::Code;

    use super::*;

    /// What a client reads.
    async fn read(parts: Answers<Part>) -> Result<Vec<Bytes>, Status> {
        let response = as_http(Ok(Response::new(parts)));
        let decoder = BoundedDecoder::<ArrowPiece>::default();
        let mut messages =
            Streaming::new_response(decoder, response.into_body(), 200.try_into().unwrap(), None, None);
        let mut pieces = Vec::new();
        while let Some(piece) = messages.message().await? {
            pieces.push(piece.bytes);
        }
        Ok(pieces)
    }

    #[tokio::test]
    async fn pieces_are_messages_of_any_length_and_end_as_they_went() {
        for bytes in [0, 1, 127, 128, 1 << 20] {
            let piece: Vec<u8> = (0..bytes).map(|at| at as u8).collect();
            assert_eq!(read(Part::of_whole(piece.clone())).await.unwrap(), [Bytes::from(piece)]);
        }
        let failing = Part::of_whole(vec![1; 9]).chain(stream::iter([Err(Status::data_loss("damaged"))]));
        let failed = read(failing.boxed()).await.unwrap_err();
        assert_eq!((failed.code(), failed.message()), (Code::DataLoss, "damaged"));
        let refused = as_http(Err(Status::not_found("no claim")));
        assert_eq!(Status::from_header_map(refused.headers()).unwrap().code(), Code::NotFound);
    }
}
