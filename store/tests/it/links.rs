//! Copies to where others can put links: nothing is written through one, whenever it came.

use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use forebay_store::*;

use crate::support::solver_schema;

/// A store with values and a state in a file, a directory for copies, and one that is nobody's business.
struct Place {
    store: Store,
    copies: PathBuf,
    outside: PathBuf,
    _folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let [copies, outside] = ["copies", "outside"].map(|name| folder.path().join(name));
        [&copies, &outside].iter().for_each(|path| fs::create_dir(path).unwrap());
        let store = Store::open(folder.path().join("store"), Options::default()).unwrap();
        let table = store.create_table("solver", solver_schema()).unwrap();
        let train = Consumer::trainer(["solver"]).ready(["reward"]);
        let train = store.create_consumer("train", train).unwrap();
        let text = "x".repeat(3 << 20);
        table.insert(0, "q_0_0", [("prompt", text.as_str().into()), ("reward", 1.0.into())]).unwrap();
        let step = store.begin_step(StepPlan::new().rows(&train, 1)).unwrap();
        step.next(&train, MicroBatch::of(1), Wait::No).unwrap().unwrap().accumulated().unwrap();
        let state = store.put_object("solver", 1, &[7; 100]).unwrap();
        step.commit([("solver", vec![state])]).unwrap();
        Place { store, copies, outside, _folder: folder }
    }

    fn copy(&self, inside: &str, watch: &mut dyn FnMut(BackupProgress)) -> Result<BackupReport> {
        self.store.backup_beneath(&self.copies, inside, BackupOptions::default(), &mut |far| {
            watch(far);
            ControlFlow::Continue(())
        })
    }

    /// A copy is refused for a link, and nothing came to lie outside.
    fn refuses(&self, case: &str, link: &Path, copied: Result<BackupReport>) {
        let refused = copied.unwrap_err();
        assert!(matches!(refused.cause(), Cause::Link { path } if path == link), "{case}: {refused}");
        assert_eq!(refused.kind(), Kind::State, "{case}");
        assert_eq!(fs::read_dir(&self.outside).unwrap().count(), 0, "{case}");
    }
}

#[test]
fn a_copy_goes_through_no_link_that_is_there_when_it_begins() {
    let place = Place::new();
    for (case, at) in [
        ("the way", "a"),
        ("the copy's directory", "a/b"),
        ("a folder of it", "a/b/extents"),
        ("another", "a/b/log"),
        ("a folder of a key", "a/b/objects/solver"),
    ] {
        let link = place.copies.join(at);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(&place.outside, &link).unwrap();
        place.refuses(case, &link, place.copy("a/b", &mut |_| ()));
        fs::remove_file(&link).unwrap();
    }
    // Whoever names the directory itself means it, wherever its path goes; what lies in it is another matter.
    let (named, real) = (place.copies.join("named"), place.copies.join("real"));
    fs::create_dir_all(real.join("pages")).unwrap();
    symlink(&real, &named).unwrap();
    symlink(&place.outside, real.join("log")).unwrap();
    place.refuses("its own", &named.join("log"), place.store.backup(&named));
    fs::remove_file(real.join("log")).unwrap();
    place.store.backup(&named).unwrap();
    assert_eq!(place.copy("a/../..", &mut |_| ()).unwrap_err().kind(), Kind::Input, "plain names only");
    let checked = verify(&real, &Options::default(), &mut |_| ControlFlow::Continue(())).unwrap();
    assert!(checked.is_sound(), "{:?}", checked.faults);
}

#[test]
fn a_copy_goes_through_no_link_that_comes_while_it_is_made() {
    let place = Place::new();
    let mut swapped = false;
    let copied = place.copy("a/b", &mut |_| {
        let folder = place.copies.join("a/b/objects");
        if !std::mem::replace(&mut swapped, true) {
            fs::rename(&folder, place.copies.join("moved")).unwrap();
            symlink(&place.outside, &folder).unwrap();
        }
    });
    place.refuses("a folder", &place.copies.join("a/b/objects"), copied);
    // The way to it is not asked about again: the directory is the one that was there.
    let mut swapped = false;
    let copied = place.copy("c/d", &mut |_| {
        if !std::mem::replace(&mut swapped, true) {
            fs::rename(place.copies.join("c"), place.copies.join("away")).unwrap();
            symlink(&place.outside, place.copies.join("c")).unwrap();
        }
    });
    assert!(copied.is_ok() && place.copies.join("away/d/FOREBAY").exists(), "{copied:?}");
    assert_eq!(fs::read_dir(&place.outside).unwrap().count(), 0);
}
