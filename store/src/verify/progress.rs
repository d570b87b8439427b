//! How far a check has come, and whether it goes on.

use std::ops::ControlFlow;

use crate::error::{Cause, Result};

/// What is being looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerifyStage {
    /// The page images of the checkpoint, where there is one.
    Checkpoint,
    /// The log, record by record.
    Log,
    /// The values, extent by extent.
    Values,
    /// The objects.
    Objects,
}

impl VerifyStage {
    /// The word for this stage, as commands and clients show it.
    pub fn as_str(self) -> &'static str {
        match self {
            VerifyStage::Checkpoint => "checkpoint",
            VerifyStage::Log => "log",
            VerifyStage::Values => "values",
            VerifyStage::Objects => "objects",
        }
    }
}

/// How far a check has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifyProgress {
    /// What is being looked at.
    pub stage: VerifyStage,
    /// Bytes of this stage that were looked at.
    pub done_bytes: u64,
    /// Bytes of this stage.
    pub total_bytes: u64,
}

/// Whoever is told how far a check is, and may stop it.
pub(crate) struct Watched<'a> {
    tell: Option<&'a mut dyn FnMut(VerifyProgress) -> ControlFlow<()>>,
    stage: VerifyStage,
    done_bytes: u64,
    total_bytes: u64,
}

impl<'a> Watched<'a> {
    pub(crate) fn by(tell: &'a mut dyn FnMut(VerifyProgress) -> ControlFlow<()>) -> Self {
        Watched { tell: Some(tell), ..Self::by_nobody() }
    }

    pub(crate) fn by_nobody() -> Self {
        Watched { tell: None, stage: VerifyStage::Checkpoint, done_bytes: 0, total_bytes: 0 }
    }

    /// A stage begins.
    pub(super) fn begin(&mut self, stage: VerifyStage, total_bytes: u64) {
        (self.stage, self.done_bytes, self.total_bytes) = (stage, 0, total_bytes);
    }

    /// So many bytes more were looked at.
    ///
    /// # Errors
    /// `Stopped` where it is not to go on.
    pub(super) fn looked_at(&mut self, bytes: u64) -> Result<()> {
        self.done_bytes = self.done_bytes.saturating_add(bytes);
        let Some(tell) = &mut self.tell else { return Ok(()) };
        let Watched { stage, done_bytes, total_bytes, .. } = *self;
        // What was written since the stage began is looked at, too.
        let total_bytes = total_bytes.max(done_bytes);
        match tell(VerifyProgress { stage, done_bytes, total_bytes }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Cause::Stopped { what: "check" }.into()),
        }
    }
}
