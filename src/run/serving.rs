//! Who may look in while a run goes on, and how ranks reach its store.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use forebay_query::Archive;
use forebay_server::{Builder, Server, Token};
use forebay_store::{Randomness, Store, SystemRandomness};

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
    let Some(address) = options.listen else { return socket.map(|_| for_ranks(store, builder)).transpose() };
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
    eprintln!("listening on http://{}", server.address());
    if let Some(flight) = server.flight_address() {
        eprintln!("Flight SQL on grpc://{flight}");
    }
    Ok(Some(server))
}

/// A server always answers over HTTP, too: nobody asked for that here, so nobody knows the token.
fn for_ranks(store: &Store, builder: Builder) -> Result<Server> {
    let random = || SystemRandomness.next_u64();
    let token = Token::new(&format!("{:016x}{:016x}", random(), random()))?;
    Ok(builder.token(token).bind(store.clone(), (Ipv4Addr::LOCALHOST, 0).into())?)
}
