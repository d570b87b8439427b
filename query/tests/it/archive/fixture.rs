//! A run of some steps, and an archive beside it.

use std::path::PathBuf;
use std::sync::Arc;

use forebay_query::{Archive, ArchiveRule, Archiver, Due, Format, Kind, Options, Session};
use forebay_store::{NewRow, Purpose, Store};
use futures_util::TryStreamExt;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use serde_json::Value as Json;

use crate::fixture::{PROMPT, Run, finished_group};

/// How many steps the run has made. Two states are kept to go back to, so the versions 0 to 4 are over.
pub(crate) const STEPS: u64 = 6;
/// The versions that are over.
pub(super) const OVER: u64 = 5;

/// A run whose solver has made [`STEPS`] steps. Version `v` has a group `q<v>` that was trained on, a row that was
/// excluded, and one for evaluation.
pub(super) fn stepped() -> Run {
    let run = Run::with_tables();
    for version in 0..STEPS {
        step(&run, version);
    }
    run
}

/// One more step.
pub(super) fn step(run: &Run, version: u64) {
    let solver = run.store.table("solver").unwrap();
    let input = format!("q{version}");
    finished_group(&solver, version, &input, [version as f32, 0.5]);
    let cut = solver.insert(version, &format!("cut{version}_0_0"), [("prompt", PROMPT.into())]).unwrap();
    solver.exclude(cut, "too_long").unwrap();
    let eval = NewRow::new(version, &format!("eval{version}_0_10")).unwrap().purpose(Purpose::Eval);
    let eval = solver.insert_row(eval, [("prompt", "short".into())]).unwrap();
    solver.span(eval, 7, version + 1).unwrap();
    run.commit_step("solver", &[input.as_str()]);
}

/// An archive in memory, and its object store.
pub(crate) fn in_memory() -> (Archive, Arc<InMemory>) {
    let objects = Arc::new(InMemory::new());
    (over(objects.clone()), objects)
}

pub(super) fn over(objects: Arc<dyn ObjectStore>) -> Archive {
    Archive::in_store("memory:///archive", objects)
}

/// An archive in a directory beside the store.
pub(super) fn in_directory(run: &Run) -> (Archive, PathBuf) {
    let path = run.directory.path().join("archive");
    (Archive::open(path.to_str().unwrap()).unwrap(), path)
}

/// Moves everything that is over.
pub(crate) fn move_all(store: &Store, archive: &Archive) -> Vec<Due> {
    let archiver = Archiver::new(store, archive, ArchiveRule::keep_versions(1)).unwrap();
    let mut moved = Vec::new();
    while let Some((due, outcome)) = archiver.run_once().unwrap() {
        assert_eq!((outcome.held_back, outcome.rows), (None, due.rows), "{due:?}");
        moved.push(due);
    }
    moved
}

/// A session that reads store and archive.
pub(super) fn session(store: &Store, archive: &Archive) -> Session {
    Session::with_options(store, &Options::default().archive(archive)).unwrap()
}

/// The rows of a query, as objects.
pub(super) fn rows(session: &Session, sql: &str) -> Vec<Json> {
    let answer = session.sql_blocking(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let mut document = Vec::new();
    answer.render(Format::Json, &mut document, None).unwrap();
    serde_json::from_slice(&document).unwrap()
}

/// The message of a query's error, which has to be of `kind`.
pub(super) fn error(session: &Session, sql: &str, kind: Kind) -> String {
    let error = session.sql_blocking(sql).expect_err(sql);
    assert_eq!(error.kind(), kind, "{sql}: {error}");
    error.to_string()
}

/// Everything of the solver's rows, in a fixed order.
pub(super) const EVERYTHING: &str = "SELECT * FROM solver ORDER BY policy_version, sample_id, attempt";

/// Rewrites every manifest as a program would have written it that did not keep these fields.
pub(super) fn forget(objects: &dyn ObjectStore, fields: &[&str]) {
    change_manifests(objects, |manifest| {
        fields.iter().for_each(|field| assert!(manifest.remove(*field).is_some(), "{field}"));
    });
}

/// Changes every manifest, and its checksum with it.
pub(super) fn change_manifests(
    objects: &dyn ObjectStore,
    change: impl Fn(&mut serde_json::Map<String, Json>),
) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let folder = Path::from("_commits");
        for object in objects.list(Some(&folder)).try_collect::<Vec<_>>().await.unwrap() {
            let bytes = objects.get(&object.location).await.unwrap().bytes().await.unwrap();
            let line = std::str::from_utf8(&bytes).unwrap().lines().next().unwrap();
            let mut manifest: serde_json::Map<String, Json> = serde_json::from_str(line).unwrap();
            change(&mut manifest);
            let line = serde_json::to_string(&manifest).unwrap();
            let text = format!("{line}\ncrc32c {:08x}\n", forebay_store::checksum::crc32c(line.as_bytes()));
            objects.put(&object.location, text.into()).await.unwrap();
        }
    });
}

/// How many rows a table has in the store.
pub(super) fn live_rows(store: &Store, table: &str) -> usize {
    store.snapshot().table(table).unwrap().row_count()
}
