//! Reads of a slow disk take no more threads than are for reads, and of these one client has half.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use forebay_client::wire::{self, failure_of};
use forebay_client::{Client, ConnectOptions};
use forebay_server::Server;

use super::limits::{metric, served};
use super::raw::Raw;
use crate::conformance::*;

/// More than a server has threads.
const READS: usize = 160;
/// How many one client has read at the same time.
const OF_CLIENT: usize = 16;
const BUSY: &str = "forebay_calls_failed_total{cause=\"Busy\"}";
/// Longer than anything here takes, on any machine.
const LONG: Duration = Duration::from_secs(60);

/// A file that who opens it waits for, until this is dropped.
struct Stuck(PathBuf);

impl Stuck {
    /// In the place of the one file of a folder.
    fn in_place_of_the_file_in(folder: &Path) -> Self {
        let path = fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
        fs::remove_file(&path).unwrap();
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        Stuck(path)
    }
}

impl Drop for Stuck {
    fn drop(&mut self) {
        // Somebody is at its other end from now on, also for those who open it later.
        std::mem::forget(OpenOptions::new().read(true).write(true).open(&self.0));
    }
}

#[test]
fn reads_that_a_disk_holds_up_leave_threads_to_all_else() {
    let (world, local) = served(Server::builder().room_time_max(Duration::from_millis(10)));
    let object = wire::from_object(&local.put_object("weights", 1, &[7; 100]).unwrap());
    let raw = Raw::connect(&world);
    let stuck = Stuck::in_place_of_the_file_in(&world.dir.path().join("store/objects/weights"));
    let read = |_| {
        let name = wire::new_call().to_le_bytes();
        let (mut client, request) = (raw.client.clone(), raw.request(object.clone(), &raw.session, &name));
        raw.runtime.spawn(async move { client.get_object(request).await.map(drop) })
    };
    let reads: Vec<_> = (0..READS).map(read).collect();
    let since = Instant::now();
    while metric(&world, BUSY) < (READS - OF_CLIENT) as f64 {
        assert!(since.elapsed() < LONG, "a client has more read at the same time than it may");
    }
    let hasty = ConnectOptions::default().call_time_max(LONG / 2).outage_time_max(Duration::ZERO);
    let other = Client::connect(&world.address(), &hasty).unwrap();
    let table = solver(&other);
    let written = row(&table, 0, "q_0_0", None);
    assert_eq!(table.cells(&[written], "prompt").unwrap().len(), 1, "who reads nothing else has turns");
    other.query("SELECT count(*) FROM solver").unwrap();
    other.close().unwrap();
    let next = Client::connect(&world.address(), &hasty).unwrap();
    assert_eq!(next.tables().unwrap(), ["solver"]);
    drop(stuck);
    let busy = reads.into_iter().map(|read| {
        let status = raw.runtime.block_on(read).unwrap().expect_err("the file is another");
        usize::from(failure_of(&status).unwrap().cause() == "Busy")
    });
    assert_eq!(busy.sum::<usize>(), READS - OF_CLIENT);
}
