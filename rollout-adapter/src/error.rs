//! What can go wrong in a rollout.

use std::fmt;

use forebay_store::Kind;

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a generator or an environment says when it fails: its own error, whatever it is.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Why a rollout stopped. [`Error::kind`] says what the caller does next, as in the store.
pub struct Error(Box<Cause>);

/// The precise reasons.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(
    missing_docs,
    reason = "each variant's message is its documentation; fields are named for what they hold"
)]
pub enum Cause {
    #[error(transparent)]
    Store(#[from] forebay_store::Error),
    #[error(transparent)]
    Pipeline(#[from] forebay_pipeline::Error),
    #[error("agent {agent:?} could not generate at version {version}")]
    Generate { agent: String, version: u64, source: Failure },
    #[error("no first prompt for input {input:?}")]
    Prompt { input: String, source: Failure },
    #[error(
        "a generator answered {requests} requests with {responses} responses; it must answer each once, in order"
    )]
    ResponseCount { requests: usize, responses: usize },
    #[error(
        "column {column:?} of table {table:?} does not hold what rollouts write; create the table with `rollout_schema`"
    )]
    Column { table: String, column: &'static str },
}

impl Error {
    /// What to do next.
    pub fn kind(&self) -> Kind {
        match &*self.0 {
            Cause::Store(error) => error.kind(),
            Cause::Pipeline(error) => error.kind(),
            Cause::Generate { .. } => Kind::Retry,
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
