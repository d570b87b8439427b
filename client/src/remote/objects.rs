//! Objects behind a server, as calls: bytes through mappings of the server's segments where this client is a neighbour, else in
//! pieces, each checked against its checksum where it arrives.
//!
//! What is filled and what is held has numbers of the session, and is over with it: in another session nothing has such a number.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use forebay_store::{
    FillingRange, Kind, Layout, Manifest, NeighbourFilling, NeighbourSegments, OBJECT_CHUNK_BYTES,
    ObjectBytes, Tier, Wait,
};
use futures_util::future::try_join_all;
use tokio::sync::oneshot;
use tonic::{Request, Response};

use super::calls::next_piece;
use super::line::{Encoded, Line, Unary};
use super::{Again, Link, Remote, gone};
use crate::error::{Error, Result};
use crate::objects::{
    Beginning, Holding, LeasedObject, ObjectAsk, ObjectCalls, ObjectCommit, ObjectShown, Relocated,
    Relocation, WhichObject,
};
use crate::wire::{self, malformed, milliseconds, new_call, proto};

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
    segments: Option<Arc<NeighbourSegments>>,
    layouts: HashMap<u64, Layout>,
    /// Versions that are filled through mappings.
    fillings: HashMap<u64, Arc<NeighbourFilling>>,
    leases: HashMap<u64, Lease>,
}

/// What is known of a version that is held.
#[derive(Clone, Debug)]
struct Lease {
    manifest: Arc<Manifest>,
    /// Where it is mapped, if it is.
    places: Option<proto::SegmentPlaces>,
}

impl RemoteObjects {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner) // whoever panicked left whole entries
    }

    /// The segments of a folder.
    fn segments(&self, folder: &Path) -> Arc<NeighbourSegments> {
        let mut inner = self.lock();
        match &inner.segments {
            Some(segments) if segments.folder() == folder => segments.clone(),
            _ => inner.segments.insert(Arc::new(NeighbourSegments::of(folder))).clone(),
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
    fn leased(&self, held: proto::HeldObject) -> Result<LeasedObject> {
        let manifest = held.manifest.ok_or_else(|| malformed("an object without a manifest"))?;
        let manifest = wire::to_manifest(manifest, |known| self.lock().layouts.get(&known).cloned())?;
        self.knows(&manifest.layout);
        let manifest = Arc::new(manifest);
        let bytes = held.places.clone().map(|places| self.mapped(&manifest, places));
        let bytes = bytes.unwrap_or_else(|| vec![None; manifest.layout.payloads().len()]);
        let lease = Lease { manifest: manifest.clone(), places: held.places };
        self.lock().leases.insert(held.lease, lease);
        Ok(LeasedObject { lease: held.lease, manifest, bytes })
    }

    /// Payloads through mappings; those that cannot be mapped are read by calls.
    fn mapped(&self, manifest: &Manifest, places: proto::SegmentPlaces) -> Vec<Option<ObjectBytes>> {
        let (folder, places) = wire::to_places(places);
        let segments = self.segments(&folder);
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
    async fn run(&self) -> Result<Arrived> {
        loop {
            let _turn = self.link.waits.acquire().await; // never closed
            if let Some(arrived) = self.look(new_call()).await? {
                return Ok(arrived);
            }
        }
    }

    /// The same, until nobody holds the other end any more: then the server is told, and what has come goes back.
    async fn deliver(self, mut give: oneshot::Sender<Result<Arrived>>) {
        let outcome = loop {
            let turn = tokio::select! {
                turn = self.link.waits.acquire() => turn,
                () = give.closed() => return,
            };
            let call = new_call();
            let mut look = std::pin::pin!(self.look(call));
            let looked = tokio::select! {
                looked = &mut look => looked,
                () = give.closed() => tokio::join!(look, self.give_up(call)).0,
            };
            drop(turn);
            match looked.transpose() {
                Some(outcome) => break outcome,
                None if give.is_closed() => return,
                None => {}
            }
        };
        let _ = give.send(outcome); // what nobody takes goes back
    }

    /// Asks once, under that name; none where another look is due.
    async fn look(&self, call: u128) -> Result<Option<Arrived>> {
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        let now = left.unwrap_or(WAIT_AT_ONCE).min(WAIT_AT_ONCE);
        let known = self.objects.lock().layouts.keys().copied().collect();
        let request = proto::HoldObjectsRequest { wait_ms: milliseconds(now), known, ..self.request.clone() };
        let time = WHOLE_TIME_MAX.saturating_add(now);
        match self.link.unary(call, Encoded::new(&request), time, Again::Always).await {
            Ok(reply) => self.arrived(reply.held).map(Some),
            Err(error) if error.is_not_yet() && left.is_none_or(|left| left > now) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What the server holds now; where one of it makes no sense all of it goes back.
    fn arrived(&self, held: Vec<proto::HeldObject>) -> Result<Arrived> {
        let numbers = held.iter().map(|held| held.lease).collect();
        let mut arrived =
            Arrived { link: self.link.clone(), objects: self.objects.clone(), numbers, leased: Vec::new() };
        for held in held {
            arrived.leased.push(self.objects.leased(held)?);
        }
        Ok(arrived)
    }

    /// Tells the server that nobody waits any more in the call of that name, which it then answers.
    async fn give_up(&self, call: u128) {
        let request = proto::HoldObjectsRequest { give_up: true, ..self.request.clone() };
        let time = self.link.options.call_time_max;
        if let Err(error) = self.link.unary(call, Encoded::new(&request), time, Again::Always).await {
            tracing::debug!(%error, "a wait for an object was not given up; it ends by itself");
        }
    }
}

/// Versions on their way to whoever asked. Dropped on the way, they are let go.
struct Arrived {
    link: Link,
    objects: RemoteObjects,
    numbers: Vec<u64>,
    leased: Vec<LeasedObject>,
}

impl Arrived {
    fn taken(mut self) -> Vec<LeasedObject> {
        self.numbers.clear();
        std::mem::take(&mut self.leased)
    }
}

impl Drop for Arrived {
    fn drop(&mut self) {
        for number in self.numbers.drain(..) {
            let known = self.objects.lock().leases.remove(&number);
            self.link.release_object(number, known.and_then(|lease| lease.places));
        }
    }
}

impl Link {
    /// Lets go of a version, and waits for nobody. Where nobody can tell whether it was done it is not said again in another session:
    /// the places may be those of another lease by now.
    fn release_object(&self, lease: u64, places: Option<proto::SegmentPlaces>) {
        let link = self.clone();
        self.spawn(async move {
            let request = Encoded::new(&proto::ReleaseObjectRequest { lease, done: false, places });
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
            give_up: false,
        };
        Asking { link: self.link.clone(), objects: self.objects.clone(), request, until }
    }

    /// Sends a part of a payload, some pieces at a time.
    fn send_part(&self, filling: u64, payload: u32, offset: u64, part: &[u8]) -> Result<()> {
        let pieces = part.chunks(PIECE_BYTES).enumerate().map(|(at, piece)| {
            let offset = offset + (at * PIECE_BYTES) as u64;
            let crc32c = forebay_store::checksum::crc32c(piece);
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

    /// Bytes of a payload that is held. Asked for again as a whole where the answer breaks, within the session that holds it.
    fn receive_part(&self, lease: u64, payload: u32, (start, end): (u64, u64)) -> Result<Vec<u8>> {
        let (link, time) = (self.link.clone(), self.link.options.call_time_max);
        let request = proto::ReadObjectRequest { lease, payload, start, end };
        let whole = move |mut line: Line, request: Request<proto::ReadObjectRequest>| async move {
            let mut pieces = line.objects.read_object(request).await?.into_inner();
            let mut part = Vec::with_capacity((end - start) as usize);
            while let Some(piece) = next_piece(&mut pieces, time).await? {
                part.extend_from_slice(&piece.bytes);
                if part.len() as u64 > end - start {
                    break; // refused below
                }
            }
            Ok(Response::new(part))
        };
        let call =
            async move { link.call(new_call(), request, time, Again::ReadWithinASession, &whole).await };
        // Nothing was changed that nobody could tell of: what is gone is the lease.
        let told = |error: Error| if error.cause() == "Uncertain" { over("lease") } else { error };
        let part = self.wait(call).map_err(told)?;
        match part.len() as u64 == end - start {
            true => Ok(part),
            false => Err(malformed("a part of an object in another length")),
        }
    }
}

/// Refuses a part of a payload of which a chunk is not what was set. It begins with a chunk.
fn check_part(manifest: &Manifest, payload: usize, start: u64, part: &[u8]) -> Result<()> {
    let first = (start / OBJECT_CHUNK_BYTES) as usize;
    let sums = manifest.checksums[payload][first..].iter();
    let mut chunks = part.chunks(OBJECT_CHUNK_BYTES as usize).zip(sums).enumerate();
    match chunks.find(|(_, (chunk, sum))| forebay_store::checksum::crc32c(chunk) != **sum) {
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

/// Refuses a version that is mapped here and is not what was set.
fn check_mapped(manifest: &Manifest, payloads: &[ObjectBytes]) -> Result<()> {
    let mut buffer = vec![0; OBJECT_CHUNK_BYTES as usize];
    for (payload, bytes) in manifest.layout.payloads().iter().zip(payloads) {
        for start in (0..payload.bytes).step_by(OBJECT_CHUNK_BYTES as usize) {
            let chunk = &mut buffer[..(payload.bytes - start).min(OBJECT_CHUNK_BYTES) as usize];
            bytes.read(start, chunk);
            if let Some(damage) = manifest.damage(&payload.class, start, chunk)? {
                let message = format!("{damage}; set it anew, or take an older version");
                return Err(Error::new(Kind::Corrupt, "Corrupt", message));
            }
        }
    }
    Ok(())
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
        let request =
            proto::BeginObjectRequest { key: key_name, expected, layout: layout_message, once, placed };
        let reply = self.whole(&request, Again::Always)?;
        self.objects.knows(layout);
        if let Some(places) = reply.places {
            let (folder, places) = wire::to_places(places);
            match self.objects.segments(&folder).filling(key, layout, &places) {
                Ok(filling) => {
                    _ = self.objects.lock().fillings.insert(reply.filling, Arc::new(filling));
                }
                Err(error) => tracing::warn!(%error, "an object is sent through the socket"),
            }
        }
        Ok(reply.filling)
    }

    fn lend(&self, filling: u64, payload: usize, offset: u64, bytes: u64) -> Result<Option<FillingRange>> {
        self.check_open()?; // as for a fill
        let mapped = self.objects.lock().fillings.get(&filling).cloned();
        Ok(mapped.map(|mapped| mapped.lend(payload, offset, bytes)).transpose()?.flatten())
    }

    fn fill(&self, filling: u64, payload: usize, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check_open()?; // before anything is put anywhere: a forked child has its parent's mappings
        let mapped = self.objects.lock().fillings.get(&filling).cloned();
        if let Some(mapped) = mapped {
            return Ok(mapped.write(payload, offset, bytes)?);
        }
        // Cut where no tensor can end, so that no piece but the last fills one up.
        let first = (PIECE_BYTES - (offset % PIECE_BYTES as u64) as usize).min(bytes.len());
        let (first, rest) = bytes.split_at(first);
        let parts = std::iter::once(first).chain(rest.chunks(PIECE_BYTES * PIECES_AT_ONCE));
        let mut at = offset;
        for part in parts.filter(|part| !part.is_empty()) {
            self.send_part(filling, payload as u32, at, part)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    fn commit(&self, objects: &[ObjectCommit], version: Option<u64>) -> Result<u64> {
        self.check_open()?;
        let mapped = |commit: &ObjectCommit| self.objects.lock().fillings.get(&commit.filling).cloned();
        let mapped: Vec<Option<Arc<NeighbourFilling>>> = objects.iter().map(mapped).collect();
        let commit = |(commit, mapped): (&ObjectCommit, &Option<Arc<NeighbourFilling>>)| {
            let sums = mapped.as_ref().map(|filling| filling.checksums()).transpose()?;
            Ok(wire::from_commit(commit, sums.as_deref()))
        };
        let commits = objects.iter().zip(&mapped).map(commit).collect::<Result<Vec<_>>>()?;
        let request = proto::CommitObjectsRequest { objects: commits, version };
        let reply = self.whole(&request, Again::WithinASession)?;
        let mut inner = self.objects.lock();
        objects.iter().for_each(|commit| _ = inner.fillings.remove(&commit.filling));
        Ok(reply.version)
    }

    fn abort(&self, filling: u64, reason: Option<&str>) -> Result<()> {
        self.check_open()?;
        self.objects.lock().fillings.remove(&filling);
        let request = proto::AbortObjectRequest { filling, reason: reason.map(str::to_owned) };
        self.call_again(&request, Again::WithinASession).map(drop)
    }

    fn hold(&self, ask: &ObjectAsk<'_>) -> Result<Vec<LeasedObject>> {
        let asking = self.asking(ask);
        self.wait(async move { asking.run().await.map(Arrived::taken) })
    }

    fn hold_async(&self, ask: &ObjectAsk<'_>) -> Result<Holding> {
        self.check_process()?;
        let asking = self.asking(ask);
        let (give, given) = oneshot::channel();
        self.link.spawn(asking.deliver(give));
        Ok(Box::pin(async move { given.await.unwrap_or_else(|_| Err(gone())).map(Arrived::taken) }))
    }

    fn read(&self, lease: u64, payload: usize, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.check_open()?;
        let known = self.objects.lock().leases.get(&lease).map(|lease| lease.manifest.clone());
        let manifest = known.ok_or_else(|| over("lease"))?;
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

    fn verify(&self, lease: u64) -> Result<()> {
        self.check_open()?;
        let known = self.objects.lock().leases.get(&lease).cloned().ok_or_else(|| over("lease"))?;
        let mapped = known.places.map(|places| self.objects.mapped(&known.manifest, places));
        match mapped.and_then(|mapped| mapped.into_iter().collect::<Option<Vec<_>>>()) {
            Some(payloads) => check_mapped(&known.manifest, &payloads),
            None => self.whole(&proto::VerifyObjectRequest { lease }, Again::WithinASession).map(drop),
        }
    }

    fn done(&self, lease: u64) -> Result<()> {
        let request = proto::ReleaseObjectRequest { lease, done: true, places: None };
        self.call_again(&request, Again::WithinASession).map(drop)
    }

    fn release(&self, lease: u64) {
        if self.check_process().is_err() {
            return; // a forked child: the lease is its parent's
        }
        let known = self.objects.lock().leases.remove(&lease);
        if let Some(known) = known
            && self.check_open().is_ok()
        {
            self.link.release_object(lease, known.places);
        }
    }

    fn list(&self) -> Result<Vec<ObjectShown>> {
        self.list_of("")
    }

    fn list_of(&self, prefix: &str) -> Result<Vec<ObjectShown>> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let request = proto::ListObjectsRequest { prefix: prefix.to_owned(), after, most: 0 };
            let reply = self.call(&request)?;
            all.extend(reply.objects.into_iter().map(wire::to_shown));
            let last = all.last().filter(|_| reply.more);
            let Some(ObjectShown { key, version, .. }) = last else { return Ok(all) };
            let next = Some(proto::ObjectVersion { key: key.clone(), version: Some(*version) });
            if next == request.after {
                return Err(malformed("a page of objects that goes on with nothing"));
            }
            after = next;
        }
    }

    fn relocate(&self, relocation: &Relocation<'_>) -> Result<Relocated> {
        let reply = self.whole(&wire::from_relocation(relocation), Again::Always)?;
        let proto::MoveObjectReply { version, there, reference, into, overlapped } = reply;
        Ok(Relocated { version, there, reference: reference.map(wire::to_object), into, overlapped })
    }
}
