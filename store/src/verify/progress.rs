//! How far a check has come.

/// What is being looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerifyStage {
    /// The log, record by record.
    Log,
    /// The values, extent by extent.
    Values,
    /// The objects.
    Objects,
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
