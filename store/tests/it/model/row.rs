//! A row of the model, and how a scan shows it.

use forebay_store::{Origin, Row, Value};

pub(super) const COLUMNS: [&str; 3] = ["text", "list", "reward"];

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Content {
    Empty,
    Partial(Vec<i32>),
    /// As a scan shows it.
    Final(String),
}

/// Where a row stands with one consumer, apart from what its cells say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Hold {
    Free,
    Leased(u64),
    Accumulated(u64),
    Done,
}

#[derive(Clone, Debug)]
pub(super) struct ModelRow {
    pub(super) row: Row,
    pub(super) version: u64,
    pub(super) input: u32,
    pub(super) trajectory: u32,
    pub(super) attempt: u32,
    pub(super) eval: bool,
    /// It comes from a peer, of the round that its version says.
    pub(super) peer: bool,
    /// The versions that made its first token that is trained on, and its last.
    pub(super) oldest: u64,
    pub(super) newest: u64,
    pub(super) cells: [Content; 3],
    pub(super) excluded: Option<&'static str>,
    pub(super) deleted: bool,
    pub(super) step: Option<u64>,
    pub(super) train: Hold,
    pub(super) task: Hold,
}

impl ModelRow {
    /// Who it is, whatever the attempt.
    pub(super) fn identity(&self) -> (u64, u32, u32) {
        (self.version, self.input, self.trajectory)
    }

    fn has(&self, columns: &[usize]) -> bool {
        columns.iter().all(|&column| matches!(self.cells[column], Content::Final(_)))
    }

    fn required(trainer: bool) -> &'static [usize] {
        if trainer { &[1, 2] } else { &[0] }
    }

    pub(super) fn hold(&self, trainer: bool) -> Hold {
        if trainer { self.train } else { self.task }
    }

    /// Whether somebody has it now.
    pub(super) fn is_held(&self) -> bool {
        let held = |hold| matches!(hold, Hold::Leased(_) | Hold::Accumulated(_));
        self.excluded.is_none() && (held(self.train) || held(self.task))
    }

    /// Whether a consumer may have it, where the policy stands at `version`.
    pub(super) fn is_ready(&self, trainer: bool, version: u64) -> bool {
        let waits = !self.peer && self.newest > version.max(self.version); // a part of it is of a version to come
        let takes = !(trainer && (self.eval || waits));
        takes
            && !self.deleted
            && self.excluded.is_none()
            && self.hold(trainer) == Hold::Free
            && self.has(Self::required(trainer))
    }

    /// Leaves the row out. One that is stale may come back, and is then with its task where it was. One that is out stays what it is.
    pub(super) fn exclude(&mut self, reason: &'static str) {
        if self.excluded.is_some() {
            return;
        }
        self.excluded = Some(reason);
        self.train = Hold::Free;
        if reason != "stale" {
            self.task = Hold::Free;
        }
    }

    /// What becomes of it when every claim ends.
    pub(super) fn let_go(&mut self) {
        for hold in [&mut self.train, &mut self.task] {
            if *hold != Hold::Done {
                *hold = Hold::Free;
            }
        }
    }

    fn state(&self, version: u64) -> &'static str {
        match self.train {
            _ if self.excluded.is_some() => "excluded",
            _ if self.eval => "aside",
            Hold::Leased(_) => "leased",
            Hold::Accumulated(_) => "accumulated",
            Hold::Done => "consumed",
            Hold::Free if self.is_ready(true, version) => "ready",
            Hold::Free => "waiting",
        }
    }

    pub(super) fn show(&self, version: u64) -> Vec<String> {
        let text = |value: Option<&str>| value.unwrap_or("null").to_owned();
        let mut shown = vec![
            format!("in{}_0_{}", self.input, self.trajectory),
            self.version.to_string(),
            self.attempt.to_string(),
            self.state(version).to_owned(),
            ["leased", "accumulated"].contains(&self.state(version)).to_string(),
            text(self.excluded),
            text(self.step.map(|step| step.to_string()).as_deref()),
        ];
        for cell in &self.cells {
            let value = if let Content::Final(value) = cell { Some(value.as_str()) } else { None };
            shown.extend([text(value), value.is_some().to_string()]);
        }
        shown
    }
}

pub(super) const SHOWN: [&str; 13] = [
    "sample_id",
    "policy_version",
    "attempt",
    "state",
    "is_processing",
    "excluded_reason",
    "step",
    "text",
    "text_status",
    "list",
    "list_status",
    "reward",
    "reward_status",
];

/// Where a peer's row of that version comes from.
pub(super) fn origin(version: u64) -> Origin {
    Origin { peer: "peer".to_owned(), round: version }
}

/// What one append adds to a cell.
pub(super) fn part(column: usize, at: usize) -> Vec<i32> {
    if column == 0 { vec![at as i32 % 10] } else { vec![at as i32, -1, 1 << 20] }
}

pub(super) fn joined(column: usize, parts: &[i32]) -> String {
    let shown: Vec<String> = parts.iter().map(ToString::to_string).collect();
    shown.join(if column == 0 { "" } else { " " })
}

/// A value for a column, and how a scan shows it.
pub(super) fn value(column: usize, variant: u8) -> (Value<'static>, String) {
    match (variant, column) {
        (0, _) => (Value::Null, "null".to_owned()),
        (1, 0) => ("short".into(), "short".to_owned()),
        (_, 0) => ("longer than a view can hold".into(), "longer than a view can hold".to_owned()),
        (v, 1) => (vec![i32::from(v); 3].into(), joined(1, &[i32::from(v); 3])),
        (v, _) => (f64::from(v).into(), format!("{v}.0")),
    }
}
