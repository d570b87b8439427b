//! The few outward kinds: each says what the caller does next.

use super::Error;

/// What the caller does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// Mend the call: a value in it is wrong and would be refused again.
    Input,
    /// The call is legal but not at this moment; the message names the state and the way out.
    State,
    /// Stored bytes are damaged or belong to something else: read another copy.
    Corrupt,
}

impl Error {
    /// What the caller does next.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Config { .. }
            | Self::Token { .. }
            | Self::EmptyPrompt { .. }
            | Self::TooLong { .. }
            | Self::Advantage { .. }
            | Self::Weight { .. }
            | Self::ColumnLength { .. }
            | Self::MissingColumn { .. }
            | Self::EmptyMask { .. }
            | Self::LogProb { .. }
            | Self::NotLinear { .. }
            | Self::Reward { .. }
            | Self::RowAdvantage { .. }
            | Self::GroupAdvantages { .. }
            | Self::EmptyUnit { .. }
            | Self::OtherPolicy { .. } => ErrorKind::Input,
            Self::OtherVersion { .. }
            | Self::PositionTaken { .. }
            | Self::NoGroup { .. }
            | Self::Member { .. }
            | Self::GroupIncomplete { .. }
            | Self::SumRange { .. }
            | Self::OpenGroups { .. }
            | Self::CacheNotEmpty { .. }
            | Self::RankFailed { .. }
            | Self::Copy { .. }
            | Self::HostMemory { .. }
            | Self::Stream { .. }
            | Self::Share { .. }
            | Self::Pin { .. }
            | Self::Device { .. }
            | Self::EmptyCache
            | Self::NotFinite { .. } => ErrorKind::State,
            Self::Payload { .. } | Self::Tensor { .. } | Self::Foreign { .. } => ErrorKind::Corrupt,
        }
    }
}
