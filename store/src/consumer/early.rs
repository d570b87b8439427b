//! What a claim takes of groups that are not complete.
//!
//! Group-relative gradients can be made member by member and closed when the last has come, so a trainer that does so need not wait. It
//! has room for some groups at a time: members come of groups that were begun first, of others only while there is room for one more.
//! No row is handed out that a rule could take back with its group: `check_early` refuses consumers whose rule can.

use super::declaration::ConsumerKind;
use super::grouping::GroupRule;
use super::partition::chain;
use super::select::{Choice, Selection, length};
use super::state::ConsumerState;
use crate::table::{Progress, TableState};

impl ConsumerState {
    /// Adds rows of groups that are not complete to what a claim takes of those that are, as far as the rule lets it.
    pub(super) fn select_early(
        &self,
        tables: &[TableState],
        whole: Option<Selection>,
        choice: &Choice,
    ) -> Option<Selection> {
        let Some(plan) = self.plan.as_ref().filter(|_| choice.rule.early > 0) else { return whole };
        let mut lane = whole.as_ref().and_then(|whole| {
            let first = *whole.rows.first()?;
            Some((whole.table, tables[whole.table as usize].meta(first).lane()))
        });
        let (mut rows, mut begun) = (whole.map_or_else(Vec::new, |whole| whole.rows), plan.begun);
        for wants_begun in [true, false] {
            for &(table, version, id) in &plan.partial {
                let there = self
                    .partitions
                    .get(&(table, version))
                    .filter(|_| lane.is_none_or(|lane| lane == (table, version)));
                let Some(group) = there.map(|partition| partition.groups.get(id)) else { continue };
                let is_begun = group.taken > 0;
                if is_begun != wants_begun || (!is_begun && begun >= choice.rule.early) {
                    continue;
                }
                let before = rows.len();
                self.take_ready(&tables[table as usize], group.head, choice, &mut rows);
                if rows.len() > before {
                    lane = Some((table, version));
                    begun += usize::from(!is_begun);
                }
            }
        }
        let (table, _) = lane?;
        Some(Selection { table, rows })
    }

    /// Takes the rows of a chain that are ready, as long as the rule has room.
    fn take_ready(&self, table: &TableState, head: u32, choice: &Choice, rows: &mut Vec<u32>) {
        let Some((_, consumed)) = self.consumed(table.id) else { return };
        let budget = choice.rule.budget;
        let column = budget.and_then(|budget| table.schema.index_of(budget.column.as_str()).ok());
        let tokens = |row: u32| column.map_or(0, |column| length(table, column, row));
        let most = budget.map_or(u64::MAX, |budget| budget.tokens);
        let mut taken: u64 = rows.iter().map(|row| tokens(*row)).sum();
        let is_ready = |row: &u32| table.word(consumed.slot, *row).progress == Progress::Ready;
        let mut ready: Vec<u32> = chain(table, consumed.slot, head).filter(is_ready).collect();
        ready.sort_unstable(); // the oldest first: a chain begins with the row that came last
        for row in ready {
            taken = taken.saturating_add(tokens(row));
            if rows.len() >= choice.rule.rows || (taken > most && !rows.is_empty()) {
                return;
            }
            rows.push(row);
        }
    }

    /// Rows that could be handed out to whoever does not wait for whole groups.
    pub(crate) fn partial_rows(&self) -> usize {
        self.plan.as_ref().map_or(0, |plan| plan.partial_rows)
    }

    /// Why members of groups cannot be handed out before their groups are complete; nothing where they can.
    pub(crate) fn check_early(&self) -> Result<(), &'static str> {
        let Some(grouping) = self.grouping.filter(|_| self.kind == ConsumerKind::Trainer) else {
            return Err("members of groups come early to trainers that are declared with `group`");
        };
        let keeps = match grouping.rule {
            GroupRule::NextAttempt => true,
            // Whatever the declared size: a group may be said to have more members.
            GroupRule::Shrink { least } => least <= 1,
            GroupRule::Exclude => false,
        };
        match (keeps, grouping.counts_trajectories()) {
            (false, _) => {
                Err("its rule may leave a group out of which members were trained already; declare it with \
                               GroupRule::Shrink { least: 1 } or GroupRule::NextAttempt, or take whole groups")
            }
            (true, true) => Err("its members are trajectories, which come whole; take whole groups"),
            (true, false) => Ok(()),
        }
    }
}
