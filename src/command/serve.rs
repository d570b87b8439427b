//! `forebay serve`

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use forebay::query::Archive;
use forebay::server::Server;
use forebay::store::Store;

use super::token;

/// Serve a store over HTTP and Arrow Flight SQL, for reading only
///
/// Also beside a process that writes the store: every query sees what has been written by then. ADBC and JDBC drivers,
/// notebooks and BI connect to the Flight address; `/sql`, `/metrics`, `/health` and `/ready` answer over HTTP. Ends with
/// Ctrl-C.
#[derive(Debug, Args)]
pub(super) struct ServeArguments {
    /// The store's directory
    #[arg(long)]
    dir: PathBuf,
    /// The archive of the store, whose versions are read beside the live ones
    #[arg(long, value_name = "URL")]
    archive: Option<String>,
    /// Where HTTP is answered; port 0 takes any that is free
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7330")]
    listen: SocketAddr,
    /// Where Arrow Flight SQL is answered
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7331")]
    flight: SocketAddr,
    #[command(flatten)]
    token: token::TokenArguments,
}

pub(super) fn run(arguments: &ServeArguments) -> Result<()> {
    let store = Store::open_read_only(&arguments.dir)?;
    let mut builder = Server::builder().refresh(true).flight(arguments.flight);
    if let Some(token) = arguments.token.read()? {
        builder = builder.token(token);
    }
    if let Some(archive) = &arguments.archive {
        builder = builder.archive(&Archive::open(archive)?);
    }
    let server = builder.bind(store, arguments.listen)?;
    eprintln!("listening on http://{}", server.address());
    if let Some(address) = server.flight_address() {
        eprintln!("Flight SQL on grpc://{address}");
    }
    server.wait();
    Ok(())
}
