//! What can go wrong with a store that may be elsewhere: the store's own kinds, wherever it is.

use std::fmt;
use std::time::Duration;

use forebay_store::Kind;

/// The result of every call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed. [`Error::kind`] says what to do next, and is the same whether the store is in this process or behind
/// a server; the message is for people.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    cause: String,
    message: String,
    retry_after: Option<Duration>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error in words of its own.
    pub fn new(kind: Kind, cause: &str, message: impl Into<String>) -> Self {
        Error { kind, cause: cause.to_owned(), message: message.into(), retry_after: None, source: None }
    }

    /// A call that has to be mended.
    pub(crate) fn input(cause: &str, message: impl Into<String>) -> Self {
        Error::new(Kind::Input, cause, message)
    }

    /// The same, with how long to wait before trying again.
    pub fn retry_after(self, time: Option<Duration>) -> Self {
        Error { retry_after: time, ..self }
    }

    /// The same, with what it came of.
    pub(crate) fn because(self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Error { source: Some(source.into()), ..self }
    }

    /// What to do next.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The precise cause in one word: that of a [`forebay_store::Cause`], or, of what only a server can cause,
    /// `Connection`, `Deadline`, `SessionLost`, `Uncertain`, `Unauthenticated`, `Forbidden`, `TooLarge` or `Protocol`.
    pub fn cause(&self) -> &str {
        &self.cause
    }

    /// The same once more, for another who is to hear of it: without what it came of.
    pub(crate) fn again(&self) -> Self {
        Error { retry_after: self.retry_after, ..Error::new(self.kind, &self.cause, self.message.clone()) }
    }

    /// Whether it says that a version of an object has not come (yet).
    pub(crate) fn is_not_yet(&self) -> bool {
        matches!((self.kind, &*self.cause), (Kind::Retry, "ObjectNotYet") | (Kind::Input, "Unknown"))
    }

    /// How long to wait before trying again, where that is known.
    pub fn wait_before_retry(&self) -> Option<Duration> {
        self.retry_after
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn std::error::Error + 'static))
    }
}

impl From<forebay_store::Error> for Error {
    fn from(error: forebay_store::Error) -> Self {
        let cause = format!("{:?}", error.cause());
        let word = cause.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
        Error::new(error.kind(), word, error.to_string()).because(error)
    }
}

/// The kind that a word stands for: the other way of [`Kind::as_str`].
pub(crate) fn kind_named(word: &str) -> Option<Kind> {
    const ALL: [Kind; 6] =
        [Kind::Retry, Kind::Input, Kind::State, Kind::Capacity, Kind::Corrupt, Kind::Closed];
    ALL.into_iter().find(|kind| kind.as_str() == word)
}

#[cfg(test)]
mod tests {
    use forebay_store::Cause;

    use super::*;

    #[test]
    fn a_failure_of_the_store_keeps_its_kind_its_cause_and_its_words() {
        for (cause, kind, word) in [
            (Cause::StepClosed { step: 3 }, Kind::State, "StepClosed"),
            (Cause::Closed { reason: "gone".into() }, Kind::Closed, "Closed"),
            (Cause::ColumnTwice { column: "a".into() }, Kind::Input, "ColumnTwice"),
        ] {
            let words = cause.to_string();
            let error = Error::from(forebay_store::Error::from(cause));
            assert_eq!((error.kind(), error.cause(), error.to_string()), (kind, word, words));
            assert_eq!(kind_named(kind.as_str()), Some(kind));
        }
        assert_eq!(kind_named("oops"), None);
    }
}
