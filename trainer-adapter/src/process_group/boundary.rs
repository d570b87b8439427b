//! The moments between the steps of a group's life, and who is told of them.

use std::fmt;
use std::sync::Arc;

/// A moment in the life of a group: what came before is done, what comes after is not begun. At each of them a process may end
/// without harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Boundary {
    /// Coordinator: the place of a group is known, no process is there.
    Placed,
    /// Coordinator: one more rank's process is there.
    Spawned,
    /// Rank: it is about to say hello.
    Greeting,
    /// Coordinator: every rank has said hello.
    Greeted,
    /// Rank: its device is open, its state not read.
    DeviceOpened,
    /// Rank: its part of the state is read.
    Got,
    /// Rank: its trainer is as it was when the state was set.
    Restored,
    /// Coordinator: all ranks have their state; the group is active.
    Activated,
    /// Rank: a micro-batch, or members of open groups, have come.
    BatchReceived,
    /// Rank: it is in the cache, and nobody was told.
    BatchAccumulated,
    /// Coordinator: it was told of every micro-batch of a call.
    BatchesKnown,
    /// Rank: a group is to be closed.
    CloseReceived,
    /// Rank: it is closed, and nobody was told.
    GroupClosed,
    /// Rank: an update is to be made.
    ApplyReceived,
    /// Rank: it has the gradient of all ranks.
    Exchanged,
    /// Rank: its weights have moved, and nobody was told.
    UpdateMade,
    /// Coordinator: it was told of the update by every rank.
    UpdateKnown,
    /// Coordinator: it begins to set the state.
    Setting,
    /// Rank: it begins to stage.
    Staging,
    /// Whoever keeps states: half of a part is written.
    HalfWritten,
    /// Whoever keeps states: a part is there, on stable storage where it is to survive the machine.
    PartWritten,
    /// Rank: its parts are staged, and nobody was told.
    PartsStaged,
    /// Coordinator: every part is staged, and nothing committed.
    AllStaged,
    /// Whoever keeps states: all that makes the version is there, and nobody sees it.
    ManifestWritten,
    /// Whoever keeps states: the version is there.
    ManifestLinked,
    /// Coordinator: the version is committed, the processes are still there.
    Committed,
    /// Coordinator: the ranks were told to end.
    EndTold,
    /// Coordinator: every process has ended.
    Ended,
}

impl Boundary {
    /// All of them.
    pub const ALL: [Self; 28] = [
        Self::Placed,
        Self::Spawned,
        Self::Greeting,
        Self::Greeted,
        Self::DeviceOpened,
        Self::Got,
        Self::Restored,
        Self::Activated,
        Self::BatchReceived,
        Self::BatchAccumulated,
        Self::BatchesKnown,
        Self::CloseReceived,
        Self::GroupClosed,
        Self::ApplyReceived,
        Self::Exchanged,
        Self::UpdateMade,
        Self::UpdateKnown,
        Self::Setting,
        Self::Staging,
        Self::HalfWritten,
        Self::PartWritten,
        Self::PartsStaged,
        Self::AllStaged,
        Self::ManifestWritten,
        Self::ManifestLinked,
        Self::Committed,
        Self::EndTold,
        Self::Ended,
    ];
}

/// Is told of boundaries, by the thread that reaches them: to trace, to measure, and in tests to end the process there. Default:
/// nobody is told.
#[derive(Clone, Default)]
pub struct Observer(Option<Arc<dyn Fn(Boundary) + Send + Sync>>);

impl Observer {
    /// Tells `told`.
    pub fn new(told: impl Fn(Boundary) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(told)))
    }

    /// Tells that a boundary is reached: for whoever implements [`crate::states::States`].
    pub fn reached(&self, boundary: Boundary) {
        if let Some(told) = &self.0 {
            told(boundary);
        }
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Observer(told)" } else { "Observer(nobody)" })
    }
}
