//! Objects that steps name, on their way to the server.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use forebay_client::wire::new_call;
use forebay_client::wire::proto::store_client::StoreClient;
use forebay_client::wire::proto::{ObjectPiece, ObjectRef};
use forebay_client::{Client, ConnectOptions};
use forebay_server::Server;
use forebay_store::Kind;
use tonic::Code;

use super::proxy::Proxy;
use super::raw::Raw;
use crate::conformance::*;

const BYTES: usize = 24 << 20;

fn behind_a_proxy() -> (World, Proxy) {
    let mut world = World::new(Way::Embedded);
    let builder = Server::builder().grpc("127.0.0.1:0".parse().unwrap());
    let server = builder.bind(world.store.clone(), "127.0.0.1:0".parse().unwrap()).unwrap();
    let proxy = Proxy::to(server.grpc_address().unwrap());
    world.server = Some(server);
    (world, proxy)
}

/// The files of a key, with their lengths.
fn files(world: &World, key: &str) -> Vec<(PathBuf, u64)> {
    let folder = world.dir.path().join("store/objects").join(key);
    let Ok(files) = std::fs::read_dir(folder) else { return Vec::new() };
    files.flatten().filter_map(|file| Some((file.path(), file.metadata().ok()?.len()))).collect()
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn an_object_goes_to_its_file_as_it_comes_and_who_goes_half_way_leaves_none() {
    let (world, proxy) = behind_a_proxy();
    let payload: Vec<u8> = (0..BYTES).map(|at| (at % 251) as u8).collect();
    let client = Client::connect(&proxy.address(), &ConnectOptions::default()).unwrap();
    proxy.stick_after_sent(BYTES as u64 / 2);
    std::thread::scope(|scope| {
        let putting = scope.spawn(|| client.put_object("weights", 1, &payload));
        let is_there = || files(&world, "weights").iter().any(|(_, bytes)| *bytes >= BYTES as u64 / 4);
        wait_until("half of it is in a file", || proxy.is_stuck() && is_there());
        proxy.unstick();
        let object = putting.join().unwrap().unwrap();
        assert!(client.object(&object).unwrap() == payload);
    });
    let hasty = ConnectOptions::default().outage_time_max(Duration::ZERO);
    let other = Client::connect(&proxy.address(), &hasty).unwrap();
    proxy.cut_after_sent(BYTES as u64 / 2);
    assert_eq!(other.put_object("lost", 1, &payload).unwrap_err().kind(), Kind::Retry);
    wait_until("what came is gone", || files(&world, "lost").is_empty());
    // Who has patience sends it again, and it is put once.
    proxy.cut_after_sent(BYTES as u64 / 2);
    let object = client.put_object("patience", 1, &payload).unwrap();
    assert!(!proxy.is_cut_ahead() && client.object(&object).unwrap() == payload);
    wait_until("one file is left", || files(&world, "patience").len() == 1);
}

#[test]
fn an_object_of_another_length_than_it_says_is_refused_and_leaves_nothing() {
    let world = World::new(Way::Tcp);
    let raw = Raw::connect(&world);
    let mut calls = StoreClient::new(raw.channel.clone());
    let mut put = |key: &str, said: u64, sent: &[usize]| {
        let object = ObjectRef { key: key.to_owned(), version: 1, bytes: said, crc32c: 0 };
        let first = ObjectPiece { object: Some(object), bytes: Default::default() };
        let rest = sent.iter().map(|bytes| ObjectPiece { object: None, bytes: vec![7; *bytes].into() });
        let pieces: Vec<ObjectPiece> = std::iter::once(first).chain(rest).collect();
        let name = new_call().to_le_bytes();
        let request = raw.request(futures_util::stream::iter(pieces), &raw.session, &name);
        raw.runtime.block_on(calls.put_object(request)).map_err(|status| status.code())
    };
    for (key, said, sent) in [("long", 10, &[6, 6][..]), ("short", 10, &[6]), ("endless", u64::MAX, &[6])] {
        assert_eq!(put(key, said, sent).unwrap_err(), Code::InvalidArgument, "{key}");
        wait_until(key, || files(&world, key).is_empty());
    }
    assert_eq!(put("../out", 3, &[3]).unwrap_err(), Code::InvalidArgument);
    put("right", 12, &[6, 0, 6]).unwrap();
    assert_eq!(files(&world, "right").len(), 1);
    // Nor does a name lead out of the folder where it is read.
    let elsewhere = ObjectRef { key: "../objects/right".to_owned(), version: 1, bytes: 12, crc32c: 0 };
    let get = calls.get_object(raw.request(elsewhere, &raw.session, &new_call().to_le_bytes()));
    assert_eq!(raw.runtime.block_on(get).unwrap_err().code(), Code::InvalidArgument);
}
