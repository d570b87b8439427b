//! What can go wrong in the data flow.

use std::fmt;

pub use forebay_store::Kind;

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed. [`Error::kind`] says what the caller does next, as in the store.
pub struct Error(Box<Cause>);

impl Error {
    /// What to do next.
    pub fn kind(&self) -> Kind {
        match &*self.0 {
            Cause::Store(error) => error.kind(),
            Cause::MixedVersions { .. } | Cause::NotPlanned { .. } => Kind::State,
            _ => Kind::Input,
        }
    }

    /// The precise cause.
    pub fn cause(&self) -> &Cause {
        &self.0
    }
}

impl<T: Into<Cause>> From<T> for Error {
    fn from(cause: T) -> Self {
        Error(Box::new(cause.into()))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}", self.kind().as_str(), self.0)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&*self.0)
    }
}

/// The precise reasons, each with the value that caused it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(
    missing_docs,
    reason = "each variant's message is its documentation; fields are named for what they hold"
)]
pub enum Cause {
    #[error(transparent)]
    Store(#[from] forebay_store::Error),
    #[error("no agent is named {name:?}; the agents are {known}")]
    UnknownAgent { name: String, known: String },
    #[error("no agent has the id {id}; the ids go from 0 to {last}")]
    UnknownAgentId { id: i64, last: usize },
    #[error("agent {name:?} is declared twice")]
    AgentTwice { name: String },
    #[error("the lineage {path} never ends; an agent may not come back on its own trajectory")]
    Cycle { path: String },
    #[error("{what}: {reason}")]
    Argument { what: &'static str, reason: String },
    #[error(
        "sample {sample_id} answers input {found:?}, its group is for input {expected:?}; write it to its own group"
    )]
    OtherInput { sample_id: String, found: String, expected: String },
    #[error(
        "sample {sample_id} belongs to no group of step {step}; plan its input, or leave it out of the step"
    )]
    NotPlanned { sample_id: String, step: u64 },
    #[error(
        "a micro-batch of table {table:?} holds versions {found:?}, its policy is at {current}; drop its claim"
    )]
    MixedVersions { table: String, found: Vec<u64>, current: u64 },
}
