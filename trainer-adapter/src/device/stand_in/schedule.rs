//! What is queued, what is ordered before what, and when each copy happens.
//!
//! Time is counted in ticks, one whenever a copy is queued or an event asked for. In each tick every stream works on its first
//! copy, unless that waits for an event; a copy takes a seeded number of ticks. So copies of two streams end in an order that
//! the seed decides, and a copy reads its source at its very end, as late as a device could. Arithmetic takes no time: while it
//! holds memory, no copy ends.
//!
//! Whether two accesses are ordered does not depend on the seed: each copy knows how many copies of each stream come before it
//! ([`Clock`]), by its stream, by events, and by what the host had waited for. Two accesses to the same values of which one
//! writes, neither before the other, are a race, and the copies in it leave poison.

use std::collections::VecDeque;
use std::ops::Range;

use super::clock::{Clock, CopyId};
use super::place::Place;
use crate::device::copies::sums_of;
use crate::error::Error;

/// Which way a copy went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyWay {
    /// From the device to the host.
    ToHost,
    /// From the host to the device.
    ToDevice,
    /// From one of its memories, or from another process's, to another of its memories.
    OnDevice,
}

/// What is queued: it reads one place, and writes another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    Copy(CopyWay),
    /// The checksum of each run of so many values. It is in no trace.
    Sums {
        run: usize,
    },
}

impl From<CopyWay> for Work {
    fn from(way: CopyWay) -> Self {
        Work::Copy(way)
    }
}

/// One copy that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceEntry {
    /// Which way it went.
    pub way: CopyWay,
    /// Values of the device's buffer; of the one that is written, where both are.
    pub range: Range<usize>,
    /// Ticks from its first to its last, both included.
    pub ticks: (u64, u64),
}

#[derive(Debug)]
struct Copy {
    id: CopyId,
    work: Work,
    source: Place,
    target: Place,
    /// Copies of other streams that have to be done before it starts.
    waits: Vec<CopyId>,
    started: Option<u64>,
    ticks_left: u64,
    fails: bool,
    raced: bool,
    done: bool,
}

/// An event: the copy that it follows, if any, and all that comes before it.
#[derive(Debug, Clone)]
pub struct StandInEvent {
    pub(super) copy: Option<CopyId>,
    pub(super) clock: Clock,
}

#[derive(Debug, Default)]
struct Stream {
    queue: VecDeque<CopyId>,
    clock: Clock,
    waits: Vec<CopyId>,
    queued: usize,
    ended: usize,
}

#[derive(Debug, Default)]
pub(super) struct Schedule {
    random: u64,
    ticks_max: u64,
    /// Which copies fail, and which sums, each counted from 0 over all streams.
    faults: [Vec<usize>; 2],
    queued: [usize; 2],
    tick: u64,
    streams: Vec<Stream>,
    /// What the host has waited for.
    host: Clock,
    /// Copies that the host has not waited for.
    live: Vec<Copy>,
    failed: Vec<CopyId>,
    trace: Vec<TraceEntry>,
}

impl Schedule {
    pub(super) fn new(seed: u64, ticks_max: u64, faults: [Vec<usize>; 2]) -> Self {
        Self { random: seed, ticks_max: ticks_max.max(1), faults, ..Self::default() }
    }

    pub(super) fn stream(&mut self) -> usize {
        self.streams.push(Stream::default());
        self.streams.len() - 1
    }

    pub(super) fn trace(&self) -> Vec<TraceEntry> {
        self.trace.clone()
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.live.is_empty()
    }

    /// Queues a copy and gives the event of its end.
    pub(super) fn queue(&mut self, stream: usize, work: Work, source: Place, target: Place) -> StandInEvent {
        self.advance();
        let kind = usize::from(!matches!(work, Work::Copy(_)));
        let fails = self.faults[kind].contains(&self.queued[kind]);
        self.queued[kind] += 1;
        let ticks_left = 1 + self.draw() % self.ticks_max;
        let own = &mut self.streams[stream];
        own.clock.join(&self.host);
        let (id, before) = ((stream, own.queued), own.clock.clone());
        own.queued += 1;
        own.queue.push_back(id);
        own.clock.join(&Clock::up_to(id));
        let (waits, clock) = (std::mem::take(&mut own.waits), own.clock.clone());
        let touch = [(&source, false), (&target, true)];
        let raced = touch.map(|(place, writes)| self.race(place.id, &place.range, writes, &before));
        let raced = raced.contains(&true);
        let started = None;
        self.live.push(Copy {
            id,
            work,
            source,
            target,
            waits,
            started,
            ticks_left,
            fails,
            raced,
            done: false,
        });
        StandInEvent { copy: Some(id), clock }
    }

    /// Marks the live copies that race with an access which comes after `before`; whether there are any.
    fn race(&mut self, id: u64, range: &Range<usize>, writes: bool, before: &Clock) -> bool {
        let mut found = false;
        for copy in self.live.iter_mut().filter(|copy| !before.holds(copy.id)) {
            let written = copy.target.overlaps(id, range);
            if written || (writes && copy.source.overlaps(id, range)) {
                found = true;
                copy.raced = true;
                if copy.done {
                    copy.target.spoil();
                }
            }
        }
        found
    }

    /// Parts of a memory that are undefined for the host.
    pub(super) fn undefined(&self, id: u64, length: usize) -> Vec<Range<usize>> {
        let written = self.live.iter().filter(|copy| copy.target.overlaps(id, &(0..length)));
        written.map(|copy| copy.target.range.clone()).collect()
    }

    /// The host changes a memory: copies that read or write it at the same time are spoiled.
    pub(super) fn host_writes(&mut self, id: u64, range: &Range<usize>) {
        let host = self.host.clone();
        self.race(id, range, true, &host);
    }

    pub(super) fn stream_after(&mut self, stream: usize, event: &StandInEvent) {
        self.streams[stream].clock.join(&event.clock);
        self.streams[stream].waits.extend(event.copy);
    }

    pub(super) fn computed(&self) -> StandInEvent {
        StandInEvent { copy: None, clock: self.host.clone() }
    }

    pub(super) fn is_done(&mut self, event: &StandInEvent) -> Result<bool, Error> {
        self.advance();
        let Some(copy) = event.copy else { return Ok(true) };
        let done = self.streams[copy.0].ended > copy.1;
        if done {
            // One that failed is over too: whoever is told so may use the memory again.
            self.host.join(&event.clock);
            let host = self.host.clone();
            self.live.retain(|copy| !(copy.done && host.holds(copy.id)));
        }
        if self.failed.contains(&copy) {
            let reason = format!("copy {} of stream {} failed", copy.1, copy.0);
            return Err(Error::Copy { reason });
        }
        Ok(done)
    }

    /// One tick: every stream works on its first copy.
    pub(super) fn advance(&mut self) {
        if self.live.is_empty() {
            return;
        }
        self.tick += 1;
        // What ends in this tick lets others begin in the next.
        let ended: Vec<usize> = self.streams.iter().map(|stream| stream.ended).collect();
        for stream in 0..self.streams.len() {
            let Some(&id) = self.streams[stream].queue.front() else { continue };
            let Some(at) = self.live.iter().position(|copy| copy.id == id) else { continue };
            let ready = self.live[at].waits.iter().all(|&(other, index)| ended[other] > index);
            if !ready {
                continue;
            }
            let copy = &mut self.live[at];
            copy.started.get_or_insert(self.tick);
            copy.ticks_left -= 1;
            if copy.ticks_left == 0 {
                self.end(at);
            }
        }
    }

    fn end(&mut self, at: usize) {
        let copy = &mut self.live[at];
        copy.done = true;
        if copy.fails || copy.raced {
            copy.target.spoil();
        } else {
            let values = copy.source.read();
            copy.target.write(|target| match copy.work {
                Work::Copy(_) => target.copy_from_slice(&values),
                Work::Sums { run } => {
                    target.iter_mut().zip(sums_of(&values, run)).for_each(|(place, sum)| *place = sum);
                }
            });
        }
        if copy.fails {
            self.failed.push(copy.id);
        }
        if let Work::Copy(way) = copy.work {
            let range = match way {
                CopyWay::ToHost => copy.source.range.clone(),
                CopyWay::ToDevice | CopyWay::OnDevice => copy.target.range.clone(),
            };
            let ticks = (copy.started.unwrap_or(self.tick), self.tick);
            self.trace.push(TraceEntry { way, range, ticks });
        }
        let stream = &mut self.streams[copy.id.0];
        stream.queue.pop_front();
        stream.ended += 1;
    }

    /// splitmix64.
    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}
