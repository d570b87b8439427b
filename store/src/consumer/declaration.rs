//! What a user says of a consumer.

use super::condition::Comparison;
use super::grouping::{GroupBy, GroupRule, Grouping, Member, TrajectoryEnd};
use super::limiter::RateLimiter;
use crate::origin::Origins;
use crate::table::Purpose;

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

/// The declaration of a consumer: which tables it reads, when a row is ready for it, and how rows go together.
///
/// ```
/// use forebay_store::{Consumer, GroupBy};
/// let train = Consumer::trainer(["solver"]).ready(["response", "reward"]).group(GroupBy::Input, 8);
/// let reward = Consumer::task(["solver", "checker"]).ready(["response"]);
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Consumer {
    /// What it does with its claims.
    pub kind: ConsumerKind,
    /// The tables that it reads.
    pub tables: Vec<String>,
    /// The data columns that must be final: see [`Consumer::ready`].
    pub ready: Vec<String>,
    /// How rows go together; `None` for single rows.
    pub grouping: Option<Grouping>,
    /// A bit a purpose.
    pub(crate) purposes: u8,
    /// What cells must say: see [`Consumer::only`].
    pub conditions: Vec<(String, Comparison, f64)>,
    /// The column that says what goes first: see [`Consumer::priority`].
    pub priority: Option<String>,
    /// How many versions behind a row may be: see [`Consumer::staleness`].
    pub staleness: Option<u64>,
    /// What holds writers and claimers together: see [`Consumer::rate_limiter`].
    pub limiter: Option<RateLimiter>,
    /// Whose rows it takes: see [`Consumer::origins`].
    pub origins: Origins,
}

impl Consumer {
    /// A consumer whose claims are finished by writing columns.
    pub fn task<'a>(tables: impl IntoIterator<Item = &'a str>) -> Self {
        Consumer {
            kind: ConsumerKind::Task,
            tables: tables.into_iter().map(str::to_owned).collect(),
            ready: Vec::new(),
            grouping: None,
            purposes: u8::MAX,
            conditions: Vec::new(),
            priority: None,
            staleness: None,
            limiter: None,
            origins: Origins::All,
        }
    }

    /// A consumer whose claims are accumulated and then consumed by a step. A table has at most one; `is_processing`
    /// shows its state. It takes train rows.
    pub fn trainer<'a>(tables: impl IntoIterator<Item = &'a str>) -> Self {
        let trainer = Consumer { kind: ConsumerKind::Trainer, ..Consumer::task(tables) };
        trainer.purposes([Purpose::Train]).origins(Origins::Own)
    }

    /// The data columns that must be final. Default: none, so that a row is ready as soon as it is inserted.
    pub fn ready<'a>(mut self, columns: impl IntoIterator<Item = &'a str>) -> Self {
        self.ready = columns.into_iter().map(str::to_owned).collect();
        self
    }

    /// Takes rows by whole groups of exactly `members` rows each. Default: row by row.
    ///
    /// A row beyond that is left out: by a trainer for good, with the reason `surplus`, by a task for that task only. A
    /// single group may be told to [expect](crate::ConsumerHandle::expect_group) another number, or be
    /// [closed](crate::ConsumerHandle::close_group) with what it has.
    pub fn group(mut self, by: GroupBy, members: u32) -> Self {
        self.grouping = Some(Grouping::new(by, members, Member::Row));
        self
    }

    /// Takes rows by whole groups of exactly so many trajectories, each of one or many rows. A trajectory is all rows of
    /// the group that have one trajectory number; `end` says when it has all of them. One whose rows are all left out has
    /// failed; a turn that was skipped leaves no gap.
    ///
    /// ```
    /// use forebay_store::{Consumer, GroupBy, GroupRule, TrajectoryEnd};
    /// let train = Consumer::trainer(["solver"])
    ///     .ready(["response", "reward"])
    ///     .trajectories(GroupBy::Input, 8, TrajectoryEnd::Closed)
    ///     .when_a_member_fails(GroupRule::Shrink { least: 4 });
    /// ```
    pub fn trajectories(mut self, by: GroupBy, trajectories: u32, end: TrajectoryEnd) -> Self {
        self.grouping = Some(Grouping::new(by, trajectories, Member::Trajectory(end)));
        self
    }

    /// What becomes of a group when a member is left out or is late. Default: it goes on without it, as long as there is
    /// one. Has no effect on a consumer that takes single rows.
    pub fn when_a_member_fails(mut self, rule: GroupRule) -> Self {
        self.grouping.iter_mut().for_each(|grouping| grouping.rule = rule);
        self
    }

    /// Takes rows of these purposes only; others have no place in its groups. Default: train rows for a trainer, every
    /// row for a task.
    pub fn purposes(mut self, purposes: impl IntoIterator<Item = Purpose>) -> Self {
        self.purposes = purposes.into_iter().fold(0, |bits, purpose| bits | 1 << purpose as u8);
        self
    }

    /// The purposes of the rows that it takes.
    pub fn purposes_taken(&self) -> impl Iterator<Item = Purpose> + '_ {
        Purpose::ALL.into_iter().filter(|purpose| self.purposes >> *purpose as u8 & 1 == 1)
    }

    /// Takes only rows whose cell in `column`, one of numbers or bools, compares so with `number`. The column must be
    /// final for a row to be ready; null passes nothing. A row that does not pass is left out of this consumer's groups
    /// like one that was excluded, and stays for others.
    pub fn only(mut self, column: &str, comparison: Comparison, number: f64) -> Self {
        self.conditions.push((column.to_owned(), comparison, number));
        self
    }

    /// Lets a trainer take rows that are up to so many versions behind its policy. What counts is the oldest trainable span
    /// of a row: the version that made its first token that is [trained on](crate::Table::trainable_from). Default: none, a
    /// row's own version is the policy's current one. With `staleness(0)`, a row that was cut by new weights counts as
    /// fresh once all of its older tokens are masked.
    ///
    /// A row that leaves the window is left out with the reason `stale`; tasks go on serving those within, and they can be
    /// inserted, too. A group has rows of one own version still, and so has a micro-batch: the window lets groups of
    /// older versions into a step, it does not mix them. Rows of versions to come wait for these, as ever.
    ///
    /// ```
    /// # use forebay_store::*;
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = Store::open(dir.path().join("store"), Options::default())?;
    /// let solver = store.create_table("solver", Schema::new().data("reward", DataType::Float32))?;
    /// let train = store.create_consumer("train", Consumer::trainer(["solver"]).ready(["reward"]).staleness(1))?;
    /// solver.insert(0, "q1_0_0", [("reward", 1.0.into())])?;
    /// let slow = solver.insert(0, "q2_0_0", [])?;
    /// let step = store.begin_step(StepPlan::new().rows(&train, 1))?;
    /// step.next(&train, MicroBatch::up_to(8), Wait::No)?.unwrap().accumulated()?;
    /// step.commit([("solver", vec![])])?; // the policy is at version 1
    /// solver.write(slow, [("reward", 0.0.into())])?;
    /// let step = store.begin_step(StepPlan::new().rows(&train, 1))?;
    /// assert_eq!(step.next(&train, MicroBatch::up_to(8), Wait::No)?.unwrap().rows(), [slow]);
    /// # Ok::<(), forebay_store::Error>(())
    /// ```
    pub fn staleness(mut self, versions: u64) -> Self {
        self.staleness = Some(versions);
        self
    }

    /// Takes rows of this run, of [peers](crate::NewRow::external), or of both. Default: a trainer takes this run's
    /// rows, so that a peer's are left out of its tables for good, with the reason `external`; a task takes all.
    ///
    /// A row of a peer is of no version of the policy: whoever takes it takes it at once, it never turns stale, and its
    /// group and its micro-batch are of its own kind.
    pub fn origins(mut self, origins: Origins) -> Self {
        self.origins = origins;
        self
    }

    /// Hands out what has the greatest number in `column` first (of a group, the greatest of its ready rows), and the
    /// oldest of equals; null comes last. The column must be final for a row to be ready. Default: the oldest first.
    pub fn priority(mut self, column: &str) -> Self {
        self.priority = Some(column.to_owned());
        self
    }

    /// Holds those who insert rows for this consumer and those who claim them together. Default: neither waits for the
    /// other.
    pub fn rate_limiter(mut self, limiter: RateLimiter) -> Self {
        self.limiter = Some(limiter);
        self
    }
}
