//! Many at once on one server, and one server beside another: nothing of one is ever another's.

use std::collections::BTreeSet;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use forebay_client::wire::proto::store_client::StoreClient;
use forebay_client::wire::proto::*;
use forebay_client::wire::{self, CALL, SESSION};
use forebay_client::{Changes, Client, ConnectOptions, GetObject};
use forebay_server::{Grant, Scope, Server, Token};
use forebay_store::{Kind, NewRow, Wait, Which};
use futures_util::future::join_all;
use tonic::Request;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;

use crate::conformance::*;

fn served(grants: impl IntoIterator<Item = Grant>) -> World {
    let mut world = World::new(Way::Embedded);
    let builder = Server::builder().grpc("127.0.0.1:0".parse().unwrap());
    let builder = grants.into_iter().fold(builder, forebay_server::Builder::grant);
    world.server = Some(builder.bind(world.store.clone(), "127.0.0.1:0".parse().unwrap()).unwrap());
    world.way = Way::Tcp;
    world
}

// AW-30: eight sessions, each with a trace of its own.
#[test]
fn eight_sessions_step_side_by_side_and_none_sees_rows_of_another() {
    const STEPS: u32 = 20;
    let world = served([]);
    let local = Client::embedded(world.store.clone());
    solver(&local);
    let begin = Arc::new(Barrier::new(8));
    let session = |number: usize| {
        let (client, begin) = (world.client(), begin.clone());
        move || {
            let table = client.create_table(&format!("line{number}"), solver_schema()).unwrap();
            let judge = client
                .create_consumer(
                    &format!("judge{number}"),
                    forebay_store::Consumer::task([table.name()]).ready(["response"]),
                )
                .unwrap();
            begin.wait();
            for turn in 0..STEPS {
                let id = format!("line{number}x{turn}_0_0");
                let row = row(&table, 0, &id, None);
                let claim = judge.claim(up_to(8), LONG).unwrap().unwrap();
                assert_eq!((ids(&claim), claim.rows()), (vec![id], &[row][..]));
                let mut changes = Changes::new();
                changes.write(table.name().to_owned(), row, [("reward", (number as f32).into())]);
                claim.finish(&changes).unwrap();
            }
        }
    };
    let traces: Vec<_> = (0..8).map(|number| thread::spawn(session(number))).collect();
    traces.into_iter().for_each(|trace| trace.join().unwrap());
    for number in 0..8 {
        let table = local.table(&format!("line{number}")).unwrap();
        assert_eq!(table.counts().unwrap().written, u64::from(STEPS));
    }
}

// AJ-33: who shows a token writes where the token is for, whatever else goes on.
#[test]
fn two_episodes_that_interleave_a_hundred_calls_never_mix() {
    let episodes = ["solver", "checker"];
    let grant = |name: &str| {
        Grant::new(name, Token::new(&format!("{name}-token")).unwrap())
            .scopes([Scope::Read, Scope::Write])
            .tables([name])
    };
    let world = served(episodes.map(grant));
    let local = Client::embedded(world.store.clone());
    episodes.iter().for_each(|name| _ = local.create_table(name, solver_schema()).unwrap());
    let clients = episodes.map(|name| {
        let options = ConnectOptions::default().token(&format!("{name}-token"));
        Client::connect(&world.address(), &options).unwrap()
    });
    for call in 0..100 {
        for (name, client) in episodes.into_iter().zip(&clients) {
            let row = || NewRow::new(0, &format!("{name}{call}_0_0")).unwrap();
            client.table(name).unwrap().insert(row(), [("prompt", name.into())]).unwrap();
            let other = episodes.into_iter().find(|other| *other != name).unwrap();
            let mut changes = Changes::new();
            changes.insert(other, row(), [("prompt", name.into())]);
            assert_eq!(client.write(&changes).unwrap_err().cause(), "Forbidden");
        }
    }
    for name in episodes {
        let table = local.table(name).unwrap();
        assert_eq!(table.counts().unwrap().written, 100);
        for call in 0..100 {
            let id = format!("{name}{call}_0_0").parse().unwrap();
            assert!(table.find(0, &id).unwrap().is_some(), "{id}");
        }
    }
}

// FX-63: of two servers one goes, its rows and the keys of its objects are told to be out of reach, and those of the other are not.
#[test]
fn a_server_that_is_gone_takes_no_other_along() {
    let (mut one, other) = (served([]), served([]));
    let quick =
        ConnectOptions::default().connect_time_max(Duration::from_secs(5)).outage_time_max(Duration::ZERO);
    let clients = [&one, &other].map(|world| Client::connect(&world.address(), &quick).unwrap());
    let rows = clients.each_ref().map(|client| {
        let table = solver(client);
        judge(client);
        let row = row(&table, 0, "q_0_0", None);
        (table, row)
    });
    let keys = clients.each_ref().map(Client::objects);
    let held = keys.each_ref().map(|objects| {
        objects::set(objects, "weights", 1);
        objects.get("weights", Which::Latest).unwrap()
    });
    one.server = None;
    for outcome in [
        keys[0].get("weights", Which::Latest).map(drop),
        keys[0].list().map(drop),
        keys[0].get_many(&["weights", "moments"], Which::Latest, &GetObject::default()).map(drop),
    ] {
        let error = outcome.unwrap_err();
        assert_eq!((error.kind(), error.cause()), (Kind::Retry, "Connection"), "{error}");
    }
    assert!(held[0].tensor("head").unwrap().to_vec().is_err(), "what was held there is over");
    assert_eq!(held[1].tensor("head").unwrap().to_vec().unwrap(), objects::bytes("head", 1, 12));
    assert_eq!(objects::set(&keys[1], "weights", 2), 2);
    let [(lost, lost_row), (kept, kept_row)] = &rows;
    let error = lost.cell(*lost_row, "prompt").unwrap_err();
    assert_eq!((error.kind(), error.cause()), (Kind::Retry, "Connection"), "{error}");
    kept.cell(*kept_row, "prompt").unwrap();
    let claim = clients[1].consumer("judge").unwrap().claim(up_to(1), Wait::No).unwrap().unwrap();
    let verdict = verdicts(&claim, 1.0);
    claim.finish(&verdict).unwrap();
}

// PL-16: a thousand writers, each with a session of its own, write at once; no row is lost and none is there twice.
#[test]
fn a_thousand_writers_at_once_lose_no_row() {
    const WRITERS: usize = 1000;
    let world = served([]);
    let local = world.store.clone();
    let table = solver(&Client::embedded(local.clone()));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let address = world.address().replace("grpc://", "http://");
    runtime.block_on(async {
        let connect = async || Channel::from_shared(address.clone()).unwrap().connect().await;
        let channels: Vec<Channel> =
            join_all((0..10).map(|_| connect())).await.into_iter().map(Result::unwrap).collect();
        let writers = (0..WRITERS).map(|writer| {
            let mut client = StoreClient::new(channels[writer % channels.len()].clone());
            async move {
                let mut presence = client.open(OpenRequest::default()).await.unwrap().into_inner();
                let first = presence.message().await.unwrap().unwrap().event.unwrap();
                let open_event::Event::Opened(opened) = first else { panic!("{first:?}") };
                for sample in 0..3 {
                    let mut changes = Changes::new();
                    let new = NewRow::new(0, &format!("w{writer}x{sample}_0_?")).unwrap();
                    changes.insert("solver", new, [("prompt", "?".into())]);
                    let mut request =
                        Request::new(WriteRequest { changes: Some(wire::from_changes(&changes)) });
                    request.metadata_mut().insert_bin(SESSION, MetadataValue::from_bytes(&opened.session));
                    let name = wire::new_call().to_le_bytes();
                    request.metadata_mut().insert_bin(CALL, MetadataValue::from_bytes(&name));
                    client.write(request).await.unwrap();
                }
                drop(presence);
            }
        });
        join_all(writers).await;
    });
    assert_eq!(table.counts().unwrap().written, 3 * WRITERS as u64);
    let found: BTreeSet<String> = (0..WRITERS)
        .flat_map(|writer| (0..3).map(move |sample| format!("w{writer}x{sample}_0_0")))
        .filter(|id| table.find(0, &id.parse().unwrap()).unwrap().is_some())
        .collect();
    assert_eq!(found.len(), 3 * WRITERS);
}
