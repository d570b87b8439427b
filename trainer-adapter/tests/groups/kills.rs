//! A kill at every boundary, of every process that reaches it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use forebay_trainer_adapter::process_group::{Boundary, ClaimId};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::open_groups::{EARLY, MEMBERS};
use crate::program::{BATCHES, FOLDER, STEPS, WORLD, expected_sha256, kept_sha256, order_kill};
use crate::training::Records;

fn coordinate(folder: &Path, world: usize) -> ExitStatus {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "program::coordinator", "--ignored"]);
    command.env(FOLDER, folder).env(WORLD, world.to_string());
    command.stdout(Stdio::null()).status().unwrap()
}

/// Who reached what, and how often.
fn trace(folder: &Path) -> BTreeMap<(String, String), u32> {
    let mut counts = BTreeMap::new();
    for line in fs::read_to_string(folder.join("trace")).unwrap().lines() {
        let words: Vec<&str> = line.split(' ').collect();
        *counts.entry((words[0].to_owned(), words[1].to_owned())).or_default() += 1;
    }
    counts
}

/// Waits until every process that ever told the trace has ended.
fn wait_for_all(folder: &Path) {
    let text = fs::read_to_string(folder.join("trace")).unwrap();
    let pids: BTreeSet<i32> = text.lines().filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect();
    for pid in pids {
        // A number may be somebody else's by now: only our own program is waited for.
        let is_ours = || {
            let name = fs::read_link(format!("/proc/{pid}/exe")).ok();
            name.is_some_and(|name| name == std::env::current_exe().unwrap())
        };
        let Ok(handle) = pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()) else { continue };
        if is_ours() && pid != std::process::id().cast_signed() {
            let limit = Timespec::try_from(Duration::from_secs(20)).unwrap();
            let ended = poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&limit)).unwrap();
            assert_eq!(ended, 1, "process {pid} outlives its coordinator");
        }
    }
}

/// Trains to the end with one death, and checks everything that has to hold.
fn train_with_kill(who: &str, boundary: Boundary, after: u32, world: usize, expected: &str) {
    let name = format!("{who} at {boundary:?}, time {after}, {world} ranks");
    let folder = tempfile::tempdir().unwrap();
    let order = order_kill(folder.path(), who, boundary, after);
    let status = coordinate(folder.path(), world);
    assert!(!order.exists(), "{name}: nobody died");
    if who == "coordinator" {
        assert_eq!(status.signal(), Some(9), "{name}: {status}");
        // No rank goes on without it, and what is there is whole.
        wait_for_all(folder.path());
        kept_sha256(folder.path(), EARLY);
        let status = coordinate(folder.path(), world);
        assert!(status.success(), "{name}: {status}");
    } else {
        assert!(status.success(), "{name}: {status}");
    }
    wait_for_all(folder.path());
    assert_eq!(kept_sha256(folder.path(), EARLY).as_deref(), Some(expected), "{name}");
    let records = Records::of(folder.path());
    assert_eq!(records.open(), [], "{name}: no claim is out for nothing");
    // Handed out once more than returned: each gradient was kept once.
    for claim in records.all("handed") {
        let times = |word| records.all(word).iter().filter(|found| **found == claim).count();
        assert_eq!(times("handed"), times("returned") + 1, "{name}: {claim}");
    }
    let mut consumed: Vec<ClaimId> = records.all("consumed");
    let total = consumed.len();
    consumed.sort_unstable();
    consumed.dedup();
    assert_eq!(consumed.len(), STEPS as usize * (BATCHES + MEMBERS), "{name}: nothing is lost");
    assert_eq!(total, consumed.len(), "{name}: nothing is consumed twice");
}

// FX-61
#[test]
fn a_kill_at_every_boundary_leaves_one_valid_copy_and_trains_everything_once() {
    let expected = expected_sha256(EARLY);
    let folder = tempfile::tempdir().unwrap();
    assert!(coordinate(folder.path(), 2).success());
    assert_eq!(kept_sha256(folder.path(), EARLY).as_ref(), Some(&expected));
    let reached = trace(folder.path());
    for boundary in Boundary::ALL {
        let name = format!("{boundary:?}");
        assert!(reached.keys().any(|(_, found)| *found == name), "{name} is never reached");
    }
    let mut cases = Vec::new();
    for ((who, name), times) in reached {
        let boundary = Boundary::ALL.into_iter().find(|boundary| format!("{boundary:?}") == name).unwrap();
        cases.push((who.clone(), boundary, 0));
        if times > 2 {
            cases.push((who, boundary, times / 2));
        }
    }
    assert!(cases.len() > 60, "{cases:?}");
    // Two at a time, as processes wait for the disk more than they compute.
    let cases = std::sync::Mutex::new(cases);
    let next = || cases.lock().unwrap().pop();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while let Some((who, boundary, after)) = next() {
                    train_with_kill(&who, boundary, after, 2, &expected);
                }
            });
        }
    });
}
