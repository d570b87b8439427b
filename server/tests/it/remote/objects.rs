//! Objects behind a server: memory that a neighbour maps, bytes that are damaged, clients and servers that die, and those who
//! mind no protocol.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use forebay_client::wire::proto::objects_client::ObjectsClient;
use forebay_client::wire::proto::*;
use forebay_client::wire::{from_layout, new_call};
use forebay_client::{Client, ConnectOptions, GetObject};
use forebay_store::{Expected, Kind, Tier, Which};
use tonic::Code;

use super::raw::Raw;
use crate::conformance::objects::{bytes, filled, layout, set};
use crate::conformance::*;

fn segments(world: &World) -> Vec<PathBuf> {
    let list = |folder: PathBuf| fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let files = list(world.dir.path().join("host")).flat_map(list);
    files.filter(|path| path.extension().is_some_and(|extension| extension == "segment")).collect()
}

/// The file that an address of this process is mapped from.
fn mapped_from(address: usize) -> String {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let found = maps.lines().find(|line| {
        let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let at = |text| usize::from_str_radix(text, 16).unwrap();
        (at(start)..at(end)).contains(&address)
    });
    found.unwrap().split_whitespace().nth(5).unwrap_or_default().to_owned()
}

/// How many calls were made of the server.
fn calls(world: &World) -> f64 {
    let samples = crate::client::samples_at(world.server.as_ref().unwrap().address().unwrap());
    let calls = samples.iter().filter(|(name, _)| name.starts_with("forebay_calls_total{"));
    calls.map(|(_, count)| count).sum()
}

// FX-22: a read on the node that has it makes no call for the bytes. (That a key names the node: the trainer adapter's scheduler.)
#[test]
fn a_neighbour_reads_and_writes_the_memory_itself() {
    let world = World::new(Way::Neighbour);
    let (client, other) = (world.client(), world.client());
    set(&client.objects(), "solver", 1);
    let held = other.objects().get("solver", Which::Latest).unwrap();
    let before = calls(&world);
    assert!(before > 0.0, "those that set it and hold it");
    for tensor in layout().tensors() {
        let read = held.tensor(&tensor.name).unwrap().to_vec().unwrap();
        assert!(read == bytes(&tensor.name, 1, tensor.bytes), "{}", tensor.name);
    }
    assert_eq!(calls(&world), before, "every byte was read and nobody was asked");
    let leased = held.tensor("first").unwrap().bytes().expect("it lies in a segment");
    let file = mapped_from(leased.address());
    assert!(segments(&world).iter().any(|segment| segment.to_string_lossy() == file), "{file}");
    assert_eq!(leased.length() as u64, layout().tensor("first").unwrap().bytes);
    assert!(world.store.objects().unwrap().stats().host_bytes_taken > 0);
    // Who is no neighbour has no address.
    let stranger = Client::connect(&world.address(), &ConnectOptions::default().neighbour(false)).unwrap();
    let sent = stranger.objects().get("solver", Which::Latest).unwrap();
    assert!(sent.tensor("first").unwrap().bytes().is_none());
    let before = calls(&world);
    sent.tensor("first").unwrap().to_vec().unwrap();
    assert!(calls(&world) > before, "who is sent the bytes asks for them");
}

#[test]
fn what_a_neighbour_may_still_touch_is_not_used_again_while_it_lives() {
    let world = World::new(Way::Neighbour);
    let (client, stays) = (world.client(), world.client().objects());
    set(&stays, "solver", 1);
    let objects = client.objects();
    let held = objects.get("solver", Which::Latest).unwrap();
    let leased = held.tensor("first").unwrap().bytes().unwrap();
    let half_filled = filled(&objects, "verifier", Expected::Any, 2);
    client.close().unwrap();
    drop((held, half_filled, objects, client));
    // The version goes, and others come: neither its memory nor that which was being filled is given to them.
    stays.delete("solver", 1).unwrap();
    (2..6).for_each(|version| _ = set(&stays, "solver", version));
    let mut now = vec![0; leased.length()];
    let file = mapped_from(leased.address());
    let offset = (leased.address() - start_of(&file, leased.address())) as u64;
    fs::File::open(&file).unwrap().read_exact_at(&mut now, offset).unwrap();
    assert_eq!(now, bytes("first", 1, leased.length() as u64));
    assert!(world.store.objects().unwrap().stats().quarantine_bytes > 0);
}

/// The address that byte 0 of a mapped file has, of the mapping that an address lies in.
fn start_of(file: &str, address: usize) -> usize {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let of_file = maps.lines().filter(|line| line.ends_with(file));
    let mut found = of_file.filter_map(|line| {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let hexadecimal = |text| usize::from_str_radix(text, 16).unwrap();
        let offset = hexadecimal(words.nth(1)?);
        (hexadecimal(start)..hexadecimal(end)).contains(&address).then(|| hexadecimal(start) - offset)
    });
    found.next().unwrap()
}

/// Changes a bit of a version's tensor, where it lies in memory: in the third chunk of its class.
fn damage(world: &World, version: u8) {
    let meant = bytes("first", version, layout().tensor("first").unwrap().bytes);
    let damaged = segments(world).into_iter().find_map(|segment| {
        let content = fs::read(&segment).unwrap();
        let at = content.windows(8192).position(|window| window == &meant[3_000_000..3_008_192])?;
        let file = fs::OpenOptions::new().write(true).open(&segment).unwrap();
        file.write_all_at(&[content[at] ^ 1], at as u64).unwrap();
        Some(())
    });
    assert!(damaged.is_some());
}

// FX-69, FX-68: what is got where it lies is looked at when that is asked for
#[test]
fn a_byte_that_changed_is_named_by_verify_on_every_way() {
    on_every_way(|world| {
        let objects = world.client().objects();
        set(&objects, "solver", 1);
        let held = objects.get("solver", Which::Latest).unwrap();
        held.verify().unwrap();
        damage(world, 1);
        let error = held.verify().unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "{error}");
        for part in ["\"solver\" version 1", "chunk 2 of \"moments\"", "tensors first"] {
            assert!(error.to_string().contains(part), "{error}");
        }
        set(&objects, "solver", 2);
        objects.demote("solver", Which::Exact(2)).unwrap();
        let on_disk = objects.get_with("solver", Which::Exact(2), &GetObject::default().tier(Tier::Disk));
        on_disk.unwrap().verify().unwrap();
        assert!(held.verify().is_err(), "it stays so");
    });
}

// Its checksums are its neighbour's own: bytes that changed before the commit are found as those that change after it.
#[test]
fn a_byte_that_changes_while_a_neighbour_fills_is_found() {
    let world = World::new(Way::Neighbour);
    let objects = world.client().objects();
    let mut filling = filled(&objects, "solver", Expected::Any, 1);
    damage(&world, 1);
    filling.commit().unwrap();
    let error = objects.get("solver", Which::Latest).unwrap().verify().unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt, "{error}");
    assert_eq!(objects.demote("solver", Which::Latest).unwrap_err().kind(), Kind::Corrupt);
}

// FX-69, FX-68
#[test]
fn a_byte_that_changed_in_memory_is_found_by_who_has_it_sent() {
    let world = World::new(Way::Tcp);
    let objects = world.client().objects();
    set(&objects, "solver", 1);
    let held = objects.get("solver", Which::Latest).unwrap();
    damage(&world, 1);
    let error = held.tensor("first").unwrap().to_vec().unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt, "{error}");
    assert!(error.to_string().contains("chunk 2 of \"moments\""), "{error}");
    held.tensor("embed").unwrap().to_vec().unwrap();
}

#[test]
fn what_was_begun_and_held_is_over_with_its_session_and_what_was_committed_is_not() {
    for way in [Way::Neighbour, Way::Socket] {
        let mut world = World::new(way);
        let client = world.client();
        let objects = client.objects();
        set(&objects, "solver", 1);
        let held = objects.get("solver", Which::Latest).unwrap();
        let mut lost = filled(&objects, "verifier", Expected::Any, 2);
        super::neighbour::serve_again(&mut world);
        let error = lost.commit().unwrap_err();
        assert_eq!(error.kind(), Kind::State, "{error}");
        if way == Way::Socket {
            assert_eq!(held.tensor("head").unwrap().to_vec().unwrap_err().kind(), Kind::State);
        }
        let again = objects.get("solver", Which::Latest).unwrap();
        let mut new = filled(&objects, "verifier", Expected::Any, 4);
        // What is done to the old ones is not done to these.
        assert!(lost.write("head", 0, &[9; 12]).is_err() || way == Way::Neighbour);
        assert!(lost.commit().is_err());
        drop((lost, held));
        assert_eq!(again.tensor("first").unwrap().to_vec().unwrap(), bytes("first", 1, 4 * 5 * 600_001));
        assert_eq!(new.commit().unwrap(), 1);
        let new = objects.get("verifier", Which::Latest).unwrap();
        assert_eq!(new.tensor("head").unwrap().to_vec().unwrap(), bytes("head", 4, 12));
    }
}

#[test]
fn numbers_of_another_session_and_parts_that_are_not_there_are_refused() {
    let world = World::new(Way::Tcp);
    let objects = world.client().objects();
    set(&objects, "solver", 1);
    let held = objects.get("solver", Which::Latest).unwrap();
    let mut filling = filled(&objects, "solver", Expected::Any, 2);
    let raw = Raw::connect(&world);
    let mut calls = ObjectsClient::new(raw.channel.clone());
    let name = || new_call().to_le_bytes();
    let refused = raw.runtime.block_on(async {
        let mut codes = Vec::new();
        for number in 0..4 {
            let fill = FillObjectRequest {
                filling: number,
                payload: 0,
                offset: 0,
                bytes: vec![9; 64].into(),
                crc32c: forebay_store::checksum::crc32c(&[9; 64]),
            };
            codes.push(calls.fill_object(raw.request(fill, &raw.session, &name())).await.err());
            let commit = CommitObjectsRequest {
                objects: vec![CommitObject { filling: number, ..Default::default() }],
                version: None,
            };
            codes.push(calls.commit_objects(raw.request(commit, &raw.session, &name())).await.err());
            let read = ReadObjectRequest { lease: number, payload: 0, start: 0, end: 8 };
            codes.push(calls.read_object(raw.request(read, &raw.session, &name())).await.err());
            let done = ReleaseObjectRequest { lease: number, done: true, places: None };
            codes.push(calls.release_object(raw.request(done, &raw.session, &name())).await.err());
        }
        codes
    });
    assert!(
        refused.iter().all(|status| status.as_ref().is_some_and(|s| s.code() == Code::FailedPrecondition)),
        "{refused:?}"
    );
    // Of its own: what lies outside, what was changed on its way, what is filled twice.
    let begin =
        BeginObjectRequest { key: "mine".into(), layout: Some(from_layout(&layout())), ..Default::default() };
    let codes = raw.runtime.block_on(async {
        let begun = calls.begin_object(raw.request(begin, &raw.session, &name())).await.unwrap().into_inner();
        let fill = |payload, offset, crc32c| FillObjectRequest {
            filling: begun.filling,
            payload,
            offset,
            bytes: vec![9; 64].into(),
            crc32c,
        };
        let sum = forebay_store::checksum::crc32c(&[9; 64]);
        let mut codes = Vec::new();
        for message in [fill(7, 0, sum), fill(0, u64::MAX, sum), fill(0, 1 << 40, sum), fill(0, 0, sum ^ 1)] {
            codes.push(
                calls.fill_object(raw.request(message, &raw.session, &name())).await.unwrap_err().code(),
            );
        }
        codes
    });
    assert!(codes.iter().all(|code| *code != Code::Internal), "{codes:?}");
    assert_eq!(filling.commit().unwrap(), 2);
    assert_eq!(held.tensor("head").unwrap().to_vec().unwrap(), bytes("head", 1, 12));
}
