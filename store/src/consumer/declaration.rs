//! What a user says of a consumer.

use super::group::GroupName;
use crate::sample_id::{SampleId, SampleKey};
use crate::table::RowMeta;
use crate::texts::TextPages;

/// What a consumer does with its claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConsumerKind {
    /// Finishes a claim by writing columns (rewards, reference log-probabilities, responses).
    Task,
    /// Accumulates gradients; only a step's commit consumes its rows.
    Trainer,
}

impl ConsumerKind {
    /// The word for this kind.
    pub fn as_str(self) -> &'static str {
        match self {
            ConsumerKind::Task => "task",
            ConsumerKind::Trainer => "trainer",
        }
    }
}

/// Which rows belong to one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupBy {
    /// All trajectories of one input (GRPO).
    Input,
    /// All trajectories of one input at one turn (AT-GRPO).
    InputAndTurn,
}

impl GroupBy {
    /// The group key of a sample, as SQL shows it.
    pub fn key(self, sample: &SampleId) -> String {
        self.key_of(sample.key())
    }

    pub(crate) fn key_of(self, sample: SampleKey<'_>) -> String {
        match self {
            GroupBy::Input => sample.input.to_owned(),
            GroupBy::InputAndTurn => format!("{}_{}", sample.input, sample.turn),
        }
    }

    /// The group of a row.
    pub(crate) fn name(self, meta: &RowMeta) -> GroupName {
        let turn = (self == GroupBy::InputAndTurn).then_some(meta.turn);
        GroupName { input: meta.input, turn }
    }

    /// The group key of a group.
    pub(crate) fn show(self, name: GroupName, texts: &TextPages) -> String {
        let sample = SampleKey { input: texts.get(name.input), turn: name.turn.unwrap_or(0), trajectory: 0 };
        self.key_of(sample)
    }

    /// Takes a group key apart: the input id, and the turn where groups are by turn too. `None` when it is no key.
    pub(crate) fn parse(self, key: &str) -> Option<(&str, Option<u32>)> {
        match self {
            GroupBy::Input => (!key.is_empty()).then_some((key, None)),
            GroupBy::InputAndTurn => {
                let (input, turn) = key.rsplit_once('_')?;
                let turn = turn.parse().ok().filter(|_| !input.is_empty())?;
                Some((input, Some(turn)))
            }
        }
    }

    pub(crate) fn tag(group: Option<GroupBy>) -> u8 {
        match group {
            None => 0,
            Some(GroupBy::Input) => 1,
            Some(GroupBy::InputAndTurn) => 2,
        }
    }

    pub(crate) fn from_tag(tag: u8) -> Option<Self> {
        [GroupBy::Input, GroupBy::InputAndTurn].get(usize::from(tag).checked_sub(1)?).copied()
    }
}

/// The declaration of a consumer: which tables it reads, when a row is ready for it, and how rows go together.
///
/// ```
/// use forebay_store::{Consumer, GroupBy};
/// let train = Consumer::trainer(["solver"]).ready(["response", "reward"]).group(GroupBy::Input, 8);
/// let reward = Consumer::task(["solver", "checker"]).ready(["response"]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consumer {
    pub(crate) kind: ConsumerKind,
    pub(crate) tables: Vec<String>,
    pub(crate) ready: Vec<String>,
    pub(crate) group: Option<(GroupBy, u32)>,
}

impl Consumer {
    /// A consumer whose claims are finished by writing columns.
    pub fn task<'a>(tables: impl IntoIterator<Item = &'a str>) -> Self {
        let tables = tables.into_iter().map(str::to_owned).collect();
        Consumer { kind: ConsumerKind::Task, tables, ready: Vec::new(), group: None }
    }

    /// A consumer whose claims are accumulated and then consumed by a step. A table has at most one; `is_processing`
    /// shows its state.
    pub fn trainer<'a>(tables: impl IntoIterator<Item = &'a str>) -> Self {
        Consumer { kind: ConsumerKind::Trainer, ..Consumer::task(tables) }
    }

    /// The data columns that must be final. Default: none, so that a row is ready as soon as it is inserted.
    pub fn ready<'a>(mut self, columns: impl IntoIterator<Item = &'a str>) -> Self {
        self.ready = columns.into_iter().map(str::to_owned).collect();
        self
    }

    /// Takes rows by whole groups of `members` rows each. Default: row by row.
    pub fn group(mut self, by: GroupBy, members: u32) -> Self {
        self.group = Some((by, members));
        self
    }
}

/// How many rows a claim takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MicroBatch {
    pub(crate) rows: usize,
    pub(crate) exact: bool,
}

impl MicroBatch {
    /// `rows` rows, no fewer: nothing is handed out before that many are ready. A group that would not fit whole waits
    /// for the next micro-batch; a group larger than `rows` makes a micro-batch of its own. At the end of a step the
    /// last, smaller micro-batch is handed out as it is.
    pub fn of(rows: usize) -> Self {
        MicroBatch { rows: rows.max(1), exact: true }
    }

    /// Whatever is ready, up to `rows` rows (or one group, if that is larger).
    pub fn up_to(rows: usize) -> Self {
        MicroBatch { rows: rows.max(1), exact: false }
    }
}
