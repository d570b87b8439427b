//! Damage in one tier, or in both: it is found and named, and what is good is never dropped for what is not.

use std::fs;

use super::disk::file;
use super::*;

#[test]
fn a_byte_that_changed_on_disk_is_found_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, objects) = anonymous(dir.path(), |o| o);
    set(&objects, "solver");
    objects.demote("solver", Which::Latest).unwrap();
    let path = file(dir.path(), "solver", 1);
    let whole = fs::read(&path).unwrap();
    let data = whole.len() - layout().payloads()[1].bytes as usize - 1_400_832; // both payloads, the first filled up to a page
    let cases = [
        (0, "chunk 0 of \"weights\"", "embed"),
        (1_100_000, "chunk 1", "embed"),
        (1_402_900, "\"moments\"", "embed.first"),
    ];
    for (at, chunk, tensor) in cases {
        let mut bytes = whole.clone();
        bytes[data + at] ^= 1;
        fs::write(&path, bytes).unwrap();
        let on_disk = objects.get_with("solver", Which::Latest, &Get::default().tier(Tier::Disk)).unwrap();
        let errors = [
            objects.get("solver", Which::Latest).unwrap_err(),
            on_disk.verify().unwrap_err(),
            on_disk.tensor(tensor).unwrap().to_vec().unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), Kind::Corrupt);
            let text = error.to_string();
            assert!(
                [chunk, tensor, "\"solver\" version 1", "safetensors"].iter().all(|part| text.contains(part)),
                "{text}"
            );
        }
        assert_eq!(objects.stats().host_bytes_taken, 0, "nothing of it is left in memory");
    }
    assert_eq!(objects.stats().corrupt, 9);
    fs::write(&path, &whole).unwrap();
    check(&objects.get("solver", Which::Latest).unwrap());
}

/// The copy in memory goes only where the file holds every byte: damage behind a sound header, and a file that is gone.
#[test]
fn a_copy_in_memory_never_gives_way_to_a_file_whose_bytes_are_damaged() {
    type Ways = [(&'static str, fn(&Objects) -> Result<()>); 4];
    let ways: Ways = [
        ("demote", |objects| objects.demote("solver", Which::Latest).map(drop)),
        ("spill", |objects| objects.spill("solver", Which::Latest).map(drop)),
        ("reference", |objects| objects.reference("solver", 1).map(drop)),
        ("exchange", |objects| {
            set(objects, "judge");
            objects.exchange(("solver", Which::Latest), ("judge", Which::Latest)).map(drop)
        }),
    ];
    for (name, way) in ways {
        for is_reopened in [false, true] {
            for damage in [Some(1_000_000), Some(5), None] {
                let dir = tempfile::tempdir().unwrap();
                let (mut store, mut objects) = with_folder(dir.path());
                set(&objects, "solver");
                objects.spill("solver", Which::Latest).unwrap();
                if is_reopened {
                    drop((store, objects));
                    (store, objects) = with_folder(dir.path());
                }
                let path = file(dir.path(), "solver", 1);
                let whole = fs::read(&path).unwrap();
                match damage {
                    Some(before_end) => {
                        let mut bytes = whole.clone();
                        let at = bytes.len() - before_end;
                        bytes[at] ^= 1;
                        fs::write(&path, bytes).unwrap();
                    }
                    None => fs::remove_file(&path).unwrap(),
                }
                way(&objects).unwrap();
                assert!(fs::read(&path).unwrap() == whole, "{name}, {is_reopened}, {damage:?}");
                objects.demote("solver", Which::Latest).unwrap();
                check(&objects.get("solver", Which::Latest).unwrap());
                drop(store);
            }
        }
    }
}

/// Damaged on disk and in memory: nothing is dropped, and nothing is called sound.
#[test]
fn what_is_damaged_in_both_tiers_is_not_called_sound_in_either() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, objects) = with_folder(dir.path());
    set(&objects, "solver");
    objects.spill("solver", Which::Latest).unwrap();
    let path = file(dir.path(), "solver", 1);
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, bytes).unwrap();
    let segment = objects.segments().unwrap()[0].path.clone().unwrap();
    let mut memory = fs::read(&segment).unwrap();
    memory[0] ^= 1;
    std::os::unix::fs::FileExt::write_all_at(
        &fs::OpenOptions::new().write(true).open(&segment).unwrap(),
        &memory[..1],
        0,
    )
    .unwrap();
    assert_eq!(objects.demote("solver", Which::Latest).unwrap_err().kind(), Kind::Corrupt);
    assert_eq!(
        tiers(&objects, "solver", 1),
        [Tier::Host, Tier::Disk],
        "what is left of it may still be of use"
    );
}

#[test]
fn a_damaged_file_is_replaced_by_the_good_copy_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    {
        let (_store, objects) = with_folder(dir.path());
        set(&objects, "solver");
        objects.spill("solver", Which::Latest).unwrap();
    }
    let path = file(dir.path(), "solver", 1);
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    {
        let (_store, objects) = with_folder(dir.path());
        objects.demote("solver", Which::Latest).unwrap();
        assert_eq!(tiers(&objects, "solver", 1), [Tier::Disk]);
        check(&objects.get("solver", Which::Latest).unwrap());
        assert!(fs::read(&path).unwrap() == whole);
    }
    fs::write(&path, b"of somebody else").unwrap();
    let (_store, objects) = with_folder(dir.path());
    let error = objects.demote("solver", Which::Latest).unwrap_err();
    assert!(matches!(error.cause(), Cause::Exists { .. }), "{error}");
    check(&objects.get("solver", Which::Latest).unwrap());
}
