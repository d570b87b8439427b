//! Ranks whose device fails while they share their caches: nothing of it is taken for a gradient, and everybody is told.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

use forebay_trainer_adapter::{
    Error, Policy, PolicyConfig, RankLinks, StandInDevice, Trainer, TrainerOptions,
};

use crate::device;
use crate::suite::common::{accumulate, random_groups};
use crate::suite::parallel::ranks;

/// A device, and a trainer on it with units at these places.
fn trained(positions: &[usize]) -> (StandInDevice, Trainer<StandInDevice>) {
    let device = device(1);
    let policy = Policy::initialise(&device, &PolicyConfig::small(37), 7).unwrap();
    let mut trainer = Trainer::new(&device, policy, TrainerOptions::default()).unwrap();
    accumulate(&mut trainer, &random_groups(80, 6, 2, 37), positions);
    (device, trainer)
}

/// FX-69: whichever rank it is. The links stand where they stood, so the exchange can be made again.
#[test]
fn a_rank_whose_device_has_failed_shares_nothing_and_every_cache_is_as_before() {
    for odd in 0..3 {
        let weights = ranks(3, |mut group| {
            let rank = group.rank();
            let (device, mut trainer) = trained(&[rank, rank + 3]);
            let before = trainer.export_cache();
            if rank == odd {
                device.run_out_of_memory();
            }
            let refused = group.exchange(&mut trainer).unwrap_err();
            match &refused {
                Error::Device(_) if rank == odd => {}
                Error::RankFailed { rank: failed, reason } if *failed == odd && rank != odd => {
                    assert!(reason.contains("CUDA_ERROR_OUT_OF_MEMORY"), "{reason}");
                }
                other => panic!("rank {rank} of {odd}: {other:?}"),
            }
            assert_eq!(trainer.export_cache(), before, "rank {rank} of {odd}");
            // Only the stand-in is ever well again.
            assert_eq!(group.exchange(&mut trainer).unwrap().units, 6);
            trainer.apply().unwrap();
            trainer.weights_sha256()
        });
        assert!(weights.iter().all(|one| *one == weights[0]), "rank {odd}");
    }
}

/// A link whose rank's device fails before anything is read of it.
struct Late(UnixStream, StandInDevice);

impl Read for Late {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.1.run_out_of_memory();
        self.0.read(bytes)
    }
}

impl Write for Late {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[test]
fn a_rank_whose_device_fails_before_the_joined_cache_is_there_does_not_take_it() {
    let (near, far) = UnixStream::pair().unwrap();
    std::thread::scope(|scope| {
        let member = scope.spawn(move || {
            let (device, mut trainer) = trained(&[1, 2]);
            let before = trainer.export_cache();
            let refused = RankLinks::member(1, Late(far, device)).exchange(&mut trainer);
            assert!(matches!(refused, Err(Error::Device(_))), "{refused:?}");
            assert_eq!(trainer.export_cache(), before);
        });
        let (_device, mut trainer) = trained(&[0]);
        let report = RankLinks::first(vec![near]).exchange(&mut trainer).unwrap();
        assert_eq!((report.units, report.lost), (3, vec![]), "the step is complete without it");
        member.join().unwrap();
    });
}

#[test]
fn a_cache_is_not_merged_on_a_device_that_has_failed() {
    let (_other, donor) = trained(&[3]);
    let (device, mut trainer) = trained(&[0, 1]);
    let before = trainer.export_cache();
    device.run_out_of_memory();
    let refused = trainer.merge_cache(&donor.export_cache());
    assert!(matches!(refused, Err(Error::Device(_))), "{refused:?}");
    assert_eq!(trainer.export_cache(), before);
    trainer.merge_cache(&donor.export_cache()).unwrap();
    assert_eq!(trainer.cache().positions, [0, 1, 3]);
}
