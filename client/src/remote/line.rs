//! The connection, as calls use it. A message of a call with one answer is encoded once, however often it is sent.

use std::future::poll_fn;
use std::marker::PhantomData;

use bytes::{BufMut, Bytes};
use futures_util::Stream;
use prost::Message;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::codec::{Codec, CompressionEncoding, EncodeBuf, Encoder, Streaming};
use tonic::codegen::Service;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::http::{
    HeaderValue, Method, Request as HttpRequest, Response as HttpResponse, StatusCode, Uri, Version, header,
};
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use super::pieces::ended;
use crate::wire::proto::admin_client::AdminClient;
use crate::wire::proto::history_client::HistoryClient;
use crate::wire::proto::objects_client::ObjectsClient;
use crate::wire::proto::store_client::StoreClient;
use crate::wire::proto::*;
use crate::wire::{BoundedDecoder, MESSAGE_BYTES_MAX, Parts, Weighed};

/// A connection; cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) calls: Grpc<Channel>,
    /// The same connection, for what is read and written by hand.
    pub(super) channel: Channel,
    /// Everything is packed.
    pub(super) is_packed: bool,
    /// For writes that are large, which have a connection of their own: else claims would wait behind them for its window.
    pub(super) bulk: Channel,
    /// For calls that are answered in pieces.
    pub(super) streams: StoreClient<Channel>,
    /// For objects that are read in pieces.
    pub(super) objects: ObjectsClient<Channel>,
    /// For what an operator asks that is answered in pieces.
    pub(super) admin: AdminClient<Channel>,
    /// For what a step was made of.
    pub(super) history: HistoryClient<Channel>,
}

/// The message of a call with one answer.
pub(super) trait Unary: Message + Send + Sync + 'static {
    /// What it is answered with.
    type Reply: Message + Default + Weighed + Send + 'static;
    /// The call.
    const PATH: &'static str;
}

macro_rules! unary {
    ($service:literal: $($method:literal: $message:ty => $reply:ty,)*) => {
        $(impl Unary for $message {
            type Reply = $reply;
            const PATH: &'static str = concat!("/forebay.v1.", $service, "/", $method);
        })*
    };
}

unary! { "Store":
    "Close": CloseRequest => CloseReply,
    "Declare": DeclareRequest => DeclareReply,
    "Describe": DescribeRequest => DescribeReply,
    "Write": WriteRequest => WriteReply,
    "Grow": GrowRequest => GrowReply,
    "Lend": LendRequest => Loan,
    "Delete": DeleteRequest => DeleteReply,
    "Find": FindRequest => FindReply,
    "ReadCell": ReadCellRequest => ReadCellReply,
    "TakeSnapshot": TakeSnapshotRequest => TakeSnapshotReply,
    "HoldSnapshot": HoldSnapshotRequest => HoldSnapshotReply,
    "SnapshotVersions": SnapshotVersionsRequest => SnapshotVersionsReply,
    "Claim": ClaimRequest => ClaimReply,
    "Settle": SettleRequest => SettleReply,
    "BeginStep": BeginStepRequest => BeginStepReply,
    "JoinStep": JoinStepRequest => JoinStepReply,
    "AskStep": AskStepRequest => AskStepReply,
    "EndStep": EndStepRequest => EndStepReply,
    "Rewind": RewindRequest => RewindReply,
    "Maintain": MaintainRequest => MaintainReply,
}

unary! { "Objects":
    "BeginObject": BeginObjectRequest => BeginObjectReply,
    "FillObject": FillObjectRequest => FillObjectReply,
    "CommitObjects": CommitObjectsRequest => CommitObjectsReply,
    "AbortObject": AbortObjectRequest => AbortObjectReply,
    "HoldObjects": HoldObjectsRequest => HoldObjectsReply,
    "VerifyObject": VerifyObjectRequest => VerifyObjectReply,
    "ReleaseObject": ReleaseObjectRequest => ReleaseObjectReply,
    "ListObjects": ListObjectsRequest => ListObjectsReply,
    "MoveObject": MoveObjectRequest => MoveObjectReply,
}

unary! { "Admin":
    "Overview": OverviewRequest => OverviewReply,
    "Evict": EvictRequest => EvictReply,
    "Budgets": BudgetsRequest => BudgetsReply,
    "Retention": RetentionRequest => RetentionReply,
}

unary! { "History":
    "ShowRows": ShowRowsRequest => ShowRowsReply,
}

/// A message as it is sent; cheap to clone.
#[derive(Debug)]
pub(super) struct Encoded<Q> {
    bytes: Bytes,
    of: PhantomData<fn() -> Q>,
}

impl<Q> Clone for Encoded<Q> {
    fn clone(&self) -> Self {
        Encoded { bytes: self.bytes.clone(), of: PhantomData }
    }
}

impl<Q: Message> Encoded<Q> {
    pub(super) fn new(message: &Q) -> Self {
        Encoded { bytes: message.encode_to_vec().into(), of: PhantomData }
    }
}

impl<Q> Encoded<Q> {
    /// In bytes.
    pub(super) fn length(&self) -> usize {
        self.bytes.len()
    }

    /// As it is sent.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Line {
    pub(super) fn new(channel: Channel, bulk: Channel, compress: bool) -> Self {
        let mut calls = Grpc::new(channel.clone());
        let admin = AdminClient::new(channel.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX);
        let mut history = HistoryClient::new(channel.clone());
        let (mut streams, mut objects) =
            (StoreClient::new(channel.clone()), ObjectsClient::new(channel.clone()));
        if compress {
            let zstd = CompressionEncoding::Zstd;
            calls = calls.send_compressed(zstd).accept_compressed(zstd);
            streams = streams.send_compressed(zstd).accept_compressed(zstd);
            objects = objects.send_compressed(zstd).accept_compressed(zstd);
            history = history.send_compressed(zstd).accept_compressed(zstd);
        }
        let most = MESSAGE_BYTES_MAX;
        Line {
            channel,
            is_packed: compress,
            bulk,
            admin,
            calls: calls.max_decoding_message_size(most).max_encoding_message_size(most),
            streams: streams.max_decoding_message_size(most).max_encoding_message_size(most),
            objects: objects.max_decoding_message_size(most).max_encoding_message_size(most),
            history: history.max_decoding_message_size(most),
        }
    }

    /// Makes a call whose messages are sent and read by hand. Fails where it failed before there was anything to read.
    pub(super) async fn posted(
        channel: &mut Channel,
        path: &'static str,
        request: Request<Parts>,
    ) -> Result<HttpResponse<Body>, Status> {
        let (metadata, _, parts) = request.into_parts();
        let mut request = HttpRequest::new(Body::new(parts));
        (*request.method_mut(), *request.version_mut()) = (Method::POST, Version::HTTP_2);
        *request.uri_mut() = Uri::from_static(path);
        *request.headers_mut() = metadata.into_headers();
        request.headers_mut().insert(header::TE, HeaderValue::from_static("trailers"));
        request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        let broken = |error: tonic::transport::Error| Status::from_error(error.into());
        poll_fn(|context| channel.poll_ready(context)).await.map_err(broken)?;
        let response = channel.call(request).await.map_err(broken)?;
        ended(response.headers())?;
        match response.status() {
            StatusCode::OK => Ok(response),
            status => Err(Status::unknown(format!("the server answers HTTP {status}"))),
        }
    }

    /// Makes a call with one answer.
    pub(super) async fn unary<Q: Unary>(
        mut self,
        request: Request<Encoded<Q>>,
    ) -> Result<Response<Q::Reply>, Status> {
        self.calls.ready().await.map_err(|error| Status::from_error(error.into()))?;
        self.calls.unary(request, PathAndQuery::from_static(Q::PATH), Ready(PhantomData::<Q>)).await
    }
}

impl Line {
    /// Makes a call of `Flow`, of encoded changes.
    pub(super) async fn flow(
        mut self,
        request: Request<impl Stream<Item = Bytes> + Send + 'static>,
    ) -> Result<Response<Streaming<ChangeReply>>, Status> {
        self.calls.ready().await.map_err(|error| Status::from_error(error.into()))?;
        self.calls.streaming(request, PathAndQuery::from_static("/forebay.v1.Flow/Change"), Flowing).await
    }
}

/// Sends changes that are encoded already.
struct Flowing;

impl Codec for Flowing {
    type Encode = Bytes;
    type Decode = ChangeReply;
    type Encoder = Self;
    type Decoder = BoundedDecoder<ChangeReply>;

    fn encoder(&mut self) -> Self {
        Flowing
    }

    fn decoder(&mut self) -> Self::Decoder {
        BoundedDecoder::default()
    }
}

impl Encoder for Flowing {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.reserve(message.len()); // else it grows by copies
        into.put(message);
        Ok(())
    }
}

/// Sends what is encoded already.
struct Ready<Q>(PhantomData<Q>);

impl<Q: Unary> Codec for Ready<Q> {
    type Encode = Encoded<Q>;
    type Decode = Q::Reply;
    type Encoder = Self;
    type Decoder = BoundedDecoder<Q::Reply>;

    fn encoder(&mut self) -> Self {
        Ready(PhantomData)
    }

    fn decoder(&mut self) -> Self::Decoder {
        BoundedDecoder::default()
    }
}

impl<Q: Unary> Encoder for Ready<Q> {
    type Item = Encoded<Q>;
    type Error = Status;

    fn encode(&mut self, message: Encoded<Q>, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.reserve(message.bytes.len()); // else it grows by copies
        into.put(message.bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_has_the_types_that_the_protocol_gives_it() {
        let protocol = concat!(
            include_str!("../../proto/forebay/v1/store.proto"),
            include_str!("../../proto/forebay/v1/objects.proto"),
            include_str!("../../proto/forebay/v1/admin.proto"),
            include_str!("../../proto/forebay/v1/history.proto")
        );
        let mut unary = 0;
        macro_rules! check {
            ($($message:ty),*) => {$(
                let (message, reply) = (stringify!($message), std::any::type_name::<<$message as Unary>::Reply>());
                let method = <$message as Unary>::PATH.rsplit('/').next().unwrap();
                let reply = reply.rsplit(':').next().unwrap();
                let line = format!("rpc {method}({message}) returns ({reply});");
                assert!(protocol.contains(&line), "{line}");
                unary += 1;
            )*};
        }
        check!(
            CloseRequest,
            DeclareRequest,
            DescribeRequest,
            WriteRequest,
            GrowRequest,
            LendRequest,
            DeleteRequest,
            FindRequest,
            ReadCellRequest,
            TakeSnapshotRequest,
            HoldSnapshotRequest,
            SnapshotVersionsRequest,
            ClaimRequest,
            SettleRequest,
            BeginStepRequest,
            JoinStepRequest,
            AskStepRequest,
            EndStepRequest,
            RewindRequest,
            MaintainRequest,
            BeginObjectRequest,
            FillObjectRequest,
            CommitObjectsRequest,
            AbortObjectRequest,
            HoldObjectsRequest,
            VerifyObjectRequest,
            ReleaseObjectRequest,
            ListObjectsRequest,
            MoveObjectRequest,
            OverviewRequest,
            EvictRequest,
            BudgetsRequest,
            RetentionRequest,
            ShowRowsRequest
        );
        let all = protocol.lines().filter(|line| line.trim().starts_with("rpc ") && !line.contains("stream"));
        assert_eq!(unary, all.count());
    }
}
