//! Power failures beside an archive in a directory: what was not yet on stable storage is gone, there or cut short.

use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use forebay_store::{Consumer, DataType, MicroBatch, Options, Schema, SimulatedDisk, StepPlan, Store, Wait};
use object_store::path::Path;

use super::stable::Stable;
use super::{Archive, ArchiveRule, Archiver};
use crate::{Format, Session};

/// Versions 0 to 2 are trained on, and two states are kept to go back to.
const STEPS: u64 = 3;
const OVER: usize = 2;

/// Where the process ends.
#[derive(Clone, Copy, Debug)]
enum Ends {
    /// Before its sync of that number has done anything.
    Before(usize),
    /// Right after it.
    After(usize),
    /// When all is done.
    Last,
}

/// What a power failure makes of a file that was not synced.
#[derive(Clone, Copy, Debug)]
enum Unsynced {
    Gone,
    Empty,
    Whole,
}

/// Keeps a second directory with what is stable.
struct Mirror {
    root: PathBuf,
    stable: PathBuf,
    ends: Ends,
    syncs: Arc<AtomicUsize>,
}

impl Stable for Mirror {
    fn sync(&self, files: &[Path]) -> Result<(), String> {
        let number = self.syncs.fetch_add(1, Ordering::SeqCst);
        let gone = || Err("the process is gone".to_owned());
        match self.ends {
            Ends::Before(at) if number >= at => return gone(),
            Ends::After(at) if number > at => return gone(),
            _ => files.iter().for_each(|file| copy(&self.root, &self.stable, file.as_ref())),
        }
        if matches!(self.ends, Ends::After(at) if at == number) { gone() } else { Ok(()) }
    }
}

fn copy(from: &FilePath, to: &FilePath, file: &str) {
    std::fs::create_dir_all(to.join(file).parent().unwrap()).unwrap();
    std::fs::copy(from.join(file), to.join(file)).unwrap();
}

/// All files below a directory that have their final names.
fn files(root: &FilePath) -> Vec<String> {
    let (mut found, mut folders) = (Vec::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            match path.is_dir() {
                true => folders.push(path),
                false if name.contains('#') => {}
                false => found.push(name),
            }
        }
    }
    found
}

/// A machine with a store and a directory for its archive.
struct Machine {
    disk: SimulatedDisk,
    directory: tempfile::TempDir,
}

impl Machine {
    /// A store with a row that was trained on and one that was left out in each version, all of it stable.
    fn new() -> Self {
        let machine = Machine { disk: SimulatedDisk::seeded(7), directory: tempfile::tempdir().unwrap() };
        let store = machine.open();
        let schema = Schema::new().data("prompt", DataType::Utf8).data("reward", DataType::Float32);
        let solver = store.create_table("solver", schema).unwrap();
        let train = Consumer::trainer(["solver"]).ready(["reward"]);
        let train = store.create_consumer("train", train).unwrap();
        let prompt = "long enough to lie in an extent";
        for version in 0..STEPS {
            let cells = [("prompt", prompt.into()), ("reward", 1.0.into())];
            solver.insert(version, &format!("q{version}_0_0"), cells).unwrap();
            let cut = solver.insert(version, &format!("cut{version}_0_0"), []).unwrap();
            solver.exclude(cut, "too_long").unwrap();
            let step = store.begin_step(StepPlan::new().rows(&train, 1)).unwrap();
            step.next(&train, MicroBatch::of(1), Wait::No).unwrap().unwrap().accumulated().unwrap();
            step.commit([("solver", vec![])]).unwrap();
        }
        store.sync().unwrap();
        machine
    }

    fn open(&self) -> Store {
        Store::open("/store", Options::default().disk(Arc::new(self.disk.clone()))).unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// One process: moves all that is over, as far as it comes. How many syncs it asked for.
    fn archive(&self, ends: Ends) -> usize {
        let (root, syncs) = (self.path("archive"), Arc::new(AtomicUsize::new(0)));
        let stable = Mirror { root: root.clone(), stable: self.path("stable"), ends, syncs: syncs.clone() };
        let archive = Archive::with_stable(&root, Box::new(stable)).unwrap();
        let store = self.open();
        let work = || -> crate::Result<()> {
            let archiver = Archiver::new(&store, &archive, ArchiveRule::keep_versions(1))?;
            while archiver.run_once()?.is_some() {}
            Ok(())
        };
        let ended = work();
        assert!(ended.is_ok() || !matches!(ends, Ends::Last), "{ended:?}");
        drop(store);
        self.disk.restart();
        syncs.load(Ordering::SeqCst)
    }

    /// The machine goes down and comes back, with the archive as `unsynced` says.
    fn fails(&self, unsynced: Unsynced) {
        self.disk.cut_power();
        self.disk.restart();
        let (root, stable) = (self.path("archive"), self.path("stable"));
        for file in files(&root) {
            let is_stable =
                std::fs::read(stable.join(&file)).ok() == Some(std::fs::read(root.join(&file)).unwrap());
            match unsynced {
                _ if is_stable => {}
                Unsynced::Gone => std::fs::remove_file(root.join(&file)).unwrap(),
                Unsynced::Empty => std::fs::write(root.join(&file), []).unwrap(),
                Unsynced::Whole => {}
            }
        }
    }
}

/// Everything that is asked of the rows, as one text.
fn seen(session: &Session) -> crate::Result<String> {
    let sql = "SELECT sample_id, policy_version, prompt, reward, step, excluded_reason FROM solver \
               ORDER BY policy_version, sample_id";
    let mut text = Vec::new();
    session.sql_blocking(sql)?.render(Format::Csv, &mut text, None).unwrap();
    Ok(String::from_utf8(text).unwrap())
}

fn seen_with(store: &Store, archive: &Archive) -> crate::Result<String> {
    seen(&Session::with_options(store, &crate::Options::default().archive(archive))?)
}

/// The rows are in the store or in the archive, and once, and the next archiver brings the move to its end.
fn check(machine: &Machine, all: &str, when: &str) {
    let (store, archive) =
        (machine.open(), Archive::open(machine.path("archive").to_str().unwrap()).unwrap());
    match seen_with(&store, &archive) {
        Ok(found) => assert_eq!(found, all, "{when}"),
        // Nothing had been archived yet, and so nothing has left the store.
        Err(error) => assert_eq!(seen(&Session::new(&store).unwrap()).unwrap(), all, "{when}: {error}"),
    }
    drop((store, archive));
    machine.archive(Ends::Last);
    let (store, archive) =
        (machine.open(), Archive::open(machine.path("archive").to_str().unwrap()).unwrap());
    assert_eq!(seen_with(&store, &archive).unwrap(), all, "{when}, then to the end");
    let live = store.snapshot().table("solver").unwrap().row_count();
    assert_eq!(live, 2 * (STEPS as usize - OVER), "{when}, then to the end");
    drop((store, archive));
    machine.disk.restart();
    machine.fails(Unsynced::Gone);
    let (store, archive) =
        (machine.open(), Archive::open(machine.path("archive").to_str().unwrap()).unwrap());
    assert_eq!(seen_with(&store, &archive).unwrap(), all, "{when}, then to the end and down again");
}

fn all_rows() -> String {
    let machine = Machine::new();
    seen(&Session::new(&machine.open()).unwrap()).unwrap()
}

#[test]
fn a_power_failure_at_any_step_loses_no_row_and_shows_none_twice() {
    let all = all_rows();
    assert_eq!(all.lines().count(), 1 + 2 * STEPS as usize);
    let syncs = Machine::new().archive(Ends::Last);
    assert!(syncs > 2 * OVER, "{syncs} syncs");
    for at in 0..syncs {
        for ends in [Ends::Before(at), Ends::After(at)] {
            for unsynced in [Unsynced::Gone, Unsynced::Empty, Unsynced::Whole] {
                let machine = Machine::new();
                machine.archive(ends);
                machine.fails(unsynced);
                check(&machine, &all, &format!("{ends:?}, {unsynced:?}"));
            }
        }
    }
}

/// A process is killed, the next one goes on in the same run of the machine, and then the power fails: what the first one
/// had put and not synced, the second has to.
#[test]
fn a_power_failure_after_another_process_went_on_loses_no_row() {
    let all = all_rows();
    let syncs = Machine::new().archive(Ends::Last);
    for at in 0..syncs {
        for then in (at..syncs).map(Ends::Before).chain([Ends::Last]) {
            for unsynced in [Unsynced::Gone, Unsynced::Empty] {
                let machine = Machine::new();
                machine.archive(Ends::Before(at));
                machine.archive(then);
                machine.fails(unsynced);
                check(&machine, &all, &format!("ended before sync {at}, then {then:?}, {unsynced:?}"));
            }
        }
    }
}
