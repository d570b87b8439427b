//! Processes that read objects beside the one that sets them.

use std::fs;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::probe::Probe;
use crate::support::{ROOT, World};

fn reader(dir: &Path) -> ObjectReader {
    let options = options(HostFolder::At(dir.join("host"))).read_only(true);
    Store::open(dir.join("store"), options).unwrap().object_reader().unwrap()
}

fn check_copied(copied: &CopiedObject) {
    let manifest = copied.manifest();
    for tensor in manifest.layout.tensors() {
        let meant = content(&manifest.key, manifest.version, tensor);
        assert!(copied.tensor(&tensor.name).unwrap() == meant, "{copied:?}: {}", tensor.name);
    }
}

#[test]
fn a_reader_sees_what_is_committed_when_it_looks() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, objects) = with_folder(dir.path());
    let reader = reader(dir.path());
    assert!(reader.list().unwrap().is_empty());
    let error = reader.newest("solver").unwrap_err();
    assert_eq!(error.kind(), Kind::Input, "{error}");
    let filling = objects.begin("solver", Expected::Any, &layout()).unwrap();
    fill(&filling, 1);
    assert!(reader.newest("solver").is_err(), "not before its commit");
    filling.commit().unwrap();
    set(&objects, "solver");
    let both = [1, 2].map(|version| reader.exact("solver", version).unwrap());
    both.iter().for_each(check_copied);
    assert_eq!((both[0].tier(), reader.newest("solver").unwrap().version()), (Tier::Host, 2));
    objects.demote("solver", Which::Exact(1)).unwrap();
    objects.spill("solver", Which::Exact(2)).unwrap();
    let shown: Vec<(u64, Vec<Tier>)> =
        reader.list().unwrap().into_iter().map(|object| (object.manifest.version, object.tiers)).collect();
    assert_eq!(shown, [(1, vec![Tier::Disk]), (2, vec![Tier::Host, Tier::Disk])]);
    let on_disk = reader.exact("solver", 1).unwrap();
    assert_eq!(on_disk.tier(), Tier::Disk);
    let held = objects.get("solver", Which::Exact(2)).unwrap();
    (1..=2).for_each(|version| _ = objects.delete("solver", version).unwrap());
    assert_eq!(reader.newest("solver").unwrap_err().kind(), Kind::State, "deleted, and held by somebody");
    assert!(reader.list().unwrap().is_empty());
    check_copied(&on_disk); // it stays
    both.iter().for_each(check_copied);
    drop(held);
    let errors = [reader.exact("solver", 2).unwrap_err(), reader.exact("solver", 3).unwrap_err()];
    assert_eq!(errors.map(|error| error.kind()), [Kind::State, Kind::Retry]);
    let mail = TensorBytes { class: "weights", name: "w", dtype: Dtype::U8, shape: &[1], bytes: &[7] };
    objects.publish("mail", &[mail]).unwrap();
    assert!(reader.newest("mail").is_err(), "that goes with the first who receives it");
}

#[test]
fn parts_of_a_tensor_are_read_from_either_tier_and_no_further_than_it_goes() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, objects) = with_folder(dir.path());
    set(&objects, "solver");
    let in_memory = reader(dir.path()).newest("solver").unwrap();
    objects.demote("solver", Which::Latest).unwrap();
    let on_disk = reader(dir.path()).newest("solver").unwrap();
    let meant = content("solver", 1, &layout().tensors()[0]);
    for copied in [in_memory, on_disk] {
        let mut part = vec![0; 1000];
        copied.read("embed", 1_048_000, &mut part).unwrap();
        assert!(part == meant[1_048_000..1_049_000], "over the end of a chunk");
        for (tensor, offset, bytes) in [("embed", 1_400_000, 1), ("embed", u64::MAX, 2), ("heat", 0, 1)] {
            assert_eq!(copied.read(tensor, offset, &mut vec![0; bytes]).unwrap_err().kind(), Kind::Input);
        }
    }
}

/// The writer gives memory away as fast as it can, and keeps one version: no copy is half of one and half of another.
#[test]
fn no_copy_is_torn_whatever_the_writer_does_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let host = ObjectOptions::default().host_folder(HostFolder::At(dir.path().join("host"))).versions_kept(1);
    let store = Store::open(dir.path().join("store"), Options::default().objects(host)).unwrap();
    let objects = store.objects().unwrap();
    set(&objects, "solver");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 0..40 {
                let version = set(&objects, "solver");
                if turn % 5 == 4 {
                    objects.demote("solver", Which::Exact(version)).unwrap();
                }
            }
            is_over.store(true, Ordering::SeqCst);
        });
        let reader = reader(dir.path());
        let (mut seen, mut copies) = (0, 0);
        while !is_over.load(Ordering::SeqCst) || copies == 0 {
            match reader.newest("solver") {
                Ok(copied) => {
                    check_copied(&copied);
                    assert!(copied.version() >= seen, "it went back");
                    (seen, copies) = (copied.version(), copies + 1);
                }
                Err(error) => assert_eq!(error.kind(), Kind::Retry, "{error}"),
            }
        }
    });
}

#[test]
fn a_version_that_goes_to_its_file_between_the_looks_at_the_two_is_found() {
    let (world, dir) = (World::new(), tempfile::tempdir().unwrap());
    let host = ObjectOptions::default().host_folder(HostFolder::At(dir.path().join("host")));
    let options = world.options().objects(host);
    let store = Store::open(ROOT, options.clone()).unwrap();
    let objects = store.objects().unwrap();
    (0..2).for_each(|_| _ = set(&objects, "solver"));
    objects.demote("solver", Which::Exact(1)).unwrap();
    let probe = Probe::new(&world.disk);
    let reader = Store::open(ROOT, options.disk(Arc::new(probe.clone())).read_only(true)).unwrap();
    let reader = reader.object_reader().unwrap();
    let (mover, moves) = (objects.clone(), Arc::new(AtomicBool::new(true)));
    let to_move = moves.clone();
    probe.hook(move |asked, path| {
        if asked == "listed" && path.ends_with("solver") && to_move.swap(false, Ordering::SeqCst) {
            mover.demote("solver", Which::Latest).unwrap();
        }
        Ok(())
    });
    let copied = reader.newest("solver").unwrap();
    assert_eq!(
        (copied.version(), copied.tier()),
        (2, Tier::Disk),
        "not the one before, whose file was there"
    );
    check_copied(&copied);
    set(&objects, "solver");
    moves.store(true, Ordering::SeqCst);
    let copied = reader.exact("solver", 3).unwrap();
    assert_eq!(copied.tier(), Tier::Disk);
    check_copied(&copied);
    objects.delete("solver", 3).unwrap();
    assert_eq!(reader.newest("solver").unwrap().version(), 2, "the newest that is left");
    assert_eq!(reader.exact("solver", 7).unwrap_err().kind(), Kind::Retry, "it is still to come");
    assert_eq!(reader.newest("critic").unwrap_err().kind(), Kind::Input, "there is none");
}

#[test]
fn damaged_copies_are_passed_over_or_named() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, objects) = with_folder(dir.path());
    set(&objects, "solver");
    objects.spill("solver", Which::Latest).unwrap();
    let reader = reader(dir.path());
    let segment = objects.segments().unwrap()[0].path.clone().unwrap();
    let mut memory = fs::read(&segment).unwrap();
    memory[0] ^= 1;
    fs::write(&segment, &memory).unwrap();
    let copied = reader.newest("solver").unwrap();
    assert_eq!(copied.tier(), Tier::Disk);
    check_copied(&copied);
    let path = dir.path().join("store/objects/solver/00000000000000000001.safetensors");
    let whole = fs::read(&path).unwrap();
    let mut bytes = whole.clone();
    let at = bytes.len() - 1_000_000;
    bytes[at] ^= 1;
    fs::write(&path, &bytes).unwrap();
    assert_eq!(reader.newest("solver").unwrap().tensor("embed").unwrap_err().kind(), Kind::Corrupt);
    fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    let error = reader.newest("solver").unwrap_err();
    assert!(error.kind() == Kind::Corrupt && error.to_string().contains("00000001.segment"), "{error}");
}

#[test]
fn a_folder_of_another_boot_is_not_believed() {
    let dir = tempfile::tempdir().unwrap();
    {
        let (_store, objects) = with_folder(dir.path());
        set(&objects, "solver");
    }
    let folder = fs::read_dir(dir.path().join("host")).unwrap().next().unwrap().unwrap().path();
    assert_eq!(reader(dir.path()).list().unwrap().len(), 1, "also when nobody has the store open");
    let owner = fs::read_to_string(folder.join("OWNER")).unwrap();
    let line = owner.rfind("boot ").unwrap();
    fs::write(folder.join("OWNER"), format!("{}boot {:032x}\n", &owner[..line], 1)).unwrap();
    assert!(reader(dir.path()).list().unwrap().is_empty());
}

#[test]
fn a_store_that_is_read_only_says_how_objects_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, objects) = anonymous(dir.path(), |o| o);
    set(&objects, "solver");
    let beside = Store::open_read_only(dir.path().join("store")).unwrap();
    let error = beside.objects().unwrap_err();
    assert!(error.to_string().contains("Store::object_reader"), "{error}");
    let reader = beside.object_reader().unwrap();
    assert!(reader.newest("solver").is_err(), "memory without a name is its process's own");
    objects.spill("solver", Which::Latest).unwrap();
    check_copied(&reader.newest("solver").unwrap());
}

#[test]
fn a_backup_takes_versions_along_that_no_step_names_when_it_is_asked_to() {
    let dir = tempfile::tempdir().unwrap();
    let (store, objects) = anonymous(dir.path(), |o| o.versions_kept(9));
    (0..4).for_each(|_| _ = set(&objects, "solver"));
    for version in 1..=3 {
        objects.spill("solver", Which::Exact(version)).unwrap();
    }
    let held = objects.get_with("solver", Which::Exact(2), &Get::default().tier(Tier::Disk)).unwrap();
    objects.delete("solver", 2).unwrap();
    let copies = [(false, vec![]), (true, vec![1, 3])];
    for (set_objects, meant) in copies {
        let to = dir.path().join(format!("copy-{set_objects}"));
        let options = BackupOptions::default().set_objects(set_objects);
        let report = store.backup_with(to.join("store"), options).unwrap();
        assert_eq!(report.objects, meant.len() as u64);
        assert!(
            verify(to.join("store"), &Options::default(), &mut |_| ControlFlow::Continue(()))
                .unwrap()
                .is_sound()
        );
        let (_copy, copied) = anonymous(&to, |o| o.versions_kept(9));
        assert_eq!(numbers(&copied, "solver"), meant);
        for version in meant {
            check(&copied.get("solver", Which::Exact(version)).unwrap());
        }
    }
    drop(held);
}
