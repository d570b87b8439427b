//! Micro-batches that are pushed.

use std::time::{Duration, SystemTime};

use forebay_client::Client;
use forebay_client::wire::proto::store_client::StoreClient;
use forebay_client::wire::proto::*;
use forebay_client::wire::{CALL, SESSION, failure_of, from_micro_batch, new_call, read_stream};
use forebay_server::{Grant, Scope, Server, Token};
use forebay_store::Wait;
use tokio::runtime::Runtime;
use tokio::time::timeout;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};

use crate::conformance::*;

#[test]
fn claims_come_by_themselves_and_never_more_than_are_taken() {
    let world = World::new(Way::Tcp);
    let local = Client::embedded(world.store.clone());
    let table = solver(&local);
    judge(&local);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let mut client = StoreClient::connect(world.address().replace("grpc://", "http://")).await.unwrap();
        let mut presence = client.open(OpenRequest::default()).await.unwrap().into_inner();
        let Some(open_event::Event::Opened(opened)) = presence.message().await.unwrap().unwrap().event else {
            panic!()
        };
        let named = |name: u8| {
            let session = opened.session.clone();
            move |metadata: &mut tonic::metadata::MetadataMap| {
                metadata.insert_bin(SESSION, MetadataValue::from_bytes(&session));
                metadata.insert_bin(CALL, MetadataValue::from_bytes(&[name; 16]));
            }
        };
        let mut subscribe = Request::new(SubscribeRequest {
            consumer: "judge".to_owned(),
            rule: Some(from_micro_batch(&up_to(1))),
            outstanding: 2,
            columns: vec!["sample_id".to_owned()],
            ..SubscribeRequest::default()
        });
        named(1)(subscribe.metadata_mut());
        let mut pushed = client.subscribe(subscribe).await.unwrap().into_inner();
        tokio::task::block_in_place(|| (0..4).for_each(|at| _ = row(&table, 0, &format!("q{at}_0_0"), None)));
        let mut held = Vec::new();
        for _ in 0..2 {
            let granted = pushed.message().await.unwrap().unwrap();
            let (_, batches) = read_stream(granted.columns.clone()).unwrap();
            assert_eq!((batches[0].num_rows(), granted.sample_ids.len()), (1, 1));
            held.push(granted);
        }
        let leased =
            || world.store.claims().iter().filter(|claim| claim.progress.as_str() == "leased").count();
        assert_eq!(leased(), 2, "two are unsettled, and no third is taken for this client");
        for (name, granted) in held.drain(..).enumerate() {
            let how = settle_request::How::Finish(Changes::default());
            let (incarnation, claim) = (granted.incarnation, granted.claim);
            let mut settle = Request::new(SettleRequest { incarnation, claim, how: Some(how), member: 0 });
            named(name as u8 + 2)(settle.metadata_mut());
            client.settle(settle).await.unwrap();
            let next = pushed.message().await.unwrap().unwrap();
            assert_eq!(next.rows.len(), 1);
            assert!(leased() <= 2);
        }
        drop(presence);
    });
}

/// More than anything here takes.
const LATE: Duration = Duration::from_secs(60);

/// Somebody who subscribes, with a token if one is asked for.
struct Subscriber {
    client: StoreClient<Channel>,
    session: Vec<u8>,
    token: Option<&'static str>,
    _presence: Streaming<OpenEvent>,
}

impl Subscriber {
    async fn connect(world: &World, token: Option<&'static str>) -> Self {
        let mut client = StoreClient::connect(world.address().replace("grpc://", "http://")).await.unwrap();
        let mut open = Request::new(OpenRequest::default());
        authorize(&mut open, token);
        let mut presence = client.open(open).await.unwrap().into_inner();
        let first = presence.message().await.unwrap().unwrap().event.unwrap();
        let open_event::Event::Opened(opened) = first else { panic!("{first:?}") };
        Subscriber { client, session: opened.session.to_vec(), token, _presence: presence }
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        authorize(&mut request, self.token);
        let name = new_call().to_le_bytes();
        request.metadata_mut().insert_bin(SESSION, MetadataValue::from_bytes(&self.session));
        request.metadata_mut().insert_bin(CALL, MetadataValue::from_bytes(&name));
        request
    }

    async fn subscribe(&self, rows: usize) -> Streaming<Granted> {
        let rule = Some(from_micro_batch(&up_to(rows)));
        let consumer = "judge".to_owned();
        let message = SubscribeRequest { consumer, rule, outstanding: 1, ..SubscribeRequest::default() };
        self.client.clone().subscribe(self.request(message)).await.unwrap().into_inner()
    }
}

fn authorize<T>(request: &mut Request<T>, token: Option<&str>) {
    let header = token.map(|token| format!("Bearer {token}").parse().unwrap());
    header.into_iter().for_each(|header| _ = request.metadata_mut().insert("authorization", header));
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// How a subscription ends, in which nothing is granted any more.
async fn end(mut pushed: Streaming<Granted>) -> Status {
    timeout(LATE, pushed.message()).await.expect("it goes on").expect_err("nothing more is granted")
}

#[test]
fn a_subscription_ends_with_its_session_and_rows_are_there_for_others() {
    let world = World::new(Way::Tcp);
    let local = Client::embedded(world.store.clone());
    let (table, judge) = (solver(&local), judge(&local));
    row(&table, 0, "held_0_0", None);
    runtime().block_on(async {
        let subscriber = Subscriber::connect(&world, None).await;
        let mut full = subscriber.subscribe(1).await;
        assert_eq!(full.message().await.unwrap().unwrap().sample_ids, ["held_0_0"]);
        let waiting = subscriber.subscribe(1).await;
        subscriber.client.clone().close(subscriber.request(CloseRequest {})).await.unwrap();
        for status in [end(waiting).await, end(full).await] {
            assert_eq!(failure_of(&status).unwrap().cause(), "SessionLost", "{status}");
        }
    });
    row(&table, 0, "late_0_0", None);
    let claims = [(); 2].map(|()| judge.claim(up_to(1), Wait::No).unwrap().expect("it is there for others"));
    assert_eq!(claims.each_ref().map(ids), [["held_0_0"], ["late_0_0"]]);
}

// Nothing is granted to who was let in with a token that has expired since.
#[test]
fn a_subscription_ends_with_its_token() {
    let mut world = World::new(Way::Embedded);
    let local = world.client();
    let (table, judge) = (solver(&local), judge(&local));
    row(&table, 0, "held_0_0", None);
    let until = SystemTime::now() + Duration::from_secs(3);
    let grant = Grant::new("brief", Token::new("brief").unwrap()).scopes([Scope::Train]).until(until);
    let builder = Server::builder().grpc("127.0.0.1:0".parse().unwrap()).grant(grant);
    let builder = builder.readers_without_grants(true);
    world.server = Some(builder.bind(world.store.clone(), "127.0.0.1:0".parse().unwrap()).unwrap());
    world.way = Way::Tcp;
    runtime().block_on(async {
        let subscriber = Subscriber::connect(&world, Some("brief")).await;
        let mut full = subscriber.subscribe(1).await;
        assert_eq!(full.message().await.unwrap().unwrap().sample_ids, ["held_0_0"]);
        let waiting = subscriber.subscribe(1).await;
        for status in [end(waiting).await, end(full).await] {
            assert_eq!(failure_of(&status).unwrap().cause(), "Unauthenticated", "{status}");
            assert!(status.message().contains("\"brief\" has expired"), "{status}");
        }
    });
    assert!(SystemTime::now() >= until, "it was good until then");
    row(&table, 0, "late_0_0", None);
    let claim = judge.claim(up_to(1), Wait::No).unwrap().expect("nobody else has it");
    assert_eq!(ids(&claim), ["late_0_0"]);
}
