//! The agent that all rows of a chunk are of.

use std::fmt;
use std::sync::OnceLock;

use super::record::RowMeta;
use crate::texts::TextId;

/// Found when it is first asked for, and kept by whoever shares the chunk from then on: a table is mostly of one agent, and
/// telling so takes as long as reading the rows once.
#[derive(Clone, Default)]
pub(crate) struct OnlyAgent(OnceLock<Option<TextId>>);

impl OnlyAgent {
    /// The agent of all these rows, which are the chunk's; `None` where there are several, or no rows.
    pub(crate) fn of(&self, rows: &[RowMeta]) -> Option<TextId> {
        *self.0.get_or_init(|| {
            let agent = rows.first()?.agent;
            rows.iter().all(|row| row.agent == agent).then_some(agent)
        })
    }
}

impl fmt::Debug for OnlyAgent {
    /// Nothing of what was found, so that states can be compared whoever has read them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnlyAgent")
    }
}
