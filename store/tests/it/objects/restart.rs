//! What the next process finds of the host tier.

use std::fs;
use std::path::PathBuf;

use super::*;

fn folder(dir: &Path) -> PathBuf {
    let mut folders: Vec<PathBuf> =
        fs::read_dir(dir.join("host")).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(folders.len(), 1);
    folders.remove(0)
}

#[test]
fn what_was_committed_is_found_again_and_what_was_being_filled_is_not() {
    let dir = tempfile::tempdir().unwrap();
    {
        let (store, objects) = with_folder(dir.path());
        (0..4).for_each(|_| _ = set(&objects, "solver"));
        set(&objects, "judge");
        objects.delete("judge", 1).unwrap();
        objects
            .publish(
                "mail",
                &[TensorBytes { class: "weights", name: "w", dtype: Dtype::U8, shape: &[1], bytes: &[7] }],
            )
            .unwrap();
        let filling = objects.begin("checker", Expected::Any, &layout()).unwrap();
        fill(&filling, 1);
        std::mem::forget(filling); // as a crash would
        drop((store, objects));
    }
    // The filling holds the store open; a copy of its folders is what the next process would find.
    let copy = tempfile::tempdir().unwrap();
    fs::create_dir_all(copy.path()).unwrap();
    copy_tree(&dir.path().join("store"), &copy.path().join("store"));
    let taken = {
        let (store, objects) = with_folder(copy.path()); // makes the folder of the copy
        drop((store, objects));
        for file in fs::read_dir(folder(dir.path())).unwrap().map(|entry| entry.unwrap().path()) {
            let name = file.file_name().unwrap().to_owned();
            if name != "LOCK" && name != "OWNER" {
                fs::copy(&file, folder(copy.path()).join(name)).unwrap();
            }
        }
        let (_store, objects) = with_folder(copy.path());
        assert_eq!((numbers(&objects, "solver"), numbers(&objects, "checker")), (vec![3, 4], vec![]));
        for version in [3, 4] {
            check(&objects.get("solver", Which::Exact(version)).unwrap());
        }
        assert!(objects.get("judge", Which::Latest).is_err());
        assert_eq!(objects.receive("mail", Wait::No).unwrap().tensor("w").unwrap().to_vec().unwrap(), [7]);
        assert_eq!((set(&objects, "solver"), set_as(&objects, "judge", 2)), (5, 2), "numbers go on");
        assert!(objects.begin("checker", Expected::Absent, &layout()).is_ok());
        objects.stats().host_bytes_taken
    };
    assert!(taken < 16 << 20, "the memory of the filling is free: {taken}");
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_tree(&entry.path(), &target),
            false => _ = fs::copy(entry.path(), target).unwrap(),
        }
    }
}

#[test]
fn a_byte_that_changed_in_memory_is_found_and_named_or_had_from_the_disk() {
    for spilled in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        {
            let (_store, objects) = with_folder(dir.path());
            set(&objects, "solver");
            if spilled {
                objects.spill("solver", Which::Latest).unwrap();
            }
            let held = objects.get("solver", Which::Latest).unwrap();
            flip(&folder(dir.path()).join("00000001.segment"));
            let error = held.verify().unwrap_err();
            assert_eq!(error.kind(), Kind::Corrupt);
            let text = error.to_string();
            assert!(
                ["solver\" version 1", "00000001.segment", "embed"].iter().all(|part| text.contains(part)),
                "{text}"
            );
            let refused = objects.spill("solver", Which::Latest);
            assert_eq!(refused.is_ok(), spilled, "what is damaged is not written to a file");
        }
        let (_store, objects) = with_folder(dir.path());
        let got = objects.get("solver", Which::Latest);
        match spilled {
            true => check(&got.unwrap()),
            false => assert_eq!(got.unwrap_err().kind(), Kind::Corrupt),
        }
    }
}

fn flip(segment: &Path) {
    use std::os::unix::fs::FileExt;
    let file = fs::OpenOptions::new().read(true).write(true).open(segment).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 0).unwrap();
    file.write_all_at(&[byte[0] ^ 1], 0).unwrap();
}

#[test]
fn a_journal_that_lies_takes_no_memory_of_others() {
    let dir = tempfile::tempdir().unwrap();
    {
        let (_store, objects) = with_folder(dir.path());
        set(&objects, "solver");
        set(&objects, "judge");
    }
    let journal = folder(dir.path()).join("journal");
    let whole = fs::read(&journal).unwrap();
    let segment = folder(dir.path()).join("00000001.segment");
    let memory = fs::read(&segment).unwrap();
    for cut in (0..whole.len()).step_by(29) {
        fs::write(&journal, &whole[..cut]).unwrap();
        fs::write(&segment, &memory).unwrap();
        let (_store, objects) = with_folder(dir.path());
        for object in objects.list() {
            check(&objects.get(&object.manifest.key, Which::Latest).unwrap());
        }
    }
    fs::write(&journal, &whole).unwrap();
    fs::write(&segment, &memory[..4096]).unwrap();
    let (_store, objects) = with_folder(dir.path());
    assert!(objects.get("solver", Which::Latest).is_err(), "its segment was cut");
    assert_eq!(set_as(&objects, "solver", 2), 2);
    check(&objects.get("solver", Which::Latest).unwrap());
}

#[test]
fn folders_that_stores_leave_behind_are_told_and_are_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("host");
    let (store, objects) = with_folder(dir.path());
    set(&objects, "solver");
    assert!(host_leftovers(&base).unwrap().is_empty(), "it is in use");
    drop((store, objects));
    let left = host_leftovers(&base).unwrap();
    assert_eq!((left.len(), left[0].store_exists), (1, true));
    assert!(left[0].bytes > 1 << 20 && left[0].store == fs::canonicalize(dir.path().join("store")).unwrap());

    let (store, objects) = with_folder(dir.path());
    let held = objects.get("solver", Which::Latest).unwrap();
    assert!(objects.give_back_host().unwrap_err().to_string().contains("1 versions are held"));
    drop(held);
    objects.spill("solver", Which::Latest).unwrap();
    objects.give_back_host().unwrap();
    assert_eq!((objects.stats().host_bytes, fs::read_dir(&base).unwrap().count()), (0, 0));
    check(&objects.get("solver", Which::Latest).unwrap()); // from the disk, into memory without a name
    drop((store, objects));
    fs::rename(dir.path().join("store"), dir.path().join("moved")).unwrap();
}

/// A host tier without room for another journal: everything that was committed stays, and so do the numbers.
#[test]
fn a_journal_that_cannot_be_written_anew_costs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    {
        let (_store, objects) = with_folder(dir.path());
        set(&objects, "solver");
    }
    fs::create_dir(folder(dir.path()).join("journal.tmp")).unwrap();
    for version in 2..4 {
        let (_store, objects) = with_folder(dir.path());
        check(&objects.get("solver", Which::Latest).unwrap());
        assert_eq!(set(&objects, "solver"), version);
    }
    fs::remove_dir(folder(dir.path()).join("journal.tmp")).unwrap();
    let (_store, objects) = with_folder(dir.path());
    check(&objects.get("solver", Which::Exact(3)).unwrap());
}

#[test]
fn an_owner_that_was_cut_off_by_a_kill_clears_nothing_and_another_boot_does() {
    let dir = tempfile::tempdir().unwrap();
    {
        let (_store, objects) = with_folder(dir.path());
        set(&objects, "solver");
    }
    let owner = folder(dir.path()).join("OWNER");
    let whole = fs::read_to_string(&owner).unwrap();
    for cut in [0, 1, whole.len() - 1] {
        fs::write(&owner, &whole[..cut]).unwrap();
        let (_store, objects) = with_folder(dir.path());
        check(&objects.get("solver", Which::Latest).unwrap());
        assert_eq!(fs::read_to_string(&owner).unwrap(), whole);
    }
    let line = whole.rfind("boot ").unwrap();
    fs::write(&owner, format!("{}boot {:032x}\n", &whole[..line], 1)).unwrap();
    let (_store, objects) = with_folder(dir.path());
    assert!(objects.list().is_empty());
}

#[test]
fn a_deleted_version_that_was_held_or_is_on_disk_stays_deleted() {
    let dir = tempfile::tempdir().unwrap();
    {
        let (store, objects) = with_folder(dir.path());
        set(&objects, "held");
        set(&objects, "spilled");
        set(&objects, "named");
        objects.spill("spilled", Which::Latest).unwrap();
        let named = objects.reference("named", 1).unwrap();
        store.declare_policy("named", Policy::volatile().version(1).objects(&[named])).unwrap();
        let held = ["held", "spilled"].map(|key| objects.get(key, Which::Latest).unwrap());
        for key in ["held", "spilled", "named"] {
            objects.delete(key, 1).unwrap();
        }
        std::mem::forget(held);
        drop((store, objects));
    }
    // What is held keeps the store open; the next process finds a copy of it.
    let copy = tempfile::tempdir().unwrap();
    copy_tree(&dir.path().join("store"), &copy.path().join("store"));
    drop(with_folder(copy.path()));
    for file in fs::read_dir(folder(dir.path())).unwrap().map(|entry| entry.unwrap().path()) {
        let name = file.file_name().unwrap().to_owned();
        if name != "LOCK" && name != "OWNER" {
            fs::copy(&file, folder(copy.path()).join(name)).unwrap();
        }
    }
    for _ in 0..2 {
        let (_store, objects) = with_folder(copy.path());
        assert!(objects.list().is_empty(), "{:?}", objects.list());
        let file = |key| copy.path().join("store/objects").join(key).join("00000000000000000001.safetensors");
        assert_eq!((file("spilled").exists(), file("named").exists()), (false, true));
        assert!(["held", "spilled", "named"].iter().all(|key| objects.get(key, Which::Latest).is_err()));
    }
    let (_store, objects) = with_folder(copy.path());
    assert_eq!(set_as(&objects, "named", 2), 2);
}

#[test]
fn a_folder_that_somebody_else_has_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (store, objects) = with_folder(dir.path());
    set(&objects, "solver");
    drop((store, objects));
    let taken = LocalDisk.lock(&folder(dir.path()).join("LOCK"), LockKind::Exclusive, "1").unwrap().unwrap();
    let clock = std::sync::Arc::new(SimulatedClock::new(Timestamp(0)));
    let options = options(HostFolder::At(dir.path().join("host"))).clock(clock.clone());
    let store = Store::open(dir.path().join("store"), options).unwrap();
    let error = store.objects().unwrap_err();
    assert!(matches!(error.cause(), Cause::Locked { pid: 1, .. }), "numbers would come again: {error}");
    assert_eq!(
        clock.now(),
        Timestamp(1_000_000),
        "it may be somebody who only looks: a second, of the store's clock"
    );
    drop(taken);
    let objects = store.objects().unwrap();
    check(&objects.get("solver", Which::Latest).unwrap());
}
