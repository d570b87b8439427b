//! Checks what is asked for against the state, and decides what the record says.

mod change;
mod checks;
mod claims;
mod commit;
mod insert;

use std::collections::{HashMap, HashSet};

use super::State;
use crate::error::Result;
use crate::extent::View;
use crate::log::record::{CellRecord, GroupChangeRecord, InsertRecord, Operation, StoredValue};
use crate::maps::FastMap;
use crate::sample_id::SampleId;
use crate::table::{Row, VersionSpan};
use crate::texts::TextId;

/// One change that a caller asks for; values are in their extents already.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    Insert(Insertion),
    Write { row: Row, cells: Vec<CellRecord> },
    Append { row: Row, column: u16, view: View },
    Finalize { row: Row, column: u16, fragments: usize, value: StoredValue },
    Exclude { row: Row, reason: String },
    Group { consumer: u32, table: u32, policy_version: u64, key: String, change: GroupChangeRecord },
    Span { row: Row, span: VersionSpan },
    Mask { row: Row, start: u32 },
}

impl Request {
    /// Whether it does nothing but begin a row, or say how many are to come: nobody waits for it who holds one.
    pub(crate) fn begins(&self) -> bool {
        match self {
            Request::Insert(_) => true,
            Request::Group { change, .. } => matches!(change, GroupChangeRecord::Expected(_)),
            _ => false,
        }
    }

    /// Whether it makes the state grow.
    pub(crate) fn grows(&self) -> bool {
        !matches!(self, Request::Exclude { .. } | Request::Group { .. })
    }

    /// How many spans come with it.
    pub(crate) fn spans(&self) -> usize {
        match self {
            Request::Insert(insertion) => insertion.spans.len(),
            Request::Span { .. } => 1,
            _ => 0,
        }
    }

    /// The cells that the request would write.
    pub(crate) fn cells_mut(&mut self) -> &mut [CellRecord] {
        match self {
            Request::Insert(insertion) => &mut insertion.record.cells,
            Request::Write { cells, .. } => cells,
            _ => &mut [],
        }
    }
}

/// A row that a caller asks for.
#[derive(Clone, Debug)]
pub(crate) struct Insertion {
    pub(crate) sample: SampleId,
    /// The [key](Row::key) that its handle will have.
    pub(crate) key: u64,
    /// The row is the next attempt of one that is there.
    pub(crate) next_attempt: bool,
    /// The rollout began before its version was left behind.
    pub(crate) late: bool,
    /// The versions that its rollout went on under.
    pub(crate) spans: Vec<VersionSpan>,
    /// The first token to train on.
    pub(crate) trainable_from: u32,
    /// The row is left out from the start.
    pub(crate) excluded: Option<String>,
    /// What the log will say of it, but for its number and which attempt it is: only the state knows those.
    pub(crate) record: Box<InsertRecord>,
}

/// Decides whether the stored values behind two views have the same bytes.
pub(crate) type SameBytes<'a> = &'a dyn Fn(u32, u16, StoredValue, StoredValue) -> Result<bool>;

impl State {
    /// Turns requests into the operations of one record and gives the rows that insertions led to, in order.
    pub(crate) fn decide_writes(
        &self,
        requests: Vec<Request>,
        same_bytes: SameBytes<'_>,
    ) -> Result<(Vec<Operation>, Vec<Row>)> {
        self.check_texts_left(requests.len())?;
        let inserts = requests.iter().filter(|request| matches!(request, Request::Insert(_))).count();
        let written =
            |request: &Request| if let Request::Write { cells, .. } = request { cells.len() } else { 0 };
        let cells = requests.iter().map(written).sum();
        let mut decision = Decision {
            state: self,
            same_bytes,
            fresh: HashSet::with_capacity_and_hasher(inserts, foldhash::quality::RandomState::default()),
            input: None,
            tokens: HashMap::new(),
            spans: FastMap::default(),
            masks: FastMap::default(),
            inserted: Vec::new(),
            cells: FastMap::with_capacity_and_hasher(cells, foldhash::fast::RandomState::default()),
            left_out: FastMap::default(),
        };
        let mut operations = Vec::with_capacity(requests.len());
        let mut rows = Vec::new();
        for request in requests {
            match request {
                Request::Insert(insertion) => rows.push(decision.insert(insertion, &mut operations)?),
                other => operations.extend(decision.change(other)?),
            }
        }
        Ok((operations, rows))
    }
}

/// A batch of requests under decision.
struct Decision<'a> {
    state: &'a State,
    same_bytes: SameBytes<'a>,
    /// Identities that this batch inserts.
    fresh: HashSet<(u32, u64, SampleId), foldhash::quality::RandomState>,
    /// The input of the row before, and its text: rows of a group come together.
    input: Option<(SampleId, Option<TextId>)>,
    /// Rows that this batch inserts on trajectories that are numbered here, by token.
    tokens: HashMap<(u32, u128), Row>,
    /// The last spans that this batch adds.
    spans: FastMap<(u32, u32), VersionSpan>,
    /// The first tokens to train on that this batch names.
    masks: FastMap<(u32, u32), u32>,
    /// How many rows this batch inserts, by table.
    inserted: Vec<(u32, u32)>,
    /// Cells that this batch turns final.
    cells: FastMap<(u32, u32, u16), StoredValue>,
    /// Rows that this batch leaves out, with the reason.
    left_out: FastMap<(u32, u32), String>,
}
