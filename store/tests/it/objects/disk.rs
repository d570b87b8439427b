//! Files of the disk tier: that stock readers open them, and what is made of hostile ones.

use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;

use safetensors::SafeTensors;

use super::*;

pub(super) fn file(dir: &Path, key: &str, version: u64) -> PathBuf {
    dir.join("store/objects").join(key).join(format!("{version:020}.safetensors"))
}

#[test]
fn the_stock_reader_opens_what_was_spilled() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, objects) = anonymous(dir.path(), |o| o);
    let layout = Layout::builder()
        .tensor("weights", "b", Dtype::Bf16, &[2_000_001])
        .tensor("moments", "a", Dtype::F64, &[3, 0])
        .tensor("weights", "a b \"quoted\" ü", Dtype::U8, &[])
        .tensor("gradient", "z", Dtype::I64, &[4096])
        .tensor("weights", "none", Dtype::F8E4M3, &[0])
        .build()
        .unwrap();
    let filling = objects.begin("solver", Expected::Any, &layout).unwrap();
    fill(&filling, 1);
    filling.metadata("model", "tiny").unwrap();
    filling.commit().unwrap();
    objects.spill("solver", Which::Latest).unwrap();
    drop(filling);

    let bytes = fs::read(file(dir.path(), "solver", 1)).unwrap();
    let stock = SafeTensors::deserialize(&bytes).unwrap();
    for tensor in layout.tensors() {
        let found = stock.tensor(&tensor.name).unwrap();
        assert!(found.data() == content("solver", 1, tensor), "{}", tensor.name);
        assert_eq!(found.shape().iter().map(|d| *d as u64).collect::<Vec<_>>(), tensor.shape);
        let at = found.data().as_ptr() as usize - bytes.as_ptr() as usize;
        assert!(tensor.bytes == 0 || at.is_multiple_of(256), "{} lies at {at}", tensor.name);
    }
    let (header, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
    assert!((8 + header).is_multiple_of(4096), "data begins at a page");
    assert_eq!(metadata.metadata().as_ref().unwrap()["model"], "tiny");

    let (_again, objects) = {
        drop((_store, objects));
        anonymous(dir.path(), |o| o)
    };
    let held = objects.get("solver", Which::Latest).unwrap();
    assert_eq!((held.manifest().layout.clone(), &*held.manifest().metadata["model"]), (layout, "tiny"));
    check(&held);
}

/// Spilled and brought back, past the system's cache or through it: the file has the same data, and what went past is counted.
#[test]
fn what_goes_past_the_systems_cache_is_counted_and_makes_the_same_file() {
    let layout = Layout::builder().tensor("weights", "b", Dtype::Bf16, &[3_000_001]).build().unwrap();
    let mut files = Vec::new();
    for is_direct in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let (_store, objects) = anonymous(dir.path(), |o| o.direct_io(is_direct));
        let filling = objects.begin("solver", Expected::Any, &layout).unwrap();
        fill(&filling, 1);
        filling.commit().unwrap();
        objects.demote("solver", Which::Latest).unwrap();
        check(&objects.get("solver", Which::Latest).unwrap());
        let (stats, bytes) = (objects.stats(), layout.bytes());
        assert_eq!((stats.spilled_bytes, stats.promoted_bytes), (bytes, bytes));
        // Nothing on a file system that has no such way; what the cache has already comes from there.
        let expected = if is_direct {
            [0, bytes, 2 * bytes].contains(&stats.direct_bytes)
        } else {
            stats.direct_bytes == 0
        };
        assert!(expected, "{is_direct}: {stats:?}");
        files.push(fs::read(file(dir.path(), "solver", 1)).unwrap());
    }
    let data =
        |file: usize| SafeTensors::deserialize(&files[file]).unwrap().tensor("b").unwrap().data().to_vec();
    assert!(data(0) == data(1) && files[0].len() == files[1].len());
}

#[test]
fn a_version_moves_between_the_tiers_and_stays_what_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, objects) = anonymous(dir.path(), |o| o);
    set(&objects, "solver");
    let both = [Tier::Host, Tier::Disk];
    assert_eq!(tiers(&objects, "solver", 1), [Tier::Host]);
    objects.spill("solver", Which::Latest).unwrap();
    assert_eq!(tiers(&objects, "solver", 1), both);
    objects.demote("solver", Which::Latest).unwrap();
    assert_eq!((tiers(&objects, "solver", 1), objects.stats().host_bytes_taken), (vec![Tier::Disk], 0));
    for _ in 0..2 {
        check(&objects.get("solver", Which::Latest).unwrap()); // FX-62: the same call, wherever it was
        assert_eq!(tiers(&objects, "solver", 1), both);
    }
    let stats = objects.stats();
    assert_eq!((stats.spills, stats.promotions), (1, 1), "no copy is made twice");
    objects.delete("solver", 1).unwrap();
    assert!(!file(dir.path(), "solver", 1).exists());
}

#[test]
fn an_exchange_brings_one_out_while_the_other_comes_in() {
    let dir = tempfile::tempdir().unwrap();
    let payload = 4 << 20;
    for (limit, overlapped) in [(64 << 20, true), (payload, false)] {
        let dir = dir.path().join(limit.to_string());
        let (_store, objects) = anonymous(&dir, |o| o.host_bytes_max(limit).pageable_bytes_max(0));
        let layout = Layout::builder().tensor("weights", "w", Dtype::U8, &[payload]).build().unwrap();
        for key in ["a", "b"] {
            let filling = objects.begin(key, Expected::Any, &layout).unwrap();
            fill(&filling, 1);
            filling.commit().unwrap();
            objects.demote(key, Which::Latest).unwrap();
        }
        objects.get("a", Which::Latest).unwrap();
        for (out, into) in [("a", "b"), ("b", "a"), ("a", "b")] {
            let done = objects.exchange((out, Which::Latest), (into, Which::Latest)).unwrap();
            assert_eq!(done, Exchanged { out: 1, into: 1, overlapped });
            assert_eq!(
                (tiers(&objects, out, 1), tiers(&objects, into, 1)),
                (vec![Tier::Disk], vec![Tier::Host, Tier::Disk])
            );
            check(&objects.get(into, Which::Latest).unwrap());
        }
    }
}

/// What a file says is not believed before all of it fits together.
#[test]
fn a_hostile_file_is_an_error_or_nobodys_and_never_a_panic() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), "solver", 1);
    let whole = {
        let (_store, objects) = anonymous(dir.path(), |o| o);
        set(&objects, "solver");
        objects.spill("solver", Which::Latest).unwrap();
        fs::read(&path).unwrap()
    };
    let header = 8 + u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    let text = |from: &str, to: &str| {
        let old = String::from_utf8(whole[8..header].to_vec()).unwrap();
        let new = old.replacen(from, to, 1);
        assert_ne!(old, new, "{from}");
        [&(new.len() as u64).to_le_bytes()[..], new.as_bytes(), &whole[header..]].concat()
    };
    let cases: Vec<Vec<u8>> = vec![
        vec![],
        whole[..7].to_vec(),
        whole[..100].to_vec(),
        whole[..header].to_vec(),
        whole[..whole.len() - 1].to_vec(),
        [&u64::MAX.to_le_bytes()[..], &whole[8..]].concat(),
        [&99_999_999_u64.to_le_bytes()[..], &whole[8..]].concat(),
        [&[0xFF; 8][..4], &[0; 4], &whole[8..]].concat(),
        text("[1000,700]", "[4294967296,4294967296]"),
        text("[1000,700]", "[1000,701]"),
        text("[1000,700]", "[-1]"),
        text("\"dtype\":\"BF16\"", "\"dtype\":\"F32\""),
        text("\"data_offsets\":[0,1400000]", "\"data_offsets\":[256,1400256]"),
        text("\"data_offsets\":[0,1400000]", "\"data_offsets\":[18446744073709551615,0]"),
        text("\\\"version\\\":1", "\\\"version\\\":2"),
        text("\\\"fingerprint\\\":", "\\\"fingerprint\\\":1"),
        text("\\\"payloads\\\":[[\\\"weights\\\"", "\\\"payloads\\\":[[\\\"moments\\\""),
        text("\"head\":", "\"haed\":"),
        text("{", "["),
        text("{", &"[".repeat(100_000)),
    ];
    for (at, bytes) in cases.iter().enumerate() {
        fs::write(&path, bytes).unwrap();
        let (_store, objects) = anonymous(dir.path(), |o| o);
        let error = objects.get("solver", Which::Exact(1)).unwrap_err();
        assert!(matches!(error.kind(), Kind::State | Kind::Corrupt), "case {at}: {error}");
        assert!(error.to_string().contains("00000000000000000001.safetensors"), "case {at}: {error}");
        let filling = objects.begin("solver", Expected::Absent, &layout()).unwrap();
        fill(&filling, 2);
        assert_eq!(filling.commit().unwrap(), 2, "case {at}: its number is not used again");
        fs::remove_dir_all(dir.path().join("store/objects/solver")).unwrap();
        fs::create_dir(dir.path().join("store/objects/solver")).unwrap();
    }
    for at in (0..header).step_by(97) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x41;
        fs::write(&path, bytes).unwrap();
        let (_store, objects) = anonymous(dir.path(), |o| o);
        if let Ok(held) = objects.get("solver", Which::Latest) {
            held.verify().unwrap();
        }
    }
}

#[test]
fn a_step_names_a_version_that_was_set_and_keeps_it() {
    let dir = tempfile::tempdir().unwrap();
    let (store, objects) = anonymous(dir.path(), |o| o.versions_kept(1));
    store.put_object("solver", 1, b"as trainers write it").unwrap();
    assert_eq!(set_as(&objects, "solver", 2), 2);
    let named = objects.reference("solver", 2).unwrap();
    assert_eq!(named.crc32c, crc(&fs::read(file(dir.path(), "solver", 2)).unwrap()));
    store
        .declare_policy("solver", Policy::volatile().version(2).objects(std::slice::from_ref(&named)))
        .unwrap();
    for version in 3..6 {
        set_as(&objects, "solver", version);
    }
    assert_eq!(numbers(&objects, "solver"), [5], "the object layer keeps one");
    assert!(!store.object(&named).unwrap().is_empty(), "and the step keeps its own");
    drop((store, objects));
    let (store, objects) = anonymous(dir.path(), |o| o);
    store.object(&named).unwrap();
    check(&objects.get("solver", Which::Exact(2)).unwrap());
    let error = objects.get("solver", Which::Exact(1)).unwrap_err();
    assert!(
        matches!(error.cause(), Cause::ObjectForeign { .. }),
        "what a trainer wrote is read by its reference: {error}"
    );
    let report =
        verify(dir.path().join("store"), &Options::default(), &mut |_| ControlFlow::Continue(())).unwrap();
    assert!(
        report.faults.is_empty() && report.orphans.len() == 1,
        "one was put and is named by nobody: {report:?}"
    );
    assert_eq!(report.checked.objects, 1);
    let last = file(dir.path(), "solver", 2);
    let mut bytes = fs::read(&last).unwrap();
    let at = bytes.len() - 13_000;
    bytes[at] ^= 1;
    fs::write(&last, bytes).unwrap();
    let report =
        verify(dir.path().join("store"), &Options::default(), &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(report.faults.len(), 1);
}

#[test]
fn a_step_names_no_version_whose_file_was_damaged_before_anywhere_in_it() {
    for at in [8, 3_000] {
        let dir = tempfile::tempdir().unwrap();
        let (store, objects) = anonymous(dir.path(), |o| o);
        set(&objects, "solver");
        objects.spill("solver", Which::Latest).unwrap();
        let path = file(dir.path(), "solver", 1);
        let mut bytes = fs::read(&path).unwrap();
        bytes[at] ^= 1; // in what stock readers need to find the tensors, or in what fills that up
        fs::write(&path, bytes).unwrap();
        let named = objects.reference("solver", 1);
        let declare = |named| store.declare_policy("solver", Policy::volatile().version(1).objects(&[named]));
        assert!(named.and_then(|named| declare(named).map(drop)).is_err(), "byte {at}");
        assert_eq!(store.closed(), None);
    }
}

#[test]
fn verify_checks_versions_that_no_step_names_chunk_by_chunk() {
    let dir = tempfile::tempdir().unwrap();
    let (store, objects) = anonymous(dir.path(), |o| o);
    set(&objects, "solver");
    objects.spill("solver", Which::Latest).unwrap();
    drop((store, objects));
    let verify =
        || verify(dir.path().join("store"), &Options::default(), &mut |_| ControlFlow::Continue(())).unwrap();
    let report = verify();
    assert!(report.is_sound() && report.orphans.is_empty(), "{report:?}");
    assert_eq!(report.checked.objects, 1);
    let path = file(dir.path(), "solver", 1);
    fs::write(path.with_extension("spill"), &fs::read(&path).unwrap()[..5000]).unwrap();
    assert!(verify().is_sound(), "half a spill is nobody's");
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.len() - 5;
    bytes[at] ^= 1;
    fs::write(&path, bytes).unwrap();
    let fault = &verify().faults[0];
    assert!(fault.path == path && fault.to_string().contains("\"moments\""), "{fault}");
}

fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82F6_3B78 * (crc & 1)))
    })
}
