//! One group: rows that are claimed together, counted.
//!
//! There may be millions of groups, so a record is 48 plain bytes and owns nothing. The rows that wait or are ready are
//! a chain through the rows' words: the record names the first, each word the next.
//!
//! A member (a row, or a trajectory) counts once: as waiting, in (ready or taken), or out. A group is *complete* when it
//! has all its members and none is waited for; it is *over* when there is nobody left to hand out either.

use bytemuck::{Pod, Zeroable};

use super::grouping::{GroupRule, Grouping};
use crate::origin::EXTERNAL_VERSION;
use crate::texts::TextId;

/// What the members of a group have in common, beside table and version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct GroupName {
    /// The input id, or the parent.
    pub(crate) text: TextId,
    pub(crate) turn: u32,
    pub(crate) agent: TextId,
    /// The peer and the round that its rows come from; empty for this run.
    pub(crate) origin: TextId,
}

impl GroupName {
    /// The texts that it is made of.
    pub(crate) fn texts(&self) -> [TextId; 3] {
        [self.text, self.agent, self.origin]
    }

    /// Under which version the group is kept, of which `version` is said.
    pub(crate) fn lane(&self, version: u64) -> u64 {
        if self.origin == TextId::EMPTY { version } else { EXTERNAL_VERSION }
    }
}

/// A group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Group {
    pub(crate) name: GroupName,
    /// The first row of the chain, plus one; 0 for none.
    pub(crate) head: u32,
    flags: u32,
    /// The place in the ready queue; 0 while not queued.
    pub(crate) ticket: u64,
    /// Rows that are ready and not claimed.
    pub(crate) ready: u32,
    /// Rows that are leased, accumulated, finished or consumed.
    pub(crate) taken: u32,
    /// How many members the group is to have.
    pub(crate) size: u16,
    /// How many have come.
    pub(crate) members: u16,
    /// How many of those are waited for.
    pub(crate) waiting: u16,
    /// How many of those were left out.
    pub(crate) out: u16,
}

/// Nobody more will come.
const CLOSED: u32 = 1;
/// All of it is left out.
const EXCLUDED: u32 = 2;
/// The open step takes it.
const PLANNED: u32 = 4;
/// It was closed with too few members.
const SHORT: u32 = 8;

/// It has said to the open step what is open of its name.
const ANSWERS: u32 = 16;
/// From this bit of the flags on stands how many of those who are out were deleted.
const GONE_SHIFT: u32 = 16;

/// How a group stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Somebody is waited for.
    Open,
    /// It can be handed out.
    Complete,
    /// Nobody is left to hand out.
    Over,
    /// Its rule leaves it out.
    Failed,
}

impl Group {
    /// No group at all: nobody is in it, and nobody is to come.
    pub(crate) const NONE: Group = Group {
        name: GroupName { text: TextId(0), turn: 0, agent: TextId(0), origin: TextId(0) },
        head: 0,
        flags: CLOSED | EXCLUDED,
        ticket: 0,
        ready: 0,
        taken: 0,
        size: 0,
        members: 0,
        waiting: 0,
        out: 0,
    };

    pub(crate) fn new(name: GroupName, size: u32) -> Self {
        Group { name, size: size as u16, ..Group::zeroed() }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.flags & CLOSED != 0
    }

    pub(crate) fn is_excluded(&self) -> bool {
        self.flags & EXCLUDED != 0
    }

    pub(crate) fn is_planned(&self) -> bool {
        self.flags & PLANNED != 0
    }

    pub(crate) fn set_planned(&mut self, planned: bool) {
        self.flags = if planned { self.flags | PLANNED } else { self.flags & !PLANNED };
    }

    pub(crate) fn answers(&self) -> bool {
        self.flags & ANSWERS != 0
    }

    pub(crate) fn set_answers(&mut self, answers: bool) {
        self.flags = if answers { self.flags | ANSWERS } else { self.flags & !ANSWERS };
    }

    /// How many of the members that are out were deleted for good: no next attempt of them can come.
    pub(crate) fn gone(&self) -> u16 {
        (self.flags >> GONE_SHIFT) as u16
    }

    /// Says how many those are: no more than are out.
    pub(crate) fn set_gone(&mut self, gone: u16) {
        let flags = self.flags & ((1 << GONE_SHIFT) - 1);
        self.flags = flags | u32::from(gone.min(self.out)) << GONE_SHIFT;
    }

    /// Nobody more will come: the group has the members that it has, unless its rule wants more.
    pub(crate) fn close(&mut self, grouping: &Grouping) {
        let short = match grouping.rule {
            GroupRule::NextAttempt => false,
            GroupRule::Exclude => self.out > 0 || self.members < self.size,
            GroupRule::Shrink { least } => u32::from(self.members - self.out) < least.min(self.size.into()),
        };
        self.flags |= if short { CLOSED | SHORT } else { CLOSED };
        self.size = self.members;
    }

    /// All of it is left out, whoever comes.
    pub(crate) fn exclude(&mut self) {
        self.flags |= CLOSED | EXCLUDED;
        (self.ready, self.waiting, self.head) = (0, 0, 0);
    }

    /// Whether one more member would be one too many.
    pub(crate) fn is_full(&self) -> bool {
        self.members >= self.size
    }

    /// How the group stands under its consumer's rule.
    pub(crate) fn standing(&self, grouping: &Grouping) -> Standing {
        let out = u32::from(self.out);
        let failed = match grouping.rule {
            _ if self.is_excluded() => return Standing::Over,
            _ if self.flags & SHORT != 0 => true,
            GroupRule::NextAttempt => false,
            GroupRule::Exclude => out > 0,
            // A declared least above the group's own size asks for all of it.
            GroupRule::Shrink { least } => {
                let left = u32::from(self.size).checked_sub(out); // more may be out than it has places for
                out > 0 && left.is_some_and(|left| left < least.min(self.size.into()))
            }
        };
        let waits = grouping.rule == GroupRule::NextAttempt && self.out > self.gone() && !self.is_closed();
        if failed && self.ready + u32::from(self.waiting) > 0 {
            Standing::Failed
        } else if self.members < self.size || self.waiting > 0 || waits {
            if failed { Standing::Over } else { Standing::Open }
        } else if self.ready > 0 {
            Standing::Complete
        } else {
            Standing::Over
        }
    }

    /// Whether some of it was handed out, and more is to be.
    pub(crate) fn is_begun(&self, grouping: &Grouping) -> bool {
        self.taken > 0 && matches!(self.standing(grouping), Standing::Open | Standing::Complete)
    }

    /// Rows (or, while they are not known, members) that are still to be handed out, and how many can be now.
    pub(crate) fn outstanding(&self, grouping: &Grouping) -> (usize, usize) {
        let ready = self.ready as usize;
        match self.standing(grouping) {
            Standing::Over | Standing::Failed => (0, 0),
            Standing::Complete if self.ticket != 0 => (ready, ready),
            Standing::Complete => (ready, 0),
            Standing::Open => {
                let missing = self.size.saturating_sub(self.members) + self.waiting;
                (ready + usize::from(missing).max(1), 0)
            }
        }
    }
}
