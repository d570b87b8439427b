//! Which rows belong to one group, when a group is complete, and what happens when a member fails.

use std::borrow::Cow;

use super::group::GroupName;
use super::parent_key;
use crate::log::record::GroupingRecord;
use crate::origin::{group_name, split_group_name};
use crate::sample_id::{SampleId, SampleKey};
use crate::table::RowMeta;
use crate::texts::{TextId, TextPages};

/// Which rows belong to one group. Groups never mix tables, policy versions or origins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupBy {
    /// All trajectories of one input (GRPO).
    Input,
    /// All trajectories of one input at one turn.
    InputAndTurn,
    /// All trajectories of one input, at one turn, by one agent (AT-GRPO, where agents share a table).
    InputTurnAgent,
    /// All children of one parent (tree rollouts). Rows without a parent are siblings by their input. The key is the parent, as
    /// `TABLE/SAMPLE_ID`, or the input; `/` stands before an input that looks like a parent, and `?/` before a parent that is not
    /// told as a row of a table.
    Parent,
}

const ALL: [GroupBy; 4] = [GroupBy::Input, GroupBy::InputAndTurn, GroupBy::InputTurnAgent, GroupBy::Parent];

impl GroupBy {
    /// The group key of a sample that has no parent, as SQL shows it. By agent, use [`key_of`](GroupBy::key_of).
    pub fn key(self, sample: &SampleId) -> String {
        self.key_of(sample, "", "")
    }

    /// The group key of a sample of an agent that continues `parent` (empty for none), as SQL shows it.
    ///
    /// ```
    /// use forebay_store::GroupBy;
    /// let sample = "q17_2_5".parse()?;
    /// assert_eq!(GroupBy::Input.key_of(&sample, "solver", ""), "q17");
    /// assert_eq!(GroupBy::InputAndTurn.key_of(&sample, "solver", ""), "q17_2");
    /// assert_eq!(GroupBy::InputTurnAgent.key_of(&sample, "solver", ""), "q17_2/solver");
    /// assert_eq!(GroupBy::Parent.key_of(&sample, "solver", "solver/q17_1_0"), "solver/q17_1_0");
    /// # Ok::<(), forebay_store::Error>(())
    /// ```
    pub fn key_of(self, sample: &SampleId, agent: &str, parent: &str) -> String {
        self.text(sample.key(), agent, parent).into_owned()
    }

    pub(crate) fn text<'t>(self, sample: SampleKey<'t>, agent: &str, parent: &'t str) -> Cow<'t, str> {
        let SampleKey { input, turn, .. } = sample;
        match self {
            GroupBy::Input => input.into(),
            GroupBy::InputAndTurn => format!("{input}_{turn}").into(),
            GroupBy::InputTurnAgent => format!("{input}_{turn}/{agent}").into(),
            GroupBy::Parent if parent.is_empty() => parent_key::of_input(input),
            GroupBy::Parent => parent_key::of_parent(parent),
        }
    }

    /// The group of a row.
    pub(crate) fn name(self, meta: &RowMeta) -> GroupName {
        let RowMeta { input: text, turn, agent, parent, origin, .. } = *meta;
        let none = GroupName { origin, ..GroupName::default() };
        match self {
            GroupBy::InputAndTurn => GroupName { text, turn, ..none },
            GroupBy::InputTurnAgent => GroupName { text, turn, agent, origin },
            GroupBy::Parent if parent != TextId::EMPTY => GroupName { text: parent, turn: 1, ..none },
            GroupBy::Input | GroupBy::Parent => GroupName { text, ..none },
        }
    }

    /// The name of a group: its key, behind its origin where it has one.
    pub(crate) fn show(self, name: GroupName, texts: &TextPages) -> String {
        let (text, turn, agent) = (texts.get(name.text), name.turn, texts.get(name.agent));
        let key = match self {
            GroupBy::Input => text.to_owned(),
            GroupBy::Parent if turn == 0 => parent_key::of_input(text).into_owned(),
            GroupBy::Parent => parent_key::of_parent(text).into_owned(),
            GroupBy::InputAndTurn => format!("{text}_{turn}"),
            GroupBy::InputTurnAgent => format!("{text}_{turn}/{agent}"),
        };
        group_name(texts.get(name.origin), &key)
    }

    /// Takes the name of a group apart. `None` when its key is none of this kind.
    pub(crate) fn parse(self, name: &str) -> Option<KeyParts<'_>> {
        let (origin, key) = split_group_name(name);
        Some(KeyParts { origin, ..self.parse_key(key)? })
    }

    fn parse_key(self, key: &str) -> Option<KeyParts<'_>> {
        let plain = |text, turn| KeyParts { text, turn, agent: None, origin: "" };
        let with_turn = |key| {
            let (text, turn) = str::rsplit_once(key, '_')?;
            let turn = turn.parse().ok().filter(|_| !text.is_empty())?;
            Some(plain(text, turn))
        };
        match self {
            _ if key.is_empty() => None,
            GroupBy::Input => Some(plain(key, 0)),
            GroupBy::InputAndTurn => with_turn(key),
            // An input id may hold slashes, and so may an agent: the last slash after which the rest makes sense.
            GroupBy::InputTurnAgent => key
                .rmatch_indices('/')
                .find_map(|(at, _)| Some(KeyParts { agent: Some(&key[at + 1..]), ..with_turn(&key[..at])? })),
            GroupBy::Parent => {
                let (text, is_parent) = parent_key::parse(key);
                Some(plain(text, u32::from(is_parent)))
            }
        }
    }

    /// What a key of this kind looks like.
    pub(crate) fn shape(self) -> &'static str {
        match self {
            GroupBy::Input => "INPUT",
            GroupBy::InputAndTurn => "INPUT_TURN",
            GroupBy::InputTurnAgent => "INPUT_TURN/AGENT",
            GroupBy::Parent => "TABLE/SAMPLE_ID of the parent, or INPUT",
        }
    }

    pub(crate) fn tag(group: Option<GroupBy>) -> u8 {
        group.and_then(|by| ALL.iter().position(|other| *other == by)).map_or(0, |at| at as u8 + 1)
    }

    pub(crate) fn from_tag(tag: u8) -> Option<Self> {
        ALL.get(usize::from(tag).checked_sub(1)?).copied()
    }
}

/// The parts of a group key, as texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyParts<'a> {
    pub(crate) text: &'a str,
    pub(crate) turn: u32,
    pub(crate) agent: Option<&'a str>,
    /// Empty for this run.
    pub(crate) origin: &'a str,
}

/// What becomes of a group when one of its members is left out for good, or is late when the group is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupRule {
    /// The group waits for the member's next attempt.
    NextAttempt,
    /// The group goes on without it, as long as at least `least` members are in; with fewer, all of it is left out, with
    /// the reason of the member that failed last.
    Shrink {
        /// How many members there must be.
        least: u32,
    },
    /// The whole group is left out, with the reason of the member.
    Exclude,
}

/// When a trajectory has all its rows, for consumers whose groups count trajectories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TrajectoryEnd {
    /// When it is closed with [`close_trajectory`](crate::ConsumerHandle::close_trajectory), by itself or in the batch that
    /// writes its last cell. It may have any number of rows, even none: an agent that took no turn.
    Closed,
    /// With that many rows, or when it is closed before.
    Rows(u32),
}

/// What a group's members are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Member {
    /// Rows.
    Row,
    /// Trajectories of one or many rows.
    Trajectory(TrajectoryEnd),
}

/// How a consumer groups its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grouping {
    /// Which rows belong to one group.
    pub by: GroupBy,
    /// How many members a group has, unless it is told otherwise.
    pub size: u32,
    /// What its members are.
    pub member: Member,
    /// What becomes of a group when one of them fails or is late.
    pub rule: GroupRule,
}

impl Grouping {
    pub(crate) fn new(by: GroupBy, size: u32, member: Member) -> Self {
        Grouping { by, size, member, rule: GroupRule::Shrink { least: 1 } }
    }

    pub(crate) fn counts_trajectories(&self) -> bool {
        matches!(self.member, Member::Trajectory(_))
    }

    pub(crate) fn record(&self) -> GroupingRecord {
        let (rule, least) = match self.rule {
            GroupRule::NextAttempt => (0, 0),
            GroupRule::Shrink { least } => (1, least),
            GroupRule::Exclude => (2, 0),
        };
        let (trajectories, trajectory_rows) = match self.member {
            Member::Row => (false, 0),
            Member::Trajectory(TrajectoryEnd::Closed) => (true, 0),
            Member::Trajectory(TrajectoryEnd::Rows(rows)) => (true, rows),
        };
        let by = GroupBy::tag(Some(self.by));
        GroupingRecord { by, size: self.size, rule, least, trajectories, trajectory_rows }
    }

    pub(crate) fn from_record(record: &GroupingRecord) -> Option<Self> {
        let rule = match record.rule {
            0 => GroupRule::NextAttempt,
            1 => GroupRule::Shrink { least: record.least },
            2 => GroupRule::Exclude,
            _ => return None,
        };
        let member = match (record.trajectories, record.trajectory_rows) {
            (false, _) => Member::Row,
            (true, 0) => Member::Trajectory(TrajectoryEnd::Closed),
            (true, rows) => Member::Trajectory(TrajectoryEnd::Rows(rows)),
        };
        let size = record.size;
        let fits = (1..=MEMBERS_MAX).contains(&size);
        GroupBy::from_tag(record.by).filter(|_| fits).map(|by| Grouping { by, size, member, rule })
    }
}

/// The most members that a group may have.
pub(crate) const MEMBERS_MAX: u32 = u16::MAX as u32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_taken_apart_as_they_were_put_together() {
        let sample: SampleId = "a_b/c_2_5".parse().unwrap();
        let cases = [
            (GroupBy::Input, "", ("a_b/c", 0, None)),
            (GroupBy::InputAndTurn, "", ("a_b/c", 2, None)),
            (GroupBy::InputTurnAgent, "", ("a_b/c", 2, Some("x/y_1"))),
            (GroupBy::Parent, "", ("a_b/c", 0, None)),
            (GroupBy::Parent, "solver/q_0_0", ("solver/q_0_0", 1, None)),
            (GroupBy::Parent, "q_0_0", ("q_0_0", 1, None)),
        ];
        for (by, parent, (text, turn, agent)) in cases {
            let key = by.key_of(&sample, "x/y_1", parent);
            assert_eq!(by.parse(&key), Some(KeyParts { text, turn, agent, origin: "" }), "{by:?} {key}");
        }
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let cases = [
            (GroupBy::Input, ""),
            (GroupBy::InputAndTurn, "q17"),
            (GroupBy::InputAndTurn, "_3"),
            (GroupBy::InputTurnAgent, "q17_3"),
            (GroupBy::InputTurnAgent, "q17/solver"),
        ];
        for (by, key) in cases {
            assert_eq!(by.parse(key), None, "{by:?} {key:?}");
        }
    }

    #[test]
    fn a_grouping_survives_its_record() {
        for rule in [GroupRule::NextAttempt, GroupRule::Shrink { least: 3 }, GroupRule::Exclude] {
            for member in [
                Member::Row,
                Member::Trajectory(TrajectoryEnd::Closed),
                Member::Trajectory(TrajectoryEnd::Rows(4)),
            ] {
                for by in ALL {
                    let grouping = Grouping { rule, ..Grouping::new(by, 8, member) };
                    assert_eq!(Grouping::from_record(&grouping.record()), Some(grouping));
                }
            }
        }
    }
}
