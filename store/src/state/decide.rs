//! Checks what is asked for against the state, and decides what the record says.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::State;
use super::apply::{STALE, SUPERSEDED};
use crate::clock::Timestamp;
use crate::consumer::{Choice, ConsumerKind, MicroBatch, Readiness, Selection, Shortage};
use crate::error::{Cause, Result};
use crate::extent::View;
use crate::log::record::*;
use crate::maps::FastMap;
use crate::origin::EXTERNAL_VERSION;
use crate::sample_id::SampleId;
use crate::table::{Identity, Progress, Row, VersionSpan};
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

    /// The cells that the request would write.
    pub(crate) fn cells_mut(&mut self) -> &mut [CellRecord] {
        match self {
            Request::Insert(insertion) => &mut insertion.cells,
            Request::Write { cells, .. } => cells,
            _ => &mut [],
        }
    }
}

/// A row that a caller asks for.
#[derive(Clone, Debug)]
pub(crate) struct Insertion {
    pub(crate) table: u32,
    pub(crate) sample: SampleId,
    /// The trajectory's number was given out by the store.
    pub(crate) numbered: bool,
    pub(crate) policy_version: u64,
    /// The row is the next attempt of one that is there.
    pub(crate) next_attempt: bool,
    /// The rollout began before its version was left behind.
    pub(crate) late: bool,
    pub(crate) agent: Option<String>,
    pub(crate) purpose: u8,
    pub(crate) origin: String,
    pub(crate) parent: String,
    pub(crate) weights: String,
    pub(crate) token: u128,
    /// The row is left out from the start.
    pub(crate) excluded: Option<String>,
    pub(crate) cells: Vec<CellRecord>,
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

    /// Decides the next claim of a consumer, in a step or outside of one.
    pub(crate) fn decide_claim(
        &self,
        consumer: usize,
        rule: MicroBatch,
        step: Option<u64>,
    ) -> std::result::Result<(Selection, u32), Shortage> {
        let state = &self.consumers[consumer];
        let versions = |table| self.claimable_versions(consumer, table);
        let allowed = self.may_claim(consumer);
        let select = |choice: Choice| {
            let select = |choice| state.select(&self.tables, versions, &choice).ok_or(Shortage::NotReady);
            let mut selection = select(choice)?;
            if selection.rows.len() > allowed && allowed > 0 && !choice.rule.exact {
                let rule = MicroBatch { rows: allowed, ..choice.rule };
                selection = select(Choice { rule, ..choice })?;
            }
            let enough = selection.rows.len() <= allowed;
            if enough { Ok(self.in_sample_order(selection)) } else { Err(Shortage::NotReady) }
        };
        let Some(number) = step else {
            return Ok((select(Choice { rule, planned: false, flush: false })?, 0));
        };
        let planned = self.steps.get(&number).into_iter().flat_map(|step| &step.planned);
        let Some(planned) = planned.clone().find(|planned| planned.consumer == consumer) else {
            return Err(Shortage::Complete);
        };
        let (open, ready) = self.outstanding(planned);
        if open == 0 {
            return Err(Shortage::Complete);
        }
        let by_groups = !planned.groups.is_empty();
        let rule = if by_groups { rule } else { MicroBatch { rows: rule.rows.min(open), ..rule } };
        Ok((select(Choice { rule, planned: by_groups, flush: ready >= open })?, planned.claims))
    }

    /// Rows that a step has yet to hand out to a consumer, and how many of those are ready.
    fn outstanding(&self, planned: &crate::step::Planned) -> (usize, usize) {
        let consumer = &self.consumers[planned.consumer];
        if !planned.groups.is_empty() {
            return consumer.outstanding();
        }
        let open = planned.rows.saturating_sub(planned.held) as usize;
        (open, self.claimable_rows(planned.consumer))
    }

    /// How a consumer stands for those who want to claim of it.
    pub(crate) fn readiness(&self, consumer: usize) -> Readiness {
        if self.consumers[consumer].kind == ConsumerKind::Task {
            return Readiness { rows: self.claimable_rows(consumer).min(self.may_claim(consumer)), step: 0 };
        }
        let step = self.open_step().unwrap_or(0);
        let planned = self.steps.get(&step).into_iter().flat_map(|step| &step.planned);
        let planned = planned.filter(|_| step != 0).find(|planned| planned.consumer == consumer);
        let (open, ready) = planned.map_or((0, 0), |planned| self.outstanding(planned));
        let allowed = self.may_claim(consumer);
        let rows = if ready >= open && allowed >= open { Readiness::LOOK } else { ready.min(allowed) };
        Readiness { rows, step }
    }

    fn in_sample_order(&self, mut selection: Selection) -> Selection {
        let table = &self.tables[selection.table as usize];
        let texts = self.texts.pages();
        selection.rows.sort_by_cached_key(|&row| table.meta(row).sample(texts));
        selection
    }

    /// Checks that a step can be committed with these updates.
    pub(crate) fn decide_commit(&self, step: u64, updates: &[UpdateRecord]) -> Result<()> {
        let Some(state) = self.steps.get(&step).filter(|_| self.open_step() == Some(step)) else {
            return Err(Cause::StepClosed { step }.into());
        };
        self.check_named_once(updates)?;
        self.check_state_named(updates)?;
        let mut accumulated = vec![0_usize; self.policies.len()];
        for (number, claim) in state.claims.iter().filter_map(|n| Some((*n, self.claims.get(*n)?))) {
            match claim.progress {
                crate::claim::ClaimProgress::Leased => {
                    let consumer = self.consumers[claim.consumer].name.to_string();
                    return Err(Cause::StepUnfinished { claim: number, consumer }.into());
                }
                crate::claim::ClaimProgress::Accumulated => {
                    accumulated[self.tables[claim.table as usize].policy] += claim.rows.len();
                }
                _ => {}
            }
        }
        for (index, &rows) in accumulated.iter().enumerate() {
            let named = updates.iter().any(|update| update.policy as usize == index);
            let (policy, version) = (self.policies[index].name.to_string(), self.policies[index].version);
            if named && rows == 0 {
                return Err(Cause::PolicyIdle { policy, step, version }.into());
            }
            if !named && rows > 0 {
                return Err(Cause::PolicyMissing { policy, step, rows }.into());
            }
        }
        Ok(())
    }

    /// The update of a durable policy names every object that its trainer needs to go on.
    fn check_state_named(&self, updates: &[UpdateRecord]) -> Result<()> {
        for update in updates {
            let policy = &self.policies[update.policy as usize];
            let named = |key: &&Arc<str>| update.objects.iter().any(|object| *object.key == ***key);
            if let Some(key) = policy.state_keys.iter().find(|key| !named(key)) {
                let (policy, key) = (policy.name.to_string(), key.to_string());
                return Err(Cause::StateMissing { policy, key }.into());
            }
        }
        Ok(())
    }

    fn check_named_once(&self, updates: &[UpdateRecord]) -> Result<()> {
        for (at, update) in updates.iter().enumerate() {
            if updates[..at].iter().any(|other| other.policy == update.policy) {
                let policy = &self.policies[update.policy as usize].name;
                let reason = format!("policy {policy:?} is named twice; a step moves it once");
                return Err(Cause::Argument { what: "updates", reason }.into());
            }
        }
        Ok(())
    }

    /// A live, leased or accumulated claim of this process, or the error that fences its holder off.
    pub(crate) fn check_claim(
        &self,
        claim: u64,
        expected: &'static [&'static str],
    ) -> Result<&crate::claim::ClaimState> {
        let state = self.claims.get(claim);
        match state {
            Some(state) if expected.contains(&state.progress.as_str()) => Ok(state),
            found => {
                let found = found.map_or("ended", |claim| claim.progress.as_str());
                Err(Cause::ClaimFenced { claim, found, expected: expected[0] }.into())
            }
        }
    }

    /// Leased claims whose deadline has come.
    pub(crate) fn decide_expiry(&self, now: Timestamp) -> Vec<u64> {
        self.claims.due(now)
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

impl Decision<'_> {
    fn insert(&mut self, mut insertion: Insertion, operations: &mut Vec<Operation>) -> Result<Row> {
        let Insertion { table, sample, policy_version, .. } = &insertion;
        let state = &self.state.tables[*table as usize];
        let policy = &self.state.policies[state.policy];
        let identity = self.identity(*policy_version, sample);
        let there = identity.and_then(|identity| state.find(identity));
        if let Some(row) = there
            && insertion.token != 0
            && state.meta(row).token() == insertion.token
        {
            return Ok(Row::new(*table, row, *policy_version, sample));
        }
        if let Some(row) = self.numbered_before(&insertion) {
            return Ok(row);
        }
        if state.rare.is_retired(*policy_version) {
            let (table, version) = (state.name.to_string(), *policy_version);
            return Err(Cause::Retired { table, version }.into());
        }
        if identity.is_some_and(|identity| state.rare.is_deleted(&identity)) {
            let (table, sample_id) = (state.name.to_string(), sample.to_string());
            return Err(Cause::RowDeleted { table, sample_id, version: *policy_version }.into());
        }
        if insertion.origin.is_empty() && *policy_version < state.freshness.oldest() {
            let (policy, current) = (policy.name.to_string(), policy.version);
            if !insertion.late {
                return Err(Cause::Stale { policy, version: *policy_version, current }.into());
            }
            insertion.excluded.get_or_insert_with(|| STALE.to_owned());
        }
        let Insertion { table, sample, policy_version, .. } = &insertion;
        if *policy_version == EXTERNAL_VERSION {
            let reason = format!("{policy_version} is above every version that a policy can reach");
            return Err(Cause::Argument { what: "version", reason }.into());
        }
        self.check_identity(&insertion, there)?;
        self.state.check_columns(*table, &insertion.cells)?;
        self.state.check_lengths(*table, &insertion.cells, |_| None)?;
        if let Some(old) = there {
            self.check_can_leave(*table, old, "superseded")?;
            self.check_purpose(&insertion, old)?;
            self.left_out.insert((*table, old), SUPERSEDED.to_owned());
        }
        let row = self.next_row(*table)?;
        let handle = Row::new(*table, row, *policy_version, sample);
        let (table, excluded) = (*table, insertion.excluded.take());
        if insertion.numbered && insertion.token != 0 {
            self.tokens.insert((table, insertion.token), handle);
        }
        operations.push(Operation::Insert(Box::new(self.record(insertion, row, there))));
        operations.extend(excluded.map(|reason| Operation::Exclude { table, row, reason }));
        Ok(handle)
    }

    /// What names a row; `None` while no row has that input.
    fn identity(&mut self, policy_version: u64, sample: &SampleId) -> Option<Identity> {
        let known = self.input.as_ref().filter(|(last, _)| last.input() == sample.input());
        let input = match known {
            Some((_, text)) => *text,
            None => {
                let text = self.state.texts.find(sample.input());
                self.input = Some((sample.clone(), text));
                text
            }
        };
        let (turn, trajectory) = (sample.turn(), sample.trajectory());
        Some(Identity { policy_version, input: input?, turn, trajectory })
    }

    /// The row that was given a number for the same token before.
    fn numbered_before(&self, insertion: &Insertion) -> Option<Row> {
        let Insertion { table, token, numbered: true, .. } = insertion else { return None };
        let state = &self.state.tables[*table as usize];
        let known = state.rare.row_of_token(*token).map(|row| {
            let meta = state.meta(row);
            Row::new(*table, row, meta.policy_version, &self.state.sample_of(*table, row))
        });
        known.or_else(|| self.tokens.get(&(*table, *token)).copied().filter(|_| *token != 0))
    }

    /// A new row has an identity of its own; a next attempt has that of a row that is there.
    fn check_identity(&mut self, insertion: &Insertion, there: Option<u32>) -> Result<()> {
        let Insertion { table, sample, policy_version: version, next_attempt, .. } = insertion;
        let again = !self.fresh.insert((*table, *version, sample.clone()));
        if !again && there.is_some() == *next_attempt {
            return Ok(());
        }
        let (sample_id, version) = (sample.to_string(), *version);
        if *next_attempt && !again {
            let name = format!("{sample_id} of version {version}");
            return Err(Cause::Unknown { what: "row", name, close: None }.into());
        }
        let table = self.state.tables[*table as usize].name.to_string();
        Err(Cause::DuplicateRow { table, sample_id, version }.into())
    }

    /// A next attempt takes the place of the one before, so it is for the same purpose and of the same origin.
    fn check_purpose(&self, insertion: &Insertion, old: u32) -> Result<()> {
        let meta = self.state.tables[insertion.table as usize].meta(old);
        let (purpose, origin) = (meta.purpose(), self.state.texts.get(meta.origin));
        if origin != insertion.origin {
            let reason = "the row that it takes the place of has another one".to_owned();
            return Err(Cause::Argument { what: "origin", reason }.into());
        }
        if purpose as u8 == insertion.purpose {
            return Ok(());
        }
        let reason = format!("the row's next attempt is for another one than {}", purpose.as_str());
        Err(Cause::Argument { what: "purpose", reason }.into())
    }

    /// The number of the next row that this batch inserts. Numbers are never used again.
    fn next_row(&mut self, table: u32) -> Result<u32> {
        let (there, before) = (self.state.tables[table as usize].row_count(), self.count_insert(table));
        let row = there.checked_add(before).filter(|row| *row < u32::MAX);
        let used_up = || {
            let (left, wanted) = (u64::from(u32::MAX - there), u64::from(before) + 1);
            Cause::NumbersUsedUp { what: "rows of a table", left, wanted }.into()
        };
        row.ok_or_else(used_up)
    }

    fn count_insert(&mut self, table: u32) -> u32 {
        match self.inserted.iter_mut().find(|(t, _)| *t == table) {
            Some((_, count)) => {
                *count += 1;
                *count - 1
            }
            None => {
                self.inserted.push((table, 1));
                0
            }
        }
    }

    fn record(&self, insertion: Insertion, row: u32, supersedes: Option<u32>) -> InsertRecord {
        let table = &self.state.tables[insertion.table as usize];
        InsertRecord {
            table: insertion.table,
            row,
            policy_version: insertion.policy_version,
            input: insertion.sample.input().to_owned(),
            turn: insertion.sample.turn(),
            trajectory: insertion.sample.trajectory(),
            attempt: supersedes.map_or(0, |old| table.meta(old).attempt + 1),
            supersedes: supersedes.map_or(0, |old| old + 1),
            agent: insertion.agent.filter(|agent| **agent != *table.name).unwrap_or_default(),
            purpose: insertion.purpose,
            origin: insertion.origin,
            parent: insertion.parent,
            weights: insertion.weights,
            token: insertion.token,
            numbered: insertion.numbered,
            cells: insertion.cells,
        }
    }

    fn change(&mut self, request: Request) -> Result<Option<Operation>> {
        Ok(match request {
            Request::Insert(_) => None,
            Request::Write { row, cells } => self.write(row, cells)?,
            Request::Append { row, column, view } => {
                self.check_open_cell(row, column, "appended to")?;
                Some(Operation::Append { table: row.table, row: row.index, column, view: view.0 })
            }
            Request::Finalize { row, column, fragments, value } => {
                let state = &self.state.tables[row.table as usize];
                self.check_open_cell(row, column, "finalized")?;
                if fragments == 0 || state.fragments(row.index, column).len() != fragments {
                    let found = if fragments == 0 { "empty" } else { "growing in another thread" };
                    return Err(self.not_partial(row, column, found, "finalized"));
                }
                let cells = vec![CellRecord { column, value }];
                self.check_lengths(row, &cells)?;
                Some(Operation::Write { table: row.table, row: row.index, cells })
            }
            Request::Group { consumer, table, policy_version, key, change } => {
                let changes = self.state.check_group(consumer, table, (policy_version, &key), change)?;
                changes.then_some(Operation::Group { consumer, table, policy_version, key, change })
            }
            Request::Span { row, span } => self.span(row, span)?,
            Request::Mask { row, start } => self.mask(row, start)?,
            Request::Exclude { row, reason } => {
                self.check_row(row)?;
                self.check_can_leave(row.table, row.index, "excluded")?;
                self.left_out.entry((row.table, row.index)).or_insert_with(|| reason.clone());
                Some(Operation::Exclude { table: row.table, row: row.index, reason })
            }
        })
    }

    /// Cells that are final already with the same bytes are dropped: writing them again is success.
    fn write(&mut self, row: Row, cells: Vec<CellRecord>) -> Result<Option<Operation>> {
        self.check_row(row)?;
        self.state.check_columns(row.table, &cells)?;
        let state = &self.state.tables[row.table as usize];
        let mut new = Vec::with_capacity(cells.len());
        for cell in cells {
            let column = || state.schema.data_columns()[cell.column as usize].name.clone();
            if state.is_partial(row.index, cell.column) {
                return Err(Cause::CellPartial { column: column(), row: self.shown(row) }.into());
            }
            let place = (row.table, row.index, cell.column);
            let old = state.cell(cell.column as usize, row.index).or(self.cells.get(&place).copied());
            match old {
                None => {
                    self.cells.insert(place, cell.value);
                    new.push(cell);
                }
                Some(old) if (self.same_bytes)(row.table, cell.column, old, cell.value)? => {}
                Some(_) => return Err(Cause::CellFinal { column: column(), row: self.shown(row) }.into()),
            }
        }
        if !new.is_empty() {
            self.check_not_excluded(row)?;
            self.check_lengths(row, &new)?;
        }
        Ok((!new.is_empty()).then_some(Operation::Write { table: row.table, row: row.index, cells: new }))
    }

    fn check_lengths(&self, row: Row, cells: &[CellRecord]) -> Result<()> {
        let table = &self.state.tables[row.table as usize];
        let known = |column: u16| {
            let here = self.cells.get(&(row.table, row.index, column)).copied();
            table.cell(column as usize, row.index).or(here)
        };
        self.state.check_lengths(row.table, cells, known)
    }

    /// Spans come in their order; the last one may be told again.
    fn span(&mut self, row: Row, span: VersionSpan) -> Result<Option<Operation>> {
        self.check_row(row)?;
        self.check_not_excluded(row)?;
        let table = &self.state.tables[row.table as usize];
        let first = VersionSpan { start: 0, version: table.meta(row.index).policy_version };
        let known = table.rare.spans().get(row.index).last().copied().unwrap_or(first);
        let last = self.spans.insert((row.table, row.index), span).unwrap_or(known);
        if span == last {
            return Ok(None);
        }
        if span.start <= last.start || span.version <= last.version {
            let (table, row, VersionSpan { start, version }) = (table.name.to_string(), row.index, span);
            let reason = format!(
                "version {version} from token {start} on does not follow on version {} from token {} on, in row {row} \
                 of table {table:?}",
                last.version, last.start
            );
            return Err(Cause::Argument { what: "span", reason }.into());
        }
        let VersionSpan { start, version } = span;
        Ok(Some(Operation::Span { table: row.table, row: row.index, start, version }))
    }

    /// What is masked stays masked; the same may be told again.
    fn mask(&mut self, row: Row, start: u32) -> Result<Option<Operation>> {
        self.check_row(row)?;
        self.check_not_excluded(row)?;
        let table = &self.state.tables[row.table as usize];
        let known = table.rare.trainable_from(row.index);
        let last = self.masks.insert((row.table, row.index), start).unwrap_or(known);
        if start < last {
            let (table, row) = (table.name.to_string(), row.index);
            let reason = format!(
                "row {row} of table {table:?} is trained on from token {last} on, not from {start}; what is masked \
                 stays masked"
            );
            return Err(Cause::Argument { what: "mask", reason }.into());
        }
        Ok((start > last).then_some(Operation::Mask { table: row.table, row: row.index, start }))
    }

    fn check_not_excluded(&self, row: Row) -> Result<()> {
        let status = self.state.tables[row.table as usize].status(row.index);
        let here = self.left_out.get(&(row.table, row.index)).map(String::as_str);
        let there = status.is_excluded().then(|| self.state.texts.get(status.excluded));
        match there.or(here) {
            None => Ok(()),
            Some(reason) => {
                Err(Cause::RowExcluded { row: self.shown(row), reason: reason.to_owned() }.into())
            }
        }
    }

    /// A row that is there, as a message shows it.
    fn shown(&self, row: Row) -> String {
        self.state.shown_row(row.table, row.index)
    }

    fn check_row(&self, row: Row) -> Result<()> {
        let table = self.state.tables.get(row.table as usize);
        let known = table.is_some_and(|t| row.index < t.row_count() && !t.is_removed(row.index));
        if known {
            return Ok(());
        }
        let name = format!("{} of table {}", row.index, row.table);
        Err(Cause::Unknown { what: "row", name, close: None }.into())
    }

    fn check_open_cell(&self, row: Row, column: u16, verb: &'static str) -> Result<()> {
        self.check_row(row)?;
        self.state.check_column(row.table, column)?;
        self.check_not_excluded(row)?;
        let status = self.state.tables[row.table as usize].status(row.index);
        if status.finals >> column & 1 == 1 {
            return Err(self.not_partial(row, column, "final", verb));
        }
        Ok(())
    }

    fn not_partial(&self, row: Row, column: u16, found: &'static str, verb: &'static str) -> crate::Error {
        let columns = self.state.tables[row.table as usize].schema.data_columns();
        let column = columns[column as usize].name.clone();
        Cause::CellNotPartial { column, row: self.shown(row), found, verb }.into()
    }

    /// A row whose gradient a trainer holds cannot be taken out from under it.
    fn check_can_leave(&self, table: u32, row: u32, verb: &'static str) -> Result<()> {
        let state = &self.state.tables[table as usize];
        let status = state.status(row);
        if status.step != 0 {
            let row = self.state.shown_row(table, row);
            return Err(Cause::RowConsumed { row, step: status.step.into(), verb }.into());
        }
        let Some(slot) = state.trainer else { return Ok(()) };
        let word = state.word(slot, row);
        if matches!(word.progress, Progress::Leased | Progress::Accumulated) {
            let (claim, found) = (word.ticket_or_claim, "held by a trainer");
            return Err(Cause::ClaimFenced { claim, found, expected: "released" }.into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::{Cause, DataType, Kind, NewRow, Options, Schema, SimulatedDisk, Store};

    #[test]
    fn rows_whose_numbers_would_begin_again_are_refused() {
        let options = Options::default().disk(Arc::new(SimulatedDisk::default()));
        let store = Store::open("/store", options).unwrap();
        let table = store.create_table("solver", Schema::new().data("reward", DataType::Float32)).unwrap();
        store.0.state.lock().tables[0].pretend_rows(u32::MAX - 2);
        let mut batch = store.batch();
        for i in 0..3 {
            batch.insert(&table, NewRow::new(0, &format!("q_0_{i}")).unwrap(), []).unwrap();
        }
        let refused = batch.commit().unwrap_err();
        let Cause::NumbersUsedUp { left: 2, wanted: 3, .. } = refused.cause() else { panic!("{refused}") };
        assert_eq!(refused.kind(), Kind::Capacity);
        assert_eq!(store.closed(), None);
    }
}
