//! What readers ask for, and what they get.

use std::time::Duration;

use super::catalog::Ask;
use super::error::PublicationError;
use super::step::StepObserver;

/// Which version of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// The newest that can be had.
    Latest,
    /// This one.
    Exact(u64),
    /// The newest, once it is this one or a later one; how long to wait for that.
    AtLeast(u64, Duration),
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted<'a> {
    /// The key.
    pub key: &'a str,
    /// The version.
    pub which: Which,
    /// Fingerprint of the layout that the version has to have. Default any.
    pub layout: Option<u64>,
}

impl<'a> Wanted<'a> {
    /// A version of a key, of any layout.
    pub fn new(key: &'a str, which: Which) -> Self {
        Self { key, which, layout: None }
    }

    /// The newest of a key.
    pub fn latest(key: &'a str) -> Self {
        Self::new(key, Which::Latest)
    }

    /// The same of a layout with that fingerprint, and of no other.
    #[must_use]
    pub fn layout(self, layout: u64) -> Self {
        Self { layout: Some(layout), ..self }
    }

    pub(super) fn ask(&self) -> Ask {
        match self.which {
            Which::Latest => Ask::Latest,
            Which::Exact(version) => Ask::Exact(version),
            Which::AtLeast(version, _) => Ask::AtLeast(version),
        }
    }

    /// That there is no such version.
    pub(super) fn missing(&self, newest: Option<u64>) -> PublicationError {
        let wanted = match self.which {
            Which::Latest => "at all".to_owned(),
            Which::Exact(version) => version.to_string(),
            Which::AtLeast(version, wait) => format!("{version} or later within {wait:?}"),
        };
        PublicationError::NoVersion { key: self.key.to_owned(), wanted, newest }
    }
}

/// How a reader behaves: plain data.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ReaderOptions {
    /// How long a publisher may take for an answer. Default 20 s.
    pub within: Duration,
    /// Is told of steps.
    pub observer: StepObserver,
}

impl Default for ReaderOptions {
    fn default() -> Self {
        Self { within: Duration::from_secs(20), observer: StepObserver::default() }
    }
}

impl ReaderOptions {
    /// How long a publisher may take for an answer.
    #[must_use]
    pub fn within(self, within: Duration) -> Self {
        Self { within, ..self }
    }

    /// Who is told of steps.
    #[must_use]
    pub fn observer(self, observer: StepObserver) -> Self {
        Self { observer, ..self }
    }
}

/// Where a version came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The node.
    pub node: String,
    /// The publisher's process.
    pub pid: u32,
    /// Its device: a GPU's UUID.
    pub device: String,
}

/// What was got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    /// The key.
    pub key: String,
    /// The version.
    pub version: u64,
    /// Fingerprint of its layout.
    pub layout: u64,
    /// Fingerprint of its values, which was compared; none where the publisher takes none.
    pub fingerprint: Option<u64>,
    /// Whether it was read where its publisher works with it.
    pub is_in_place: bool,
    /// Where it came from.
    pub source: Source,
}

/// A version in buffers of its own.
#[derive(Debug)]
pub struct Got<B> {
    /// Which it is.
    pub stamp: Stamp,
    /// Its memory classes, in the publisher's order.
    pub parts: Vec<(String, B)>,
}

/// What was done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ReaderCounts {
    /// Versions that were got.
    pub got: u64,
    /// Domains that were made: one a publisher, as long as it lives.
    pub domains_made: u64,
    /// Memories that were mapped: each slot once.
    pub memories_mapped: u64,
    /// Copies that were not taken for a version: it had ended, or its fingerprint was another.
    pub refused: u64,
}
