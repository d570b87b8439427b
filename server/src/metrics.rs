//! `GET /metrics`: what an operator watches, in the Prometheus text format.
//!
//! Names end in their unit, and counters in `_total`. Counters of rows span all lives of the store, those of bytes and
//! reads begin with its opening.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};

use forebay_store::{ClaimProgress, Stats, StepProgress, Store, TableCounts};

use crate::doors::Doors;
use crate::grpc::Tally;
use crate::queries::Counts;

mod clients;
mod objects;

/// The format's media type.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All metrics of a store.
pub(crate) fn text(store: &Store, queries: &Counts, served: &Tally, doors: &Doors) -> String {
    let mut page = Page::default();
    rows(&mut page, store);
    training(&mut page, store);
    storage(&mut page, store);
    objects::objects(&mut page, store);
    asked(&mut page, queries);
    clients::connected(&mut page, doors);
    clients::served(&mut page, served);
    page.0
}

fn rows(page: &mut Page, store: &Store) {
    let counts: Vec<(String, TableCounts)> = store
        .tables()
        .into_iter()
        .filter_map(|name| store.table(&name).ok().map(|table| (name, table.counts())))
        .collect();
    page.counter("forebay_rows_written_total", "Rows inserted, every attempt counted.");
    counts.iter().for_each(|(table, counts)| page.sample(&[("table", table)], counts.written));
    page.counter("forebay_rows_consumed_total", "Rows that a committed step trained on.");
    counts.iter().for_each(|(table, counts)| page.sample(&[("table", table)], counts.consumed));
    page.counter("forebay_rows_excluded_total", "Rows left out for good, by reason.");
    for (table, counts) in &counts {
        let reasons = counts.excluded.iter();
        reasons.for_each(|(reason, rows)| page.sample(&[("table", table), ("reason", reason)], rows));
    }
    page.gauge("forebay_open_rows", "Rows that may still be trained on.");
    counts.iter().for_each(|(table, counts)| page.sample(&[("table", table)], counts.open()));
    page.gauge("forebay_ready_rows", "Rows that a consumer could claim now.");
    for consumer in store.consumers() {
        let labels = [("consumer", &*consumer.name), ("table", &consumer.table)];
        page.sample(&labels, consumer.ready_rows);
    }
}

fn training(page: &mut Page, store: &Store) {
    let mut open: BTreeMap<(String, String, &str), u64> = BTreeMap::new();
    for claim in store.claims() {
        if matches!(claim.progress, ClaimProgress::Leased | ClaimProgress::Accumulated) {
            *open.entry((claim.consumer, claim.table, claim.progress.as_str())).or_default() += 1;
        }
    }
    page.gauge(
        "forebay_open_claims",
        "Claims that are leased, or accumulated in a step that is not yet committed.",
    );
    for ((consumer, table, state), claims) in &open {
        page.sample(&[("consumer", consumer), ("table", table), ("state", state)], claims);
    }
    page.gauge("forebay_policy_version", "The version of a policy.");
    store.policies().iter().for_each(|policy| page.sample(&[("policy", &policy.name)], policy.version));
    page.counter("forebay_steps_committed_total", "Steps committed.");
    page.sample(&[], store.steps().iter().filter(|step| step.progress == StepProgress::Committed).count());
}

fn storage(page: &mut Page, store: &Store) {
    let stats = store.stats();
    page.counter("forebay_log_records_total", "Records in the log, all lives of the store together.");
    page.sample(&[], stats.commits);
    page.counter("forebay_log_bytes_total", "Bytes appended to the log since the store was opened.");
    page.sample(&[], stats.log_bytes);
    page.counter(
        "forebay_value_bytes_total",
        "Bytes of values written to extents since the store was opened.",
    );
    page.sample(&[], stats.value_bytes_written);
    page.counter("forebay_value_reads_total", "Values read from extents since the store was opened.");
    page.sample(&[], stats.value_reads);
    page.counter(
        "forebay_duties_failed_total",
        "Background duties that failed, and were or will be tried again.",
    );
    page.sample(&[], stats.duties_failed);
    page.counter("forebay_syncs_total", "Syncs since the store was opened.");
    page.sample(&[], stats.syncs);
    page.gauge(
        "forebay_durable_records",
        "Records of the log that are on stable storage, with all that they name.",
    );
    page.sample(&[], stats.durable_commits);
    space(page, store, stats);
}

fn space(page: &mut Page, store: &Store, stats: Stats) {
    page.gauge("forebay_extents", "Extent files.");
    page.sample(&[], stats.extents);
    page.gauge("forebay_extent_bytes", "Bytes that extent files take.");
    page.sample(&[], stats.extent_bytes);
    page.gauge("forebay_free_extent_bytes", "Bytes of extent files that wait to be used again.");
    page.sample(&[], stats.free_extent_bytes);
    page.counter(
        "forebay_extents_recycled_total",
        "How often a file was used again since the store was opened.",
    );
    page.sample(&[], stats.extents_recycled);
    page.counter(
        "forebay_extents_never_synced_total",
        "How often an extent was over before the disk had all of it, since the store was opened.",
    );
    page.sample(&[], stats.extents_never_synced);
    page.gauge(
        "forebay_memory_bytes",
        "Bytes of memory that the store takes by its own count, as its budget counts them.",
    );
    page.sample(&[], stats.memory_bytes);
    page.gauge("forebay_budget_bytes", "The most that the store may take, where that is limited.");
    let budgets = store.budgets();
    for (of, most) in [("memory", budgets.memory_bytes_max), ("disk", budgets.disk_bytes_max)] {
        most.into_iter().for_each(|bytes| page.sample(&[("of", of)], bytes));
    }
}

fn asked(page: &mut Page, queries: &Counts) {
    page.counter("forebay_queries_total", "Queries that were asked of this server.");
    queries.asked.iter().for_each(|(way, count)| page.sample(&[("way", way)], count));
    page.counter("forebay_queries_failed_total", "Queries that failed, by kind of reason.");
    for ((way, kind), count) in &queries.failed {
        page.sample(&[("way", way), ("kind", kind)], count);
    }
    page.gauge("forebay_running_queries", "Queries that run, or wait for their turn.");
    queries.running.iter().for_each(|(way, count)| page.sample(&[("way", way)], count));
}

/// A page of metrics as it grows: a family's head, then its samples.
#[derive(Default)]
pub(crate) struct Page(String, &'static str);

impl Page {
    pub(crate) fn counter(&mut self, name: &'static str, help: &str) {
        self.family(name, "counter", help);
    }

    pub(crate) fn gauge(&mut self, name: &'static str, help: &str) {
        self.family(name, "gauge", help);
    }

    pub(crate) fn histogram(&mut self, name: &'static str, help: &str) {
        self.family(name, "histogram", help);
    }

    fn family(&mut self, name: &'static str, kind: &str, help: &str) {
        self.1 = name;
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    /// A sample of the family begun last.
    pub(crate) fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.part("", labels, value);
    }

    /// A sample of a part of the family begun last, such as one bucket of a histogram.
    pub(crate) fn part(&mut self, part: &str, labels: &[(&str, &str)], value: impl Display) {
        let labels: Vec<String> =
            labels.iter().map(|(name, text)| format!("{name}=\"{}\"", escaped(text))).collect();
        let (name, labels) = (self.1, labels.join(","));
        match labels.is_empty() {
            true => self.line(format_args!("{name}{part} {value}")),
            false => self.line(format_args!("{name}{part}{{{labels}}} {value}")),
        }
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        let written = writeln!(self.0, "{line}");
        debug_assert!(written.is_ok(), "a string takes every line");
    }
}

/// A label's value with what would end it spelled out.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_in_free_text_stays_one_label() {
        let mut page = Page::default();
        page.counter("forebay_rows_excluded_total", "Rows.");
        page.sample(&[("reason", "said \"no\"\nc:\\d")], 1);
        let expected = "forebay_rows_excluded_total{reason=\"said \\\"no\\\"\\nc:\\\\d\"} 1";
        assert_eq!(page.0.lines().last(), Some(expected));
    }
}
