//! A call, from the moment that it comes: who makes it, and whether they may.

use std::collections::HashSet;
use std::sync::Arc;

use forebay_client::Error;
use forebay_client::wire::proto::change::Change as What;
use forebay_client::wire::proto::{Change, Changes, LostClaims, PolicyUpdate, WriteRequest};
use forebay_client::wire::{CALL, SESSION, from_error, malformed};
use forebay_query::{QueryThreads, Session as Queryable};
use forebay_store::{ConsumerKind, Kind, ProcessHandle, Store};
use tokio::sync::Semaphore;
use tonic::codegen::http::Extensions;
use tonic::metadata::MetadataMap;
use tonic::transport::server::UdsConnectInfo;
use tonic::{Request, Response, Status};

use super::held_back::Occupied;
use super::pace::taken_at_a_pace;
use super::reading::{self, Reader};
use super::room::{MessageRoom, Room, Shares};
use super::sessions::{Session, Sessions};
use super::streams::Answers;
use super::tally::Tally;
use super::turns::Turns;
use super::{Limits, Settings};
use crate::access::{Caller, Scope};
use crate::copies::Copies;
use crate::gathered::Gathered;
use crate::queries::Queries;
use crate::server::Stopper;

/// How many objects are held against their checksums at the same time, of one caller and of all, and how many calls look for objects, which
/// may come from the disk.
const VERIFIED_AT_ONCE: [u32; 2] = [3, 4];
const HELD_AT_ONCE: [u32; 2] = [12, 16];
const OBJECTS_WRITTEN_AT_ONCE: [u32; 2] = [3, 4];

/// What answers of cells and columns may take together, in bytes.
const ANSWERS_BYTES_MAX: usize = 4 << 30;

pub(super) type Reply<T> = Result<Response<T>, Status>;

/// What all calls share. Cheap to clone.
#[derive(Clone)]
pub(super) struct Service {
    pub(super) store: Store,
    pub(super) queryable: Queryable,
    pub(super) queries: Queries,
    pub(super) sessions: Sessions,
    pub(super) writers: Turns,
    /// For what is under way in frames.
    pub(super) room: Room,
    /// For messages while they are read and answered.
    pub(super) message_room: MessageRoom,
    /// Where copies of the store may go.
    pub(super) copies: Copies,
    /// Of one check, copy or compaction.
    pub(super) checks: Arc<Semaphore>,
    /// Of those who hold whole objects against their checksums, and of those who look for some.
    pub(super) verifiers: Shares,
    pub(super) finders: Shares,
    /// Of pieces of objects that go to their files.
    pub(super) object_writers: Shares,
    /// Of objects that come and go in pieces.
    pub(super) object_streams: Shares,
    /// For answers of rows until they are taken.
    pub(super) answers: Gathered,
    /// Of those who read, and of queries.
    pub(super) turns: reading::Turns,
    pub(super) threads: Arc<QueryThreads>,
    pub(super) limits: Limits,
    pub(super) tally: Tally,
    pub(super) stopper: Stopper,
}

/// A call of somebody who may make it.
#[derive(Clone)]
pub(super) struct Call {
    pub(super) session: Arc<Session>,
    pub(super) caller: Arc<Caller>,
    pub(super) name: u128,
    /// The room of its message.
    pub(super) occupied: Occupied,
}

impl Call {
    /// One that was made in the same way, by the same caller, under a name of its own.
    pub(super) fn named(&self, name: &[u8]) -> Result<Call, Status> {
        let name = to_name(name).map_err(|error| from_error(&error))?;
        let occupied = Occupied::default(); // short, as all are that come so
        Ok(Call { session: self.session.clone(), caller: self.caller.clone(), name, occupied })
    }

    /// Refuses a write whose caller may not have all of its tables.
    pub(super) fn check_tables(&self, write: &WriteRequest) -> Result<(), Status> {
        write.changes.iter().try_for_each(|changes| self.check_changes(changes))
    }

    /// Refuses changes whose caller may not have all of their tables, or the consumers of groups of these.
    pub(super) fn check_changes(&self, changes: &Changes) -> Result<(), Status> {
        let mut tables = changes.changes.iter().map(|change| &change.table);
        let allowed = tables.try_for_each(|table| self.caller.check_table(table));
        allowed.and_then(|()| self.check_groups(changes)).map_err(|error| from_error(&error))
    }

    /// Refuses groups of a consumer that takes nothing of their table, as those of one that is not there.
    fn check_groups(&self, changes: &Changes) -> Result<(), Error> {
        let of_group = |change: &Change| match &change.change {
            Some(What::Group(group)) => Some((group.consumer.clone(), change.table.clone())),
            _ => None,
        };
        let mut groups = changes.changes.iter().filter_map(of_group).peekable();
        if self.caller.sees_all_tables() || groups.peek().is_none() {
            return Ok(());
        }
        let shown = self.session.holder.store().consumers().into_iter();
        let known: HashSet<(String, String)> = shown.map(|shown| (shown.name, shown.table)).collect();
        groups.try_for_each(|group| match known.contains(&group) {
            true => Ok(()),
            false => Err(self.caller.no_consumer(&group.0)),
        })
    }
}

fn to_name(bytes: &[u8]) -> Result<u128, Error> {
    let name = <[u8; 16]>::try_from(bytes).map_err(|_| malformed("a call without a name of 16 bytes"))?;
    Ok(u128::from_le_bytes(name))
}

/// Which of the scopes a call needs.
pub(super) const READ: &[Scope] = &[Scope::Read, Scope::Write, Scope::Train];
pub(super) const WRITE: &[Scope] = &[Scope::Write];
pub(super) const WORK: &[Scope] = &[Scope::Write, Scope::Train];
pub(super) const TRAIN: &[Scope] = &[Scope::Train];
pub(super) const ADMIN: &[Scope] = &[Scope::Admin];

impl Service {
    pub(super) fn new(
        settings: Settings,
        store: Store,
        queryable: Queryable,
        threads: Arc<QueryThreads>,
        queries: Queries,
        tally: Tally,
        stopper: Stopper,
    ) -> Self {
        let Settings { limits, copies, .. } = settings;
        let sessions = Sessions::new(store.clone(), &limits, &tally);
        let (room, message_room) = (Room::new(&limits), MessageRoom::new(&limits));
        let checks = Arc::new(Semaphore::new(1));
        let turns = reading::Turns::new(&limits);
        let shares = |[of_caller, all]: [u32; 2]| Shares::of_all(of_caller, all, limits.room_time_max);
        Service {
            store,
            queryable,
            queries,
            sessions,
            writers: Turns::of_all(),
            room,
            message_room,
            copies,
            checks,
            verifiers: shares(VERIFIED_AT_ONCE),
            finders: shares(HELD_AT_ONCE),
            object_writers: shares(OBJECTS_WRITTEN_AT_ONCE),
            object_streams: Shares::new(super::put::STREAMS_MAX, limits.room_time_max),
            answers: Gathered::new(ANSWERS_BYTES_MAX),
            turns,
            threads,
            limits,
            tally,
            stopper,
        }
    }

    /// Who asks, as was found out before the message was read ([`Observed`](super::observed::Observed)).
    pub(super) fn caller<T>(&self, request: &Request<T>) -> Result<Arc<Caller>, Error> {
        let caller = request.extensions().get::<Arc<Caller>>();
        caller.cloned().ok_or_else(|| {
            Error::new(Kind::State, "Bug", "nobody has looked who makes this call, so it is refused")
        })
    }

    /// Lets a call in, if it may be made.
    pub(super) fn enter<T>(&self, request: &Request<T>, scopes: &[Scope]) -> Result<Call, Status> {
        let enter = || -> Result<Call, Error> {
            let caller = self.caller(request)?;
            caller.check(scopes)?;
            let id = binary(request.metadata(), SESSION);
            let session = self.sessions.find(&caller.name, &id)?;
            let name = to_name(&binary(request.metadata(), CALL))?;
            let occupied = request.extensions().get::<Occupied>().cloned().unwrap_or_default();
            Ok(Call { session, caller, name, occupied })
        };
        enter().map_err(|error| from_error(&error))
    }

    /// Who has something read for that call.
    pub(super) fn reader(&self, call: &Call) -> Reader {
        self.turns.reader(&call.session.reading, &call.caller, &self.answers)
    }

    /// An answer of many pieces, which its reader has to take at a pace.
    pub(super) fn answer<T: Send + 'static>(&self, pieces: Answers<T>) -> Reply<Answers<T>> {
        Ok(Response::new(taken_at_a_pace(pieces, self.limits.piece_time_max, self.tally.clone())))
    }

    /// A consumer that the caller may work for.
    pub(super) fn check_consumer(&self, caller: &Caller, name: &str) -> Result<(), Error> {
        self.check_tables_of(caller, name)?; // before anything is told of it
        let kind = self.store.consumer(name)?.kind();
        caller.check(if kind == ConsumerKind::Trainer { TRAIN } else { WORK })
    }

    /// A consumer whose tables the caller's token is for. One of others is refused as one that is not there.
    pub(super) fn check_tables_of(&self, caller: &Caller, consumer: &str) -> Result<(), Error> {
        if caller.sees_all_tables() {
            return Ok(());
        }
        let places = self.store.consumers().into_iter().filter(|place| place.name == consumer);
        let mut sees = places.map(|place| caller.sees_table(&place.table)).peekable();
        match sees.peek().is_some() && sees.all(|sees| sees) {
            true => Ok(()),
            false => Err(caller.no_consumer(consumer)),
        }
    }

    /// A table whose gradients go where those of no other table go than of the caller's: they go as a whole.
    pub(super) fn check_cache(&self, caller: &Caller, table: &str) -> Result<(), Error> {
        caller.check_table(table)?;
        if caller.sees_all_tables() {
            return Ok(());
        }
        let policy_of = |name: &str| -> Result<String, Error> {
            Ok(self.store.table(name)?.schema().policy_name().unwrap_or(name).to_owned())
        };
        let policy = policy_of(table)?;
        let others = self.store.tables().into_iter().filter(|other| !caller.sees_table(other));
        match others.into_iter().any(|other| policy_of(&other).is_ok_and(|of| of == policy)) {
            true => Err(caller.not_all_of_policy(&policy)),
            false => Ok(()),
        }
    }

    /// A policy whose version a table carries that the caller's token is for.
    pub(super) fn check_policy(&self, caller: &Caller, policy: &str) -> Result<(), Error> {
        if caller.sees_all_tables() {
            return Ok(());
        }
        let carries = |table: &String| {
            let schema = self.store.table(table).map(|table| table.schema().policy_name().map(str::to_owned));
            schema.is_ok_and(|named| named.as_deref().unwrap_or(table) == policy)
        };
        match self.store.tables().iter().filter(|table| caller.sees_table(table)).any(carries) {
            true => Ok(()),
            false => Err(caller.no_policy(policy)),
        }
    }

    /// Claims of tables that the caller's token is not for.
    pub(super) fn check_claims(&self, caller: &Caller, named: &LostClaims) -> Result<(), Error> {
        if caller.sees_all_tables() {
            return Ok(());
        }
        let named: HashSet<_> = named.claims.iter().map(|name| (name.incarnation, name.claim)).collect();
        let claims = self.store.claims().into_iter();
        let mut claims = claims.filter(|claim| named.contains(&(claim.incarnation, claim.claim)));
        claims.try_for_each(|claim| caller.check_table(&claim.table))
    }

    /// What a commit names that its caller may not.
    pub(super) fn check_updates(&self, caller: &Caller, updates: &[PolicyUpdate]) -> Result<(), Error> {
        updates.iter().try_for_each(|update| {
            self.check_policy(caller, &update.policy)?;
            update.objects.iter().try_for_each(|object| caller.check_object(&object.key))
        })
    }
}

/// Whether a request came over a socket of this machine.
pub(super) fn is_of_this_machine<T>(request: &Request<T>) -> bool {
    request.extensions().get::<UdsConnectInfo>().is_some()
}

/// Whether a request comes from a process of this machine and of this process's own user.
pub(super) fn is_own_user<T>(request: &Request<T>) -> bool {
    is_of_own_user(request.extensions())
}

/// The same of what is known of a request.
pub(super) fn is_of_own_user(extensions: &Extensions) -> bool {
    let peer = extensions.get::<UdsConnectInfo>().and_then(|info| info.peer_cred);
    peer.is_some_and(|peer| peer.uid() == rustix::process::geteuid().as_raw())
}

/// The process at the other end of a socket of this machine, where it can be known. It has the socket open, so its number is
/// still its own.
pub(super) fn process_of<T>(request: &Request<T>) -> Option<ProcessHandle> {
    let peer = request.extensions().get::<UdsConnectInfo>().and_then(|info| info.peer_cred)?;
    let handle = ProcessHandle::of(u32::try_from(peer.pid()?).ok()?);
    handle
        .inspect_err(
            |error| tracing::warn!(%error, "a client's process cannot be watched: objects are sent to it, and what it holds is its own for a grace"),
        )
        .ok()
}

/// Runs what may block on a thread for that.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Status> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.map_err(|error| panicked(&error))?;
    done.map_err(|error| from_error(&error))
}

/// What is told where somebody went who was to do it.
pub(super) fn panicked(error: &dyn std::error::Error) -> Status {
    tracing::error!(%error, "a call panicked");
    Status::internal("the call panicked; look into the server's log")
}

pub(super) fn binary(metadata: &MetadataMap, key: &str) -> Vec<u8> {
    let value = metadata.get_bin(key).and_then(|value| value.to_bytes().ok());
    value.map_or_else(Vec::new, |bytes| bytes.to_vec())
}
