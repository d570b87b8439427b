//! Ranks that have no room for their part of the state, once.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_trainer_adapter::ErrorKind;
use forebay_trainer_adapter::process_group::{
    Boundary, GroupError, GroupOptions, Life, ProcessGroup, serve_local_rank,
};
use forebay_trainer_adapter::states::{FileStates, Fill, Staged, States, StatesError, Version, Which};

use crate::program::{
    FOLDER, TestRecipe, batches, expected_sha256, kept_sha256, launcher, observer, order_kill, placement,
    states,
};
use crate::training::Training;

/// States that have no room for the next part whose name begins as this file says, where it is there.
struct Full {
    inner: FileStates,
    order: PathBuf,
}

impl States for Full {
    fn stage_from(
        &self,
        key: &str,
        part: &str,
        bytes: u64,
        fill: &mut Fill<'_>,
    ) -> Result<Staged, StatesError> {
        if fs::read_to_string(&self.order).is_ok_and(|refused| part.starts_with(&refused)) {
            fs::remove_file(&self.order).unwrap();
            let (path, source) = (self.order.clone(), io::Error::from(io::ErrorKind::StorageFull));
            return Err(StatesError::Io { verb: "write", path, source });
        }
        self.inner.stage_from(key, part, bytes, fill)
    }

    fn discard(&self, key: &str, part: &Staged) {
        self.inner.discard(key, part);
    }

    fn commit(&self, key: &str, expected: u64, parts: &[Staged]) -> Result<u64, StatesError> {
        self.inner.commit(key, expected, parts)
    }

    fn find(&self, key: &str, which: Which) -> Result<Option<Version>, StatesError> {
        self.inner.find(key, which)
    }

    fn open<'a>(&'a self, key: &str, which: Which, part: &str) -> Result<Box<dyn Read + 'a>, StatesError> {
        self.inner.open(key, which, part)
    }
}

fn order(folder: &Path, rank: usize) -> PathBuf {
    folder.join(format!("full.{rank}"))
}

fn order_refusal(folder: &Path, rank: usize, part: &str) {
    fs::write(order(folder, rank), part).unwrap();
}

/// How many parts are there, whether a version names them or not.
fn parts(folder: &Path) -> usize {
    fs::read_dir(folder.join("states/solver/parts")).unwrap().count()
}

#[test]
#[ignore = "is the program of a rank"]
fn rank() {
    let folder = PathBuf::from(std::env::var_os(FOLDER).unwrap());
    let rank: usize = std::env::var("FOREBAY_RANK").unwrap().parse().unwrap();
    let observer = observer(&folder, &format!("rank{rank}"));
    let inner = FileStates::open(folder.join("states")).unwrap();
    let states = Full { inner, order: order(&folder, rank) };
    // A coordinator that is gone is no failure of the rank.
    let _ = serve_local_rank(&states, &mut TestRecipe::default(), &observer);
}

fn active_group(folder: &Path, world: usize) -> ProcessGroup {
    let options = GroupOptions { world, ..GroupOptions::default() };
    let launcher = Arc::new(launcher(folder, "refusing::rank"));
    let mut group = ProcessGroup::create("solver", options, launcher, states(folder)).unwrap();
    group.activate(&placement("a", world)).unwrap();
    group
}

/// Whichever part it is: a cache, or the trainer after an update.
#[test]
fn a_rank_that_cannot_stage_its_part_stays_and_stages_it_when_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let mut group = active_group(folder.path(), 2);
    let (pids, all) = (group.pids(), batches("solver", 0));
    let refused = |group: &mut ProcessGroup, expected: usize| {
        let (version, ledger) = (group.version(), group.ledger().clone());
        order_refusal(folder.path(), expected, "");
        let error = group.save().unwrap_err();
        assert!(matches!(&error, GroupError::NotStaged { rank, .. } if *rank == expected), "{error}");
        assert!(error.to_string().contains("cannot write"), "{error}");
        assert_eq!((error.kind(), error.lost()), (ErrorKind::State, &[][..]));
        assert_eq!((group.life(), group.version()), (Life::Active, version));
        assert_eq!((group.pids(), group.ledger(), group.counts().lost_ranks), (pids.clone(), &ledger, 0));
    };
    group.accumulate(&all[..2]).unwrap();
    refused(&mut group, 1);
    assert_eq!(group.save().unwrap(), 2);
    group.accumulate(&all[2..]).unwrap();
    group.apply().unwrap();
    refused(&mut group, 0);
    assert_eq!(group.save().unwrap(), 3);
    Training::new(group, folder.path(), "solver").run_step(1);
    assert_eq!(kept_sha256(folder.path(), "solver"), Some(expected_sha256("solver")));
}

/// Of the other rank, whose cache had room, and of the same one, whose trainer had. They would take the room that the next try needs.
#[test]
fn parts_that_were_staged_beside_one_that_was_not_leave_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let mut group = active_group(folder.path(), 2);
    let refused = |group: &mut ProcessGroup, rank: usize| {
        let before = parts(folder.path());
        for _ in 0..3 {
            order_refusal(folder.path(), rank, "cache");
            let error = group.save().unwrap_err();
            assert!(matches!(error, GroupError::NotStaged { .. }), "{error}");
            assert!(!order(folder.path(), rank).exists(), "{error}");
            assert_eq!(parts(folder.path()), before, "rank {rank}");
        }
    };
    group.accumulate(&batches("solver", 0)).unwrap();
    refused(&mut group, 1);
    group.apply().unwrap();
    group.accumulate(&batches("solver", 1)[..1]).unwrap();
    refused(&mut group, 0);
    assert_eq!(group.save().unwrap(), 2);
    assert_eq!((group.ledger().applied.len(), group.ledger().accumulated.len()), (5, 1));
}

/// The room of the processes is needed: what the others have is kept.
#[test]
fn a_suspension_loses_what_a_rank_cannot_stage_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let mut group = active_group(folder.path(), 2);
    group.accumulate(&batches("solver", 0)[..2]).unwrap();
    order_refusal(folder.path(), 1, "");
    let error = group.suspend().unwrap_err();
    let GroupError::RankLost { rank: 1, lost, .. } = &error else { panic!("{error}") };
    assert_eq!((lost.len(), group.life(), group.version()), (1, Life::Suspended, 2));
    assert_eq!(group.ledger().accumulated.len(), 1);
    group.resume(&placement("b", 2)).unwrap();
}

/// Its cache is smaller than the trainer, which another rank has as well.
#[test]
fn a_rank_that_has_no_room_for_the_trainer_keeps_its_cache() {
    let folder = tempfile::tempdir().unwrap();
    let mut group = active_group(folder.path(), 2);
    group.accumulate(&batches("solver", 0)).unwrap();
    group.apply().unwrap();
    group.accumulate(&batches("solver", 1)[..1]).unwrap();
    order_refusal(folder.path(), 0, "trainer");
    assert_eq!(group.suspend().unwrap().version, 2);
    assert!(!order(folder.path(), 0).exists(), "it was asked first");
    assert_eq!((group.ledger().applied.len(), group.ledger().accumulated.len()), (5, 1));
    assert_eq!(group.resume(&placement("b", 2)).unwrap().policy_version, 1);
}

/// A rank is lost in an update that the others have made, and one of these has no room for the trainer.
#[test]
fn another_rank_stages_the_trainer_where_one_has_no_room_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut group = active_group(folder.path(), 3);
    group.accumulate(&batches("solver", 0)).unwrap();
    order_kill(folder.path(), "rank2", Boundary::UpdateMade, 0);
    order_refusal(folder.path(), 0, "");
    let error = group.apply().unwrap_err();
    let GroupError::RankLost { rank: 2, lost, .. } = &error else { panic!("{error}") };
    assert_eq!((lost.len(), group.counts().lost_ranks), (0, 1), "{error}");
    assert!(!order(folder.path(), 0).exists(), "it was asked first");
    assert_eq!(group.resume(&placement("b", 3)).unwrap().policy_version, 1);
}
