//! The connections proper: each is made when it is first used, and made again after it broke.

use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity, Uri};

use super::address::Address;
use super::line::Line;
use super::options::ConnectOptions;
use crate::error::{Error, Result};
use crate::wire::FRAMED_PIECE_BYTES;

/// How often a silent server is asked whether it is there, and how long it has to answer.
const ALIVE_EVERY: Duration = Duration::from_secs(10);
const ALIVE_WITHIN: Duration = Duration::from_secs(10);
/// How much a stream may carry before it is read: a few values' worth.
const WINDOW_BYTES: u32 = 4 << 20;
/// How much of it goes at once.
const FRAME_BYTES: u32 = FRAMED_PIECE_BYTES as u32;

/// A line to that address.
pub(super) fn open(address: &Address, options: &ConnectOptions) -> Result<Line> {
    Ok(Line::new(channel(address, options)?, channel(address, options)?, options.compress))
}

fn channel(address: &Address, options: &ConnectOptions) -> Result<Channel> {
    Ok(match address {
        Address::Unix(path) => {
            let path = path.clone();
            let connect = tower::service_fn(move |_: Uri| {
                let path = path.clone();
                async move { Ok::<_, std::io::Error>(TokioIo::new(UnixStream::connect(path).await?)) }
            });
            endpoint("http://localhost", options)?.connect_with_connector_lazy(connect)
        }
        Address::Tcp { authority, tls: false } => {
            endpoint(&format!("http://{authority}"), options)?.connect_lazy()
        }
        Address::Tcp { authority, tls: true } => {
            let endpoint = endpoint(&format!("https://{authority}"), options)?;
            endpoint.tls_config(tls(options)?).map_err(not_an_endpoint)?.connect_lazy()
        }
    })
}

fn endpoint(uri: &str, options: &ConnectOptions) -> Result<Endpoint> {
    let endpoint = Endpoint::from_shared(uri.to_owned()).map_err(not_an_endpoint)?;
    Ok(endpoint
        .connect_timeout(options.connect_time_max)
        .http2_keep_alive_interval(ALIVE_EVERY)
        .keep_alive_timeout(ALIVE_WITHIN)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(4 * WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES)
        .tcp_nodelay(true))
}

fn tls(options: &ConnectOptions) -> Result<ClientTlsConfig> {
    let authority = options.authority_certificate.as_ref().ok_or_else(|| {
        let message = "grpcs needs the certificate of the authority that signed the server's: in Rust \
                       `authority_certificate(PEM)`, in Python `tls={\"authority\": PEM or path}`";
        Error::input("Argument", message)
    })?;
    let config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authority));
    Ok(options
        .identity
        .iter()
        .fold(config, |config, (certificate, key)| config.identity(Identity::from_pem(certificate, key))))
}

fn not_an_endpoint(error: tonic::transport::Error) -> Error {
    let reason = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
    Error::input("Argument", format!("no connection can be set up so: {reason}")).because(error)
}
