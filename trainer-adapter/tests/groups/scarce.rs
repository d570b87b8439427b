//! Ranks whose devices run out of memory in the middle of an update, once, and are well again.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use forebay_trainer_adapter::process_group::{
    Boundary, GroupError, GroupOptions, Life, Observer, ProcessGroup, RankPlace, Recipe, RecipeError,
    serve_local_rank,
};
use forebay_trainer_adapter::states::FileStates;
use forebay_trainer_adapter::{StandInDevice, StandInOptions, Trainer, TrainerOptions};

use crate::common::ragged_config;
use crate::program::{
    FOLDER, batches, expected_sha256, kept_sha256, launcher, new_trainer, placement, states,
};
use crate::training::Training;

/// The rank's device, once it is open.
type Opened = Arc<Mutex<Option<StandInDevice>>>;

struct Scarce(Opened);

impl Recipe for Scarce {
    type Device = StandInDevice;

    fn open_device(&mut self, _place: &RankPlace) -> Result<StandInDevice, RecipeError> {
        let device = StandInDevice::new(StandInOptions::default());
        *self.0.lock().unwrap() = Some(device.clone());
        Ok(device)
    }

    fn create(&mut self, device: &StandInDevice) -> Result<Trainer<StandInDevice>, RecipeError> {
        self.restore(device, &mut &new_trainer().state()[..])
    }

    fn restore(
        &mut self,
        device: &StandInDevice,
        state: &mut dyn Read,
    ) -> Result<Trainer<StandInDevice>, RecipeError> {
        Ok(Trainer::restore_from(device, &ragged_config(), TrainerOptions::default(), state)?)
    }
}

fn order(folder: &Path, rank: usize) -> PathBuf {
    folder.join(format!("scarce.{rank}"))
}

#[test]
#[ignore = "is the program of a rank"]
fn rank() {
    let folder = PathBuf::from(std::env::var_os(FOLDER).unwrap());
    let rank = std::env::var("FOREBAY_RANK").unwrap().parse().unwrap();
    let opened = Opened::default();
    let device = opened.clone();
    let states = FileStates::open(folder.join("states")).unwrap();
    let observer = Observer::new(move |boundary| {
        if boundary == Boundary::Exchanged && fs::remove_file(order(&folder, rank)).is_ok() {
            device.lock().unwrap().as_ref().unwrap().run_out_of_memory();
        }
    });
    // A rank that cannot go on ends.
    let _ = serve_local_rank(&states, &mut Scarce(opened), &observer);
}

/// By then its cache is that of all ranks, which is no part of a state: the rank ends, and what it had goes on without it.
#[test]
fn a_rank_that_fails_after_the_exchange_ends_and_leaves_a_state_that_is_resumed() {
    let expected = expected_sha256("solver");
    let all = batches("solver", 0);
    // The others make the update if there are any.
    for (scarce, policy_version) in [(vec![0], 1), (vec![1], 1), (vec![0, 1], 0)] {
        let name = format!("ranks {scarce:?}");
        let folder = tempfile::tempdir().unwrap();
        let launcher = launcher(folder.path(), "scarce::rank");
        let options = GroupOptions { world: 2, ..GroupOptions::default() };
        let mut group =
            ProcessGroup::create("solver", options, Arc::new(launcher), states(folder.path())).unwrap();
        group.activate(&placement("a", 2)).unwrap();
        group.accumulate(&all).unwrap();
        scarce.iter().for_each(|&rank| fs::write(order(folder.path(), rank), "").unwrap());
        let error = group.apply().unwrap_err();
        let GroupError::RankLost { rank, lost, .. } = &error else { panic!("{name}: {error}") };
        assert_eq!((*rank, group.life()), (scarce[0], Life::Suspended), "{name}");
        assert_eq!(lost.len(), if policy_version == 1 { 0 } else { all.len() }, "{name}");
        let resumed = group.resume(&placement("b", 2)).unwrap();
        assert_eq!(resumed.policy_version, policy_version, "{name}");
        if policy_version == 0 {
            group.accumulate(&all).unwrap();
            group.apply().unwrap();
            group.save().unwrap();
        }
        Training::new(group, folder.path(), "solver").run_step(1);
        assert_eq!(kept_sha256(folder.path(), "solver").as_ref(), Some(&expected), "{name}");
    }
}
