//! Golden files: what a store of the present format looks like on disk, kept so that no change of the code changes it
//! unseen.
//!
//! `tests/golden/format-1/` holds what is left of one life ([`life`]), once with the whole of it in the log (`log/`) and
//! once with a checkpoint on its way (`checkpointed/`), and what both show ([`describe`]): to a reader (`as-left.txt`), and
//! to the next process, to which no claim is open any more (`opened.txt`).
//!
//! `format-1-rewound/` was written before rewinds kept groups at their size: its log has `Rewound` where `SteppedBack` is written
//! now, and means what it meant then; and its checkpoint has rows in a wider form than is written now. `format-1-went-back/` was
//! written between the two: its log has `WentBack`.
//!
//! What there comes to be in addition is lived in [`life`], and `format-1/` is made anew: all that was in it is in it again. Where
//! something is written otherwise than before, the files of before stay beside it, as those two did.
//!
//! When a test in here fails, the format has changed. After its release that is a new `FORMAT_VERSION`, with golden files
//! of its own beside the old ones. Before it, `FOREBAY_WRITE_GOLDEN=1 cargo test -p forebay-store --test it golden` makes
//! the files anew. `FOREBAY_WRITE_GOLDEN=text` makes the descriptions anew, and leaves the stores: for when a store shows
//! more of itself than before.

mod describe;
mod life;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};
use std::time::Duration;

use forebay_store::*;

use self::describe::describe;
use crate::support::*;

/// The folder of each store, and whether a checkpoint was taken in it.
const STORES: [(&str, bool); 2] = [("log", false), ("checkpointed", true)];
const WHAT_TO_DO: &str = "raise FORMAT_VERSION and keep these files; or, where this version was never released, make them \
                          anew with FOREBAY_WRITE_GOLDEN=1 cargo test -p forebay-store --test it golden";

/// The golden files, made anew before where that was asked for.
fn golden() -> PathBuf {
    static WRITTEN: Once = Once::new();
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("format-{FORMAT_VERSION}"));
    WRITTEN.call_once(|| match std::env::var("FOREBAY_WRITE_GOLDEN").as_deref() {
        Ok("text") => write_descriptions(&folder),
        Ok(_) => {
            write_stores(&folder);
            write_descriptions(&folder);
        }
        Err(_) => {}
    });
    folder
}

/// What a life leaves, by the file's path in the store. Not so what says who was there: the lock, and readers' slots.
fn left_by(checkpointed: bool) -> BTreeMap<PathBuf, Vec<u8>> {
    let image = image_of(&life::live(checkpointed).disk);
    let inside = |path: &Path| path.strip_prefix(ROOT).unwrap().to_owned();
    let files = image.into_iter().map(|(path, bytes)| (inside(&path), bytes));
    files.filter(|(path, _)| !path.starts_with("LOCK") && !path.starts_with("readers")).collect()
}

fn write_stores(folder: &Path) {
    for (name, checkpointed) in STORES {
        let store = folder.join(name);
        if store.exists() {
            std::fs::remove_dir_all(&store).unwrap();
        }
        for (path, bytes) in left_by(checkpointed) {
            let path = store.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
    }
}

fn write_descriptions(folder: &Path) {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("store");
    copy_store(&folder.join(STORES[0].0), &path);
    let as_left = describe(&Store::open(&path, options().read_only(true)).unwrap());
    let opened = describe(&Store::open(&path, options()).unwrap());
    std::fs::write(folder.join("as-left.txt"), as_left).unwrap();
    std::fs::write(folder.join("opened.txt"), opened).unwrap();
}

/// Options of the process that finds the files, at a time after all that is in them.
fn options() -> Options {
    life::options(&World::new())
        .disk(Arc::new(LocalDisk))
        .clock(Arc::new(SimulatedClock::new(Timestamp(1_000_000).after(Duration::from_secs(1 << 20)))))
}

/// Every file below a folder, by its path in it.
fn files_in(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.insert(path.strip_prefix(folder).unwrap().to_owned(), std::fs::read(&path).unwrap());
            }
        }
    }
    files
}

/// Copies a golden store to where it may be written, with the folders that git leaves out when they are empty.
fn copy_store(from: &Path, to: &Path) {
    for folder in ["log", "extents", "objects", "pages"] {
        std::fs::create_dir_all(to.join(folder)).unwrap();
    }
    for (path, bytes) in files_in(from) {
        let path = to.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
}

/// Fails with the first line that differs.
fn assert_shows(found: &str, expected: &Path, what: &str) {
    let text = std::fs::read_to_string(expected).unwrap();
    let lines = found.lines().zip(text.lines()).enumerate();
    for (at, (found, expected_line)) in lines {
        assert_eq!(found, expected_line, "{what}: line {} of {}; {WHAT_TO_DO}", at + 1, expected.display());
    }
    assert_eq!(found.lines().count(), text.lines().count(), "{what}: {}; {WHAT_TO_DO}", expected.display());
}

fn assert_sound(path: &Path, when: &str) -> VerifyReport {
    let report = verify(path, &options(), &mut |_| ControlFlow::Continue(())).unwrap();
    assert!(report.is_sound(), "{when}: {:?}; {WHAT_TO_DO}", report.faults);
    report
}

/// The store that was found works on: rows come, are trained on and checkpointed, and the next process has them.
fn go_on(path: &Path, store: Store) {
    let (table, train) = (store.table("solver").unwrap(), store.consumer("train").unwrap());
    let version = store.policy("solver").unwrap().version;
    let row = finished(&table, version, "later_0_0");
    table.append(row, "response", vec![5_i32; 50].into()).unwrap();
    table.finalize(row, "response").unwrap();
    assert!(train_once(&store, &train, StepPlan::new().rows(&train, 1000), "solver") > 0);
    assert_eq!(store.policy("solver").unwrap().version, version + 1);
    store.checkpoint().unwrap();
    store.run_once().unwrap();
    let before = scan(&store);
    drop((table, train, store));
    let store = Store::open(path, options()).unwrap();
    assert_eq!(scan(&store), before);
    drop(store);
    assert_sound(path, "after going on");
}

#[test]
fn a_store_of_this_format_opens_as_it_did() {
    opens_as_it_did(&golden());
}

#[test]
fn a_store_that_has_an_older_record_of_a_rewind_opens_as_it_did() {
    for folder in ["format-1-rewound", "format-1-went-back"] {
        opens_as_it_did(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(folder));
    }
}

fn opens_as_it_did(golden: &Path) {
    for (name, _) in STORES {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("store");
        copy_store(&golden.join(name), &path);
        let report = assert_sound(&path, name);
        assert!(report.checked.rows > 40 && report.checked.values > 40, "{name}: {:?}", report.checked);
        let reader = Store::open(&path, options().read_only(true)).unwrap();
        assert_shows(&describe(&reader), &golden.join("as-left.txt"), &format!("{name}, read only"));
        drop(reader);
        let store = Store::open(&path, options()).unwrap();
        let recovery = store.recovery();
        assert_eq!((recovery.records_lost, recovery.values_put_back), (0, 0), "{name}: {recovery:?}");
        assert_shows(&describe(&store), &golden.join("opened.txt"), name);
        go_on(&path, store);
    }
}

#[test]
fn the_same_life_leaves_the_same_bytes_as_ever() {
    let golden = golden();
    for (name, checkpointed) in STORES {
        let (found, expected) = (left_by(checkpointed), files_in(&golden.join(name)));
        let names = |files: &BTreeMap<PathBuf, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&found), names(&expected), "the files of {name}; {WHAT_TO_DO}");
        for (path, bytes) in &found {
            let at = bytes.iter().zip(&expected[path]).position(|(found, expected)| found != expected);
            let same = at.is_none() && bytes.len() == expected[path].len();
            let at = at.unwrap_or(bytes.len().min(expected[path].len()));
            assert!(same, "{name}: {} is written otherwise from byte {at} on; {WHAT_TO_DO}", path.display());
        }
    }
}
