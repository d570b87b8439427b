//! Several threads set, get, delete, spill and bring back at random. The strategy: every byte follows from key, version and tensor,
//! so whoever holds a version checks all of it against that, without a model of what the others do.
//!
//! What is checked: a version is whole and its own; versions of a key never go back for one reader; nothing is left when all
//! is deleted.

use super::*;

const KEYS: [&str; 3] = ["a", "b", "c"];

fn small() -> Layout {
    Layout::builder()
        .tensor("weights", "w", Dtype::U8, &[OBJECT_CHUNK_BYTES + 4321])
        .tensor("moments", "m", Dtype::F32, &[999])
        .build()
        .unwrap()
}

fn set_one(objects: &Objects, layout: &Layout, key: &str) {
    let filling = objects.begin(key, Expected::Any, layout).unwrap();
    loop {
        let newest = objects.get(key, Which::Latest).map_or(0, |held| held.version());
        fill(&filling, newest + 1);
        match filling.commit_as(newest + 1) {
            Ok(_) => return,
            Err(error) => assert_eq!(
                matches!(error.cause(), Cause::Exists { .. }),
                error.kind() == Kind::Input,
                "{error}"
            ),
        }
        if matches!(objects.get(key, Which::Latest), Err(error) if error.kind() == Kind::State) {
            return; // the newest was deleted, and its number is not to be had again
        }
    }
}

fn may_be_gone<T>(result: Result<T>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) if matches!(error.kind(), Kind::State | Kind::Input | Kind::Retry) => None,
        Err(error) => panic!("{error}"),
    }
}

fn work(objects: &Objects, seed: u64, turns: u64) {
    let dice = SeededRandomness::new(seed);
    let layout = small();
    let mut seen = [0; 3];
    for _ in 0..turns {
        let at = dice.next_u64() as usize % KEYS.len();
        let key = KEYS[at];
        match dice.next_u64() % 10 {
            0..3 => set_one(objects, &layout, key),
            3 => _ = may_be_gone(objects.demote(key, Which::Latest)),
            4 => _ = may_be_gone(objects.spill(key, Which::Latest)),
            5 if dice.next_u64().is_multiple_of(4) => {
                let oldest = numbers(objects, key).into_iter().min();
                oldest.into_iter().for_each(|oldest| _ = objects.delete(key, oldest).unwrap());
            }
            6 => _ = may_be_gone(objects.exchange((key, Which::Latest), (KEYS[(at + 1) % 3], Which::Latest))),
            7 => objects.run_once().unwrap(),
            choice => {
                let tier = if choice == 8 { Tier::Disk } else { Tier::Host };
                let held = may_be_gone(objects.get_with(key, Which::Latest, &Get::default().tier(tier)));
                let Some(held) = held else { continue };
                assert!(held.version() + 2 >= seen[at], "seed {seed}: {key} went back");
                seen[at] = seen[at].max(held.version());
                check(&held);
                held.verify().unwrap();
            }
        }
    }
}

fn torture(seed: u64, turns: u64) {
    eprintln!("seed {seed}");
    let dir = tempfile::tempdir().unwrap();
    // Room for a few versions in segments; the rest goes to heap memory or to the disk.
    let host = HostFolder::At(dir.path().join("host"));
    let options = ObjectOptions::default().host_folder(host).host_bytes_max(16 << 20).segment_bytes(4 << 20);
    let store = Store::open(dir.path().join("store"), Options::default().objects(options)).unwrap();
    let objects = store.objects().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let objects = &objects;
            scope.spawn(move || work(objects, seed * 10 + thread, turns));
        }
    });
    for object in objects.list() {
        objects.delete(&object.manifest.key, object.manifest.version).unwrap();
    }
    let stats = objects.stats();
    assert_eq!(
        (stats.host_bytes_taken, stats.pageable_bytes, stats.leases, stats.corrupt),
        (0, 0, 0, 0),
        "seed {seed}"
    );
    for key in KEYS {
        let left = std::fs::read_dir(dir.path().join("store/objects").join(key)).map_or(0, Iterator::count);
        assert_eq!(left, 0, "seed {seed}: files of {key}");
    }
}

#[test]
fn every_byte_is_its_versions_whatever_threads_do() {
    (1..4).for_each(|seed| torture(seed, 60));
}

/// `FOREBAY_ROUNDS` rounds from `FOREBAY_SEED` on.
#[test]
#[ignore = "takes minutes"]
fn torture_long() {
    let from = |name: &str, otherwise| std::env::var(name).map_or(otherwise, |text| text.parse().unwrap());
    let seed: u64 = from("FOREBAY_SEED", 100);
    (seed..seed + from("FOREBAY_ROUNDS", 50)).for_each(|seed| torture(seed, 300));
}
