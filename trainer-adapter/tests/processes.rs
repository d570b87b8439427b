//! Ranks in processes of their own, over pairs of sockets, one of them killed.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "suite/common/mod.rs"]
mod common;

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use common::{accumulate, ragged_config, random_groups, shaken_policy};
use forebay_trainer_adapter::{CpuDevice, Error, RankLinks, Trainer, TrainerOptions};

pub(crate) type TestDevice = CpuDevice;

pub(crate) fn device(threads: usize) -> TestDevice {
    CpuDevice::new(threads)
}

const RANK: &str = "FOREBAY_TEST_RANK";
/// How a rank of the second test ends: by itself in the middle of its frame, or killed before it.
const END: &str = "FOREBAY_TEST_RANK_END";

fn trainer() -> Trainer<CpuDevice> {
    Trainer::new(&device(1), shaken_policy(&ragged_config(), 3), TrainerOptions::default()).unwrap()
}

/// The units of a rank of three: every third.
fn positions(rank: usize) -> Vec<usize> {
    (rank..10).step_by(3).collect()
}

fn accumulate_share(trainer: &mut Trainer<CpuDevice>, rank: usize) {
    accumulate(trainer, &random_groups(90 + trainer.version(), 10, 4, 37), &positions(rank));
}

/// What one process alone makes of two steps.
fn alone() -> Vec<u8> {
    let mut trainer = trainer();
    for _ in 0..2 {
        (0..3).for_each(|rank| accumulate_share(&mut trainer, rank));
        trainer.apply().unwrap();
    }
    trainer.state()
}

/// Two steps over a link to rank 0; an exchange that failed is made again. The state goes back over the link.
#[test]
#[ignore = "is the program of the child processes"]
fn rank() {
    let rank: usize = std::env::var(RANK).unwrap().parse().unwrap();
    let mut link = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    let mut trainer = trainer();
    accumulate_share(&mut trainer, rank);
    match std::env::var(END).as_deref() {
        Ok("half a frame") => {
            let body = trainer.export_cache().to_bytes();
            link.write_all(b"FBRX\x01").unwrap();
            link.write_all(&(body.len() as u64).to_le_bytes()).unwrap();
            link.write_all(&body[..body.len() / 2]).unwrap();
            std::process::abort();
        }
        // Nothing ever comes: it waits to be killed.
        Ok(_) => {
            link.read_exact(&mut [0; 1]).unwrap();
        }
        Err(_) => {}
    }
    let mut group = RankLinks::member(rank, link.try_clone().unwrap());
    for step in 0..2 {
        if step > 0 {
            accumulate_share(&mut trainer, rank);
        }
        let before = trainer.export_cache();
        while let Err(error) = group.exchange(&mut trainer) {
            assert!(matches!(error, Error::RankFailed { rank: 2, .. }), "{error}");
            assert_eq!(trainer.export_cache(), before);
        }
        trainer.apply().unwrap();
    }
    let state = trainer.state();
    link.write_all(&(state.len() as u64).to_le_bytes()).unwrap();
    link.write_all(&state).unwrap();
}

/// Ranks 1 and 2 as processes, and their links in this order.
struct Ranks {
    children: Vec<Child>,
    links: Vec<UnixStream>,
}

impl Ranks {
    fn start(end: Option<&str>) -> Self {
        let (children, links) = (1..3).map(|rank| child(rank, end.filter(|_| rank == 2))).unzip();
        Self { children, links }
    }

    fn group(&self) -> RankLinks<UnixStream> {
        RankLinks::first(self.links.iter().map(|link| link.try_clone().unwrap()).collect())
    }

    /// What a rank ended with.
    fn state(&mut self, rank: usize) -> Vec<u8> {
        let link = &mut self.links[rank - 1];
        let mut length = [0; 8];
        link.read_exact(&mut length).unwrap();
        let mut state = vec![0; u64::from_le_bytes(length) as usize];
        link.read_exact(&mut state).unwrap();
        assert!(self.children[rank - 1].wait().unwrap().success());
        state
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A rank, and the link to it: its other end is what the child reads from, so a child that dies closes it.
fn child(rank: usize, end: Option<&str>) -> (Child, UnixStream) {
    let (link, theirs) = UnixStream::pair().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "rank", "--ignored"]).env(RANK, rank.to_string());
    command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null());
    if let Some(end) = end {
        command.env(END, end).stderr(Stdio::null());
    }
    (command.spawn().unwrap(), link)
}

/// DESIGN 7: three processes end with the bits of one.
#[test]
fn three_processes_end_with_the_bits_of_one() {
    let mut ranks = Ranks::start(None);
    let mut group = ranks.group();
    let mut trainer = trainer();
    for _ in 0..2 {
        accumulate_share(&mut trainer, 0);
        let report = group.exchange(&mut trainer).unwrap();
        assert_eq!((report.units, report.lost.len()), (10, 0));
        trainer.apply().unwrap();
    }
    let expected = alone();
    assert!(trainer.state() == expected);
    assert!(ranks.state(1) == expected && ranks.state(2) == expected);
}

/// A rank that dies in the middle of its frame, and one that is killed before it: a typed error, the other caches
/// unharmed, and once its units are computed elsewhere the same bits.
#[test]
fn a_killed_rank_costs_nothing_but_its_work() {
    for (name, end) in [("abort", "half a frame"), ("kill", "by a signal")] {
        let mut ranks = Ranks::start(Some(end));
        let mut group = ranks.group();
        let mut trainer = trainer();
        accumulate_share(&mut trainer, 0);
        let before = trainer.export_cache();
        if end == "by a signal" {
            ranks.children[1].kill().unwrap();
        }
        let refused = group.exchange(&mut trainer);
        assert!(matches!(refused, Err(Error::RankFailed { rank: 2, .. })), "{name}: {refused:?}");
        assert_eq!(trainer.export_cache(), before);
        group.remove(2);
        for step in 0..2 {
            if step > 0 {
                accumulate_share(&mut trainer, 0);
            }
            accumulate_share(&mut trainer, 2);
            group.exchange(&mut trainer).unwrap();
            trainer.apply().unwrap();
        }
        let expected = alone();
        assert!(trainer.state() == expected, "{name}");
        assert!(ranks.state(1) == expected, "{name}");
    }
}
