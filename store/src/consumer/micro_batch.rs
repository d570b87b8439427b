//! How much a claim takes.

use super::signal::Need;
use crate::error::{Cause, Result};

/// How much a claim takes.
///
/// ```
/// use forebay_store::MicroBatch;
/// let rows = MicroBatch::of(16);
/// let tokens = MicroBatch::tokens("response", 65_536);
/// let both = MicroBatch::of(64).tokens_at_most("response", 65_536);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MicroBatch {
    pub(crate) rows: usize,
    pub(crate) exact: bool,
    pub(crate) budget: Option<TokenBudget>,
    /// How many groups may be handed out in part at a time.
    pub(crate) early: usize,
}

/// A limit on the lengths of a column's lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TokenBudget {
    pub(crate) column: ShortName,
    pub(crate) tokens: u64,
}

/// A column's name, held in place so that a rule can be copied.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ShortName {
    bytes: [u8; NAME_BYTES_MAX],
    length: u8,
}

/// No column has a longer name.
const NAME_BYTES_MAX: usize = 64;

impl ShortName {
    /// The name; one that is too long for any column ends in a character that no column's name has.
    fn new(name: &str) -> Self {
        let mut short = name.as_bytes().to_vec();
        if short.len() > NAME_BYTES_MAX || !name.is_ascii() {
            short = name.chars().filter(char::is_ascii).take(NAME_BYTES_MAX - 1).map(|c| c as u8).collect();
            short.push(b'~');
        }
        let mut bytes = [0; NAME_BYTES_MAX];
        bytes[..short.len()].copy_from_slice(&short);
        ShortName { bytes, length: short.len() as u8 }
    }

    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.length)]).unwrap_or_default()
    }
}

impl std::fmt::Debug for ShortName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_str().fmt(f)
    }
}

impl MicroBatch {
    /// `rows` rows, no fewer: nothing is handed out before that many are ready. A group that would not fit whole waits
    /// for the next micro-batch; a group larger than `rows` makes a micro-batch of its own. At the end of a step the
    /// last, smaller micro-batch is handed out as it is. A claim of 0 rows is refused: it could mean none, or all.
    pub fn of(rows: usize) -> Self {
        MicroBatch { rows, exact: true, budget: None, early: 0 }
    }

    /// Whatever is ready, up to `rows` rows (or one group, if that is larger).
    pub fn up_to(rows: usize) -> Self {
        MicroBatch { exact: false, ..Self::of(rows) }
    }

    /// As many rows, or whole groups, as hold at most `tokens` elements in the lists of `column`, and at least one. Nothing
    /// is handed out before the next one would be too many; at the end of a step the last is handed out as it is. What
    /// lies behind one that does not fit may go before it.
    pub fn tokens(column: &str, tokens: u64) -> Self {
        Self::of(usize::MAX).tokens_at_most(column, tokens)
    }

    /// Whatever is ready, up to `rows` rows, members of groups that are not complete among them: of at most `open_groups` groups at a
    /// time, so many as who takes them has room for. Groups that are complete come whole, as ever; with room for none, no others do.
    ///
    /// For a trainer in a step that plans groups, whose gradient does not wait for a group's mean (exact early training). Of a group that
    /// is handed out in part the rest comes as it turns ready; once its key is no more among
    /// [`open_groups`](crate::ConsumerHandle::open_groups), nobody more will come: who has not, was left out.
    ///
    /// ```
    /// # use forebay_store::*;
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = Store::open(dir.path().join("store"), Options::default())?;
    /// let solver = store.create_table("solver", Schema::new().data("reward", DataType::Float32))?;
    /// let train = store.create_consumer("train", Consumer::trainer(["solver"]).ready(["reward"]).group(GroupBy::Input, 2))?;
    /// let step = store.begin_step(StepPlan::new().groups(&train, ["q1"]))?;
    /// solver.insert(0, "q1_0_0", [("reward", 1.0.into())])?;
    /// assert!(step.next(&train, MicroBatch::up_to(8), Wait::No)?.is_none(), "one of two has come");
    /// let claim = step.next(&train, MicroBatch::early(8, 1), Wait::No)?.unwrap();
    /// assert_eq!((claim.len(), train.open_groups()), (1, vec!["q1".to_owned()]));
    /// # Ok::<(), forebay_store::Error>(())
    /// ```
    pub fn early(rows: usize, open_groups: usize) -> Self {
        MicroBatch { early: open_groups, ..Self::up_to(rows) }
    }

    /// How many groups may be handed out in part at a time: see [`early`](Self::early).
    pub fn open_groups(&self) -> usize {
        self.early
    }

    /// How many rows it takes at most; `usize::MAX` where only tokens count.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Whether nothing is handed out before that many rows are ready.
    pub fn is_exact(&self) -> bool {
        self.exact
    }

    /// The column whose elements count, and how many of them it takes at most.
    pub fn token_budget(&self) -> Option<(&str, u64)> {
        self.budget.as_ref().map(|budget| (budget.column.as_str(), budget.tokens))
    }

    /// Refuses a rule that says nothing.
    ///
    /// # Errors
    /// `input` for a micro-batch of 0 rows.
    pub(crate) fn check(&self) -> Result<()> {
        if self.rows > 0 {
            return Ok(());
        }
        let reason = "0 rows are nothing to claim; ask for at least 1, or for all with usize::MAX".to_owned();
        Err(Cause::Argument { what: "micro-batch", reason }.into())
    }

    /// What there must be for a claim to be worth trying, in words of the [`Signal`](super::signal::Signal).
    pub(crate) fn need(&self) -> Need {
        match self.budget {
            _ if self.early > 0 => Need::Early,
            Some(_) => Need::Budget,
            None => Need::Rows(if self.exact { self.rows } else { 1 }),
        }
    }

    /// The same rule, with a limit on the elements in the lists of `column` as well.
    pub fn tokens_at_most(mut self, column: &str, tokens: u64) -> Self {
        self.budget = Some(TokenBudget { column: ShortName::new(column), tokens });
        self
    }
}
