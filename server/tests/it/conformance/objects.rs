//! Objects: the same on every way.

use std::collections::BTreeMap;

use forebay_client::{GetObject, ObjectFilling, Objects};
use forebay_store::{Dtype, Expected, Kind, Layout, TensorBytes, Tier, Which};

use super::*;

/// Two classes, of a size that no piece of a message divides.
pub(crate) fn layout() -> Layout {
    Layout::builder()
        .tensor("weights", "embed", Dtype::Bf16, &[1_300, 777])
        .tensor("weights", "head", Dtype::F32, &[3])
        .tensor("moments", "first", Dtype::F32, &[5, 600_001])
        .build()
        .unwrap()
}

/// Bytes that differ from place to place and from version to version.
pub(crate) fn bytes(tensor: &str, version: u8, length: u64) -> Vec<u8> {
    let name: u64 = tensor.bytes().map(u64::from).sum();
    let seed = (name * 31 + u64::from(version)) << 40;
    let mixed = |at: u64| (at ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (0..length)
        .map(|at| ((mixed(at) ^ mixed(at) >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 56) as u8)
        .collect()
}

pub(crate) fn filled(objects: &Objects, key: &str, expected: Expected, version: u8) -> ObjectFilling {
    let filling = objects.begin(key, expected, &layout()).unwrap();
    for tensor in layout().tensors() {
        filling.write(&tensor.name, 0, &bytes(&tensor.name, version, tensor.bytes)).unwrap();
    }
    filling
}

pub(crate) fn set(objects: &Objects, key: &str, version: u8) -> u64 {
    filled(objects, key, Expected::Any, version).commit().unwrap()
}

pub(super) fn small(byte: u8) -> [TensorBytes<'static>; 1] {
    let bytes: &'static [u8] = Box::leak(vec![byte; 12].into_boxed_slice());
    [TensorBytes { class: "weights", name: "w", dtype: Dtype::F32, shape: &[3], bytes }]
}

fn first(objects: &Objects, key: &str, which: Which) -> u8 {
    objects.get(key, which).unwrap().tensor("w").unwrap().to_vec().unwrap()[0]
}

// FX-62, FX-66, FX-67, FX-68: over TCP in pieces, each with its checksum
#[test]
fn what_was_set_is_got_whole_and_in_parts() {
    on_every_way(|world| {
        let client = world.client();
        let objects = client.objects();
        let mut filling = filled(&objects, "solver", Expected::Absent, 1);
        filling.metadata("step", "7");
        assert_eq!(filling.commit().unwrap(), 1);
        let other = world.client().objects();
        let held = other.get("solver", Which::Latest).unwrap();
        assert_eq!((held.version(), held.manifest().metadata["step"].as_str()), (1, "7"));
        assert_eq!(held.manifest().layout, layout());
        for tensor in layout().tensors() {
            let meant = bytes(&tensor.name, 1, tensor.bytes);
            assert_eq!(held.tensor(&tensor.name).unwrap().to_vec().unwrap(), meant, "{}", tensor.name);
        }
        let rows = held.tensor("first").unwrap().rows(2..4).unwrap().to_vec().unwrap();
        let row = 4 * 600_001;
        assert_eq!(rows, bytes("first", 1, 5 * row as u64)[2 * row..4 * row]);
        let mut odd = vec![0; 1_234_567];
        held.read_class("moments", 1_048_575, &mut odd).unwrap();
        assert_eq!(odd, bytes("first", 1, 5 * row as u64)[1_048_575..][..odd.len()]);
    });
}

// FX-69
#[test]
fn what_cannot_be_is_refused_by_its_name() {
    on_every_way(|world| {
        let objects = world.client().objects();
        set(&objects, "solver", 1);
        let other = Layout::builder().tensor("weights", "w", Dtype::F32, &[3]).build().unwrap();
        let held = objects.get("solver", Which::Latest).unwrap();
        let filling = objects.begin("solver", Expected::Any, &layout()).unwrap();
        let cases = [
            (objects.get("slover", Which::Latest).unwrap_err(), Kind::Input, "did you mean \"solver\""),
            (objects.get("solver", Which::Exact(2)).unwrap_err(), Kind::Retry, "version 2"),
            (
                objects.get_with("solver", Which::Latest, &GetObject::default().layout(&other)).unwrap_err(),
                Kind::Input,
                "fingerprint",
            ),
            (objects.begin("solver", Expected::Absent, &layout()).unwrap_err(), Kind::State, "version 1"),
            (objects.begin("not a key", Expected::Any, &layout()).unwrap_err(), Kind::Input, "not a key"),
            (held.tensor("haed").unwrap_err(), Kind::Input, "did you mean \"head\""),
            (held.read_class("weights", u64::MAX, &mut [0]).unwrap_err(), Kind::Input, "weights"),
            (held.tensor("head").unwrap().rows(1..4).unwrap_err(), Kind::Input, "3 rows"),
            (filling.write("head", 8, &[0; 5]).unwrap_err(), Kind::Input, "head"),
            (filling.write_class("weights", 1 << 40, &[0]).unwrap_err(), Kind::Input, "weights"),
            (objects.demote("nobody", Which::Latest).unwrap_err(), Kind::Input, "nobody"),
        ];
        for (error, kind, says) in cases {
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(says), "{error}");
        }
    });
}

// FX-69: no partial object is ever visible.
#[test]
fn a_version_with_a_hole_is_refused_and_can_be_filled_up() {
    on_every_way(|world| {
        let objects = world.client().objects();
        let mut filling = objects.begin("solver", Expected::Any, &layout()).unwrap();
        filling.write_class("weights", 0, &vec![1; layout().payloads()[0].bytes as usize]).unwrap();
        filling.write("first", 0, &[2; 1000]).unwrap();
        let error = filling.commit().unwrap_err();
        assert_eq!(error.kind(), Kind::State, "{error}");
        assert!(error.to_string().contains("first"), "{error}");
        assert!(objects.get("solver", Which::Latest).is_err());
        let rest = layout().tensor("first").unwrap().bytes - 1000;
        filling.write("first", 1000, &vec![3; rest as usize]).unwrap();
        assert_eq!(filling.commit().unwrap(), 1);
    });
}

#[test]
fn of_two_who_expect_the_same_one_commits_and_the_other_may_go_on() {
    on_every_way(|world| {
        let (one, other) = (world.client().objects(), world.client().objects());
        let mut first = filled(&one, "solver", Expected::Absent, 1);
        let mut second = filled(&other, "solver", Expected::Absent, 2);
        assert_eq!(first.commit().unwrap(), 1);
        let error = second.commit().unwrap_err();
        assert_eq!((error.kind(), error.cause()), (Kind::State, "ObjectConflict"), "{error}");
        second.expect(Expected::Version(1));
        assert_eq!(second.commit_as(10).unwrap(), 10);
        let held = one.get("solver", Which::Exact(10)).unwrap();
        assert_eq!(held.tensor("head").unwrap().to_vec().unwrap(), bytes("head", 2, 12));
    });
}

#[test]
fn a_version_to_come_is_waited_for_by_threads_and_futures() {
    on_every_way(|world| {
        let (client, other) = (world.client(), world.client());
        let (objects, setter) = (client.objects(), other.objects());
        let mut watch = objects.watch("solver").unwrap();
        assert!(watch.next(Wait::No).unwrap().is_none());
        let error =
            objects.get("solver", Which::AtLeast(1, Wait::For(Duration::from_millis(20)))).unwrap_err();
        assert!(matches!(error.kind(), Kind::Retry | Kind::Input), "{error}");
        let coming = objects.get_async("solver", 2, &GetObject::default()).unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| objects.get("solver", Which::AtLeast(1, LONG)).unwrap().version());
            setter.set("solver", &small(1)).unwrap();
            assert!(waits.join().unwrap() >= 1);
            assert_eq!(watch.next(LONG).unwrap().unwrap().version(), 1);
            setter.set("solver", &small(2)).unwrap();
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        assert_eq!(runtime.block_on(coming).unwrap().version(), 2);
        assert_eq!(runtime.block_on(watch.next_async()).unwrap().version(), 2);
    });
}

// FX-B19, FX-B21
#[test]
fn what_is_published_goes_with_the_first_who_has_it() {
    on_every_way(|world| {
        let (one, other) = (world.client().objects(), world.client().objects());
        one.publish("weights", &small(7)).unwrap();
        assert!(one.get("weights", Which::Latest).is_err(), "gets do not find it");
        let received = other.receive("weights", LONG).unwrap();
        let error = one.receive("weights", Wait::No).unwrap_err();
        assert_eq!(error.kind(), Kind::Retry, "{error}");
        let waits = one.receive_async("weights").unwrap();
        drop(received); // gives it back
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let received = runtime.block_on(waits).unwrap();
        assert_eq!(received.tensor("w").unwrap().to_vec().unwrap(), [7; 12]);
        received.done().unwrap();
        assert!(other.receive("weights", Wait::No).is_err(), "it was removed");
    });
}

#[test]
fn keys_of_states_of_process_groups_are_set_by_those_who_keep_them() {
    on_every_way(|world| {
        let objects = world.client().objects();
        for key in ["state.solver", "part.0123"] {
            let errors = [
                objects.set(key, &small(1)).map(drop).unwrap_err(),
                objects.publish(key, &small(1)).map(drop).unwrap_err(),
                objects.begin(key, Expected::Any, &layout()).map(drop).unwrap_err(),
            ];
            for error in errors {
                assert_eq!((error.kind(), error.cause()), (Kind::Input, "Reserved"), "{error}");
                assert!(error.to_string().contains(key), "{error}");
            }
            assert!(objects.list_of(key).unwrap().is_empty());
            assert_eq!(objects.clone().for_states().set(key, &small(1)).unwrap(), 1);
            assert_eq!(first(&objects, key, Which::Latest), 1, "anybody may read it");
        }
        assert_eq!(objects.set("states.solver", &small(1)).unwrap(), 1);
    });
}

#[test]
fn shards_are_committed_and_got_together() {
    on_every_way(|world| {
        let objects = world.client().objects();
        let keys = ["solver.0", "solver.1"];
        set(&objects, keys[0], 9);
        let fillings = keys.map(|key| filled(&objects, key, Expected::Any, 1));
        keys.iter().zip(&fillings).for_each(|(key, filling)| filling.metadata("rank", key));
        fillings[1].expect(Expected::Version(7));
        let (error, fillings) = objects.commit_together(fillings.into()).unwrap_err();
        assert_eq!(error.cause(), "ObjectConflict", "{error}");
        fillings[1].expect(Expected::Absent);
        let version = objects.commit_together(fillings).map_err(|(error, _)| error).unwrap();
        set(&objects, keys[1], 9); // one ahead of the other
        let held = objects.get_together(&keys, &GetObject::default()).unwrap();
        assert!(held.iter().all(|held| held.version() == version), "{held:?}");
        assert!(held.iter().all(|held| held.manifest().metadata["rank"] == held.key()));
        assert_eq!(
            objects.get_together(&[keys[0], keys[0]], &GetObject::default()).unwrap_err().kind(),
            Kind::Input
        );
        let short = objects.begin(keys[0], Expected::Any, &layout()).unwrap();
        let whole = filled(&objects, keys[1], Expected::Any, 2);
        let (error, fillings) = objects.commit_together(vec![whole, short]).unwrap_err();
        assert_eq!((error.kind(), fillings.len()), (Kind::State, 2), "{error}");
        assert_eq!(objects.get_together(&keys, &GetObject::default()).unwrap()[0].version(), version);
        // Both have one more number now, and not of one commit.
        assert_eq!(set(&objects, keys[0], 9), version + 1);
        let held = objects.get_together(&keys, &GetObject::default()).unwrap();
        let groups: Vec<_> = held.iter().map(|held| held.manifest().group).collect();
        assert!(held.iter().all(|held| held.version() == version) && groups[0].is_some(), "{held:?}");
        assert_eq!(groups[0], groups[1]);
        assert_eq!(objects.get(keys[0], Which::Latest).unwrap().manifest().group, None);
    });
}

#[test]
fn versions_go_between_memory_and_disk_and_away() {
    on_every_way(|world| {
        let objects = world.client().objects();
        (1..=2).for_each(|version| _ = set(&objects, "solver", version));
        set(&objects, "verifier", 3);
        let tiers = |key: &str, version| {
            let all = objects.list().unwrap();
            all.iter().find(|o| o.key == key && o.version == version).map(|o| o.tiers.clone())
        };
        assert_eq!(objects.spill("solver", Which::Exact(1)).unwrap(), 1);
        assert_eq!(tiers("solver", 1), Some(vec![Tier::Host, Tier::Disk]));
        assert_eq!(objects.demote("solver", Which::Latest).unwrap(), 2);
        assert_eq!(tiers("solver", 2), Some(vec![Tier::Disk]));
        let on_disk =
            objects.get_with("solver", Which::Exact(2), &GetObject::default().tier(Tier::Disk)).unwrap();
        assert!(on_disk.tensor("first").unwrap().bytes().is_none());
        assert_eq!(on_disk.tensor("first").unwrap().to_vec().unwrap(), bytes("first", 2, 4 * 5 * 600_001));
        let done = objects.exchange(("verifier", Which::Latest), ("solver", Which::Latest)).unwrap();
        assert_eq!((done.out, done.into), (1, 2));
        assert_eq!(
            (tiers("verifier", 1), tiers("solver", 2)),
            (Some(vec![Tier::Disk]), Some(vec![Tier::Host, Tier::Disk]))
        );
        let reference = objects.reference("verifier", 1).unwrap();
        assert_eq!((reference.key.as_str(), reference.version), ("verifier", 1));
        let held = objects.get("solver", Which::Exact(1)).unwrap();
        assert!(objects.delete("solver", 1).unwrap() && !objects.delete("solver", 1).unwrap());
        assert_eq!(
            held.tensor("head").unwrap().to_vec().unwrap(),
            bytes("head", 1, 12),
            "who holds it keeps it"
        );
        drop(held);
        assert!(objects.get("solver", Which::Exact(1)).is_err());
    });
}

#[test]
fn a_list_shows_what_there_is() {
    on_every_way(|world| {
        let objects = world.client().objects();
        let mut filling = filled(&objects, "solver", Expected::Any, 1);
        filling.metadata_of(&BTreeMap::from([("step".to_owned(), "3".to_owned())]));
        filling.commit().unwrap();
        let _held = objects.get("solver", Which::Latest).unwrap();
        let shown = objects.list().unwrap().remove(0);
        assert_eq!((shown.key.as_str(), shown.version, shown.tensors, shown.leases), ("solver", 1, 3, 1));
        assert_eq!(
            (shown.bytes, shown.metadata["step"].as_str(), shown.once),
            (layout().bytes(), "3", false)
        );
        assert!(shown.created_at.0 > 0);
    });
}

#[test]
fn what_is_given_up_tells_those_who_wait_and_frees_its_memory() {
    on_every_way(|world| {
        let objects = world.client().objects();
        let failing = objects.begin("solver", Expected::Any, &layout()).unwrap();
        // A wait that is dropped is given up, and what had come for it is there for others.
        for _ in 0..20 {
            drop(objects.receive_async("weights").unwrap());
        }
        objects.publish("weights", &small(3)).unwrap();
        objects.receive("weights", LONG).unwrap().done().unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| objects.get("solver", Which::AtLeast(1, LONG)).unwrap_err());
            while !waits.is_finished() {
                // Until it listens nobody is told, so it is told again.
                objects
                    .begin("solver", Expected::Any, &layout())
                    .unwrap()
                    .fail("the device is gone")
                    .unwrap();
            }
            let error = waits.join().unwrap();
            assert!(error.to_string().contains("the device is gone"), "{error}");
        });
        drop(failing);
        let stats = world.store.objects().unwrap().stats();
        assert_eq!((stats.host_bytes_taken, stats.quarantine_bytes), (0, 0));
    });
}

#[test]
fn a_client_that_goes_leaves_nothing_behind() {
    on_every_way(|world| {
        let (client, stays) = (world.client(), world.client().objects());
        set(&stays, "solver", 1);
        let objects = client.objects();
        let held = objects.get("solver", Which::Latest).unwrap();
        let filling = filled(&objects, "solver", Expected::Any, 2);
        if world.way != Way::Embedded {
            client.close().unwrap();
            assert!(held.read_class("weights", 0, &mut [0; 8]).is_err() || world.way == Way::Neighbour);
        }
        drop((held, filling, objects, client));
        stays.set("other", &small(5)).unwrap();
        assert_eq!(first(&stays, "other", Which::Latest), 5);
        let leases = || stays.list().unwrap().iter().map(|shown| shown.leases).sum::<u64>();
        while leases() > 0 {} // who lets go waits for nobody
    });
}
