//! The calls on objects, each turned into what is done.
//!
//! What a client fills and holds is kept by its session ([`KeptObjects`]). A neighbour maps the memory itself: what it was given
//! is its process's, and is not used again before that has let go or has ended.
//!
//! A wait for a version costs no thread: only what is there is got on one, for it may have to come from the disk. It ends with the session,
//! and with the token, of who waits.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use forebay_client::wire::proto::objects_server::Objects as Protocol;
use forebay_client::wire::proto::*;
use forebay_client::wire::{self, MESSAGE_BYTES_MAX, PIECE_BYTES, from_error, malformed};
use forebay_client::{Beginning, Error, KeptObjects, ObjectAsk, ObjectCalls, Relocation, WhichObject};
use forebay_store::{Held, Kind, ObjectNews, Owner, Tier, Wait};
use futures_util::{StreamExt, stream};
use tonic::Request;

use super::call::{Call, READ, Reply, Service, TRAIN, blocking};
use super::granting::refused;
use super::listing;
use super::room::Shares;
use super::sessions::{OBJECT_WAITS_MAX, Session};
use super::streams::Answers;

/// The longest wait for a version in one call.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Of how many layouts a client may say that it knows them.
const KNOWN_MAX: usize = 256;

/// The service of objects, over what all calls share.
#[derive(Clone)]
pub(super) struct ObjectService(pub(super) Service);

/// What is asked for, of a message that was looked at.
struct Asked {
    keys: Vec<String>,
    which: WhichObject,
    wait: Duration,
    tier: Tier,
    fingerprint: Option<u64>,
    placed: bool,
}

impl Asked {
    fn of(request: &HoldObjectsRequest, session: &Session) -> Result<Self, Error> {
        use hold_objects_request::Which;
        let which = match request.which.ok_or_else(|| malformed("no version"))? {
            Which::Latest(_) => WhichObject::Latest,
            Which::Exact(version) => WhichObject::Exact(version),
            Which::AtLeast(least) => WhichObject::AtLeast(least),
            Which::Once(_) => WhichObject::Once,
            Which::Together(_) => WhichObject::Together,
        };
        Ok(Asked {
            keys: request.keys.clone(),
            which,
            wait: Duration::from_millis(request.wait_ms).min(WAIT_MAX),
            tier: if request.on_disk { Tier::Disk } else { Tier::Host },
            fingerprint: request.fingerprint,
            placed: request.placed && session.process.is_some(),
        })
    }

    fn owner(&self, session: &Session) -> Owner {
        session.process.clone().filter(|_| self.placed).map_or(Owner::Here, Owner::Process)
    }

    /// What is there now.
    fn now(&self, kept: &KeptObjects, owner: Owner) -> Result<Vec<Held>, Error> {
        let keys: Vec<&str> = self.keys.iter().map(String::as_str).collect();
        let (which, tier, fingerprint) = (self.which, self.tier, self.fingerprint);
        kept.get(&ObjectAsk { keys: &keys, which, wait: Wait::No, tier, fingerprint }, owner)
    }

    fn waits(&self) -> bool {
        !self.wait.is_zero() && matches!(self.which, WhichObject::AtLeast(_) | WhichObject::Once)
    }

    /// Who hears of something new that may be it; none where nobody waits.
    fn news(&self, kept: &KeptObjects) -> Result<Option<ObjectNews>, Error> {
        let least = match self.which {
            WhichObject::AtLeast(least) => Some(least),
            _ => None,
        };
        let key = self.keys.first().filter(|_| self.waits());
        key.map(|key| Ok(kept.objects()?.news(key, least))).transpose()
    }
}

/// Holds what is asked for, once it is there, and says under which numbers. The client gives it up by the name of the call, whose message
/// has its room meanwhile: the keys are kept.
async fn held(call: Call, asked: Arc<Asked>, finders: Shares) -> Result<Vec<u64>, tonic::Status> {
    let (session, until) = (&call.session, tokio::time::Instant::now() + asked.wait);
    let (wait, turns) = (session.waits.begin(call.name), session.object_waits.clone());
    // Before the first look: what is told from here on is heard.
    let mut news = asked.news(&session.objects).map_err(|error| from_error(&error))?;
    let _turn = match news.is_some().then(|| turns.try_acquire_owned()) {
        Some(Err(_)) => return Err(from_error(&too_many_waits())),
        turn => turn,
    };
    loop {
        let turn = tokio::select! {
            turn = finders.turn_at_last(&call.caller.name) => turn,
            status = refused(&call) => return Err(status),
        };
        let (of, with) = (session.clone(), asked.clone());
        let got = blocking(move || {
            let _until_it_is_done = turn;
            match with.now(&of.objects, with.owner(&of)) {
                Ok(held) => of.objects.keep_all(held).map(Ok),
                Err(error) if with.waits() && is_not_yet(&error) => Ok(Err(error)),
                Err(error) => Err(error),
            }
        });
        let not_yet = match got.await? {
            Ok(leases) => return Ok(leases),
            Err(not_yet) => from_error(&not_yet),
        };
        let Some(news) = &mut news else { return Err(not_yet) };
        tokio::select! {
            heard = news.heard() => heard.map_err(|error| from_error(&error.into()))?,
            () = tokio::time::sleep_until(until) => return Err(not_yet),
            () = wait.given_up() => return Err(not_yet),
            status = refused(&call) => return Err(status),
        }
    }
}

/// Does what may take long on a thread for that, of which others of the kind, and of the caller, have some at most. One whose client has gone
/// before its turn is not done.
async fn in_turn<T: Send + 'static>(
    turns: &Shares,
    caller: &str,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, tonic::Status> {
    let turn = turns.turn_at_last(caller).await;
    blocking(move || {
        let _until_it_is_done = turn;
        work()
    })
    .await
}

fn too_many_waits() -> Error {
    let message = format!(
        "{OBJECT_WAITS_MAX} waits for objects are under way for this client; wait for fewer at a time"
    );
    Error::new(Kind::Capacity, "Objects", message)
}

fn is_not_yet(error: &Error) -> bool {
    matches!((error.kind(), error.cause()), (Kind::Retry, "ObjectNotYet") | (Kind::Input, "Unknown"))
}

impl ObjectService {
    async fn once<T, F>(&self, call: Call, work: F) -> Reply<T>
    where
        T: Clone + Send + Sync + 'static,
        F: FnOnce(&Session) -> Result<T, Error> + Send + 'static,
    {
        let session = call.session.clone();
        self.0.once(call, move |_| work(&session)).await
    }
}

/// An answer that goes into a message.
fn sized(reply: HoldObjectsReply) -> Result<HoldObjectsReply, Error> {
    let bytes = prost::Message::encoded_len(&reply);
    if bytes <= MESSAGE_BYTES_MAX {
        return Ok(reply);
    }
    let message = format!(
        "what is known of these objects takes {bytes} bytes, and a message {MESSAGE_BYTES_MAX}; get fewer at once"
    );
    Err(Error::new(Kind::Input, "TooLarge", message))
}

/// Where the payloads of something lie, for a neighbour.
fn places(session: &Session, places: &[Option<(u32, u64)>]) -> Result<Option<SegmentPlaces>, Error> {
    let objects = session.objects.objects()?;
    let folder = objects.segment_folder().map(|folder| folder.to_string_lossy().into_owned());
    Ok(folder.and_then(|folder| wire::from_places(&folder, places)))
}

/// The keys that are moved.
fn keys_of(named: &move_object_request::Move) -> Vec<&str> {
    use move_object_request::Move;
    match named {
        Move::Spill(of) | Move::Demote(of) | Move::Delete(of) | Move::Reference(of) => vec![&of.key],
        Move::Exchange(ExchangeObjects { out, into }) => {
            out.iter().chain(into).map(|of| of.key.as_str()).collect()
        }
    }
}

#[tonic::async_trait]
impl Protocol for ObjectService {
    type ReadObjectStream = Answers<ObjectPiece>;

    async fn begin_object(&self, request: Request<BeginObjectRequest>) -> Reply<BeginObjectReply> {
        let call = self.0.enter(&request, TRAIN)?;
        let BeginObjectRequest { key, expected, layout, once, placed } = request.into_inner();
        call.caller.check_object(&key).map_err(|error| from_error(&error))?;
        self.once(call, move |session| {
            let layout = wire::to_layout(&layout.ok_or_else(|| malformed("an object of nothing"))?)?;
            let beginning = match once {
                true => Beginning::Published,
                false => Beginning::Kept(wire::to_expected(expected)),
            };
            let process = session.process.clone().filter(|_| placed);
            let owner = process.clone().map_or(Owner::Here, Owner::Process);
            let filling = session.objects.begin_for(&key, &layout, beginning, owner)?;
            let places = match process {
                Some(_) => places(session, &session.objects.filling(filling)?.places())?,
                None => None,
            };
            Ok(BeginObjectReply { filling, places })
        })
        .await
    }

    async fn fill_object(&self, request: Request<FillObjectRequest>) -> Reply<FillObjectReply> {
        let call = self.0.enter(&request, TRAIN)?;
        let FillObjectRequest { filling, payload, offset, bytes, crc32c } = request.into_inner();
        let (session, of) = (call.session.clone(), call.session.clone());
        let fill = call.holding(move || {
            if forebay_store::checksum::crc32c(&bytes) != crc32c {
                let message = format!(
                    "{} bytes of payload {payload} are not what was sent; send them again",
                    bytes.len()
                );
                return Err(Error::new(Kind::Corrupt, "Corrupt", message));
            }
            session.objects.fill(filling, payload as usize, offset, &bytes)?;
            Ok(FillObjectReply {})
        });
        // Many belong to one version: among themselves, they push no other answer out.
        let pending = of.parts.once(call.name, 1, move || blocking(fill))?;
        pending.await.map(tonic::Response::new)
    }

    async fn commit_objects(&self, request: Request<CommitObjectsRequest>) -> Reply<CommitObjectsReply> {
        let call = self.0.enter(&request, TRAIN)?;
        let CommitObjectsRequest { objects, version } = request.into_inner();
        self.once(call, move |session| {
            let objects: Vec<_> = objects.into_iter().map(wire::to_commit).collect();
            let version = session.objects.commit_filled(&objects, version)?;
            Ok(CommitObjectsReply { version })
        })
        .await
    }

    async fn abort_object(&self, request: Request<AbortObjectRequest>) -> Reply<AbortObjectReply> {
        let call = self.0.enter(&request, TRAIN)?;
        let AbortObjectRequest { filling, reason } = request.into_inner();
        self.once(call, move |session| {
            session.objects.abort(filling, reason.as_deref())?;
            Ok(AbortObjectReply {})
        })
        .await
    }

    async fn hold_objects(&self, request: Request<HoldObjectsRequest>) -> Reply<HoldObjectsReply> {
        let takes = matches!(request.get_ref().which, Some(hold_objects_request::Which::Once(_)));
        let call = self.0.enter(&request, if takes { TRAIN } else { READ })?;
        let (session, request) = (call.session.clone(), request.into_inner());
        let allowed = request.keys.iter().try_for_each(|key| call.caller.check_object(key));
        allowed.map_err(|error| from_error(&error))?;
        if request.give_up {
            session.waits.give_up(call.name);
            return Ok(tonic::Response::new(HoldObjectsReply::default()));
        }
        let asked = Asked::of(&request, &session).map_err(|error| from_error(&error))?;
        let asked = Arc::new(asked);
        let (of, with, finders) = (call.clone(), asked.clone(), self.0.finders.clone());
        let hold = move || held(of, with, finders);
        // Of an answer that is asked for again the numbers alone are kept: a manifest may be large.
        let leases = call.answers()?.once(call.name, 1, hold)?.await?;
        let mut known: HashSet<u64> = request.known.into_iter().take(KNOWN_MAX).collect();
        let mut told = |lease: &u64| -> Result<HeldObject, Error> {
            let held = session.objects.held(*lease)?;
            let knows = !known.insert(held.manifest().layout.fingerprint());
            let places = if asked.placed { places(&session, &held.places())? } else { None };
            Ok(HeldObject {
                lease: *lease,
                manifest: Some(wire::from_manifest(held.manifest(), knows)),
                places,
            })
        };
        let held = leases.iter().map(&mut told).collect::<Result<Vec<_>, Error>>();
        let reply = held.map(|held| HoldObjectsReply { held }).and_then(sized);
        reply.map(tonic::Response::new).map_err(|error| {
            leases.iter().for_each(|lease| session.objects.release(*lease));
            from_error(&error)
        })
    }

    async fn read_object(&self, request: Request<ReadObjectRequest>) -> Reply<Self::ReadObjectStream> {
        let call = self.0.enter(&request, READ)?;
        let ReadObjectRequest { lease, payload, start, end } = request.into_inner();
        let held = call.session.objects.held(lease).map_err(|error| from_error(&error))?;
        let payloads = held.manifest().layout.payloads();
        let class = payloads.get(payload as usize).filter(|class| start <= end && end <= class.bytes);
        let class = class.map(|class| class.class.clone());
        let class = class.ok_or_else(|| from_error(&malformed("a part of an object that is not there")))?;
        let reader = self.0.reader(&call);
        let reads = stream::unfold(Some((held, start)), move |state| {
            let (class, reader) = (class.clone(), reader.clone());
            async move {
                let (held, at) = state.filter(|(_, at)| *at < end)?;
                let length = (end - at).min(PIECE_BYTES as u64);
                let read = reader.read_on(move || {
                    let mut bytes = vec![0; length as usize];
                    held.read_class(&class, at, &mut bytes)?;
                    Ok((ObjectPiece { object: None, bytes: bytes.into() }, held))
                });
                Some(match read.await {
                    Ok((piece, held)) => (Ok(piece), Some((held, at + length))),
                    Err(status) => (Err(status), None),
                })
            }
        });
        self.0.answer(reads.boxed())
    }

    async fn verify_object(&self, request: Request<VerifyObjectRequest>) -> Reply<VerifyObjectReply> {
        let call = self.0.enter(&request, READ)?;
        let held = call.session.objects.held(request.get_ref().lease).map_err(|error| from_error(&error))?;
        let verify = in_turn(&self.0.verifiers, &call.caller.name, move || {
            held.verify()?;
            Ok(VerifyObjectReply {})
        });
        verify.await.map(tonic::Response::new)
    }

    async fn release_object(&self, request: Request<ReleaseObjectRequest>) -> Reply<ReleaseObjectReply> {
        let ReleaseObjectRequest { lease, done, places } = request.get_ref().clone();
        let call = self.0.enter(&request, if done { TRAIN } else { READ })?;
        self.once(call, move |session| {
            match (done, places.map(wire::to_places), &session.process) {
                (true, ..) => session.objects.done(lease)?,
                (false, Some((folder, places)), Some(process)) => {
                    session.objects.release_mapped(lease, process, &folder, &places);
                }
                (false, ..) => session.objects.release(lease),
            }
            Ok(ReleaseObjectReply {})
        })
        .await
    }

    async fn list_objects(&self, request: Request<ListObjectsRequest>) -> Reply<ListObjectsReply> {
        let call = self.0.enter(&request, READ)?;
        let (ask, reader) = (request.into_inner(), self.0.reader(&call));
        let list = reader.read(move || {
            let mut all = call.session.objects.list()?;
            all.retain(|shown| call.caller.sees_object(&shown.key));
            Ok(listing::page(all, &ask))
        });
        list.await.map(tonic::Response::new)
    }

    async fn move_object(&self, request: Request<MoveObjectRequest>) -> Reply<MoveObjectReply> {
        use move_object_request::Move;
        let call = self.0.enter(&request, TRAIN)?;
        let named = request.into_inner().r#move;
        let allowed = named.iter().flat_map(keys_of).try_for_each(|key| call.caller.check_object(key));
        allowed.map_err(|error| from_error(&error))?;
        self.once(call, move |session| {
            let named = named.ok_or_else(|| malformed("nothing to move"))?;
            let relocation = match &named {
                Move::Spill(of) => Relocation::Spill { key: &of.key, version: of.version },
                Move::Demote(of) => Relocation::Demote { key: &of.key, version: of.version },
                Move::Delete(of) => {
                    Relocation::Delete { key: &of.key, version: wire::to_version(of.version)? }
                }
                Move::Reference(of) => {
                    Relocation::Reference { key: &of.key, version: wire::to_version(of.version)? }
                }
                Move::Exchange(ExchangeObjects { out: Some(out), into: Some(into) }) => {
                    Relocation::Exchange { out: (&out.key, out.version), into: (&into.key, into.version) }
                }
                Move::Exchange(_) => return Err(malformed("an exchange of nothing")),
            };
            let done = session.objects.relocate(&relocation)?;
            Ok(MoveObjectReply {
                version: done.version,
                there: done.there,
                reference: done.reference.as_ref().map(wire::from_object),
                into: done.into,
                overlapped: done.overlapped,
            })
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::SystemTime;

    use forebay_client::wire::{failure_of, new_call};
    use forebay_store::{Options, Store};
    use futures_util::FutureExt;

    use super::*;
    use crate::access::{Access, Caller, Grant};
    use crate::grpc::Limits;
    use crate::grpc::sessions::{Local, Sessions};
    use crate::grpc::tally::Tally;
    use crate::token::Token;

    /// Somebody whose token is good for a moment yet.
    fn brief() -> Caller {
        let (mut access, until) = (Access::default(), SystemTime::now() + Duration::from_millis(200));
        access.add(Grant::new("brief", Token::new("b").unwrap()).until(until));
        access.caller("Bearer b").unwrap()
    }

    fn turns(all: u32) -> Shares {
        Shares::of_all(all, all, WAIT_MAX)
    }

    #[tokio::test]
    async fn who_waits_for_an_object_hears_that_the_token_has_expired_or_the_session_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("store"), Options::default()).unwrap();
        let sessions = Sessions::new(store, &Limits::default(), &Tally::default());
        let (id, _present, _) = sessions.let_in("a", "rank 0", None, Local::default()).await.unwrap();
        let (which, tier) = (WhichObject::AtLeast(1), Tier::Host);
        let keys = vec!["nothing".to_owned()];
        let asked = Asked { keys, which, wait: WAIT_MAX, tier, fingerprint: None, placed: false };
        let asked = Arc::new(asked);
        let wait = |caller, turns| {
            let (session, occupied) = (sessions.find("a", &id).unwrap(), Default::default());
            let call = Call { session, caller: Arc::new(caller), name: new_call(), occupied };
            tokio::spawn(held(call, asked.clone(), turns))
        };
        let (free, taken) = (turns(2), turns(1));
        let _other = taken.turn_now("another").unwrap();
        let cause = |status: tonic::Status| failure_of(&status).unwrap().cause().to_owned();
        let [expires, in_line] = [&free, &taken].map(|turns| wait(brief(), turns.clone()));
        let [ends, ends_in_line] = [&free, &taken].map(|turns| wait(Caller::trusted(), turns.clone()));
        for expired in [expires, in_line] {
            assert_eq!(cause(expired.await.unwrap().unwrap_err()), "Unauthenticated");
        }
        assert!(!ends.is_finished() && !ends_in_line.is_finished());
        sessions.end(&id).await.unwrap();
        for ended in [ends, ends_in_line] {
            assert_eq!(cause(ended.await.unwrap().unwrap_err()), "SessionLost");
        }
    }

    #[tokio::test]
    async fn checks_of_objects_take_no_more_threads_than_they_have_turns_and_none_for_who_has_gone() {
        let (turns, done) = (turns(1), Arc::new(AtomicUsize::new(0)));
        let (go_on, held_up) = std::sync::mpsc::channel::<()>();
        let first = tokio::spawn({
            let turns = turns.clone();
            async move { in_turn(&turns, "one", move || Ok(held_up.recv())).await }
        });
        while turns.free_of("one") > 0 {
            tokio::task::yield_now().await;
        }
        let work = |done: Arc<AtomicUsize>| {
            move || {
                done.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
        };
        let gone = in_turn(&turns, "one", work(done.clone())).now_or_never();
        assert!(gone.is_none(), "another has the turn");
        let mut next = std::pin::pin!(in_turn(&turns, "other", work(done.clone())));
        assert!(futures_util::poll!(&mut next).is_pending());
        drop(go_on);
        first.await.unwrap().unwrap().unwrap_err();
        next.await.unwrap();
        assert_eq!((done.load(Ordering::Relaxed), turns.free_of("one"), turns.free_of("other")), (1, 1, 1));
    }
}
