//! Why a version was not published, or not got.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::error::Error;

/// A refused or failed publish or get.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublicationError {
    /// No key is called so.
    #[error("key {key:?}: a key has 1 to 64 letters, digits and _-. and begins with a letter")]
    Key {
        /// The name.
        key: String,
    },
    /// The parts are not what the version is made of, or do not lie in their buffers.
    #[error("part {class:?}: {reason}")]
    Part {
        /// The memory class.
        class: String,
        /// What is wrong, and what is wanted.
        reason: String,
    },
    /// Somebody else publishes the key.
    #[error("{key:?} is published by {by}; have that end first, or publish under another key")]
    Taken {
        /// The key.
        key: String,
        /// Process, device and node, as far as they are known.
        by: String,
    },
    /// Versions of a key only go up.
    #[error(
        "version {version} of {key:?} is not after {newest}, the newest that was published; publish a later one"
    )]
    OldVersion {
        /// The key.
        key: String,
        /// The version that was to be published.
        version: u64,
        /// The newest.
        newest: u64,
    },
    /// Readers hold the slot that was to be written, for longer than the publisher waits.
    #[error(
        "{key:?} has no slot free after {waited:?}: processes {readers:?} read an older version; wait for them or end them"
    )]
    Held {
        /// The key.
        key: String,
        /// The processes of the readers.
        readers: Vec<u32>,
        /// How long it was waited for.
        waited: Duration,
    },
    /// Nobody on this node publishes the key.
    #[error("nobody publishes {key:?} in {}; get it from the store", folder.display())]
    NotPublished {
        /// The key.
        key: String,
        /// Where publishers of this node are found.
        folder: PathBuf,
    },
    /// The key is published, and this version of it cannot be had.
    #[error("{key:?} has no version {wanted} on the device, {}; get it from the store", newest_is(*newest))]
    NoVersion {
        /// The key.
        key: String,
        /// What was asked for.
        wanted: String,
        /// The newest that can be had.
        newest: Option<u64>,
    },
    /// The version is of another layout than the one that is wanted.
    #[error(
        "version {version} of {key:?} has the layout {found:016x}, {wanted:016x} is wanted; give parts of its layout"
    )]
    OtherLayout {
        /// The key.
        key: String,
        /// The version.
        version: u64,
        /// The fingerprint of its layout.
        found: u64,
        /// The one that was asked for.
        wanted: u64,
    },
    /// The key is published on another node.
    #[error("{key:?} is published on node {node}, this is {own}; get it from the store")]
    OtherNode {
        /// The key.
        key: String,
        /// The node.
        node: String,
        /// This node.
        own: String,
    },
    /// The key is published by a process that this one cannot know: of another PID namespace.
    #[error(
        "{key:?} is published in the PID namespace {numbers}, this process is in {own}; run both in one, or get it from the store"
    )]
    OtherNumbers {
        /// The key.
        key: String,
        /// The publisher's PID namespace.
        numbers: u64,
        /// The reader's.
        own: u64,
    },
    /// The key is published on a device whose memory the reader's cannot read.
    #[error("{key:?} is published on {device}, which {own} does not reach; get it from the store")]
    OtherDevice {
        /// The key.
        key: String,
        /// The publisher's device.
        device: String,
        /// The reader's device.
        own: String,
    },
    /// Publisher and reader are processes of different users.
    #[error("{what} is a process of user {uid}, this one is of {own}; run both as the same user")]
    OtherUser {
        /// Who it is.
        what: String,
        /// Its user.
        uid: u32,
        /// This process's user.
        own: u32,
    },
    /// The publisher has ended, or was dropped.
    #[error("the publisher of {key:?} (process {pid}) is gone{}; get it from the store, or wait for the next publisher", half(*wrote))]
    PublisherGone {
        /// The key.
        key: String,
        /// Its process.
        pid: u32,
        /// Whether values had been copied: what the parts hold is undefined then.
        wrote: bool,
    },
    /// The publisher lives and does not answer.
    #[error(
        "the publisher of {key:?} (process {pid}) does not answer within {within:?}; it is stopped or overloaded"
    )]
    Silent {
        /// The key.
        key: String,
        /// Its process.
        pid: u32,
        /// How long it was waited for.
        within: Duration,
    },
    /// The version ended while it was copied: its barrier was over. What the parts hold is undefined.
    #[error(
        "version {version} of {key:?} ended while it was copied, what arrived is not to be used; get again"
    )]
    Ended {
        /// The key.
        key: String,
        /// The version.
        version: u64,
    },
    /// Values were copied, and then nothing more could be said with the publisher: whether they are the version is not known. What
    /// the parts hold is undefined.
    #[error(
        "version {version} of {key:?} was copied and not confirmed, what arrived is not to be used: {why}; get again"
    )]
    Unconfirmed {
        /// The key.
        key: String,
        /// The version.
        version: u64,
        /// Why.
        why: Box<PublicationError>,
    },
    /// What arrived is not what was published. What the parts hold is undefined.
    #[error(
        "version {version} of {key:?} has the fingerprint {found:016x} here, {published:016x} was published; get again"
    )]
    Damaged {
        /// The key.
        key: String,
        /// The version.
        version: u64,
        /// The fingerprint of what arrived.
        found: u64,
        /// That of what was published.
        published: u64,
    },
    /// The other side does not keep to the protocol.
    #[error(
        "process {pid} does not keep to the protocol: {reason}; run the same version of the program in both"
    )]
    Protocol {
        /// The process.
        pid: u32,
        /// What it did.
        reason: String,
    },
    /// A copy failed, or the device, or memory of it cannot be had.
    #[error("the device did not copy: {0}")]
    Device(#[from] Error),
    /// The system refused.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What the system said.
        source: io::Error,
    },
}

fn newest_is(newest: Option<u64>) -> String {
    newest.map_or_else(|| "and no other".to_owned(), |newest| format!("the newest is {newest}"))
}

fn half(wrote: bool) -> &'static str {
    if wrote { ", in the middle of the copy: what arrived is not to be used" } else { "" }
}

impl PublicationError {
    /// Whether the version may still be had by another way, from the store: it is not to be had from device to device on this
    /// node, or not any more. What is wrong with the call, or with the reader's own device, is so everywhere.
    pub fn may_be_elsewhere(&self) -> bool {
        match self {
            Self::NotPublished { .. }
            | Self::NoVersion { .. }
            | Self::OtherNode { .. }
            | Self::OtherNumbers { .. }
            | Self::OtherDevice { .. }
            | Self::OtherUser { .. }
            | Self::PublisherGone { .. }
            | Self::Silent { .. }
            | Self::Ended { .. }
            | Self::Unconfirmed { .. }
            | Self::Damaged { .. }
            | Self::Protocol { .. }
            | Self::Io { .. }
            | Self::Device(Error::Share { .. }) => true,
            Self::Key { .. }
            | Self::Part { .. }
            | Self::Taken { .. }
            | Self::OldVersion { .. }
            | Self::Held { .. }
            | Self::OtherLayout { .. }
            | Self::Device(_) => false,
        }
    }

    pub(super) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
