//! Which row of a sample is meant by a row that names the sample alone, and which row the next agent's is.
//!
//! A row names what it continues by table and sample id (`parent`), and a sample may be there in many versions. One of them is
//! meant: that of the row's own version; where there is none, because policies move one by one, the newest that was there when
//! the row was made.
//!
//! A row without a parent is found through the row before it in its trajectory, which says whose turn it is
//! (`next_agent_id`). A number is an agent's place among the run's agents, each of which has its table in that order; where
//! agents share a table no number can be looked up, and the row of the next turn is taken. Since that one comes later than what
//! it continues, such links make no circle.

use std::sync::Arc;

use super::member::Member;

/// Of the rows of one sample those that `by` means: of one version, with all attempts.
pub(super) fn meant<'a>(by: &Member, rows: &[&'a Member]) -> Vec<&'a Member> {
    let is_there = |by: &&&Member| by.created_at;
    let before = || rows.iter().filter(|row| row.created_at <= by.created_at).max_by_key(is_there);
    let version = match rows.iter().any(|row| row.version == by.version) {
        true => Some(by.version),
        false => before().or_else(|| rows.iter().min_by_key(is_there)).map(|row| row.version),
    };
    rows.iter().filter(|row| Some(row.version) == version).copied().collect()
}

/// The rows of one trajectory, over all tables.
pub(super) struct Trajectory<'a> {
    rows: &'a [Member],
    /// The tables in the order of the agents' numbers.
    tables: &'a [Arc<str>],
    /// Whether every agent has a table of its own.
    is_numbered: bool,
}

impl<'a> Trajectory<'a> {
    pub(super) fn new(rows: &'a [Member], tables: &'a [Arc<str>]) -> Self {
        let is_numbered = rows.iter().all(|row| *row.agent == *row.table);
        Trajectory { rows, tables, is_numbered }
    }

    /// The rows with which the next agent goes on where `row` ends; those with a parent say themselves what they continue.
    pub(super) fn after(&self, row: &Member) -> Vec<&'a Member> {
        let Some(next) = &row.next else { return Vec::new() };
        let agent = self.agent(next);
        let fits = |other: &&Member| match agent {
            Some(agent) => is_of(other, agent) && self.time(other) > self.time(row),
            None => other.sample.turn() > row.sample.turn(),
        };
        let later = self
            .rows
            .iter()
            .filter(|other| other.parent.is_none() && other.created_at >= row.created_at && fits(other));
        let later: Vec<&Member> = later.collect();
        let same = later.iter().find(|other| other.version == row.version);
        let first = || later.iter().min_by_key(|other| other.created_at);
        let Some(version) = same.or_else(first).map(|other| other.version) else { return Vec::new() };
        let of_version = || later.iter().filter(move |other| other.version == version);
        // Of the next turn, as rollouts have it; or of the same, or else the first that comes later.
        let rank = |other: &Member| match other.sample.turn() - row.sample.turn() {
            1 => 0,
            0 => 1,
            more => more,
        };
        let best = of_version().map(|other| rank(other)).min();
        of_version().filter(|other| Some(rank(other)) == best).copied().collect()
    }

    /// The rows where `row`, which names no parent, is the next agent's.
    pub(super) fn before(&self, row: &Member) -> Vec<&'a Member> {
        if row.parent.is_some() {
            return Vec::new();
        }
        self.rows.iter().filter(|other| self.after(other).contains(&row)).collect()
    }

    /// The agent that `next` means; `None` where it cannot be told.
    fn agent<'b>(&'b self, next: &'b str) -> Option<&'b str> {
        if self.rows.iter().any(|row| is_of(row, next)) {
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

    /// Later rows have a later one.
    fn time(&self, row: &Member) -> (u32, i64, usize) {
        let place = self.tables.iter().position(|table| *table == row.table);
        (row.sample.turn(), row.created_at, place.unwrap_or(self.tables.len()))
    }
}

fn is_of(row: &Member, agent: &str) -> bool {
    row.agent == agent || *row.table == *agent
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(table: &str, sample: &str, version: u64, created_at: i64, next: Option<&str>) -> Member {
        Member {
            table: table.into(),
            sample: sample.parse().unwrap(),
            version,
            attempt: 0,
            parent: None,
            created_at,
            agent: table.to_owned(),
            next: next.map(str::to_owned),
        }
    }

    fn tables() -> [Arc<str>; 2] {
        ["solver".into(), "checker".into()]
    }

    #[test]
    fn one_version_of_a_sample_is_meant() {
        let there: Vec<Member> =
            [(0, 10), (1, 20), (3, 40)].map(|(v, at)| row("solver", "q_0_0", v, at, None)).into();
        let there: Vec<&Member> = there.iter().collect();
        for (version, at, expected) in [(1, 50, 1), (2, 50, 3), (2, 30, 1), (2, 20, 1), (7, 5, 0)] {
            let found = meant(&row("checker", "q_1_0", version, at, None), &there);
            assert_eq!(found.iter().map(|row| row.version).collect::<Vec<_>>(), [expected], "{version} {at}");
        }
        assert!(meant(there[0], &[]).is_empty());
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
            let trajectory =
                Trajectory::new(&rows, &tables()).after(&rows[0]).into_iter().cloned().collect::<Vec<_>>();
            assert_eq!(trajectory, [rows[1].clone()], "{next} {agent}");
        }
    }

    /// Each is followed by the next of the list, and by that alone.
    fn is_a_line(rows: &[Member]) {
        let tables = tables();
        let trajectory = Trajectory::new(rows, &tables);
        for at in 0..rows.len() {
            assert_eq!(trajectory.after(&rows[at]), rows.get(at + 1).into_iter().collect::<Vec<_>>(), "{at}");
            let before = at.checked_sub(1).map(|before| &rows[before]);
            assert_eq!(trajectory.before(&rows[at]), before.into_iter().collect::<Vec<_>>(), "{at}");
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
        let tables = tables();
        let trajectory = Trajectory::new(&rows, &tables);
        assert!(trajectory.after(&rows[0]).is_empty() && trajectory.before(&rows[1]).is_empty());
    }
}
