//! What a stream of HTTP/2 carries where nobody looks at it: with the same library, windows and pieces as a write in frames,
//! from a thread to another over loopback.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use forebay_benches::Outcome;
use forebay_client::wire::Parts;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http_body::Body as _;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::{Method, Request, Response, Uri};
use tonic::server::NamedService;
use tonic::transport::Endpoint;
use tonic::transport::server::{Server, TcpIncoming};

/// Bytes of a piece, as a frame of a write has them.
const PIECE: usize = 256 << 10;
const WINDOW: u32 = 4 << 20;
const FRAME: u32 = 1 << 20;

/// Reads what comes, and lets go of it.
#[derive(Clone)]
struct Sink;

impl NamedService for Sink {
    const NAME: &'static str = "sink";
}

impl Service<Request<Body>> for Sink {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let mut body = request.into_body();
        let read = async move {
            while let Some(Ok(_)) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {}
            Ok(Response::new(Body::empty()))
        };
        read.boxed()
    }
}

/// Bytes that go over loopback in a stream, in MB/s.
pub(crate) fn copy(bytes: usize) -> Outcome<f64> {
    let server = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let client = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let _inside = server.enter();
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse()?)?.with_nodelay(Some(true));
    let address = incoming.local_addr()?;
    let sink = Server::builder()
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(4 * WINDOW)
        .max_frame_size(FRAME)
        .add_service(Sink);
    server.spawn(sink.serve_with_incoming(incoming));
    client.block_on(async move {
        let endpoint = Endpoint::new(format!("http://{address}"))?.tcp_nodelay(true);
        let mut channel = endpoint.initial_stream_window_size(WINDOW).connect().await?;
        let piece = Bytes::from(vec![7; PIECE]);
        let pieces: Parts = std::iter::repeat_n(piece, bytes.div_ceil(PIECE)).collect();
        let bytes = pieces.length();
        let mut request = Request::new(Body::new(pieces));
        (*request.method_mut(), *request.uri_mut()) = (Method::POST, Uri::from_static("/sink/Copy"));
        let begun = Instant::now();
        std::future::poll_fn(|context| channel.poll_ready(context)).await?;
        channel.call(request).await?;
        Ok(bytes as f64 / 1e6 / begun.elapsed().as_secs_f64())
    })
}
