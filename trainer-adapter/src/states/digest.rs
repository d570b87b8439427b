//! What the bytes of a part have to be, and whether they are.
//!
//! A digest is XXH3 with 128 bits, at the speed of memory; parts that an earlier release staged have SHA-256. Which it is, its length says.

use sha2::{Digest as _, Sha256};
use xxhash_rust::xxh3::Xxh3;

const SHA256_DIGITS: usize = 64;
const XXH3_DIGITS: usize = 32;

/// A digest being worked out.
pub(super) enum Summing {
    Xxh3(Box<Xxh3>),
    Sha256(Sha256),
}

impl Summing {
    pub(super) fn new() -> Self {
        Self::Xxh3(Box::default())
    }

    /// One that can be compared with `digest`.
    pub(super) fn like(digest: &str) -> Self {
        if digest.len() == SHA256_DIGITS { Self::Sha256(Sha256::new()) } else { Self::new() }
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        match self {
            Self::Xxh3(hash) => hash.update(bytes),
            Self::Sha256(hash) => hash.update(bytes),
        }
    }

    /// The digest of what was added so far.
    pub(super) fn digest(&self) -> String {
        match self {
            Self::Xxh3(hash) => format!("{:032x}", hash.digest128()),
            Self::Sha256(hash) => hash.clone().finalize().iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    }
}

pub(super) fn is_digest(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    [SHA256_DIGITS, XXH3_DIGITS].contains(&text.len()) && text.bytes().all(is_digit)
}
