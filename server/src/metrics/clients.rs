//! What is shown of connections, and of gRPC's clients.

use super::Page;
use crate::connections::TrafficCounts;
use crate::doors::Doors;
use crate::grpc::{BOUNDS_US, Tally};

/// The connections of every door.
pub(super) fn connected(page: &mut Page, doors: &Doors) {
    let doors = doors.all().map(|(door, traffic)| (door, traffic.counts()));
    let each = |page: &mut Page, of: fn(&TrafficCounts) -> u64| {
        doors.iter().for_each(|(door, counts)| page.sample(&[("door", door)], of(counts)));
    };
    page.gauge("forebay_connections", "Connections that are open, by door: grpc, flight or http.");
    each(page, |counts| counts.open);
    page.counter("forebay_connections_accepted_total", "Connections that were taken.");
    each(page, |counts| counts.accepted);
    page.counter("forebay_connections_refused_total", "Connections that were closed, by reason.");
    for (door, counts) in &doors {
        let refused = counts.refused.iter();
        refused.for_each(|(reason, times)| page.sample(&[("door", door), ("reason", reason)], times));
    }
    page.counter("forebay_connection_bytes_total", "Bytes over connections, by direction.");
    for (door, counts) in &doors {
        page.sample(&[("door", door), ("direction", "in")], counts.bytes_in);
        page.sample(&[("door", door), ("direction", "out")], counts.bytes_out);
    }
}

pub(super) fn served(page: &mut Page, tally: &Tally) {
    let (counts, present) = (tally.counts(), tally.present());
    page.gauge("forebay_sessions", "Clients of gRPC that are there, or were a moment ago.");
    page.sample(&[], present.sessions);
    page.counter("forebay_sessions_begun_total", "Sessions that began.");
    page.sample(&[], counts.sessions_begun);
    page.counter("forebay_sessions_resumed_total", "Times that a client came back to its session.");
    page.sample(&[], counts.sessions_resumed);
    page.counter("forebay_sessions_ended_total", "Sessions that ended, by why.");
    counts.sessions_ended.iter().for_each(|(why, times)| page.sample(&[("why", why)], times));
    page.gauge("forebay_session_claims", "Claims that sessions hold.");
    page.sample(&[], present.claims);
    calls(page, &counts);
}

fn calls(page: &mut Page, counts: &crate::grpc::Counts) {
    page.counter("forebay_calls_total", "Calls over gRPC, by method and by what became of them.");
    for ((method, outcome), calls) in &counts.calls {
        page.sample(&[("method", method), ("outcome", outcome)], calls);
    }
    page.counter("forebay_calls_failed_total", "Calls over gRPC that failed, by precise cause.");
    counts.failures.iter().for_each(|(cause, calls)| page.sample(&[("cause", cause)], calls));
    page.counter(
        "forebay_answers_abandoned_total",
        "Answers that were ended because their reader was too slow.",
    );
    page.sample(&[], counts.answers_abandoned);
    page.histogram(
        "forebay_call_seconds",
        "How long calls over gRPC took until their answer began, waits included.",
    );
    for (method, times) in &counts.times {
        let mut calls = 0;
        for (at, more) in times.calls.iter().enumerate() {
            calls += more;
            let bound = BOUNDS_US.get(at).map_or("+Inf".to_owned(), |us| (*us as f64 / 1e6).to_string());
            page.part("_bucket", &[("method", method), ("le", &bound)], calls);
        }
        page.part("_sum", &[("method", method)], times.total.as_secs_f64());
        page.part("_count", &[("method", method)], calls);
    }
}
