//! A consumer as the engine holds it: which of its rows are ready, and in what order.
//!
//! Every change of a row's [`Progress`](crate::table::Progress) for this consumer happens in this folder, so the queues,
//! the groups and the words in the table always agree. What a change means for rows elsewhere (a surplus row, a group
//! that its rule leaves out) and for those who wait is told in a [`Fallout`], which the caller acts on.
//!
//! [`mod@super::rows`] has the changes of rows, [`mod@super::members`] those of groups, [`mod@super::select`] what a claim
//! takes.

use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::condition::Condition;
use super::declaration::ConsumerKind;
use super::deleted::DeletedMembers;
use super::group::{Group, GroupName};
use super::grouping::Grouping;
use super::limiter::RateLimiter;
use super::partition::Partition;
use super::plan::PlanProgress;
use super::reindex::Said;
use crate::log::record::{ConsumerRecord, InsertRecord};
use crate::origin::{EXTERNAL_VERSION, Origins};
use crate::table::RowMeta;

/// The reason of rows that came to a group that has all its members, or to a trajectory that had ended.
pub(crate) const SURPLUS: &str = "surplus";
/// The reason of rows that were not there, or not ready, when their group was closed.
pub(crate) const LATE: &str = "late";

/// One consumer.
#[derive(Debug)]
pub(crate) struct ConsumerState {
    pub(crate) name: Arc<str>,
    pub(crate) kind: ConsumerKind,
    pub(crate) tables: Vec<ConsumedTable>,
    pub(crate) grouping: Option<Grouping>,
    /// A bit a purpose.
    pub(super) purposes: u8,
    pub(super) origins: Origins,
    pub(super) conditions: Vec<Condition>,
    /// The columns that order what is ready, by table; empty where age does.
    pub(super) priority: Vec<u16>,
    pub(crate) limiter: Option<RateLimiter>,
    /// By table and version, of versions that are not over; rows of peers have one of their own.
    pub(super) partitions: BTreeMap<(u32, u64), Partition>,
    /// By table and version, of versions that are over.
    pub(super) said: BTreeMap<(u32, u64), Vec<Said>>,
    /// Of versions that a rewind may bring back, over or not.
    pub(super) deleted: DeletedMembers,
    pub(super) next_ticket: u64,
    /// What the open step takes of its groups, if it does.
    pub(super) plan: Option<PlanProgress>,
}

/// A consumer's view of one of its tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConsumedTable {
    pub(crate) table: u32,
    /// Columns that must be final, a bit each.
    pub(crate) required: u64,
    /// Which of the table's consumers this is.
    pub(crate) slot: usize,
    /// Rows of versions before this one are nobody's business any more.
    pub(crate) floor: u64,
}

/// What a change means beyond itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Fallout {
    /// Something became claimable, or there is nothing left to wait for.
    pub(crate) wake: bool,
    /// Rows that are to be left out for good, with the reason.
    pub(crate) left_out: Vec<(u32, Arc<str>)>,
}

impl ConsumerState {
    /// A consumer of no rows yet.
    ///
    /// # Errors
    /// What is wrong with the declaration: it did not come from [`declare`](crate::state::declare).
    pub(crate) fn new(
        name: Arc<str>,
        declaration: &ConsumerRecord,
        tables: Vec<ConsumedTable>,
    ) -> Result<Self, String> {
        let grouping = declaration.grouping.as_ref();
        let grouping = grouping
            .map(|record| {
                Grouping::from_record(record).ok_or_else(|| format!("{name:?} groups in no known way"))
            })
            .transpose()?;
        let members = grouping.map_or(1, |grouping| grouping.size);
        let limiter = declaration.limiter.as_ref();
        let limiter = limiter.map(|record| RateLimiter::from_record(record, members)).transpose()?;
        let conditions = declaration.conditions.iter().map(Condition::from_record);
        let conditions = conditions.collect::<Option<Vec<_>>>();
        Ok(ConsumerState {
            kind: if declaration.trainer { ConsumerKind::Trainer } else { ConsumerKind::Task },
            tables,
            grouping,
            purposes: declaration.purposes,
            origins: Origins::from_tag(declaration.origins)
                .ok_or_else(|| format!("{name:?} takes rows of no known origin"))?,
            conditions: conditions.ok_or_else(|| format!("{name:?} compares in no known way"))?,
            priority: declaration.priority.clone(),
            limiter,
            partitions: BTreeMap::new(),
            said: BTreeMap::new(),
            deleted: DeletedMembers::default(),
            next_ticket: 1,
            plan: None,
            name,
        })
    }

    /// Which of the consumer's tables this is, and how it is seen.
    pub(super) fn consumed(&self, table: u32) -> Option<(usize, ConsumedTable)> {
        self.tables.iter().copied().enumerate().find(|(_, consumed)| consumed.table == table)
    }

    /// Whether a row that is about to be inserted is one for this consumer to take.
    pub(crate) fn takes_new(&self, new: &InsertRecord) -> bool {
        let external = !new.origin.is_empty();
        let fresh = |consumed: ConsumedTable| external || new.policy_version >= consumed.floor;
        self.consumed(new.table).is_some_and(|(_, consumed)| fresh(consumed))
            && self.purposes.checked_shr(new.purpose.into()).is_some_and(|bits| bits & 1 == 1)
            && self.origins.takes(external)
    }

    /// The queue and the groups of a version, unless it is over.
    pub(super) fn partition(&mut self, table: ConsumedTable, version: u64) -> Option<&mut Partition> {
        if version < table.floor {
            return None;
        }
        let by_priority = !self.priority.is_empty();
        Some(self.partitions.entry((table.table, version)).or_insert_with(|| Partition::new(by_priority)))
    }

    /// Forgets the queues and groups of versions that are over. Their rows keep their words.
    pub(crate) fn forget_before(&mut self, table: u32, version: u64) {
        for consumed in self.tables.iter_mut().filter(|consumed| consumed.table == table) {
            consumed.floor = consumed.floor.max(version);
        }
        self.remember((table, 0)..(table, version));
        self.partitions.retain(|&(of, at), _| of != table || at >= version);
    }

    /// Serves versions of a table from an earlier one on, of which there are no rows yet.
    pub(crate) fn serve_from(&mut self, table: u32, version: u64) {
        for consumed in self.tables.iter_mut().filter(|consumed| consumed.table == table) {
            consumed.floor = version;
        }
    }

    /// The version of a table before which rows are nobody's business any more.
    pub(crate) fn floor(&self, table: u32) -> Option<u64> {
        self.consumed(table).map(|(_, consumed)| consumed.floor)
    }

    /// Whether rows of a version are nobody's business any more.
    pub(crate) fn is_over(&self, table: u32, version: u64) -> bool {
        self.consumed(table).is_some_and(|(_, consumed)| version < consumed.floor)
    }

    /// Rows on the ready queues of a table at some versions.
    pub(crate) fn ready_rows(&self, table: u32, versions: RangeInclusive<u64>) -> usize {
        let end = (*versions.end()).min(EXTERNAL_VERSION - 1);
        let range = (table, (*versions.start()).min(end))..=(table, end);
        self.partitions.range(range).map(|(_, partition)| partition.queue.rows()).sum()
    }

    /// Rows of peers on the ready queue of a table.
    pub(crate) fn external_ready_rows(&self, table: u32) -> usize {
        let partition = self.partitions.get(&(table, EXTERNAL_VERSION));
        partition.map_or(0, |partition| partition.queue.rows())
    }

    /// Whether a row is anything to this consumer, whatever its cells say.
    pub(super) fn takes(&self, meta: &RowMeta) -> bool {
        self.purposes >> meta.purpose() as u8 & 1 == 1 && self.origins.takes(meta.is_external())
    }

    /// Begins to count what a step takes of these groups, at the versions given for each table.
    pub(crate) fn begin_plan(
        &mut self,
        groups: impl IntoIterator<Item = GroupName>,
        versions: HashMap<u32, RangeInclusive<u64>>,
    ) {
        let Some(grouping) = self.grouping else { return };
        let mut plan = PlanProgress::new(groups, versions, &grouping);
        let names: Vec<GroupName> = plan.groups.keys().copied().collect();
        for (&(table, version), partition) in &mut self.partitions {
            for id in names.iter().filter_map(|name| partition.groups.find(name)).collect::<Vec<_>>() {
                plan.found(partition.groups.get_mut(id), (table, version, id), &grouping);
            }
        }
        self.plan = Some(plan);
    }

    /// The step has ended.
    pub(crate) fn end_plan(&mut self) {
        let planned = self.plan.take().into_iter().flat_map(|plan| plan.groups.into_values());
        let places = planned.flat_map(|planned| planned.places);
        for (table, version, id) in places {
            if let Some(partition) = self.partitions.get_mut(&(table, version)) {
                partition.groups.get_mut(id).set_planned(false);
                partition.groups.get_mut(id).set_answers(false);
            }
        }
    }

    /// The groups of these versions, by table, and of peers, that still have somebody to hand out.
    pub(crate) fn open_groups<'a>(
        &'a self,
        grouping: &'a Grouping,
        versions: impl Fn(u32) -> RangeInclusive<u64> + 'a,
    ) -> impl Iterator<Item = &'a Group> + 'a {
        let taken = move |&(&(table, version), _): &(&(u32, u64), &Partition)| {
            version == EXTERNAL_VERSION || versions(table).contains(&version)
        };
        let groups = self.partitions.iter().filter(taken).flat_map(|(_, partition)| partition.groups.iter());
        groups.filter(|group| group.outstanding(grouping) != (0, 0))
    }

    /// What is still to be handed out of the planned groups, and how much of it can be now.
    pub(crate) fn outstanding(&self) -> (usize, usize) {
        self.plan.as_ref().map_or((0, 0), |plan| (plan.open, plan.ready))
    }
}
