//! How each record changes the state.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::{Effects, State};
use crate::claim::{ClaimProgress, ClaimState};
use crate::clock::Timestamp;
use crate::consumer::{ConsumedTable, ConsumerState, Fallout, GroupBy, GroupChange, GroupName, KeyParts};
use crate::extent::View;
use crate::log::record::*;
use crate::object::ObjectRef;
use crate::origin::EXTERNAL_VERSION;
use crate::policy::{PolicyMoment, PolicyState};
use crate::schema::{DataColumn, DataType, Element, Role, Schema};
use crate::step::{Planned, StepBatch, StepProgress, StepState, StepUpdate};
use crate::table::{Progress, Purpose, RowMeta, TableState, VersionSpan};
use crate::texts::TextId;

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
            Event::Opened { incarnation, .. } => {
                effects.touched = u64::MAX;
                self.opened(incarnation, now)?;
            }
            Event::PolicyCreated { name, version, objects, state_keys } => {
                self.policy_created(&name, version, objects, state_keys, now);
            }
            Event::TableCreated { name, policy, columns } => self.table_created(&name, policy, columns)?,
            Event::ConsumerCreated { name, declaration } => {
                self.consumer_created(&name, declaration, &mut effects)?;
            }
            Event::Written { operations } => self.written(operations, now, &mut effects)?,
            Event::Claimed(claim) => {
                effects.touch(claim.consumer as usize);
                effects.everyone.extend(claim.gang.as_ref().map(|_| claim.consumer as usize));
                self.claimed(claim, now)?;
            }
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
                if why == ReturnReason::CacheDropped {
                    effects.everyone.extend_from_slice(&effects.wake); // a gang learns that its cache is gone
                }
            }
            Event::Finished { claim, operations } => {
                self.written(operations, now, &mut effects)?;
                self.advance_claim(claim, ClaimProgress::Finished, now)?;
            }
            Event::Accumulated { claim } => {
                let consumer = self.advance_claim(claim, ClaimProgress::Accumulated, now)?;
                effects.wake.push(consumer);
            }
            Event::StepBegun { step, plan } => {
                effects.touched = u64::MAX;
                self.step_begun(step, plan, now)?;
            }
            Event::StepCommitted { step, updates, rewind_floor } => {
                effects.touched = u64::MAX;
                self.step_committed(step, updates, now, &mut effects)?;
                self.raise_rewind_floor(rewind_floor);
            }
            Event::RankAccumulated { claim, rank } => self.rank_accumulated(claim, rank)?,
            Event::Extended { claim, deadline } => self.claims.extend(claim, Timestamp(deadline)),
            Event::StepAbandoned { step } => {
                effects.touched = u64::MAX;
                self.end_step(step, StepProgress::Abandoned, now);
            }
            Event::Deleted { deletions } => {
                effects.touched = u64::MAX;
                deletions.into_iter().try_for_each(|deletion| self.delete(deletion, &mut effects))?;
            }
            Event::SchemaChanged { table, version, change } => self.change_schema(table, version, change)?,
            Event::Rewound { step, exclude } => self.rewind(step, exclude, &mut effects)?,
            Event::Moved { moves } => self.moved(moves)?,
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
        let version = self.policies[policy as usize].version;
        let mut table = TableState::new(id, name, schema, policy as usize);
        table.set_current_version(version);
        self.tables.push(table);
        Ok(())
    }

    pub(crate) fn consumer_created(
        &mut self,
        name: &str,
        declaration: ConsumerRecord,
        effects: &mut Effects,
    ) -> Result<(), String> {
        let index = self.consumers.len();
        if declaration.tables.len() != declaration.required.len() {
            return Err(format!("consumer {name:?} names other tables than it requires columns of"));
        }
        let mut consumed = Vec::new();
        for (&table, &required) in declaration.tables.iter().zip(&declaration.required) {
            let state = self.tables.get_mut(table as usize).ok_or_else(|| format!("no table {table}"))?;
            if state.consumers.contains(&index) || (declaration.trainer && state.trainer.is_some()) {
                return Err(format!("table {table} is named twice, or has a trainer already"));
            }
            let slot = state.add_consumer(index, declaration.trainer, declaration.limiter.is_some());
            if declaration.trainer {
                state.freshness.window = declaration.staleness;
                state.group_by =
                    declaration.grouping.as_ref().and_then(|grouping| GroupBy::from_tag(grouping.by));
            }
            let floor = state.oldest_own_version();
            consumed.push(ConsumedTable { table, required, slot, floor });
        }
        let name: Arc<str> = name.into();
        let consumer = ConsumerState::new(name.clone(), &declaration, consumed)?;
        self.consumers_by_name.insert(name, index);
        self.consumers.push(consumer);
        for &table in &declaration.tables {
            self.change_consumer(index, table, effects, |consumer, table, fallout| {
                consumer.index(table, fallout);
            });
            if declaration.staleness.is_some() {
                self.open_window(table, index, effects);
            }
        }
        self.declarations.push(declaration);
        Ok(())
    }

    /// Changes what a consumer holds of a table, and does what follows from it.
    pub(crate) fn change_consumer(
        &mut self,
        consumer: usize,
        table: u32,
        effects: &mut Effects,
        change: impl FnOnce(&mut ConsumerState, &mut TableState, &mut Fallout),
    ) {
        let mut fallout = Fallout::default();
        change(&mut self.consumers[consumer], &mut self.tables[table as usize], &mut fallout);
        effects.touch(consumer);
        if fallout.wake {
            effects.wake.push(consumer);
        }
        for (row, reason) in fallout.left_out {
            self.exclude(table, row, &reason, effects);
        }
    }

    /// The same for every consumer of a table: what follows is done when all of them know.
    pub(super) fn change_consumers(
        &mut self,
        table: u32,
        effects: &mut Effects,
        mut change: impl FnMut(&mut ConsumerState, &mut TableState, &mut Fallout),
    ) {
        let mut left_out = Vec::new();
        for slot in 0..self.tables[table as usize].consumers.len() {
            let state = &mut self.tables[table as usize];
            let consumer = state.consumers[slot];
            let mut fallout = Fallout::default();
            change(&mut self.consumers[consumer], state, &mut fallout);
            effects.touch(consumer);
            if fallout.wake {
                effects.wake.push(consumer);
            }
            left_out.append(&mut fallout.left_out);
        }
        for (row, reason) in left_out {
            self.exclude(table, row, &reason, effects);
        }
    }

    fn written(
        &mut self,
        operations: Vec<Operation>,
        now: Timestamp,
        effects: &mut Effects,
    ) -> Result<(), String> {
        for operation in operations {
            match operation {
                Operation::Insert(insert) => self.insert(*insert, now, effects)?,
                Operation::Write { table, row, cells } => {
                    self.table(table)?;
                    self.cells_turn_final(table, row, &cells)?;
                    self.table(table)?.write(row, &cells, now)?;
                    self.change_consumers(table, effects, |consumer, table, fallout| {
                        consumer.row_changed(table, row, fallout);
                    });
                }
                Operation::Append { table, row, column, view } => {
                    let state = self.table(table)?;
                    if row >= state.row_count() || usize::from(column) >= state.schema.data_columns().len() {
                        return Err(format!("append to cell {column} of row {row}, which does not exist"));
                    }
                    state.append(row, column, View(view));
                    self.fragment_lives(table, column, View(view));
                }
                Operation::Share { view, hash } => self.liveness.share(View(view), hash),
                Operation::Exclude { table, row, reason } => {
                    if row >= self.table(table)?.row_count() {
                        return Err(format!("row {row} is excluded but does not exist"));
                    }
                    self.exclude(table, row, &reason, effects);
                }
                Operation::Group { consumer, table, policy_version, key, change } => {
                    let group = (policy_version, key.as_str());
                    self.group_changed(consumer, table, group, change, effects)?;
                }
                Operation::Span { table, row, start, version } => {
                    let state = self.table(table)?;
                    if row >= state.row_count() {
                        return Err(format!("row {row} goes on under version {version} but does not exist"));
                    }
                    let current = state.freshness.current;
                    state.rare.add_span(row, VersionSpan { start, version }, current);
                    self.change_consumers(table, effects, |consumer, table, _| {
                        consumer.hold_back(table, row);
                    });
                }
                Operation::Mask { table, row, start } => {
                    let state = self.table(table)?;
                    if row >= state.row_count() {
                        return Err(format!("row {row} is masked up to token {start} but does not exist"));
                    }
                    state.rare.mask(row, start);
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
        let state = self.table(table)?;
        let (expected, name) = (state.row_count(), state.name.clone());
        let agent = if insert.agent.is_empty() { &*name } else { &*insert.agent };
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
            agent: self.texts.intern(agent),
            origin: self.texts.intern(&insert.origin),
            parent: self.texts.intern(&insert.parent),
            weights: self.texts.intern(&insert.weights),
            ..RowMeta::default()
        };
        if meta.policy_version == EXTERNAL_VERSION {
            return Err(format!("row {} is of a version that no policy reaches", insert.row));
        }
        meta.set_purpose(Purpose::from_tag(insert.purpose).ok_or("unknown purpose")?);
        meta.set_token(insert.token);
        let superseded = insert.supersedes.checked_sub(1);
        if let Some(old) = superseded {
            let reason = self.texts.intern(SUPERSEDED);
            self.tables[table as usize].exclude(old, reason, &self.texts);
            self.change_consumers(table, effects, |consumer, table, fallout| {
                consumer.row_superseded(table, old, fallout);
            });
        }
        self.cells_turn_final(table, insert.row, &insert.cells)?;
        let state = self.table(table)?;
        if insert.numbered && insert.token != 0 {
            state.rare.note_token(insert.token, insert.row);
        }
        let row = state.insert(meta);
        state.write(row, &insert.cells, now)?;
        self.change_consumers(table, effects, |consumer, table, fallout| {
            consumer.row_inserted(table, row, fallout);
        });
        if let Some(old) = superseded {
            self.change_consumers(table, effects, |consumer, table, fallout| {
                consumer.row_replaced(table, old, fallout);
            });
        }
        Ok(())
    }

    /// Leaves a row out for good.
    pub(crate) fn exclude(&mut self, table: u32, row: u32, reason: &str, effects: &mut Effects) {
        if !self.tables[table as usize].status(row).is_open() {
            return;
        }
        let word = self.texts.intern(reason);
        let state = &mut self.tables[table as usize];
        if !state.exclude(row, word, &self.texts) {
            return;
        }
        effects.wake.extend(&state.consumers); // a group may be complete, or a step have nothing left to wait for
        self.change_consumers(table, effects, |consumer, table, fallout| {
            consumer.row_excluded(table, row, reason, fallout);
        });
    }

    /// Something was said of a group as a whole.
    fn group_changed(
        &mut self,
        consumer: u32,
        table: u32,
        (version, key): (u64, &str),
        change: GroupChangeRecord,
        effects: &mut Effects,
    ) -> Result<(), String> {
        let state = self.consumers.get(consumer as usize);
        let by = state.and_then(|state| state.grouping).map(|grouping| grouping.by);
        let name = by.and_then(|by| self.group_name(by, key));
        let name = name.ok_or_else(|| format!("{key:?} is no group of consumer {consumer}"))?;
        self.table(table)?;
        let what = match change {
            GroupChangeRecord::Expected(members) => GroupChange::Expect(members),
            GroupChangeRecord::Closed => GroupChange::Close,
            GroupChangeRecord::TrajectoryClosed(number) => GroupChange::CloseTrajectory(number),
        };
        self.change_consumer(consumer as usize, table, effects, |consumer, table, fallout| {
            consumer.group_changed(table, (version, name), what, fallout);
        });
        effects.wake.push(consumer as usize);
        Ok(())
    }

    /// The name of the group with that key, known or new.
    fn group_name(&mut self, by: GroupBy, key: &str) -> Option<GroupName> {
        let KeyParts { text, turn, agent, origin } = by.parse(key)?;
        let agent = agent.map_or(TextId::EMPTY, |agent| self.texts.intern(agent));
        Some(GroupName { text: self.texts.intern(text), turn, agent, origin: self.texts.intern(origin) })
    }

    fn claimed(&mut self, record: ClaimRecord, now: Timestamp) -> Result<(), String> {
        self.check_claimed(&record)?;
        let consumer = record.consumer as usize;
        let table = &mut self.tables[record.table as usize];
        self.consumers[consumer].rows_leased(table, &record.rows, record.claim);
        if let Some(step) = self.steps.get_mut(&record.step) {
            step.claims.push(record.claim);
            step.batches.push(StepBatch {
                claim: record.claim,
                consumer,
                table: record.table,
                sequence: record.sequence_in_step,
            });
            step.planned.iter_mut().filter(|p| p.consumer == consumer).for_each(|planned| {
                planned.claims += 1;
                planned.held += record.rows.len() as u64;
            });
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
            gang: record.gang,
            ranks_done: Vec::new(),
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
        let (consumer, table, rows, step) = (claim.consumer, claim.table, claim.rows.clone(), claim.step);
        self.claims.advance(number, to, now);
        let planned = self.steps.get_mut(&step).into_iter().flat_map(|step| &mut step.planned);
        for planned in planned.filter(|planned| planned.consumer == consumer) {
            planned.held = planned.held.saturating_sub(rows.len() as u64);
        }
        self.change_consumer(consumer, table, effects, |consumer, table, fallout| {
            rows.iter().for_each(|&row| consumer.row_returned(table, row, number, fallout));
        });
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
            deleted_rows: 0,
            updates: Vec::new(),
        };
        self.steps.insert(number, step);
        self.resume_plans();
        Ok(())
    }

    pub(crate) fn planned(&mut self, entry: PlanRecord) -> Result<Planned, String> {
        let consumer = entry.consumer as usize;
        let by = self.consumers[consumer].grouping.map(|grouping| grouping.by);
        let mut groups = HashSet::with_capacity(entry.groups.len());
        for key in &entry.groups {
            let name = by.and_then(|by| self.group_name(by, key));
            groups.insert(name.ok_or_else(|| format!("{key:?} is no group of its consumer"))?);
        }
        Ok(Planned { consumer, groups: Arc::new(groups), rows: entry.rows, claims: 0, held: 0 })
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
        self.policy_moved(index, moved.version, effects);
        Ok(moved)
    }

    pub(crate) fn end_step(&mut self, number: u64, progress: StepProgress, now: Timestamp) {
        if let Some(step) = self.steps.get_mut(&number) {
            step.progress = progress;
            step.ended_at = Some(now);
            for planned in &mut step.planned {
                self.consumers[planned.consumer].end_plan();
            }
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
        ColumnRecord { name, kind, element, shape, role, lazy, retired, shared: column.shared }
    }

    /// The declaration that was stored.
    pub(crate) fn column(&self) -> Result<DataColumn, String> {
        let role = Role::from_tag(self.role).ok_or_else(|| format!("no role {}", self.role))?;
        let data_type = self.data_type()?;
        Ok(DataColumn {
            role,
            lazy: self.lazy,
            retired: self.retired,
            shared: self.shared,
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
