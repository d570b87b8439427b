//! The session: who this client is to the server, for as long as both are there.
//!
//! One task of the client's runtime holds the stream that says that the client is there. When the stream breaks it is begun
//! anew, and goes on with the session if the server still has it; if not (it was restarted, or the outage was too long), a new
//! session begins, and what was held is gone: the server, or the store's recovery, has given it back.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tonic::metadata::{MetadataValue, errors::InvalidMetadataValue};
use tonic::{Request, Streaming};

use super::address::Address;
use super::driver::Spawner;
use super::line::Line;
use super::options::ConnectOptions;
use super::told;
use crate::error::{Error, Result};
use crate::wire::malformed;
use crate::wire::proto::open_event::Event;
use crate::wire::proto::{OpenEvent, OpenRequest, Opened};

/// The first and the longest pause before a broken session is tried again.
pub(super) const PAUSE_MIN: Duration = Duration::from_millis(10);
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Where the session stands.
#[derive(Clone, Debug)]
pub(super) enum Standing {
    /// The server knows this client.
    Open(Bytes),
    /// It cannot be reached, or does not let in.
    Away(Bytes),
}

impl Standing {
    /// The session that there is, or was last.
    pub(super) fn session(&self) -> &Bytes {
        match self {
            Standing::Open(session) | Standing::Away(session) => session,
        }
    }
}

/// Metadata with the token, for any request.
pub(super) fn authorize<T>(request: &mut Request<T>, options: &ConnectOptions) -> Result<()> {
    if let Some(token) = &options.token {
        let header = format!("Bearer {token}").parse().map_err(|error: InvalidMetadataValue| {
            Error::input("Argument", "the token holds what no header can; give it as it was made")
                .because(error)
        })?;
        let mut header: MetadataValue<_> = header;
        header.set_sensitive(true);
        request.metadata_mut().insert("authorization", header);
    }
    Ok(())
}

/// A stream that says that this client is there, and what the server said first.
pub(super) struct Presence {
    stream: Streaming<OpenEvent>,
    pub(super) opened: Opened,
}

/// Begins a session, or goes on with one.
pub(super) async fn open(
    address: &Address,
    mut line: Line,
    options: &ConnectOptions,
    resume: Option<Bytes>,
) -> Result<Presence> {
    let (owner, neighbour, slabs) = (options.owner.clone(), options.neighbour, options.slabs);
    let mut request = Request::new(OpenRequest { owner, resume, neighbour, slabs });
    authorize(&mut request, options)?;
    let opening = async {
        let failed = |status| told::opening_error(address, options.connect_time_max, status);
        let mut stream = line.streams.open(request).await.map_err(failed)?.into_inner();
        match stream.message().await.map_err(failed)?.and_then(|first| first.event) {
            Some(Event::Opened(opened)) => Ok(Presence { stream, opened }),
            _ => Err(malformed("a session that does not begin with its name")),
        }
    };
    let time = options.connect_time_max;
    let late = |_| {
        let message = format!("the server at {address} did not answer within {:.1} s", time.as_secs_f64());
        Error::new(forebay_store::Kind::Retry, "Connection", message)
    };
    tokio::time::timeout(time, opening).await.map_err(late)?
}

/// Holds the session until nobody looks at `standing` any more.
pub(super) async fn hold(
    address: Arc<Address>,
    line: Line,
    options: ConnectOptions,
    mut presence: Presence,
    standing: watch::Sender<Standing>,
    tasks: Spawner,
) {
    let (mut pause, store_id) = (PAUSE_MIN, presence.opened.store_id);
    loop {
        let session = presence.opened.session.clone();
        standing.send_replace(Standing::Open(session.clone()));
        tokio::select! {
            () = until_broken(&mut presence.stream) => {}
            () = standing.closed() => return,
        }
        standing.send_replace(Standing::Away(session.clone()));
        let _wanted = tasks.wanted(); // until there is a session again
        presence = loop {
            match open(&address, line.clone(), &options, Some(session.clone())).await {
                Ok(presence) if presence.opened.store_id == store_id => break presence,
                Ok(_) => tracing::warn!("the server has another store now; connect again to use it"),
                Err(error) => tracing::debug!(%error, "the session is not there again yet"),
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => pause = PAUSE_MAX.min(pause * 2),
                () = standing.closed() => return,
            }
        };
        pause = PAUSE_MIN;
        if !presence.opened.resumed {
            tracing::warn!("the server no longer has this client's session; what it held was given back");
        }
    }
}

async fn until_broken(stream: &mut Streaming<OpenEvent>) {
    while let Ok(Some(_)) = stream.message().await {}
}
