//! Versions that leave the store otherwise than for the archive, though a manifest of theirs is there.

use std::sync::Arc;
use std::time::Duration;

use forebay_query::{Archive, ArchiveRule, Archiver, Kind, Options, Session};
use forebay_store::{Claim, Consumer, Delete, MicroBatch, NewRow, Purpose, Retention, Row, Store, Wait};
use futures_util::TryStreamExt;
use object_store::ObjectStore;
use object_store::memory::InMemory;
use object_store::path::Path;
use serde_json::{Value as Json, json};

use super::fixture::*;
use super::meddling::{Fails, Meddling};
use crate::fixture::{Run, finished_group};

/// How many rows of version 0 a session sees.
const OLDEST: &str = "SELECT count(*) AS n FROM solver WHERE policy_version = 0";

fn archiver(store: &Store, archive: &Archive) -> Archiver {
    Archiver::new(store, archive, ArchiveRule::keep_versions(1)).unwrap()
}

fn alone(archive: &Archive) -> Session {
    Session::of_archive(archive, &Options::default()).unwrap()
}

/// A run whose archiver ended right after it had put the first manifest, of version 0, which is in both now.
fn stopped() -> (Run, Archive, Arc<InMemory>) {
    let run = stepped();
    let (archive, objects) = in_memory();
    let stop = Meddling::failing(objects.clone(), 5, Fails::Before);
    archiver(&run.store, &over(stop)).run_once().unwrap_err();
    (run, archive, objects)
}

fn row(store: &Store, sample_id: &str) -> Row {
    store.table("solver").unwrap().find(0, &sample_id.parse().unwrap()).unwrap()
}

/// Somebody scores an evaluation of version 0 late.
fn score_late(store: &Store) {
    let row = row(store, "eval0_0_10");
    store.table("solver").unwrap().write(row, [("reward", 7.0.into())]).unwrap();
}

fn retain_one(store: &Store) {
    store.change_retention(Retention::default().versions(1)).unwrap();
    store.run_once().unwrap();
}

type Leaves = fn(&Store);

#[test]
fn what_others_delete_before_its_move_is_over_does_not_come_back() {
    let ways: [(&str, Leaves); 4] = [
        ("changed, then retention", |store| {
            score_late(store);
            retain_one(store);
        }),
        ("retention", retain_one),
        ("by a rule", |store| {
            store.table("solver").unwrap().delete(&Delete::version(0)).unwrap();
        }),
        ("by name", |store| {
            let ids = ["q0_0_0", "q0_0_1", "cut0_0_0", "eval0_0_10"];
            let rows = ids.map(|id| row(store, id));
            store.table("solver").unwrap().delete(&Delete::rows(rows)).unwrap();
        }),
    ];
    for (what, leaves) in ways {
        let (run, archive, _) = stopped();
        let both = session(&run.store, &archive);
        assert_eq!(rows(&both, OLDEST), [json!({"n": 4})], "{what}: it is in both, and read once");
        leaves(&run.store);
        assert_eq!(rows(&both, OLDEST), [json!({"n": 0})], "{what}");
        assert_eq!(rows(&both, EVERYTHING), rows(&run.session, EVERYTHING), "{what}");
        let archiver = archiver(&run.store, &archive);
        let cleaned = archiver.clean(Duration::from_secs(3600)).unwrap();
        assert_eq!((cleaned.versions, cleaned.files), (1, 0), "{what}");
        let message = error(&alone(&archive), OLDEST, Kind::Input);
        assert!(message.contains("solver"), "{what}: {message}");
        let cleaned = archiver.clean(Duration::ZERO).unwrap();
        assert_eq!(
            (cleaned.versions, cleaned.files),
            (0, 0),
            "{what}: it is said once, and nothing is destroyed"
        );
        assert_eq!(rows(&both, EVERYTHING), rows(&run.session, EVERYTHING), "{what}");
    }
}

/// A run of which somebody holds a row of version 0, which has three.
fn held() -> (Run, Claim) {
    let run = Run::with_tables();
    let score = Consumer::task(["solver"]).ready(["response"]);
    let score = run.store.create_consumer("score", score).unwrap();
    let solver = run.store.table("solver").unwrap();
    finished_group(&solver, 0, "first", [1.0, 0.0]);
    let eval = NewRow::new(0, "eval0_0_10").unwrap().purpose(Purpose::Eval);
    solver.insert_row(eval, [("prompt", "short".into())]).unwrap();
    let held = score.claim(MicroBatch::of(1), "scorer", Wait::No).unwrap().unwrap();
    run.commit_step("solver", &["first"]);
    for version in 1..4 {
        step(&run, version);
    }
    (run, held)
}

/// The names of the manifests of version 0.
fn manifests(objects: &InMemory) -> Vec<String> {
    let folder = Path::from("_commits/solver");
    let listed = objects.list(Some(&folder));
    let listed = listed.map_ok(|object| object.location.filename().unwrap_or_default().to_owned());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut names: Vec<String> = runtime.block_on(listed.try_collect()).unwrap();
    names.retain(|name| name.starts_with("0."));
    names.sort();
    names
}

#[test]
fn a_version_that_was_held_back_and_then_deleted_does_not_come_back() {
    let (run, held) = held();
    let (archive, _) = in_memory();
    let archiver = archiver(&run.store, &archive);
    assert!(archiver.run_once().unwrap().unwrap().1.held_back.is_some());
    assert_eq!(archiver.run_once().unwrap().unwrap().1.rows, 4, "version 1 is moved");
    let both = session(&run.store, &archive);
    assert_eq!(rows(&both, OLDEST), [json!({"n": 3})]);
    held.finish(|_| Ok(())).unwrap();
    score_late(&run.store);
    retain_one(&run.store);
    let expected = [json!({"v": 1, "n": 4}), json!({"v": 3, "n": 4})];
    let sql = "SELECT policy_version AS v, count(*) AS n FROM solver GROUP BY 1 ORDER BY 1";
    assert_eq!(rows(&both, sql), expected, "what was moved is there, and version 0 is not");
    assert_eq!(rows(&alone(&archive), OLDEST), [json!({"n": 3})], "without a store nobody can tell yet");
    archiver.run_once().unwrap();
    assert_eq!(rows(&alone(&archive), OLDEST), [json!({"n": 0})], "the archiver tells");
    assert_eq!(rows(&both, sql), expected);
}

/// What a manifest became.
type Became = fn(&mut serde_json::Map<String, Json>);

/// While somebody holds a row as well: the manifest that is there when the version is deleted has to be one that counts only once the
/// store says so.
#[test]
fn a_manifest_that_may_not_stay_is_put_anew_while_its_version_is_held() {
    let cases: [(&str, Became); 3] = [
        ("of an earlier build", |manifest| assert!(manifest.remove("told").is_some())),
        ("damaged", |manifest| assert!(manifest.remove("rows").is_some())),
        ("without rows", |manifest| {
            manifest.insert("rows".to_owned(), json!(0));
            manifest.insert("files".to_owned(), json!([]));
        }),
    ];
    for (what, became) in cases {
        let (run, held) = held();
        let (first, objects) = in_memory();
        assert!(archiver(&run.store, &first).run_once().unwrap().unwrap().1.held_back.is_some());
        change_manifests(&*objects, became);
        let archive = over(objects.clone());
        let archiver = archiver(&run.store, &archive);
        let (due, moved) = archiver.run_once().unwrap().unwrap();
        assert_eq!((due.version, moved.held_back.is_some()), (0, true), "{what}");
        assert_eq!(manifests(&objects), ["0.1.json", "0.2.json"], "{what}");
        assert!(archiver.move_version(&due).unwrap().held_back.is_some());
        assert_eq!(manifests(&objects).len(), 2, "{what}: once");
        held.finish(|_| Ok(())).unwrap();
        retain_one(&run.store);
        let both = session(&run.store, &archive);
        assert_eq!(rows(&both, OLDEST), [json!({"n": 0})], "{what}: it was deleted, and not moved out");
    }
}

#[test]
fn what_was_moved_is_read_whatever_retention_says() {
    let run = stepped();
    let all = rows(&run.session, EVERYTHING);
    let (archive, objects) = in_memory();
    move_all(&run.store, &archive);
    retain_one(&run.store);
    let both = session(&run.store, &archive);
    assert_eq!(rows(&both, EVERYTHING), all);
    let cleaned = archiver(&run.store, &archive).clean(Duration::ZERO).unwrap();
    assert_eq!((cleaned.versions, cleaned.files), (0, 0));
    assert_eq!(rows(&both, EVERYTHING), all);
    // As an archive of before says it, whose store does not say what was moved out.
    forget(&*objects, &["told", "places"]);
    assert_eq!(rows(&session(&run.store, &over(objects)), EVERYTHING), all);
}

/// A store that was put back from an older copy has not come to the last versions that its other life moved out.
#[test]
fn what_another_life_of_the_store_moved_out_is_read_by_one_that_has_not_come_so_far() {
    let run = Run::with_tables();
    (0..2).for_each(|version| step(&run, version));
    let copy = run.directory.path().join("copy");
    run.store.backup(&copy).unwrap();
    (2..STEPS).for_each(|version| step(&run, version));
    let (archive, _) = in_memory();
    move_all(&run.store, &archive);
    let store = Store::open(&copy, forebay_store::Options::default()).unwrap();
    let solver = store.table("solver").unwrap();
    // It passes the instants of the manifests without a step.
    (0..1000).for_each(|i| _ = solver.insert(2, &format!("more{i}_0_0"), []).unwrap());
    let cleaned = archiver(&store, &archive).clean(Duration::ZERO).unwrap();
    assert_eq!((cleaned.versions, cleaned.files), (0, 0));
    for version in [3, 4] {
        let sql = format!("SELECT count(*) AS n FROM solver WHERE policy_version = {version}");
        assert_eq!(rows(&session(&store, &archive), &sql), [json!({"n": 4})], "version {version}");
    }
}

/// The next process of the store knows what was moved out from its log, and from a checkpoint.
#[test]
fn what_was_moved_is_known_when_the_store_is_opened_again() {
    let (run, archive, _) = stopped();
    let archiver = archiver(&run.store, &archive);
    let (due, _) = archiver.run_once().unwrap().unwrap();
    assert_eq!(due.version, 0);
    let due = archiver.due().unwrap().remove(0);
    let all = rows(&session(&run.store, &archive), EVERYTHING);
    let Run { store, session: of_run, directory } = run;
    drop((archiver, of_run, store));
    for _ in 0..2 {
        let store = Store::open(directory.path().join("store"), forebay_store::Options::default()).unwrap();
        assert_eq!(rows(&session(&store, &archive), EVERYTHING), all);
        store.checkpoint().unwrap();
    }
    assert_eq!(due.version, 1, "and only what was");
}

/// The greatest generation counts, so an archiver that looked earlier does not put one behind that of another who looked later.
#[test]
fn a_manifest_of_an_earlier_instant_comes_behind_none_of_a_later_one() {
    let run = stepped();
    let (archive, objects) = in_memory();
    let look = {
        let (store, objects) = (run.store.clone(), objects.clone());
        move |operation: usize| {
            // The first has its snapshot, and is about to list the manifests.
            if operation == 2 {
                score_late(&store);
                let stop = Meddling::failing(objects.clone(), 5, Fails::Before);
                archiver(&store, &over(stop)).run_once().unwrap_err();
            }
        }
    };
    let first = archiver(&run.store, &over(Meddling::looked_at(objects, look)));
    let refused = first.run_once().unwrap_err();
    assert!(refused.to_string().contains("of a later instant"), "{refused}");
    let all = rows(&run.session, EVERYTHING);
    assert_eq!(first.run_once().unwrap().unwrap().1.rows, 4, "it begins anew");
    assert_eq!(rows(&session(&run.store, &archive), EVERYTHING), all);
}
