//! The gradient cache: the sum of unit gradients, in a tree that is fixed by planned position.
//!
//! Leaf `p` of the tree is the unit at position p; a node is the sum of its two children, left plus right. A node is
//! formed as soon as both children are there, so buffers merge while units still arrive; a position that never comes
//! is skipped when the sum is taken. So the sum depends on which units there are and not on their order, and a step of n
//! units that arrive roughly in order keeps about log2(n) buffers.

use std::collections::{BTreeMap, BTreeSet};

use crate::device::Device;
use crate::error::Error;

/// Rows and tokens, of one unit or of all in a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UnitTotals {
    /// Rows.
    pub rows: u64,
    /// Response tokens.
    pub tokens: u64,
}

/// Unnormalised gradients of one policy's units, for one step.
pub(crate) struct GradientCache<D: Device> {
    length: usize,
    /// Sums by (level, index); `None` is a sum of units that have no gradient.
    nodes: BTreeMap<(u32, usize), Option<D::Buffer>>,
    positions: BTreeSet<usize>,
    totals: UnitTotals,
    spare: Vec<D::Buffer>,
}

impl<D: Device> GradientCache<D> {
    /// An empty cache for gradients of `length` values.
    pub(crate) fn new(length: usize) -> Self {
        Self {
            length,
            nodes: BTreeMap::new(),
            positions: BTreeSet::new(),
            totals: UnitTotals::default(),
            spare: Vec::new(),
        }
    }

    pub(crate) fn positions(&self) -> &BTreeSet<usize> {
        &self.positions
    }

    pub(crate) fn totals(&self) -> UnitTotals {
        self.totals
    }

    /// Buffers of gradients held now.
    pub(crate) fn buffers(&self) -> usize {
        self.nodes.values().flatten().count()
    }

    /// A buffer to write a unit's gradient into; its contents are arbitrary.
    pub(crate) fn buffer(&mut self, device: &D) -> D::Buffer {
        self.spare.pop().unwrap_or_else(|| device.allocate(self.length))
    }

    pub(crate) fn check_free(&self, position: usize) -> Result<(), Error> {
        if self.positions.contains(&position) { Err(Error::PositionTaken { position }) } else { Ok(()) }
    }

    /// Adds a unit; no gradient means zero.
    pub(crate) fn add(
        &mut self,
        device: &D,
        position: usize,
        totals: UnitTotals,
        gradient: Option<D::Buffer>,
    ) -> Result<(), Error> {
        self.check_free(position)?;
        self.positions.insert(position);
        self.totals.rows += totals.rows;
        self.totals.tokens += totals.tokens;
        let (mut place, mut sum) = ((0, position), gradient);
        while let Some(sibling) = self.nodes.remove(&(place.0, place.1 ^ 1)) {
            sum = self.merge(device, sum, sibling);
            place = (place.0 + 1, place.1 / 2);
        }
        self.nodes.insert(place, sum);
        Ok(())
    }

    /// Addition commutes bit for bit, so which side is added to which does not matter; what is grouped does.
    fn merge(&mut self, device: &D, one: Option<D::Buffer>, other: Option<D::Buffer>) -> Option<D::Buffer> {
        match (one, other) {
            (Some(mut one), Some(other)) => {
                device.accumulate(&other, &mut one);
                self.spare.push(other);
                Some(one)
            }
            (one, other) => one.or(other),
        }
    }

    /// The sum of all units; what is left of the tree is folded level by level. The cache keeps its totals until
    /// [`Self::clear`]. `None` when no unit has a gradient.
    pub(crate) fn sum(&mut self, device: &D) -> Option<&D::Buffer> {
        while self.nodes.len() > 1 {
            let Some(((level, index), sum)) = self.nodes.pop_first() else { break };
            let parent = (level + 1, index / 2);
            let sum = match self.nodes.remove(&(level, index ^ 1)) {
                Some(sibling) => self.merge(device, sum, sibling),
                None => sum,
            };
            self.nodes.insert(parent, sum);
        }
        self.nodes.values().next().and_then(Option::as_ref)
    }

    /// Empties the cache; buffers are kept for the next step.
    pub(crate) fn clear(&mut self) {
        self.spare.extend(std::mem::take(&mut self.nodes).into_values().flatten());
        self.positions.clear();
        self.totals = UnitTotals::default();
    }
}
