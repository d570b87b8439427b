//! Who may look in while a run goes on, and how ranks reach its store.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use forebay_query::Archive;
use forebay_server::{Builder, Server};
use forebay_store::Store;

use super::job::RunOptions;

/// Whether the store can be served there: the port is taken, looked at, and let go again.
pub(super) fn check_listen(address: SocketAddr, has_token: bool) -> Result<()> {
    ensure!(
        has_token || address.ip().is_loopback(),
        "--listen {address}: give a loopback address or a token; whoever reaches it can read the store"
    );
    TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
    Ok(())
}

/// Whether there is such a file; what is in it is looked at when the server starts.
pub(super) fn check_tokenizer(file: &Path) -> Result<()> {
    std::fs::File::open(file).with_context(|| format!("cannot take a tokenizer from {}", file.display()))?;
    Ok(())
}

/// Lets people and Prometheus look in while the run goes on, and ranks get at the store's objects through `socket`; nothing where nobody
/// is to be served.
pub(super) fn serve(
    store: &Store,
    archive: Option<&Archive>,
    options: &RunOptions,
    socket: Option<&Path>,
) -> Result<Option<Server>> {
    let mut builder = archive.into_iter().fold(Server::builder(), Builder::archive);
    builder = socket.into_iter().fold(builder, Builder::grpc_socket);
    let Some(address) = options.listen else {
        return Ok(socket.map(|_| builder.bind_without_http(store.clone())).transpose()?);
    };
    if let Some(flight) = options.flight {
        builder = builder.flight(flight);
    }
    for (name, file) in &options.tokenizers {
        builder = builder.tokenizer(name, file);
    }
    if let Some(token) = &options.token {
        builder = builder.token(token.clone());
    }
    let server = builder.bind(store.clone(), address)?;
    server.address().iter().for_each(|address| eprintln!("listening on http://{address}"));
    if let Some(flight) = server.flight_address() {
        eprintln!("Flight SQL on grpc://{flight}");
    }
    Ok(Some(server))
}
