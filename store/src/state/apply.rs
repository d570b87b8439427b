//! How each record changes the state.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::{Effects, State};
use crate::claim::{ClaimProgress, ClaimState};
use crate::clock::Timestamp;
use crate::consumer::{ConsumerKind, ConsumerState, GroupBy, GroupName};
use crate::extent::View;
use crate::log::record::*;
use crate::object::ObjectRef;
use crate::policy::{PolicyMoment, PolicyState};
use crate::schema::{DataColumn, DataType, Element, Role, Schema};
use crate::step::{Planned, StepBatch, StepProgress, StepState, StepUpdate};
use crate::table::{Progress, Purpose, RowMeta, TableState, VersionSpan};

/// The reason of rows whose version was left behind.
pub(crate) const STALE: &str = "stale";
/// The reason of rows whose next attempt took their place.
pub(crate) const SUPERSEDED: &str = "superseded";
/// The reason of rows that were deleted while they could still be trained on.
pub(crate) const DELETED: &str = "deleted";
/// The reason of rows that a rewind left behind.
pub(crate) const REWOUND: &str = "rewound";

impl State {
    /// Applies one record.
    ///
    /// # Errors
    /// The reason why the record cannot follow on this state. A live call never sees one, for it decides on the same
    /// state; from a log it means damage.
    pub(crate) fn apply(&mut self, record: Record) -> Result<Effects, String> {
        let now = Timestamp(record.time);
        let mut effects = Effects::default();
        match record.event {
            Event::Opened { incarnation, .. } => self.opened(incarnation, now)?,
            Event::PolicyCreated { name, version, objects, state_keys } => {
                self.policy_created(&name, version, objects, state_keys, now);
            }
            Event::TableCreated { name, policy, columns } => self.table_created(&name, policy, columns)?,
            Event::ConsumerCreated { name, declaration } => self.consumer_created(&name, declaration)?,
            Event::Written { operations } => self.written(operations, now, &mut effects)?,
            Event::Claimed(claim) => self.claimed(claim, now)?,
            Event::Returned { claims, why } => {
                let to = match why {
                    ReturnReason::Released => ClaimProgress::Released,
                    ReturnReason::Expired => ClaimProgress::Expired,
                    ReturnReason::CacheDropped => ClaimProgress::Returned,
                };
                if why == ReturnReason::CacheDropped {
                    self.count_dropped_caches(&claims);
                }
                claims.iter().for_each(|claim| self.return_claim(*claim, to, now, &mut effects));
            }
            Event::Finished { claim, operations } => {
                self.written(operations, now, &mut effects)?;
                self.advance_claim(claim, ClaimProgress::Finished, now)?;
            }
            Event::Accumulated { claim } => {
                let consumer = self.advance_claim(claim, ClaimProgress::Accumulated, now)?;
                effects.wake.push(consumer);
            }
            Event::StepBegun { step, plan } => self.step_begun(step, plan, now)?,
            Event::StepCommitted { step, updates, rewind_floor } => {
                self.rewind_floor = self.rewind_floor.max(rewind_floor);
                self.step_committed(step, updates, now, &mut effects)?;
            }
            Event::StepAbandoned { step } => self.end_step(step, StepProgress::Abandoned, now),
            Event::Deleted { deletions } => {
                deletions.into_iter().try_for_each(|deletion| self.delete(deletion, &mut effects))?;
            }
            Event::SchemaChanged { table, version, change } => self.change_schema(table, version, change)?,
            Event::Rewound { step, exclude } => self.rewind(step, exclude, &mut effects)?,
        }
        self.commits += 1;
        Ok(effects)
    }

    fn opened(&mut self, incarnation: u64, now: Timestamp) -> Result<(), String> {
        if self.incarnation.checked_add(1) != Some(incarnation) {
            return Err(format!("incarnation {incarnation} follows on {}", self.incarnation));
        }
        self.incarnation = incarnation;
        let mut effects = Effects::default(); // nobody waits yet
        for claim in self.claims.live() {
            self.return_claim(claim, ClaimProgress::Lost, now, &mut effects);
        }
        if let Some(step) = self.open_step() {
            self.end_step(step, StepProgress::Abandoned, now);
        }
        Ok(())
    }

    fn policy_created(
        &mut self,
        name: &str,
        version: u64,
        objects: Vec<ObjectRecord>,
        state_keys: Vec<String>,
        now: Timestamp,
    ) {
        let name: Arc<str> = name.into();
        let objects: Vec<ObjectRef> = objects.into_iter().map(ObjectRef::from_record).collect();
        let state_keys = state_keys.iter().map(|key| Arc::from(key.as_str())).collect();
        let first = PolicyMoment { version, updated_at: now, objects: objects.clone() };
        self.add_policy(PolicyState { name, version, updated_at: now, objects, first, state_keys });
    }

    pub(crate) fn table_created(
        &mut self,
        name: &str,
        policy: u32,
        columns: Vec<ColumnRecord>,
    ) -> Result<(), String> {
        if policy as usize >= self.policies.len() {
            return Err(format!("table {name:?} names policy {policy}, which does not exist"));
        }
        let mut schema = Schema::new().policy(&self.policies[policy as usize].name);
        for column in columns {
            schema = schema.with(column.column()?);
        }
        schema.validate().map_err(|error| error.to_string())?;
        let (id, name) = (self.tables.len() as u32, Arc::<str>::from(name));
        self.tables_by_name.insert(name.clone(), self.tables.len());
        self.tables.push(TableState::new(id, name, schema, policy as usize));
        Ok(())
    }

    pub(crate) fn consumer_created(&mut self, name: &str, declaration: ConsumerRecord) -> Result<(), String> {
        let index = self.consumers.len();
        let kind = if declaration.trainer { ConsumerKind::Trainer } else { ConsumerKind::Task };
        let mut consumed = Vec::new();
        for (&table, &required) in declaration.tables.iter().zip(&declaration.required) {
            let state = self.tables.get_mut(table as usize).ok_or_else(|| format!("no table {table}"))?;
            if state.consumers.contains(&index) || (declaration.trainer && state.trainer.is_some()) {
                return Err(format!("table {table} is named twice, or has a trainer already"));
            }
            let slot = state.add_consumer(index, declaration.trainer);
            if declaration.trainer {
                state.group_by = GroupBy::from_tag(declaration.group);
            }
            consumed.push(crate::consumer::ConsumedTable { table, required, slot });
        }
        let group = GroupBy::from_tag(declaration.group).map(|by| (by, declaration.group_size));
        let name: Arc<str> = name.into();
        self.consumers_by_name.insert(name.clone(), index);
        let mut consumer = ConsumerState::new(name, kind, consumed, group);
        for &table in &declaration.tables {
            consumer.index(&mut self.tables[table as usize]);
        }
        self.consumers.push(consumer);
        self.declarations.push(declaration);
        Ok(())
    }

    fn written(
        &mut self,
        operations: Vec<Operation>,
        now: Timestamp,
        effects: &mut Effects,
    ) -> Result<(), String> {
        for operation in operations {
            match operation {
                Operation::Insert(insert) => self.insert(insert, now, effects)?,
                Operation::Write { table, row, cells } => {
                    self.table(table)?.write(row, &cells, now)?;
                    self.row_changed(table, row, effects);
                }
                Operation::Append { table, row, column, view } => {
                    let state = self.table(table)?;
                    if row >= state.row_count() || usize::from(column) >= state.schema.data_columns().len() {
                        return Err(format!("append to cell {column} of row {row}, which does not exist"));
                    }
                    state.append(row, column, View(view));
                }
                Operation::Exclude { table, row, reason } => {
                    if row >= self.table(table)?.row_count() {
                        return Err(format!("row {row} is excluded but does not exist"));
                    }
                    self.exclude(table, row, &reason, false, effects);
                }
                Operation::Span { table, row, start, version } => {
                    let state = self.table(table)?;
                    if row >= state.row_count() {
                        return Err(format!("row {row} goes on under version {version} but does not exist"));
                    }
                    state.rare.add_span(row, VersionSpan { start, version });
                }
            }
        }
        Ok(())
    }

    fn table(&mut self, table: u32) -> Result<&mut TableState, String> {
        self.tables.get_mut(table as usize).ok_or_else(|| format!("no table {table}"))
    }

    fn insert(&mut self, insert: InsertRecord, now: Timestamp, effects: &mut Effects) -> Result<(), String> {
        let table = insert.table;
        let expected = self.table(table)?.row_count();
        if insert.row != expected || insert.supersedes > expected {
            return Err(format!("row {} is inserted where {expected} should be", insert.row));
        }
        let mut meta = RowMeta {
            policy_version: insert.policy_version,
            created_at: now.0,
            input: self.texts.intern(&insert.input),
            turn: insert.turn,
            trajectory: insert.trajectory,
            attempt: insert.attempt,
            agent: self.texts.intern(&insert.agent),
            origin: self.texts.intern(&insert.origin),
            parent: self.texts.intern(&insert.parent),
            weights: self.texts.intern(&insert.weights),
            ..RowMeta::default()
        };
        meta.set_purpose(Purpose::from_tag(insert.purpose).ok_or("unknown purpose")?);
        meta.set_token(insert.token);
        let superseded = insert.supersedes.checked_sub(1);
        let was_out = superseded.is_some_and(|old| self.tables[table as usize].status(old).is_excluded());
        if let Some(old) = superseded {
            self.exclude(table, old, SUPERSEDED, true, effects);
        }
        let state = self.table(table)?;
        if insert.numbered && insert.token != 0 {
            state.rare.note_token(insert.token, insert.row);
        }
        state.insert(meta);
        state.write(insert.row, &insert.cells, now)?;
        if was_out {
            let table = &self.tables[table as usize];
            table
                .consumers
                .iter()
                .for_each(|&consumer| self.consumers[consumer].row_comes_back(table, insert.row));
        }
        self.row_changed(table, insert.row, effects);
        Ok(())
    }

    /// Tells every consumer of a row that it has come or that one of its cells has turned final.
    fn row_changed(&mut self, table: u32, row: u32, effects: &mut Effects) {
        let table = &mut self.tables[table as usize];
        for slot in 0..table.consumers.len() {
            let consumer = table.consumers[slot];
            if self.consumers[consumer].row_changed(table, row) {
                effects.wake.push(consumer);
            }
        }
    }

    /// Leaves a row out for good. `superseded` says that its next attempt takes its place.
    pub(crate) fn exclude(
        &mut self,
        table: u32,
        row: u32,
        reason: &str,
        superseded: bool,
        effects: &mut Effects,
    ) {
        let reason = self.texts.intern(reason);
        let table = &mut self.tables[table as usize];
        if !table.exclude(row, reason, &self.texts) {
            return;
        }
        for slot in 0..table.consumers.len() {
            let consumer = table.consumers[slot];
            self.consumers[consumer].row_excluded(table, row, superseded);
            effects.wake.push(consumer); // a group may be complete, or a step have nothing left to wait for
        }
    }

    fn claimed(&mut self, record: ClaimRecord, now: Timestamp) -> Result<(), String> {
        self.check_claimed(&record)?;
        let consumer = record.consumer as usize;
        for &row in &record.rows {
            self.consumers[consumer].row_leased(&mut self.tables[record.table as usize], row, record.claim);
        }
        if let Some(step) = self.steps.get_mut(&record.step) {
            step.claims.push(record.claim);
            step.batches.push(StepBatch {
                claim: record.claim,
                consumer,
                table: record.table,
                sequence: record.sequence_in_step,
            });
            step.planned
                .iter_mut()
                .filter(|p| p.consumer == consumer)
                .for_each(|planned| planned.claims += 1);
        }
        let owner = self.texts.intern(&record.owner);
        let claim = ClaimState {
            consumer,
            table: record.table,
            rows: record.rows,
            owner,
            incarnation: self.incarnation,
            granted_at: now,
            deadline: Timestamp(record.deadline),
            accumulated_at: None,
            ended_at: None,
            step: record.step,
            sequence_in_step: record.sequence_in_step,
            progress: ClaimProgress::Leased,
        };
        self.claims.grant(record.claim, claim);
        Ok(())
    }

    /// A claim has the next number, and rows of one of its consumer's tables that are ready for it.
    fn check_claimed(&self, record: &ClaimRecord) -> Result<(), String> {
        let refuse = |why: String| Err(format!("claim {} {why}", record.claim));
        if record.claim != self.claims.next_number() {
            return refuse(format!("stands where {} should", self.claims.next_number()));
        }
        let consumer = self.consumers.get(record.consumer as usize);
        let consumed = consumer.and_then(|c| c.tables.iter().find(|consumed| consumed.table == record.table));
        let (Some(consumed), Some(table)) = (consumed, self.tables.get(record.table as usize)) else {
            return refuse("names a consumer that does not exist or does not read its table".to_owned());
        };
        let ready = |&row: &u32| {
            row < table.row_count() && table.word(consumed.slot, row).progress == Progress::Ready
        };
        match record.rows.iter().find(|row| !ready(row)) {
            Some(row) => refuse(format!("names row {row}, which is not ready")),
            None => Ok(()),
        }
    }

    fn return_claim(&mut self, number: u64, to: ClaimProgress, now: Timestamp, effects: &mut Effects) {
        let Some(claim) = self.claims.get(number).filter(|claim| claim.progress.is_live()) else { return };
        let (consumer, table, rows) = (claim.consumer, claim.table, claim.rows.clone());
        self.claims.advance(number, to, now);
        for row in rows {
            self.consumers[consumer].row_returned(&mut self.tables[table as usize], row, number);
        }
        effects.wake.push(consumer);
    }

    /// Moves a live claim and its rows on. Gives its consumer.
    fn advance_claim(&mut self, number: u64, to: ClaimProgress, now: Timestamp) -> Result<usize, String> {
        let claim = self.claims.get(number).filter(|claim| claim.progress.is_live());
        let claim = claim.ok_or_else(|| format!("claim {number} is not live"))?;
        let (consumer, table, rows) = (claim.consumer, claim.table as usize, claim.rows.clone());
        let progress = if to == ClaimProgress::Accumulated { Progress::Accumulated } else { Progress::Done };
        for row in rows {
            self.consumers[consumer].row_advanced(&mut self.tables[table], row, number, progress);
        }
        self.claims.advance(number, to, now);
        Ok(consumer)
    }

    fn step_begun(&mut self, number: u64, plan: Vec<PlanRecord>, now: Timestamp) -> Result<(), String> {
        let known = plan.iter().all(|entry| (entry.consumer as usize) < self.consumers.len());
        if u32::try_from(number).is_err() {
            return Err(format!("step {number} is more than a row can name"));
        }
        if number != self.next_step() || self.open_step().is_some() || !known {
            return Err(format!("step {number} cannot begin here"));
        }
        let planned = plan.into_iter().map(|entry| self.planned(entry)).collect::<Result<_, _>>()?;
        let step = StepState {
            progress: StepProgress::Open,
            begun_at: now,
            ended_at: None,
            planned,
            claims: Vec::new(),
            batches: Vec::new(),
            first_cache_epoch: self.steps.get(&number).map_or(0, StepState::next_cache_epoch),
            caches_dropped: BTreeMap::new(),
            rows: 0,
            updates: Vec::new(),
        };
        self.steps.insert(number, step);
        Ok(())
    }

    pub(crate) fn planned(&mut self, entry: PlanRecord) -> Result<Planned, String> {
        let consumer = entry.consumer as usize;
        let by = self.consumers[consumer].group.map(|(by, _)| by);
        let mut groups = HashSet::with_capacity(entry.groups.len());
        for key in &entry.groups {
            let parsed = by.and_then(|by| by.parse(key));
            let (input, turn) = parsed.ok_or_else(|| format!("{key:?} is no group of its consumer"))?;
            groups.insert(GroupName { input: self.texts.intern(input), turn });
        }
        Ok(Planned { consumer, groups: Arc::new(groups), rows: entry.rows, claims: 0 })
    }

    fn step_committed(
        &mut self,
        number: u64,
        updates: Vec<UpdateRecord>,
        now: Timestamp,
        effects: &mut Effects,
    ) -> Result<(), String> {
        let step = self.steps.get(&number).filter(|_| self.open_step() == Some(number));
        let claims = step.ok_or_else(|| format!("step {number} is not open"))?.claims.clone();
        let mut consumed = 0;
        for claim in claims {
            let Some(state) = self.claims.get(claim).filter(|c| c.progress == ClaimProgress::Accumulated)
            else {
                continue;
            };
            let (table, rows) = (state.table as usize, state.rows.clone());
            self.advance_claim(claim, ClaimProgress::Consumed, now)?;
            consumed += rows.len() as u64;
            rows.iter().for_each(|&row| self.tables[table].consume(row, number as u32));
        }
        let mut moved = Vec::new();
        for update in updates {
            moved.push(self.update_policy(update, now, effects)?);
        }
        self.end_step(number, StepProgress::Committed, now);
        if let Some(step) = self.steps.get_mut(&number) {
            (step.rows, step.updates) = (consumed, moved);
        }
        Ok(())
    }

    /// Raises a policy's version and leaves the rows of the old one behind, with their reason.
    fn update_policy(
        &mut self,
        update: UpdateRecord,
        now: Timestamp,
        effects: &mut Effects,
    ) -> Result<StepUpdate, String> {
        let index = update.policy as usize;
        let policy = self.policies.get_mut(index).ok_or_else(|| format!("no policy {index}"))?;
        let old = policy.version;
        policy.version = old.checked_add(1).ok_or("a policy is at the greatest version")?;
        policy.updated_at = now;
        policy.objects = update.objects.into_iter().map(ObjectRef::from_record).collect();
        let moved = StepUpdate { policy: index, version: policy.version, objects: policy.objects.clone() };
        for table in 0..self.tables.len() {
            if self.tables[table].policy != index {
                continue;
            }
            if self.tables[table].trainer.is_some() {
                for row in self.tables[table].open_rows_up_to(old) {
                    self.exclude(table as u32, row, STALE, false, effects);
                }
            }
            for &consumer in &self.tables[table].consumers {
                self.consumers[consumer].forget_before(table as u32, old + 1);
                effects.wake.push(consumer);
            }
        }
        Ok(moved)
    }

    pub(crate) fn end_step(&mut self, number: u64, progress: StepProgress, now: Timestamp) {
        if let Some(step) = self.steps.get_mut(&number) {
            step.progress = progress;
            step.ended_at = Some(now);
        }
    }
}

impl ColumnRecord {
    /// The stored form of a column's declaration.
    pub(crate) fn new(column: &DataColumn) -> Self {
        let (kind, element, shape) = match &column.data_type {
            DataType::Bool => (1, 0, Vec::new()),
            DataType::Number(element) => (2, element.tag(), Vec::new()),
            DataType::Utf8 => (3, 0, Vec::new()),
            DataType::Binary => (4, 0, Vec::new()),
            DataType::List(element) => (5, element.tag(), Vec::new()),
            DataType::Tensor(element, shape) => (6, element.tag(), shape.clone()),
        };
        let (name, role) = (column.name.clone(), Role::tag(column.role));
        let (lazy, retired) = (column.lazy, column.retired);
        ColumnRecord { name, kind, element, shape, role, lazy, retired }
    }

    /// The declaration that was stored.
    pub(crate) fn column(&self) -> Result<DataColumn, String> {
        let role = Role::from_tag(self.role).ok_or_else(|| format!("no role {}", self.role))?;
        let data_type = self.data_type()?;
        Ok(DataColumn {
            role,
            lazy: self.lazy,
            retired: self.retired,
            ..DataColumn::new(&self.name, data_type)
        })
    }

    fn data_type(&self) -> Result<DataType, String> {
        let element =
            || Element::from_tag(self.element).ok_or_else(|| format!("no element type {}", self.element));
        Ok(match self.kind {
            1 => DataType::Bool,
            2 => DataType::Number(element()?),
            3 => DataType::Utf8,
            4 => DataType::Binary,
            5 => DataType::List(element()?),
            6 => DataType::Tensor(element()?, self.shape.clone()),
            kind => return Err(format!("no column type {kind}")),
        })
    }
}
