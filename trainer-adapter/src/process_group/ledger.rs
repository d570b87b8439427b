//! Which micro-batches are in a state: what makes "each exactly once" a fact that can be read, and not a hope.
//!
//! Every version of an agent's state has a ledger beside weights and caches, committed in the same moment. A claim that the ledger
//! names has its gradient in that version; any other has not. So whoever comes after a crash reads the newest version and knows,
//! for every claim that was handed out, whether its rows were trained on or have to be returned.

use std::collections::BTreeSet;
use std::io::Result;

use super::batch::ClaimId;
use super::wire::{Decoder, Encoder};

/// The claims whose gradient is in a state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ledger {
    /// Their gradient is in the cache and waits for the update.
    pub accumulated: BTreeSet<ClaimId>,
    /// Their gradient is in the weights, and the caller has not said that it wrote so down
    /// ([`super::ProcessGroup::settle`]).
    pub applied: BTreeSet<ClaimId>,
}

impl Ledger {
    /// Whether the state has the gradient of this claim.
    pub fn has(&self, claim: &ClaimId) -> bool {
        self.accumulated.contains(claim) || self.applied.contains(claim)
    }

    /// Of the claims that were handed out, those whose gradient is not in this state: return their rows.
    ///
    /// ```
    /// use forebay_trainer_adapter::process_group::{ClaimId, Ledger};
    /// let claim = |name: &str| ClaimId(name.into());
    /// let ledger = Ledger { accumulated: [claim("a")].into(), applied: [claim("b")].into() };
    /// assert_eq!(ledger.lost_of(&[claim("a"), claim("b"), claim("c")]), [claim("c")]);
    /// ```
    pub fn lost_of<'a>(&self, claims: impl IntoIterator<Item = &'a ClaimId>) -> Vec<ClaimId> {
        claims.into_iter().filter(|claim| !self.has(claim)).cloned().collect()
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut to = Encoder::default();
        for claims in [&self.accumulated, &self.applied] {
            to.count(claims.len());
            claims.iter().for_each(|claim| to.text(&claim.0));
        }
        to.0
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let mut from = Decoder(bytes);
        let claim = |from: &mut Decoder<'_>| from.text().map(ClaimId);
        let [accumulated, applied] =
            [from.list(claim)?, from.list(claim)?].map(|claims| claims.into_iter().collect());
        from.end()?;
        Ok(Self { accumulated, applied })
    }
}

/// A claim in a rank's cache, and the places of its units there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CachedClaim {
    pub(super) claim: ClaimId,
    pub(super) positions: Vec<usize>,
}

/// The part of a state that is one rank's cache: its claims, and the units as [`crate::CachePayload`].
pub(super) fn cache_part(claims: &[CachedClaim], cache: &[u8]) -> Vec<u8> {
    let mut to = Encoder::default();
    to.list(claims, |to, cached| {
        to.text(&cached.claim.0);
        to.list(&cached.positions, |to, &position| to.count(position));
    });
    to.bytes(cache);
    to.0
}

/// What [`cache_part`] made.
pub(super) fn read_cache_part(bytes: &[u8]) -> Result<(Vec<CachedClaim>, &[u8])> {
    let mut from = Decoder(bytes);
    let claims = from.list(|from| {
        let claim = ClaimId(from.text()?);
        Ok(CachedClaim { claim, positions: from.list(Decoder::count)? })
    })?;
    let cache = from.bytes()?;
    from.end()?;
    Ok((claims, cache))
}
