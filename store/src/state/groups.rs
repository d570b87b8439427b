//! Checks what is said of a group as a whole.

use std::collections::{HashMap, HashSet};

use super::State;
use super::declare::no_key;
use crate::consumer::{ConsumerState, GroupBy, GroupInfo, GroupName, KeyParts, MEMBERS_MAX, MicroBatch};
use crate::error::{Cause, Result};
use crate::log::record::GroupChangeRecord;
use crate::origin::split_group_name;
use crate::schema::DataType;

impl State {
    /// Counts what the open step has outstanding of the groups that it plans: when it begins, and when it was read from a
    /// checkpoint.
    pub(crate) fn resume_plans(&mut self) {
        let Some(step) = self.open_step().and_then(|number| self.steps.get(&number)) else { return };
        let planned = step.membership().planned.iter().filter(|planned| !planned.groups.is_empty());
        let plans: Vec<_> = planned.map(|planned| (planned.consumer, planned.groups.clone())).collect();
        for (consumer, groups) in plans {
            self.begin_plan(consumer, &groups);
        }
    }

    /// Begins to count what a step takes of these groups.
    pub(super) fn begin_plan(&mut self, consumer: usize, groups: &HashSet<GroupName>) {
        let versions: HashMap<u32, _> = {
            let tables = self.consumers[consumer].tables.iter().map(|consumed| consumed.table);
            tables.map(|table| (table, self.claimable_versions(consumer, table))).collect()
        };
        self.consumers[consumer].begin_plan(groups.iter().copied(), versions);
    }

    /// Checks that something can be said of a group. False when it is so already.
    pub(crate) fn check_group(
        &self,
        consumer: u32,
        table: u32,
        (version, key): (u64, &str),
        change: GroupChangeRecord,
    ) -> Result<bool> {
        let state = &self.consumers[consumer as usize];
        let name = state.name.to_string();
        let Some(grouping) = state.grouping else {
            let (found, hint) = ("consumer of single rows", "declare it with `group` or `trajectories`");
            return Err(Cause::ConsumerKind { consumer: name, found, hint }.into());
        };
        if !state.tables.iter().any(|consumed| consumed.table == table) {
            let reason = format!("{name:?} does not read {:?}", self.tables[table as usize].name);
            return Err(Cause::Argument { what: "table", reason }.into());
        }
        if split_group_name(key).0.is_empty() {
            self.check_version(consumer as usize, table, version)?;
        }
        if grouping.by.parse(key).is_none() {
            return Err(no_key("group", key, &state.name, grouping.by));
        }
        let group = self.find_group(state, table, (version, key), grouping.by);
        let refuse = |found: String, hint| {
            Err(Cause::Group { consumer: name.clone(), key: key.to_owned(), found, hint }.into())
        };
        let group = group.unwrap_or(GroupInfo { size: grouping.size, ..GroupInfo::default() });
        match change {
            GroupChangeRecord::Closed => Ok(!group.closed),
            GroupChangeRecord::Expected(members) if members == group.size && !group.closed => Ok(false),
            GroupChangeRecord::Expected(_) if group.closed => {
                refuse("is closed".into(), "nobody more is waited for")
            }
            GroupChangeRecord::Expected(_) if group.taken > 0 => {
                refuse("has been handed out".into(), "say what to expect before it is complete")
            }
            GroupChangeRecord::Expected(members) if members < group.members => {
                refuse(format!("has {} members already", group.members), "exclude those that are too many")
            }
            GroupChangeRecord::Expected(members) if !(1..=MEMBERS_MAX).contains(&members) => {
                let reason = format!("a group has 1 to {MEMBERS_MAX} members, not {members}");
                Err(Cause::Argument { what: "members", reason }.into())
            }
            GroupChangeRecord::Expected(_) => Ok(true),
            GroupChangeRecord::TrajectoryClosed(_) if !grouping.counts_trajectories() => {
                let (found, hint) = ("counter of rows", "declare it with `trajectories`");
                Err(Cause::ConsumerKind { consumer: name, found, hint }.into())
            }
            GroupChangeRecord::TrajectoryClosed(number) => {
                match self.find_trajectory(state, table, (version, key), number) {
                    Some(closed) => Ok(!closed),
                    None if group.closed || group.members >= group.size => {
                        refuse(format!("has its {} trajectories", group.members), "this one is surplus")
                    }
                    None => Ok(true),
                }
            }
        }
    }

    /// Refuses a micro-batch rule that asks for parts of groups that have none, or counts what a consumer's tables do not have.
    pub(crate) fn check_rule(&self, consumer: usize, rule: &MicroBatch) -> Result<()> {
        if rule.open_groups() > 0
            && let Err(why) = self.consumers[consumer].check_early()
        {
            let reason = format!("{:?} hands out no parts of groups: {why}", self.consumers[consumer].name);
            return Err(Cause::Argument { what: "micro-batch", reason }.into());
        }
        let Some(budget) = rule.budget else { return Ok(()) };
        let column = budget.column.as_str();
        for consumed in &self.consumers[consumer].tables {
            let schema = &self.tables[consumed.table as usize].schema;
            let found = &schema.data_columns()[schema.index_of(column)?].data_type;
            if !matches!(found, DataType::List(_) | DataType::Utf8 | DataType::Binary | DataType::Tensor(..))
            {
                let (expected, found) = ("values of many elements to count".to_owned(), found.to_string());
                return Err(Cause::TypeMismatch { column: column.to_owned(), expected, found }.into());
            }
        }
        Ok(())
    }

    /// Refuses a version that is over.
    fn check_version(&self, consumer: usize, table: u32, version: u64) -> Result<()> {
        let policy = &self.policies[self.tables[table as usize].policy];
        if !self.consumers[consumer].is_over(table, version) {
            return Ok(());
        }
        Err(Cause::Stale { policy: policy.name.to_string(), version, current: policy.version }.into())
    }

    /// The name of the group with that key, if all of its texts are known.
    fn known_name(&self, by: GroupBy, key: &str) -> Option<GroupName> {
        let KeyParts { text, turn, agent, origin } = by.parse(key)?;
        let agent = agent.map_or(Some(Default::default()), |agent| self.texts.find(agent))?;
        Some(GroupName { text: self.texts.find(text)?, turn, agent, origin: self.texts.find(origin)? })
    }

    fn find_group(
        &self,
        state: &ConsumerState,
        table: u32,
        (version, key): (u64, &str),
        by: GroupBy,
    ) -> Option<GroupInfo> {
        state.group_info(table, version, self.known_name(by, key)?)
    }

    /// Whether a trajectory that is known has been closed.
    fn find_trajectory(
        &self,
        state: &ConsumerState,
        table: u32,
        (version, key): (u64, &str),
        number: u32,
    ) -> Option<bool> {
        let name = self.known_name(state.grouping?.by, key)?;
        state.trajectory_closed(table, version, name, number)
    }
}
