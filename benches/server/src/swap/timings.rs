//! What the parts of swaps took, and how that is printed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use forebay::trainer::process_group::ProcessGroup;
use forebay::trainer::scheduler::Placement;
use forebay_benches::{Goal, Outcome, Row};

use super::limits::{Limits, median};
use super::model::batch;
use super::{Bytes, Case};

/// Durations by the name of what took them.
#[derive(Default)]
pub(super) struct Timings(BTreeMap<&'static str, Vec<Duration>>);

impl Timings {
    pub(super) fn add(&mut self, name: &'static str, took: Duration) {
        self.0.entry(name).or_default().push(took);
    }

    /// One swap, from the command to suspend to the first micro-batch in the new processes.
    pub(super) fn swap(
        &mut self,
        group: &mut ProcessGroup,
        placement: &Placement,
        round: usize,
        case: Case,
    ) -> Outcome<()> {
        let start = Instant::now();
        let suspended = group.suspend()?;
        let resumed = group.resume(placement)?;
        let began = Instant::now();
        let position = if case == Case::MidStep { round } else { 0 };
        group.accumulate(&[batch(position, resumed.policy_version)])?;
        self.add("accumulate", began.elapsed());
        self.add("swap", start.elapsed());
        self.add("set", suspended.set);
        self.add("exit", suspended.end);
        self.add("spawn", resumed.spawn);
        self.add("context", Duration::from_micros(resumed.slowest.context_us));
        self.add("registration", Duration::from_micros(resumed.slowest.get_us));
        self.add("copy", Duration::from_micros(resumed.slowest.copy_us));
        Ok(())
    }

    pub(super) fn median(&self, name: &str) -> f64 {
        median(self.0.get(name).cloned().unwrap_or_default())
    }

    pub(super) fn print(&self, case: Case, bytes: Bytes, limits: &Limits, print: &mut dyn FnMut(Row)) {
        let least = limits.process + limits.map + limits.set + limits.get;
        let kind = "a process started and ended, a mapping, and one copy of the bytes out and one in";
        let accumulate = (self.median("resident accumulate"), "the same in a process that stays");
        let context = (self.median("resident context"), "opening a device in a process that stays");
        let parts = [
            ("all of it", "swap", (least, kind)),
            ("1 set", "set", (limits.set, "one copy of what has changed into warm shared memory")),
            ("2 exit", "exit", (limits.process, "a process that returns at once, started and ended")),
            (
                "3 spawn, up to hello",
                "spawn",
                (limits.process, "a process that returns at once, started and ended"),
            ),
            ("4 context", "context", context),
            (
                "5 registration: parts found, memory mapped",
                "registration",
                (limits.map, "mapping a warm file of that size"),
            ),
            (
                "6 copy, checked",
                "copy",
                (limits.get, "one copy of the state into memory that nobody has touched"),
            ),
            ("7 first micro-batch", "accumulate", accumulate),
        ];
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        let (set, got) = (megabytes(bytes.set), megabytes(bytes.got));
        let head = format!("{}: {set:.1} MB out, {got:.1} MB in", case.words());
        for (words, name, limit) in parts {
            let value = self.median(name);
            print(Row::new(format!("swap {head}, {words}"), (value, "ms"), limit, Goal::None));
        }
        let copies = (limits.set + limits.get, "one copy of the bytes out and one in");
        let resident = (self.median("resident"), "ms");
        print(Row::new(
            format!("resident, no swap: {head}, set, got and accumulated"),
            resident,
            copies,
            Goal::None,
        ));
    }
}
