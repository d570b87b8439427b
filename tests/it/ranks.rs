//! The processes of a run with process groups, and their states, as they are seen from outside.

use std::fs;
use std::process::Child;

use forebay::store::{ObjectReader, Store};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// The ranks of a run's process, and their agents.
pub(crate) fn ranks_of(run: &Child) -> Vec<(i32, String)> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter_map(|pid: i32| Some((pid, agent_of(pid, run.id())?))).collect()
}

fn agent_of(pid: i32, parent: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let found: u32 = stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()?;
    let environment = (found == parent).then(|| fs::read(format!("/proc/{pid}/environ")).ok())??;
    let mut variables =
        environment.split(|byte| *byte == 0).filter_map(|text| std::str::from_utf8(text).ok());
    variables.find_map(|variable| variable.strip_prefix("FOREBAY_RANK_AGENT=")).map(str::to_owned)
}

pub(crate) fn signal(pid: i32, signal: Signal) {
    let _ = kill_process(Pid::from_raw(pid).unwrap(), signal); // it may have ended
}

/// Kills a run, and waits until its ranks have ended by themselves.
pub(crate) fn kill_run(mut run: Child) {
    let ranks = ranks_of(&run);
    run.kill().unwrap();
    run.wait().unwrap();
    // What has ended and was not waited for yet has no environment any more.
    let is_there = |pid: i32| fs::read(format!("/proc/{pid}/environ")).is_ok_and(|text| !text.is_empty());
    while ranks.iter().any(|(pid, _)| is_there(*pid)) {
        std::thread::yield_now();
    }
}

/// What the newest state of an agent is made of, by part, read beside the run; nothing before there is one.
pub(crate) fn parts(reader: &ObjectReader, agent: &str) -> Vec<(String, String)> {
    let Ok(newest) = reader.newest(&format!("state.{agent}")) else { return Vec::new() };
    let record: Value = serde_json::from_slice(&newest.tensor("bytes").unwrap()).unwrap_or_default();
    let text = |part: &Value, key: &str| part[key].as_str().unwrap_or_default().to_owned();
    let parts = record["parts"].as_array().cloned().unwrap_or_default();
    parts.iter().map(|part| (text(part, "name"), text(part, "object"))).collect()
}

pub(crate) fn object_of(parts: &[(String, String)], name: &str) -> Option<String> {
    parts.iter().find(|(found, _)| found == name).map(|(_, object)| object.clone())
}

/// The objects of a run that goes on in another process.
pub(crate) fn beside(run: &mut Child, dir: &str) -> ObjectReader {
    loop {
        assert!(run.try_wait().unwrap().is_none(), "the run ended early");
        if let Ok(reader) = Store::open_read_only(dir).and_then(|store| store.object_reader()) {
            return reader;
        }
        std::thread::yield_now();
    }
}
