//! How much a rewind knows, then and now.

/// What a rewind knows still of the rows and groups that come back; each knows what those before it do. It became more with time,
/// and the record of a rewind says which holds, so that an old log means what it meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Recall {
    /// What was said of groups, and what tasks had done while they held a row.
    Said = 0,
    /// Groups keep their size: members that were deleted, and in which order rows came.
    Sizes = 1,
    /// What became of a row of a task after it was left out: that its holder finished it, or that its group was closed without it.
    Since = 2,
}

impl Recall {
    /// What rewinds know now.
    pub(crate) const LATEST: Self = Recall::Since;

    /// By the number in a record.
    pub(crate) fn of(number: u16) -> Option<Self> {
        [Recall::Said, Recall::Sizes, Recall::Since].into_iter().find(|recall| *recall as u16 == number)
    }
}
