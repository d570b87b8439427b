//! Objects behind a server, as calls: bytes through mappings of the server's segments where this client is a neighbour, else in
//! pieces, each checked against its checksum where it arrives.
//!
//! What is filled and what is held has numbers of the session, and is over with it: a call that names one is not sent again in
//! another session.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use forebay_store::{
    Kind, Layout, Manifest, NeighbourFilling, NeighbourSegments, OBJECT_CHUNK_BYTES, ObjectBytes, Tier, Wait,
};
use futures_util::future::try_join_all;
use tokio::sync::oneshot;
use tonic::Request;

use super::calls::milliseconds;
use super::line::{Encoded, Line, Unary};
use super::{Again, Link, Remote, gone};
use crate::error::{Error, Result};
use crate::objects::{
    Beginning, Holding, LeasedObject, ObjectAsk, ObjectCalls, ObjectCommit, ObjectShown, Relocated,
    Relocation, WhichObject,
};
use crate::wire::{self, malformed, new_call, proto, to_error};

/// How much of a payload goes in one message: a multiple of [`OBJECT_CHUNK_BYTES`].
const PIECE_BYTES: usize = 2 << 20;
/// How many of these are under way.
const PIECES_AT_ONCE: usize = 8;
/// How long the server waits for a version in one call, so that a connection that is dead without a word is noticed.
const WAIT_AT_ONCE: Duration = Duration::from_secs(20);
/// How long a call may take that reads or writes a whole object.
const WHOLE_TIME_MAX: Duration = Duration::from_secs(1800);
/// How many layouts are remembered.
const LAYOUTS_MAX: usize = 256;

/// What this client has of the server's objects.
#[derive(Clone, Debug, Default)]
pub(super) struct RemoteObjects(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    /// With the session that they were told in.
    segments: Option<(Bytes, Arc<NeighbourSegments>)>,
    layouts: HashMap<u64, Layout>,
    /// Versions that are filled through mappings.
    fillings: HashMap<u64, Arc<NeighbourFilling>>,
    leases: HashMap<u64, Arc<Manifest>>,
}

impl RemoteObjects {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner) // whoever panicked left whole entries
    }

    /// The segments of a folder, as a session has them: of another they may be others under the same names.
    fn segments(&self, session: &Bytes, folder: &Path) -> Arc<NeighbourSegments> {
        let mut inner = self.lock();
        match &inner.segments {
            Some((of, segments)) if of == session && segments.folder() == folder => segments.clone(),
            _ => {
                let segments = Arc::new(NeighbourSegments::of(folder));
                inner.segments = Some((session.clone(), segments.clone()));
                segments
            }
        }
    }

    fn knows(&self, layout: &Layout) {
        let mut inner = self.lock();
        if inner.layouts.len() >= LAYOUTS_MAX {
            inner.layouts.clear();
        }
        inner.layouts.insert(layout.fingerprint(), layout.clone());
    }

    /// What the server holds for this client.
    fn leased(&self, session: &Bytes, held: proto::HeldObject) -> Result<LeasedObject> {
        let manifest = held.manifest.ok_or_else(|| malformed("an object without a manifest"))?;
        let manifest = wire::to_manifest(manifest, |known| self.lock().layouts.get(&known).cloned())?;
        self.knows(&manifest.layout);
        let manifest = Arc::new(manifest);
        let bytes = held.places.map(|places| self.mapped(session, &manifest, places));
        let bytes = bytes.unwrap_or_else(|| vec![None; manifest.layout.payloads().len()]);
        self.lock().leases.insert(held.lease, manifest.clone());
        Ok(LeasedObject { lease: held.lease, manifest, bytes })
    }

    /// Payloads through mappings; those that cannot be mapped are read by calls.
    fn mapped(
        &self,
        session: &Bytes,
        manifest: &Manifest,
        places: proto::SegmentPlaces,
    ) -> Vec<Option<ObjectBytes>> {
        let (folder, places) = wire::to_places(places);
        let segments = self.segments(session, &folder);
        let map = |(at, payload): (usize, &forebay_store::Payload)| {
            let mapped = segments.bytes(*places.get(at)?, payload.bytes);
            mapped.inspect_err(|error| tracing::warn!(%error, "an object is read through the socket")).ok()
        };
        manifest.layout.payloads().iter().enumerate().map(map).collect()
    }
}

fn over(what: &str) -> Error {
    let message = format!("the {what} is over, or of a session that was lost; begin anew");
    Error::new(Kind::State, "ObjectOver", message)
}

/// A hold, as it is asked for at the server.
struct Asking {
    link: Link,
    objects: RemoteObjects,
    request: proto::HoldObjectsRequest,
    until: Option<Instant>,
}

impl Asking {
    /// Asks until it is there or the wait is over.
    async fn run(&self, is_given_up: impl Fn() -> bool) -> Result<Vec<LeasedObject>> {
        loop {
            let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
            let now = left.unwrap_or(WAIT_AT_ONCE).min(WAIT_AT_ONCE);
            let known = self.objects.lock().layouts.keys().copied().collect();
            let request =
                proto::HoldObjectsRequest { wait_ms: milliseconds(now), known, ..self.request.clone() };
            let time = WHOLE_TIME_MAX.saturating_add(now);
            let session = self.link.session();
            let reply = self.link.unary(new_call(), Encoded::new(&request), time, Again::Always).await;
            match reply {
                Ok(reply) => {
                    let leased = |held| self.objects.leased(&session, held);
                    return reply.held.into_iter().map(leased).collect();
                }
                Err(error) if error.is_not_yet() && left.is_none_or(|left| left > now) && !is_given_up() => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Link {
    /// Lets go of a version, and waits for nobody.
    fn release_object(&self, lease: u64) {
        let link = self.clone();
        self.spawn(async move {
            let request = Encoded::new(&proto::ReleaseObjectRequest { lease, done: false });
            let time = link.options.call_time_max;
            if let Err(error) = link.unary(new_call(), request, time, Again::WithinASession).await {
                tracing::debug!(%error, "an object was not let go; the session's end does that");
            }
        });
    }
}

impl Remote {
    /// A call that may take long, within a session.
    fn whole<Q: Unary>(&self, message: &Q, again: Again) -> Result<Q::Reply> {
        let (link, message) = (self.link.clone(), Encoded::new(message));
        self.wait(async move { link.unary(new_call(), message, WHOLE_TIME_MAX, again).await })
    }

    fn asking(&self, ask: &ObjectAsk<'_>) -> Asking {
        use proto::hold_objects_request::Which;
        let (which, waits) = match ask.which {
            WhichObject::Latest => (Which::Latest(true), false),
            WhichObject::Exact(version) => (Which::Exact(version), false),
            WhichObject::AtLeast(least) => (Which::AtLeast(least), true),
            WhichObject::Once => (Which::Once(true), true),
            WhichObject::Together => (Which::Together(true), false),
        };
        let until = match ask.wait {
            Wait::For(time) if waits => Instant::now().checked_add(time),
            Wait::Forever if waits => None,
            _ => Some(Instant::now()),
        };
        let request = proto::HoldObjectsRequest {
            keys: ask.keys.iter().map(|key| (*key).to_owned()).collect(),
            which: Some(which),
            wait_ms: 0,
            on_disk: ask.tier == Tier::Disk,
            fingerprint: ask.fingerprint,
            known: Vec::new(),
            placed: self.neighbour.is_some(),
        };
        Asking { link: self.link.clone(), objects: self.objects.clone(), request, until }
    }

    /// Sends a part of a payload, some pieces at a time.
    fn send_part(&self, filling: u64, payload: u32, offset: u64, part: &[u8]) -> Result<()> {
        let pieces = part.chunks(PIECE_BYTES).enumerate().map(|(at, piece)| {
            let offset = offset + (at * PIECE_BYTES) as u64;
            let crc32c = crc32c::crc32c(piece);
            let bytes = Bytes::copy_from_slice(piece);
            Encoded::new(&proto::FillObjectRequest { filling, payload, offset, bytes, crc32c })
        });
        let (link, pieces) = (self.link.clone(), pieces.collect::<Vec<_>>());
        self.wait(async move {
            let time = link.options.call_time_max;
            let calls =
                pieces.into_iter().map(|piece| link.unary(new_call(), piece, time, Again::WithinASession));
            try_join_all(calls).await.map(drop)
        })
    }

    /// Bytes of a payload that is held.
    fn receive_part(&self, lease: u64, payload: u32, (start, end): (u64, u64)) -> Result<Vec<u8>> {
        let (link, request) = (self.link.clone(), proto::ReadObjectRequest { lease, payload, start, end });
        let call =
            |mut line: Line, request: Request<_>| async move { line.objects.read_object(request).await };
        self.wait(async move {
            let time = link.options.call_time_max;
            let mut pieces = link.call(new_call(), request, time, Again::WithinASession, &call).await?;
            let mut part = Vec::with_capacity((end - start) as usize);
            while let Some(piece) = pieces.message().await.map_err(to_error)? {
                part.extend_from_slice(&piece.bytes);
            }
            match part.len() as u64 == end - start {
                true => Ok(part),
                false => Err(malformed("a part of an object in another length")),
            }
        })
    }
}

/// Refuses a part of a payload of which a chunk is not what was set. It begins with a chunk.
fn check_part(manifest: &Manifest, payload: usize, start: u64, part: &[u8]) -> Result<()> {
    let first = (start / OBJECT_CHUNK_BYTES) as usize;
    let sums = manifest.checksums[payload][first..].iter();
    let mut chunks = part.chunks(OBJECT_CHUNK_BYTES as usize).zip(sums).enumerate();
    match chunks.find(|(_, (chunk, sum))| crc32c::crc32c(chunk) != **sum) {
        None => Ok(()),
        Some((at, _)) => {
            let message = format!(
                "object {:?} version {}: chunk {} of {:?} does not match its checksum; set it anew, or take an older version",
                manifest.key,
                manifest.version,
                first + at,
                manifest.layout.payloads()[payload].class
            );
            Err(Error::new(Kind::Corrupt, "Corrupt", message))
        }
    }
}

impl ObjectCalls for Remote {
    fn begin(&self, key: &str, layout: &Layout, beginning: Beginning) -> Result<u64> {
        let once = beginning == Beginning::Published;
        let expected = match beginning {
            Beginning::Kept(expected) => Some(wire::from_expected(expected)),
            Beginning::Published => None,
        };
        let (key_name, layout_message) = (key.to_owned(), Some(wire::from_layout(layout)));
        let placed = self.neighbour.is_some();
        let session = self.link.session();
        let request =
            proto::BeginObjectRequest { key: key_name, expected, layout: layout_message, once, placed };
        let reply = self.whole(&request, Again::Always)?;
        self.objects.knows(layout);
        if let Some(places) = reply.places {
            let (folder, places) = wire::to_places(places);
            match self.objects.segments(&session, &folder).filling(key, layout, &places) {
                Ok(filling) => {
                    _ = self.objects.lock().fillings.insert(reply.filling, Arc::new(filling));
                }
                Err(error) => tracing::warn!(%error, "an object is sent through the socket"),
            }
        }
        Ok(reply.filling)
    }

    fn fill(&self, filling: u64, payload: usize, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check_open()?; // before anything is put anywhere: a forked child has its parent's mappings
        let mapped = self.objects.lock().fillings.get(&filling).cloned();
        if let Some(mapped) = mapped {
            return Ok(mapped.write(payload, offset, bytes)?);
        }
        let parts = bytes.chunks(PIECE_BYTES * PIECES_AT_ONCE).enumerate();
        parts
            .map(|(at, part)| (offset + (at * PIECE_BYTES * PIECES_AT_ONCE) as u64, part))
            .try_for_each(|(offset, part)| self.send_part(filling, payload as u32, offset, part))
    }

    fn commit(&self, fillings: &[u64], commit: &ObjectCommit) -> Result<u64> {
        let mapped: Vec<(u64, Arc<NeighbourFilling>)> = {
            let inner = self.objects.lock();
            let mapped = |number: &u64| Some((*number, inner.fillings.get(number)?.clone()));
            fillings.iter().filter_map(mapped).collect()
        };
        mapped.iter().try_for_each(|(_, filling)| filling.check_filled())?;
        let filled = mapped.iter().map(|(number, _)| *number).collect();
        let reply = self.whole(&wire::from_commit(fillings, commit, filled), Again::WithinASession)?;
        let mut inner = self.objects.lock();
        fillings.iter().for_each(|filling| _ = inner.fillings.remove(filling));
        Ok(reply.version)
    }

    fn abort(&self, filling: u64, reason: Option<&str>) -> Result<()> {
        self.objects.lock().fillings.remove(&filling);
        let request = proto::AbortObjectRequest { filling, reason: reason.map(str::to_owned) };
        self.call_again(&request, Again::WithinASession).map(drop)
    }

    fn hold(&self, ask: &ObjectAsk<'_>) -> Result<Vec<LeasedObject>> {
        let asking = self.asking(ask);
        self.wait(async move { asking.run(|| false).await })
    }

    fn hold_async(&self, ask: &ObjectAsk<'_>) -> Result<Holding> {
        self.check_process()?;
        let asking = self.asking(ask);
        let (give, given) = oneshot::channel::<Result<Vec<LeasedObject>>>();
        let link = self.link.clone();
        self.link.spawn(async move {
            let outcome = asking.run(|| give.is_closed()).await;
            if let Err(Ok(nobody_took)) = give.send(outcome) {
                nobody_took.iter().for_each(|leased| link.release_object(leased.lease));
            }
        });
        Ok(Box::pin(async move { given.await.unwrap_or_else(|_| Err(gone())) }))
    }

    fn read(&self, lease: u64, payload: usize, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let manifest = self.objects.lock().leases.get(&lease).cloned().ok_or_else(|| over("lease"))?;
        let (bytes, end) = (manifest.layout.payloads()[payload].bytes, offset + buffer.len() as u64);
        let mut at = offset;
        while at < end {
            // Whole chunks, for only then they can be checked.
            let start = at / OBJECT_CHUNK_BYTES * OBJECT_CHUNK_BYTES;
            let most = start + (PIECE_BYTES * PIECES_AT_ONCE) as u64;
            let until = end.next_multiple_of(OBJECT_CHUNK_BYTES).min(most).min(bytes);
            let part = self.receive_part(lease, payload as u32, (start, until))?;
            check_part(&manifest, payload, start, &part)?;
            let wanted = &part[(at - start) as usize..(until.min(end) - start) as usize];
            buffer[(at - offset) as usize..][..wanted.len()].copy_from_slice(wanted);
            at = until;
        }
        Ok(())
    }

    fn done(&self, lease: u64) -> Result<()> {
        let request = proto::ReleaseObjectRequest { lease, done: true };
        self.call_again(&request, Again::WithinASession).map(drop)
    }

    fn release(&self, lease: u64) {
        let known = self.objects.lock().leases.remove(&lease);
        if known.is_some() && self.check_open().is_ok() {
            self.link.release_object(lease);
        }
    }

    fn list(&self) -> Result<Vec<ObjectShown>> {
        let reply = self.call(&proto::ListObjectsRequest {})?;
        Ok(reply.objects.into_iter().map(wire::to_shown).collect())
    }

    fn relocate(&self, relocation: &Relocation<'_>) -> Result<Relocated> {
        let reply = self.whole(&wire::from_relocation(relocation), Again::Always)?;
        let proto::MoveObjectReply { version, there, reference, into, overlapped } = reply;
        Ok(Relocated { version, there, reference: reference.map(wire::to_object), into, overlapped })
    }
}
