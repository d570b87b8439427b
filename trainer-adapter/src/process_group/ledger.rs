//! Which micro-batches are in a state: what makes "each exactly once" a fact that can be read, and not a hope.
//!
//! Every version of an agent's state has a ledger beside weights and caches, committed in the same moment. A claim that the ledger
//! names has its gradient in that version; any other has not. So whoever comes after a crash reads the newest version and knows,
//! for every claim that was handed out, whether its rows were trained on or have to be returned.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read, Result};

use super::batch::ClaimId;
use super::cached::{Cached, OpenMembers, get_open, put_open};
use super::wire::{Decoder, Encoder};
use crate::frame::invalid;

/// The claims whose gradient is in a state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ledger {
    /// Their gradient is in the cache and waits for the update, or in the sums of an open group and waits for that to close.
    pub accumulated: BTreeSet<ClaimId>,
    /// Their gradient is in the weights, and the caller has not said that it wrote so down
    /// ([`super::ProcessGroup::settle`]).
    pub applied: BTreeSet<ClaimId>,
    /// Groups that are open, by position; their members' claims are among the accumulated.
    pub open: BTreeMap<usize, OpenMembers>,
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
    /// let ledger = Ledger { accumulated: [claim("a")].into(), applied: [claim("b")].into(), ..Ledger::default() };
    /// assert_eq!(ledger.lost_of(&[claim("a"), claim("b"), claim("c")]), [claim("c")]);
    /// ```
    pub fn lost_of<'a>(&self, claims: impl IntoIterator<Item = &'a ClaimId>) -> Vec<ClaimId> {
        claims.into_iter().filter(|claim| !self.has(claim)).cloned().collect()
    }

    /// Names what is in a rank's cache.
    pub(super) fn add(&mut self, cached: &Cached) {
        self.accumulated.extend(cached.claims.iter().cloned());
        self.open.extend(cached.open.iter().map(|(position, group)| (*position, group.clone())));
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut to = Encoder::default();
        for claims in [&self.accumulated, &self.applied] {
            to.count(claims.len());
            claims.iter().for_each(|claim| to.text(&claim.0));
        }
        put_open(&mut to, &self.open);
        to.0
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let mut from = Decoder(bytes);
        let claim = |from: &mut Decoder<'_>| from.text().map(ClaimId);
        let [accumulated, applied] =
            [from.list(claim)?, from.list(claim)?].map(|claims| claims.into_iter().collect());
        // Ledgers of earlier releases end here: no group was open.
        let open = if from.0.is_empty() { BTreeMap::new() } else { get_open(&mut from)? };
        from.end()?;
        Ok(Self { accumulated, applied, open })
    }
}

/// A claim in a rank's cache, and the places of its units there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CachedClaim {
    pub(super) claim: ClaimId,
    pub(super) positions: Vec<usize>,
    /// Of a claim of one member: which it is of the group at the only position, open or closed.
    pub(super) member: Option<usize>,
}

/// Set in the count of a claim's positions: the number of a member comes behind them.
const HAS_MEMBER: u64 = 1 << 63;

/// What the part of a state that is one rank's cache begins with: its claims, and how many bytes of
/// [`crate::Trainer::cache_stream`] follow.
pub(super) fn cache_head(claims: &[CachedClaim], cache_bytes: u64) -> Vec<u8> {
    let mut to = Encoder::default();
    to.list(claims, |to, cached| {
        to.text(&cached.claim.0);
        let has_member = if cached.member.is_some() { HAS_MEMBER } else { 0 };
        to.word(cached.positions.len() as u64 | has_member);
        cached.positions.iter().for_each(|&position| to.count(position));
        cached.member.iter().for_each(|&member| to.count(member));
    });
    to.word(cache_bytes);
    to.0
}

/// What [`cache_head`] made; the units come next.
pub(super) fn read_cache_head(from: &mut dyn Read) -> Result<Vec<CachedClaim>> {
    let mut claims = Vec::new();
    for _ in 0..word(from)? {
        let claim = ClaimId(text(from)?);
        let (mut positions, count) = (Vec::new(), word(from)?);
        for _ in 0..count & !HAS_MEMBER {
            positions.push(index(from)?);
        }
        let member = (count & HAS_MEMBER != 0).then(|| index(from)).transpose()?;
        claims.push(CachedClaim { claim, positions, member });
    }
    word(from)?;
    Ok(claims)
}

fn word(from: &mut dyn Read) -> Result<u64> {
    let mut bytes = [0; 8];
    from.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

fn index(from: &mut dyn Read) -> Result<usize> {
    usize::try_from(word(from)?).map_err(|_| invalid("a position is too large"))
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
        let claim = |name: &str, positions: &[usize], member| CachedClaim {
            claim: ClaimId(name.into()),
            positions: positions.to_vec(),
            member,
        };
        let claims = [claim("a", &[3, 1], None), claim("", &[], None), claim("solver-0-1", &[7], Some(2))];
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

    #[test]
    fn a_ledger_comes_back_and_one_from_before_open_groups_is_read() {
        let claims = |names: &[&str]| names.iter().map(|name| ClaimId((*name).into())).collect();
        let arrived = [(2, ClaimId("b".into()))].into();
        let ledger = Ledger {
            accumulated: claims(&["a", "b"]),
            applied: claims(&["c"]),
            open: [(7, OpenMembers { planned: 4, arrived })].into(),
        };
        let bytes = ledger.to_bytes();
        assert_eq!(Ledger::from_bytes(&bytes).unwrap(), ledger);
        let closed = Ledger { open: BTreeMap::new(), ..ledger };
        let old = &closed.to_bytes()[..closed.to_bytes().len() - 8];
        assert_eq!(Ledger::from_bytes(old).unwrap(), closed);
        for length in (0..bytes.len()).filter(|&length| length != old.len()) {
            assert!(Ledger::from_bytes(&bytes[..length]).is_err(), "cut to {length}");
        }
    }
}
