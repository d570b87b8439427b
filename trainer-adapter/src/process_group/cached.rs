//! What is in the gradient cache of a rank, as the coordinator knows it.

use std::collections::BTreeMap;
use std::io::Result;

use super::batch::ClaimId;
use super::wire::{Decoder, Encoder};

/// An open group: members of it are trained, and others may come.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OpenMembers {
    /// How many members are planned.
    pub planned: usize,
    /// Those whose gradient is in the group's sums, and what each was claimed by.
    pub arrived: BTreeMap<usize, ClaimId>,
}

/// What is in the gradient cache of a rank.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Cached {
    /// All claims, those of members of open groups among them.
    pub(super) claims: Vec<ClaimId>,
    /// Open groups, by position.
    pub(super) open: BTreeMap<usize, OpenMembers>,
}

impl Cached {
    pub(super) fn put(&self, to: &mut Encoder) {
        to.list(&self.claims, |to, claim| to.text(&claim.0));
        put_open(to, &self.open);
    }

    pub(super) fn get(from: &mut Decoder<'_>) -> Result<Self> {
        let claims = from.list(|from| from.text().map(ClaimId))?;
        Ok(Self { claims, open: get_open(from)? })
    }
}

/// Open groups by position.
pub(super) fn put_open(to: &mut Encoder, open: &BTreeMap<usize, OpenMembers>) {
    to.count(open.len());
    for (position, OpenMembers { planned, arrived }) in open {
        to.count(*position);
        to.count(*planned);
        to.count(arrived.len());
        for (member, claim) in arrived {
            to.count(*member);
            to.text(&claim.0);
        }
    }
}

/// What [`put_open`] made.
pub(super) fn get_open(from: &mut Decoder<'_>) -> Result<BTreeMap<usize, OpenMembers>> {
    let groups = from.list(|from| {
        let (position, planned) = (from.count()?, from.count()?);
        let arrived = from.list(|from| Ok((from.count()?, ClaimId(from.text()?))))?;
        Ok((position, OpenMembers { planned, arrived: arrived.into_iter().collect() }))
    })?;
    Ok(groups.into_iter().collect())
}
