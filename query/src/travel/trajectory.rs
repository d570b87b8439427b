//! Which row the next agent's is, in a trajectory whose rows name no parents.
//!
//! Such a row is found through the row before it in its trajectory, which says whose turn it is (`next_agent_id`). A number is
//! an agent's place among the run's agents, each of which has its table in that order; where agents share a table no number can
//! be looked up, and the row of the next turn is taken. Since that one comes later than what it continues, such links make no
//! circle.
//!
//! A row goes on in its own version. Only where that has no row for it, because policies move one by one, does it go on in
//! another: in the earliest later row that continues none of its own version, and only the newest version goes on there. What
//! an older version left unfinished so does not run into a later one.
//!
//! All links of a trajectory are made at once, by an index of its rows by agent, version and turn.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use forebay_store::SampleId;

use super::member::Member;

/// What no other row has.
type Identity = (Arc<str>, SampleId, u64, u32);

fn identity(row: &Member) -> Identity {
    (row.table.clone(), row.sample.clone(), row.version, row.attempt)
}

/// The rows of one trajectory, over all tables, and which goes on where which ends.
pub(super) struct Trajectory {
    rows: Vec<Member>,
    places: HashMap<Identity, usize>,
    after: Vec<Vec<usize>>,
    before: Vec<Vec<usize>>,
}

impl Trajectory {
    /// Rows with `tables` in the order of the agents' numbers.
    pub(super) fn new(rows: Vec<Member>, tables: &[Arc<str>]) -> Self {
        let after = Linking::new(&rows, tables).links();
        let mut before = vec![Vec::new(); rows.len()];
        for (row, next) in after.iter().enumerate() {
            next.iter().for_each(|next| before[*next].push(row));
        }
        let places = rows.iter().enumerate().map(|(place, row)| (identity(row), place)).collect();
        Trajectory { rows, places, after, before }
    }

    /// The rows with which the next agent goes on where `row` ends; those with a parent say themselves what they continue.
    pub(super) fn after(&self, row: &Member) -> impl Iterator<Item = &Member> {
        self.linked(&self.after, row)
    }

    /// The rows where `row`, which names no parent, is the next agent's.
    pub(super) fn before(&self, row: &Member) -> impl Iterator<Item = &Member> {
        self.linked(&self.before, row)
    }

    fn linked(&self, links: &[Vec<usize>], row: &Member) -> impl Iterator<Item = &Member> {
        let linked = self.places.get(&identity(row)).and_then(|place| links.get(*place));
        linked.into_iter().flatten().map(|place| &self.rows[*place])
    }
}

/// Whose rows are looked for: an agent's, or where that cannot be told, everybody's.
type Whose<'a> = Option<&'a str>;

/// Rows by their places, in the order of time.
type Places = Vec<usize>;

/// Rows that may be gone on with.
#[derive(Default)]
struct Index<'a> {
    of_turn: HashMap<(Whose<'a>, u64), BTreeMap<u32, Places>>,
    by_time: HashMap<Whose<'a>, Places>,
}

/// How the links of a trajectory are found.
struct Linking<'a> {
    rows: &'a [Member],
    tables: &'a [Arc<str>],
    /// What rows may be called by.
    agents: HashSet<&'a str>,
    /// Whether every agent has a table of its own.
    is_numbered: bool,
}

impl<'a> Linking<'a> {
    fn new(rows: &'a [Member], tables: &'a [Arc<str>]) -> Self {
        let agents = rows.iter().flat_map(|row| [&*row.agent, &*row.table]).collect();
        let is_numbered = rows.iter().all(|row| *row.agent == *row.table);
        Linking { rows, tables, agents, is_numbered }
    }

    /// The rows after each row.
    fn links(&self) -> Vec<Places> {
        let all = self.index(&HashSet::new());
        let of_own = |row: &Member| self.of_version(&all, row, row.version);
        let mut after: Vec<Places> = self.rows.iter().map(of_own).collect();
        let free = self.index(&after.iter().flatten().copied().collect());
        let mut moved = Vec::new();
        let mut newest: HashMap<usize, &Member> = HashMap::new();
        for (place, row) in self.rows.iter().enumerate().filter(|(place, _)| after[*place].is_empty()) {
            let Some(version) = self.first(&free, row) else { continue };
            for next in self.of_version(&free, row, version) {
                let newest = newest.entry(next).or_insert(row);
                if newest.created_at <= row.created_at {
                    *newest = row;
                }
                moved.push((place, next));
            }
        }
        moved.retain(|(place, next)| newest[next].version == self.rows[*place].version);
        moved.into_iter().for_each(|(place, next)| after[place].push(next));
        after
    }

    /// The rows that name no parent, without those that are taken.
    fn index(&self, taken: &HashSet<usize>) -> Index<'a> {
        let is_free = |place: &usize| self.rows[*place].parent.is_none() && !taken.contains(place);
        let mut places: Places = (0..self.rows.len()).filter(is_free).collect();
        places.sort_by_cached_key(|place| self.time(&self.rows[*place]));
        let mut index = Index::default();
        for place in places {
            let row = &self.rows[place];
            let table = (*row.table != *row.agent).then_some(Some(&*row.table));
            for whose in [None, Some(&*row.agent)].into_iter().chain(table) {
                let turns = index.of_turn.entry((whose, row.version)).or_default();
                turns.entry(row.sample.turn()).or_default().push(place);
                index.by_time.entry(whose).or_default().push(place);
            }
        }
        index
    }

    /// The rows of a version with which the next agent goes on: those of the next turn, as rollouts have it; or of the same,
    /// or else the first that come later.
    fn of_version(&self, index: &Index<'a>, row: &Member, version: u64) -> Places {
        let whose = row.next.as_deref().map(|next| self.agent(next));
        let Some(turns) = whose.and_then(|whose| index.of_turn.get(&(whose, version))) else {
            return Vec::new();
        };
        let turn = row.sample.turn();
        let later = |places: &'_ Places| {
            let start = places.partition_point(|place| self.rows[*place].created_at < row.created_at);
            let fits = |place: &&usize| self.follows(row, &self.rows[**place]);
            places[start..].iter().filter(fits).copied().collect::<Places>()
        };
        let next = turn.saturating_add(1);
        let best = [next, turn].into_iter().filter_map(|turn| turns.get(&turn));
        let rest = turns.range(next..).map(|(_, places)| places);
        best.chain(rest).map(later).find(|places| !places.is_empty()).unwrap_or_default()
    }

    /// The version of the earliest row with which the next agent may go on.
    fn first(&self, index: &Index<'a>, row: &Member) -> Option<u64> {
        let places = index.by_time.get(&self.agent(row.next.as_deref()?))?;
        let start = places.partition_point(|place| self.rows[*place].created_at < row.created_at);
        let mut later = places[start..].iter().map(|place| &self.rows[*place]);
        later.find(|other| self.follows(row, other)).map(|other| other.version)
    }

    /// Whether another row, made no earlier, comes after this one in the trajectory.
    fn follows(&self, row: &Member, other: &Member) -> bool {
        let (turn, of_other) = (row.sample.turn(), other.sample.turn());
        // Of one turn are two agents, and who is next is known.
        let is_known = row.next.as_deref().is_some_and(|next| self.agent(next).is_some());
        of_other > turn || is_known && of_other == turn && self.time(other) > self.time(row)
    }

    /// The agent that `next` means; `None` where it cannot be told.
    fn agent<'b>(&'b self, next: &'b str) -> Whose<'b> {
        if self.agents.contains(next) {
            return Some(next);
        }
        match next.parse::<i64>() {
            Ok(number) => {
                let table = usize::try_from(number).ok().and_then(|number| self.tables.get(number));
                table.filter(|_| self.is_numbered).map(|table| &**table)
            }
            Err(_) => Some(next), // a name of which there is no row yet
        }
    }

    /// Later rows of a turn have a later one.
    fn time(&self, row: &Member) -> (i64, usize) {
        let place = self.tables.iter().position(|table| *table == row.table);
        (row.created_at, place.unwrap_or(self.tables.len()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::super::member::tests::row;
    use super::*;

    fn tables() -> [Arc<str>; 2] {
        ["solver".into(), "checker".into()]
    }

    #[test]
    fn the_next_agent_is_told_by_its_number_its_name_or_the_next_turn() {
        for (next, agent) in [("1", "checker"), ("checker", "checker"), ("1", "shared"), ("4", "checker")] {
            let mut rows = [
                row("solver", "q_0_0", 0, 1, Some(next)),
                row("checker", "q_1_0", 0, 2, None),
                row("checker", "q_2_0", 0, 3, None),
                row("checker", "q_1_0", 1, 4, None),
            ];
            rows[1].agent = agent.to_owned();
            let trajectory = Trajectory::new(rows.to_vec(), &tables());
            assert_eq!(trajectory.after(&rows[0]).collect::<Vec<_>>(), [&rows[1]], "{next} {agent}");
        }
    }

    /// Each is followed by the next of the list, and by that alone.
    fn is_a_line(rows: &[Member]) {
        let trajectory = Trajectory::new(rows.to_vec(), &tables());
        for at in 0..rows.len() {
            let after = rows.get(at + 1).into_iter().collect::<Vec<_>>();
            assert_eq!(trajectory.after(&rows[at]).collect::<Vec<_>>(), after, "{at}");
            let before = at.checked_sub(1).map(|before| &rows[before]);
            assert_eq!(
                trajectory.before(&rows[at]).collect::<Vec<_>>(),
                before.into_iter().collect::<Vec<_>>(),
                "{at}"
            );
        }
    }

    #[test]
    fn agents_that_send_each_other_on_for_ever_make_no_circle() {
        is_a_line(&[
            row("solver", "q_0_0", 0, 1, Some("1")),
            row("checker", "q_1_0", 0, 2, Some("0")),
            row("solver", "q_2_0", 0, 3, Some("1")),
            row("checker", "q_3_0", 0, 3, Some("0")),
        ]);
    }

    #[test]
    fn a_turn_may_be_of_both_agents_or_left_out() {
        is_a_line(&[row("solver", "q_0_0", 0, 1, Some("1")), row("checker", "q_0_0", 0, 1, Some("0"))]);
        is_a_line(&[row("checker", "q_0_0", 0, 1, Some("0")), row("solver", "q_0_0", 0, 2, Some("1"))]);
        is_a_line(&[row("solver", "q_0_0", 0, 1, Some("1")), row("checker", "q_4_0", 0, 2, None)]);
    }

    #[test]
    fn a_row_that_names_its_parent_is_nobodys_by_its_turn() {
        let mut rows = [row("solver", "q_0_0", 0, 1, Some("1")), row("checker", "q_1_0", 0, 2, None)];
        rows[1].parent = Some("solver/other_0_0".to_owned());
        let trajectory = Trajectory::new(rows.to_vec(), &tables());
        assert!(trajectory.after(&rows[0]).next().is_none() && trajectory.before(&rows[1]).next().is_none());
    }

    /// Were each row looked for among all, for each that asks, this would be some 10^11 comparisons.
    #[test]
    fn a_long_trajectory_of_many_versions_is_linked_once() {
        let turn = |version: u64, turn: u64| {
            let (table, next) = if turn.is_multiple_of(2) { ("solver", "1") } else { ("checker", "0") };
            let at = i64::try_from(version * 1_000 + turn).unwrap();
            row(table, &format!("q_{turn}_0"), version, at, (turn < 99).then_some(next))
        };
        let rows: Vec<Member> =
            (0..50).flat_map(|version| (0..100).map(move |at| turn(version, at))).collect();
        let trajectory = Trajectory::new(rows.clone(), &tables());
        for (at, row) in rows.iter().enumerate() {
            let after = rows.get(at + 1).filter(|after| after.version == row.version);
            assert_eq!(trajectory.after(row).collect::<Vec<_>>(), Vec::from_iter(after), "{at}");
            let before = rows[..at].last().filter(|before| before.version == row.version);
            assert_eq!(trajectory.before(row).collect::<Vec<_>>(), Vec::from_iter(before), "{at}");
        }
    }
}
