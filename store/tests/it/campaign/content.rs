//! What a store holds, as far as it outlives a process.

use std::fmt::Write;

use forebay_store::*;

use crate::support::*;

/// Everything that a store shows of its tables, policies, objects and committed steps, apart from who holds a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Content(String);

impl Content {
    pub(crate) fn of(store: &Store) -> Self {
        let mut text = String::new();
        for (table, rows) in scan_content(store) {
            let counts = store.table(&table).unwrap().counts();
            writeln!(text, "table {table} {counts:?}").unwrap();
            rows.iter().for_each(|row| writeln!(text, "  {row}").unwrap());
        }
        for policy in store.policies() {
            writeln!(text, "policy {} {}", policy.name, policy.version).unwrap();
            for object in &policy.objects {
                let payload = store.object(object).unwrap();
                writeln!(text, "  {object:?} {:08x}", ::forebay_store::checksum::crc32c(&payload)).unwrap();
            }
        }
        for step in store.steps().iter().filter(|step| step.progress == StepProgress::Committed) {
            writeln!(text, "step {} {:?}", step.step, step.progress).unwrap();
        }
        for consumer in store.consumers() {
            let limiter = store.consumer(&consumer.name).unwrap().rate_limiter();
            let limited = limiter.map(|limiter| (limiter.declared, limiter.inserted));
            writeln!(text, "consumer {} {} {limited:?}", consumer.name, consumer.table).unwrap();
        }
        Content(text)
    }

    /// The lines that only one of the two has.
    pub(crate) fn difference(&self, other: &Content) -> String {
        let only = |a: &Content, b: &Content, mark| {
            let missing = a.0.lines().filter(|line| !b.0.lines().any(|l| l == *line));
            missing.map(|line| format!("{mark} {line}\n")).collect::<String>()
        };
        only(self, other, '-') + &only(other, self, '+')
    }
}
