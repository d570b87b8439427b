//! What is published, asked for and given.

use std::sync::Arc;

use crate::publication::form::Form;

/// Where a class of a version lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::publication) struct Place {
    /// A memory of the publisher's, by a number that never comes again.
    pub(in crate::publication) memory: u64,
    /// The first value.
    pub(in crate::publication) offset: u64,
}

/// A version that can be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::publication) struct Version {
    pub(in crate::publication) number: u64,
    pub(in crate::publication) form: Form,
    pub(in crate::publication) fingerprint: Option<u64>,
    /// One a class.
    pub(in crate::publication) places: Vec<Place>,
}

/// Which version is asked for. How long to wait for it is the reader's affair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::publication) enum Ask {
    Latest,
    Exact(u64),
    AtLeast(u64),
}

/// Why a slot cannot be had.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::publication) enum NoSlot {
    /// The version is not after this one.
    Old(u64),
    /// Processes that read what is in it.
    Held(Vec<u32>),
}

/// A version that was given to a reader.
#[derive(Debug)]
pub(in crate::publication) struct Granted {
    pub(in crate::publication) hold: u64,
    pub(in crate::publication) is_in_place: bool,
    pub(in crate::publication) version: Arc<Version>,
}
