//! Makes a log that can be followed out of one that cannot.
//!
//! Up to the first damage every record is kept as it is. Behind it the numbers in a record say whether it can still be
//! followed, for a record holds what was decided:
//!
//! - *Rows* are named by number. A row that only lost records told of is put in as a placeholder that is excluded as
//!   `damaged`, so that the numbers of later rows, and what is said of them, hold.
//! - *Claims, steps and lives* of the store are counted; the ones that are missing are put in as having come to nothing.
//! - *Tables, policies and consumers* are numbered by the order of their declarations alone. A declaration behind missing
//!   records may have any number, and so may what names it: there the log ends.
//! - A record that names a table, a column, a policy or a consumer whose declaration is gone is given up, and so is one that
//!   still cannot follow, with whatever it wrote.

use std::collections::HashSet;

use super::gone;
use super::report::RepairReport;
use crate::log::Place;
use crate::log::record::*;
use crate::state::State;
use crate::table::TableState;

/// The reason of rows that a repair leaves out.
pub(crate) const DAMAGED: &str = "damaged";
/// A record that tells of more lost rows than this at once is not believed.
const ROWS_LOST_MAX: u32 = 1 << 20;
/// The same for claims, steps and lives.
const COUNTED_MAX: u64 = 1 << 20;

/// Records that earlier passes could not apply.
#[derive(Debug, Default)]
pub(super) struct Refused {
    pub(super) records: HashSet<u64>,
    /// There were so many that the log ends before this one.
    pub(super) end: Option<u64>,
}

/// Turns the records of a damaged log into those of the repaired one.
pub(super) struct Mender<'a> {
    pub(super) state: State,
    pub(super) report: RepairReport,
    /// Records that could not be applied on an earlier pass.
    pub(super) refused: &'a Refused,
    /// The record that could not be applied on this pass: it may be applied in part, so the pass is over.
    pub(super) stuck: Option<u64>,
    /// Objects that are missing or damaged, by key and version.
    pub(super) objects: &'a HashSet<(String, u64)>,
    /// The time of the last record that could be read.
    pub(super) last_time: i64,
    /// The first record that the checkpoint does not hold.
    from: u64,
    expected: u64,
    /// Something is missing before this place.
    broken: bool,
    /// A declaration came that may have any number.
    ended: bool,
}

/// Where the records of the repaired log go.
pub(super) type Sink<'a> = &'a mut dyn FnMut(&Record) -> crate::error::Result<()>;

impl<'a> Mender<'a> {
    pub(super) fn new(
        state: State,
        from: u64,
        refused: &'a Refused,
        objects: &'a HashSet<(String, u64)>,
    ) -> Self {
        Mender {
            state,
            report: RepairReport::default(),
            refused,
            stuck: None,
            objects,
            last_time: 0,
            from,
            expected: from,
            broken: false,
            ended: false,
        }
    }

    /// A place that holds no record that can be read. Whether one is missing the number of the next one tells.
    pub(super) fn unreadable(&mut self, place: &Place, reason: &str) {
        self.report.records_unreadable += 1;
        self.report.lose(format!("{} at offset {}: {reason}", place.path.display(), place.offset));
    }

    /// The next record that can be read.
    pub(super) fn take(&mut self, sequence: u64, record: Record, sink: Sink<'_>) -> crate::error::Result<()> {
        if sequence < self.from {
            return Ok(());
        }
        if self.stuck.is_some() || self.ended {
            self.report.records_given_up += u64::from(self.ended);
            return Ok(());
        }
        if sequence < self.expected {
            self.give_up(sequence, "its number was there before");
            return Ok(());
        }
        if sequence > self.expected {
            let missing = sequence - self.expected;
            self.report.records_missing += missing;
            self.report.lose(format!("records {} to {} are missing", self.expected, sequence - 1));
            self.broken = true;
        }
        (self.expected, self.last_time) = (sequence.saturating_add(1), record.time);
        if self.refused.end.is_some_and(|end| sequence >= end) {
            self.ended = true;
            self.give_up(sequence, "too many before it could not follow on what is left; the log ends here");
            return Ok(());
        }
        if self.refused.records.contains(&sequence) {
            self.pass_over(sequence, "it cannot follow on what is left");
            return Ok(());
        }
        self.mend(sequence, record, sink)
    }

    fn mend(&mut self, sequence: u64, mut record: Record, sink: Sink<'_>) -> crate::error::Result<()> {
        let mut changed = false;
        if self.broken {
            if is_declaration(&record.event) {
                self.ended = true;
                self.give_up(
                    sequence,
                    "it declares something whose number cannot be told; the log ends here",
                );
                return Ok(());
            }
            if let Some(gone) = gone::named(&self.state, &record.event) {
                self.pass_over(sequence, &format!("it names {gone}, whose declaration is gone"));
                return Ok(());
            }
            if let Some(claim) = gone::gone_claim(&self.state, &record.event) {
                let Event::Finished { operations, .. } = &mut record.event else {
                    self.pass_over(sequence, &format!("claim {claim}, which it is of, is gone"));
                    return Ok(());
                };
                record.event = Event::Written { operations: std::mem::take(operations) };
                self.give_up(
                    sequence,
                    &format!("claim {claim}, which it finishes, is gone; what it wrote is kept, and its rows are handed out again"),
                );
                changed = true;
            }
            for filler in self.fillers(&record) {
                self.put(sequence, filler, sink)?;
            }
        }
        changed |= self.forget_damaged(&mut record.event);
        if self.stuck.is_none() && self.put(sequence, record, sink)? && !changed {
            self.report.records_kept += 1;
        }
        Ok(())
    }

    /// Applies a record and, if it can be, hands it on.
    fn put(&mut self, sequence: u64, record: Record, sink: Sink<'_>) -> crate::error::Result<bool> {
        match self.state.apply(record.clone()) {
            Ok(_) => sink(&record).map(|()| true),
            Err(_) => {
                self.stuck = Some(sequence);
                Ok(false)
            }
        }
    }

    /// Goes on without a record: from there on one is missing.
    fn pass_over(&mut self, sequence: u64, why: &str) {
        self.broken = true;
        self.give_up(sequence, why);
    }

    fn give_up(&mut self, sequence: u64, why: &str) {
        self.report.records_given_up += 1;
        self.report.lose(format!("record {sequence}: {why}"));
    }

    /// What has to come before a record so that its numbers are the next ones.
    fn fillers(&mut self, record: &Record) -> Vec<Record> {
        let events = match &record.event {
            Event::Written { operations } | Event::Finished { operations, .. } => self.lost_rows(operations),
            Event::Opened { incarnation, .. } => {
                counted(self.state.incarnation + 1, *incarnation, |incarnation| Event::Opened {
                    incarnation,
                    pid: 0,
                })
            }
            Event::Claimed(claim) => self.lost_claims(claim),
            Event::StepBegun { step, .. } => self.lost_steps(*step, true),
            Event::StepCommitted { step, .. } => self.lost_steps(*step, false),
            _ => Vec::new(),
        };
        events.into_iter().map(|event| Record { time: record.time, event, carried: Vec::new() }).collect()
    }

    /// Placeholders for rows that operations take for granted.
    fn lost_rows(&mut self, operations: &[Operation]) -> Vec<Event> {
        let mut placeholders = Vec::new();
        let mut rows: Vec<u32> = self.state.tables.iter().map(TableState::row_count).collect();
        for operation in operations {
            let (table, row, version) = match operation {
                Operation::Insert(insert) => (insert.table, insert.row, Some(insert.policy_version)),
                Operation::Write { table, row, .. }
                | Operation::Append { table, row, .. }
                | Operation::Exclude { table, row, .. }
                | Operation::Span { table, row, .. }
                | Operation::Mask { table, row, .. } => (*table, row.saturating_add(1), None),
                Operation::Group { .. } | Operation::Share { .. } => continue, // they name no row
            };
            let Some(there) = rows.get_mut(table as usize) else { continue };
            if row > *there && row - *there <= ROWS_LOST_MAX {
                let version = version.unwrap_or(self.state.current_version(table));
                for lost in *there..row {
                    self.report.rows_lost += 1;
                    let name = self.state.tables[table as usize].name.clone();
                    self.report.lose(format!("row {lost} of table {name}: no record tells of it"));
                    placeholders.push(Operation::Insert(Box::new(placeholder(table, lost, version))));
                    placeholders.push(Operation::Exclude { table, row: lost, reason: DAMAGED.to_owned() });
                }
                *there = row;
            }
            if matches!(operation, Operation::Insert(_)) {
                *there = (*there).max(row.saturating_add(1));
            }
        }
        if placeholders.is_empty() { Vec::new() } else { vec![Event::Written { operations: placeholders }] }
    }

    /// Claims that are only known by the number of a later one: they had no rows that are known, and came to nothing.
    fn lost_claims(&self, claim: &ClaimRecord) -> Vec<Event> {
        let nothing = |number| {
            Event::Claimed(ClaimRecord {
                claim: number,
                gang: None,
                rows: Vec::new(),
                owner: DAMAGED.to_owned(),
                step: 0,
                ..claim.clone()
            })
        };
        let granted = counted(self.state.claims.next_number(), claim.claim, nothing);
        let ended = granted.iter().map(|event| match event {
            Event::Claimed(claim) => claim.claim,
            _ => 0,
        });
        let claims: Vec<u64> = ended.collect();
        let returned =
            (!claims.is_empty()).then_some(Event::Returned { claims, why: ReturnReason::Released });
        granted.into_iter().chain(returned).collect()
    }

    /// Ends the step that is open where another one begins, and puts in steps that must have been there.
    fn lost_steps(&self, step: u64, begins: bool) -> Vec<Event> {
        let mut events = Vec::new();
        let open = self.state.open_step().filter(|open| begins || *open != step);
        if let Some(open) = open {
            let claims = self.state.membership(open).claims.clone();
            events.push(Event::Returned { claims, why: ReturnReason::CacheDropped });
            events.push(Event::StepAbandoned { step: open });
        }
        let empty = |step| {
            [
                Event::StepBegun { step, plan: Vec::new() },
                Event::StepCommitted { step, updates: Vec::new(), rewind_floor: 0 },
            ]
        };
        events.extend(counted(self.state.next_step(), step, empty).into_iter().flatten());
        if !begins && self.state.open_step() != Some(step) {
            events.push(Event::StepBegun { step, plan: Vec::new() });
        }
        events
    }

    /// Takes damaged objects out of an event. True when it changed.
    fn forget_damaged(&self, event: &mut Event) -> bool {
        match event {
            Event::PolicyCreated { objects, .. } => self.forget(objects),
            Event::StepCommitted { updates, .. } => {
                updates.iter_mut().map(|update| self.forget(&mut update.objects)).fold(false, |a, b| a | b)
            }
            _ => false,
        }
    }

    fn forget(&self, objects: &mut Vec<ObjectRecord>) -> bool {
        let before = objects.len();
        objects.retain(|object| !self.objects.contains(&(object.key.clone(), object.version)));
        objects.len() < before
    }
}

/// Events for the numbers from `next` up to, and without, `found`.
fn counted<T>(next: u64, found: u64, event: impl Fn(u64) -> T) -> Vec<T> {
    if found > next && found - next <= COUNTED_MAX { (next..found).map(event).collect() } else { Vec::new() }
}

fn is_declaration(event: &Event) -> bool {
    matches!(event, Event::PolicyCreated { .. } | Event::TableCreated { .. } | Event::ConsumerCreated { .. })
}

/// A row of which nothing is known but its number.
fn placeholder(table: u32, row: u32, policy_version: u64) -> InsertRecord {
    InsertRecord {
        table,
        row,
        policy_version,
        input: DAMAGED.to_owned(),
        turn: 0,
        trajectory: row,
        attempt: 0,
        supersedes: 0,
        agent: String::new(),
        purpose: 0,
        origin: String::new(),
        parent: String::new(),
        weights: String::new(),
        token: 0,
        numbered: false,
        cells: Vec::new(),
    }
}
