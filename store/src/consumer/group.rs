//! Groups: rows that are claimed together.

use crate::texts::TextId;

/// What the members of a group have in common, beside their table and version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct GroupName {
    pub(crate) input: TextId,
    /// The turn, where groups are by turn too.
    pub(crate) turn: Option<u32>,
}

/// A group's name in its consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct GroupKey {
    pub(crate) table: u32,
    pub(crate) version: u64,
    pub(crate) name: GroupName,
}

/// The members of a group, counted. A member counts once: as waiting (not counted here), ready, held, done or out.
///
/// A group is complete when no member is waiting. A member that is left out for good is waited for no longer; one that
/// is superseded is counted nowhere until its next attempt is.
#[derive(Debug, Default)]
pub(crate) struct Group {
    /// Members that the consumer's declaration asks for.
    pub(crate) size: u32,
    /// Members that are ready and not claimed.
    pub(crate) ready: Vec<u32>,
    /// Members that are leased or accumulated.
    pub(crate) held: u32,
    /// Members that are finished or consumed.
    pub(crate) done: u32,
    /// Members that were left out, each in its latest attempt.
    pub(crate) out: u32,
    /// The group's place in the ready queue.
    pub(crate) ticket: Option<u64>,
}

impl Group {
    fn settled(&self) -> u32 {
        self.held + self.done + self.out
    }

    /// Whether nobody is waited for, and there is somebody to hand out.
    pub(crate) fn is_complete(&self) -> bool {
        !self.ready.is_empty() && self.ready.len() as u32 + self.settled() >= self.size
    }

    /// Whether every member is done or out.
    pub(crate) fn is_over(&self) -> bool {
        self.ready.is_empty() && self.held == 0 && self.done + self.out >= self.size
    }

    /// Members that are still to be handed out, and how many of those can be now.
    pub(crate) fn outstanding(&self) -> (usize, usize) {
        let open = self.size.saturating_sub(self.settled()) as usize;
        (open, if self.ticket.is_some() { self.ready.len().min(open) } else { 0 })
    }
}
