//! Which micro-batches are in a state: what makes "each exactly once" a fact that can be read, and not a hope.
//!
//! Every version of an agent's state has a ledger beside weights and caches, committed in the same moment. A claim that the ledger
//! names has its gradient in that version; any other has not. So whoever comes after a crash reads the newest version and knows,
//! for every claim that was handed out, whether its rows were trained on or have to be returned.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Result};

use super::batch::ClaimId;
use super::wire::{Decoder, Encoder};
use crate::frame::invalid;

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

/// What the part of a state that is one rank's cache begins with: its claims, and how many bytes of
/// [`crate::Trainer::cache_stream`] follow.
pub(super) fn cache_head(claims: &[CachedClaim], cache_bytes: u64) -> Vec<u8> {
    let mut to = Encoder::default();
    to.list(claims, |to, cached| {
        to.text(&cached.claim.0);
        to.list(&cached.positions, |to, &position| to.count(position));
    });
    to.word(cache_bytes);
    to.0
}

/// What [`cache_head`] made; the units come next.
pub(super) fn read_cache_head(from: &mut dyn Read) -> Result<Vec<CachedClaim>> {
    let mut claims = Vec::new();
    for _ in 0..word(from)? {
        let claim = ClaimId(text(from)?);
        let mut positions = Vec::new();
        for _ in 0..word(from)? {
            let position = usize::try_from(word(from)?);
            positions.push(position.map_err(|_| invalid("a position is too large"))?);
        }
        claims.push(CachedClaim { claim, positions });
    }
    word(from)?;
    Ok(claims)
}

fn word(from: &mut dyn Read) -> Result<u64> {
    let mut bytes = [0; 8];
    from.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// Memory grows with what comes, not with what is claimed.
fn text(from: &mut dyn Read) -> Result<String> {
    let (length, mut bytes) = (word(from)?, Vec::new());
    if from.take(length).read_to_end(&mut bytes)? as u64 != length {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    String::from_utf8(bytes).map_err(|_| invalid("a text is not UTF-8"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn the_head_of_a_cache_comes_back_and_a_cut_one_is_an_error() {
        let claim = |name: &str, positions: &[usize]| CachedClaim {
            claim: ClaimId(name.into()),
            positions: positions.to_vec(),
        };
        let claims = [claim("a", &[3, 1]), claim("", &[]), claim("solver-0-1", &[7])];
        let head = cache_head(&claims, 5);
        let mut from = [&head[..], b"units"].concat();
        let mut rest = &from[..];
        assert_eq!(read_cache_head(&mut rest).unwrap(), claims);
        assert_eq!(rest, b"units");
        for length in 0..head.len() {
            assert!(read_cache_head(&mut &head[..length]).is_err(), "cut to {length}");
        }
        from[..8].fill(0xFF);
        assert!(read_cache_head(&mut &from[..]).is_err());
    }
}
