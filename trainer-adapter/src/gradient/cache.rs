//! The gradient cache: the sum of unit gradients, in a tree that is fixed by planned position.
//!
//! Leaf `p` of the tree is the unit at position p; a node is the sum of its two children, left plus right. A node is
//! formed as soon as both children are there, so buffers merge while units still arrive; a position that never comes
//! is skipped when the sum is taken. So the sum depends on which units there are and not on their order, and a step of n
//! units that arrive roughly in order keeps about log2(n) buffers.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::AddAssign;

use crate::device::Device;
use crate::error::Error;

/// Rows and tokens, of one unit or of all in a cache. Rows of weight 0 and masked tokens are not counted.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct UnitTotals {
    /// Rows.
    pub rows: u64,
    /// Trained tokens.
    pub tokens: u64,
    /// Sum of the rows' weights.
    pub row_weight: f64,
    /// Sum of the rows' weights, each times its trained tokens.
    pub token_weight: f64,
}

impl UnitTotals {
    /// One row of a weight above 0.
    pub(crate) fn of_row(weight: f32, tokens: usize) -> Self {
        let weight = f64::from(weight);
        Self { rows: 1, tokens: tokens as u64, row_weight: weight, token_weight: weight * tokens as f64 }
    }
}

impl AddAssign for UnitTotals {
    fn add_assign(&mut self, other: Self) {
        self.rows += other.rows;
        self.tokens += other.tokens;
        self.row_weight += other.row_weight;
        self.token_weight += other.token_weight;
    }
}

/// Sums by (level, index); `None` is a sum of units that have no gradient.
pub(crate) type Nodes<D> = BTreeMap<(u32, usize), Option<<D as Device>::Buffer>>;

/// Unnormalised gradients of one policy's units, for one step.
pub(crate) struct GradientCache<D: Device> {
    length: usize,
    nodes: Nodes<D>,
    /// What each unit counts, by position: weights are summed in this order, so that arrival changes no bit of the sum.
    units: BTreeMap<usize, UnitTotals>,
    spare: Vec<D::Buffer>,
}

impl<D: Device> GradientCache<D> {
    /// An empty cache for gradients of `length` values.
    pub(crate) fn new(length: usize) -> Self {
        Self { length, nodes: BTreeMap::new(), units: BTreeMap::new(), spare: Vec::new() }
    }

    /// A cache of units and of the nodes that cover them, each unit exactly once.
    pub(crate) fn from_parts(
        length: usize,
        units: BTreeMap<usize, UnitTotals>,
        nodes: Nodes<D>,
    ) -> Result<Self, String> {
        let mut covered = BTreeSet::new();
        for &(level, index) in nodes.keys() {
            let below = 1_usize.checked_shl(level).filter(|&below| below <= units.len());
            let first = below.and_then(|below| index.checked_mul(below));
            let end = first.zip(below).and_then(|(first, below)| first.checked_add(below));
            let (Some(first), Some(end)) = (first, end) else {
                return Err(format!("node {level}.{index} covers more than the {} units", units.len()));
            };
            if (first..end).any(|at| !units.contains_key(&at) || !covered.insert(at)) {
                return Err(format!(
                    "node {level}.{index} covers a unit that is not there, or covered already"
                ));
            }
            if nodes.contains_key(&(level, index ^ 1)) {
                return Err(format!("node {level}.{index} was not merged with its sibling"));
            }
        }
        if covered.len() != units.len() {
            return Err(format!("the nodes cover {} of {} units", covered.len(), units.len()));
        }
        Ok(Self { length, nodes, units, spare: Vec::new() })
    }

    /// Adds the units of another cache; no position is in both.
    pub(crate) fn absorb(&mut self, device: &D, other: Self) {
        self.units.extend(other.units);
        for (place, sum) in other.nodes {
            self.insert(device, place, sum);
        }
    }

    pub(crate) fn nodes(&self) -> &Nodes<D> {
        &self.nodes
    }

    /// What each unit counts, by position.
    pub(crate) fn units(&self) -> &BTreeMap<usize, UnitTotals> {
        &self.units
    }

    pub(crate) fn totals(&self) -> UnitTotals {
        self.units.values().fold(UnitTotals::default(), |mut sum, &unit| {
            sum += unit;
            sum
        })
    }

    /// Buffers of gradients held now.
    pub(crate) fn buffers(&self) -> usize {
        self.nodes.values().flatten().count()
    }

    /// A buffer to write a unit's gradient into; its contents are arbitrary.
    pub(crate) fn buffer(&mut self, device: &D) -> D::Buffer {
        self.spare.pop().unwrap_or_else(|| device.allocate(self.length))
    }

    /// Keeps a buffer for the next who needs one.
    pub(crate) fn give_back(&mut self, buffer: D::Buffer) {
        self.spare.push(buffer);
    }

    pub(crate) fn check_free(&self, position: usize) -> Result<(), Error> {
        if self.units.contains_key(&position) { Err(Error::PositionTaken { position }) } else { Ok(()) }
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
        self.units.insert(position, totals);
        self.insert(device, (0, position), gradient);
        Ok(())
    }

    /// Puts a sum into the tree and forms every node that it completes.
    fn insert(&mut self, device: &D, mut place: (u32, usize), mut sum: Option<D::Buffer>) {
        while let Some(sibling) = self.nodes.remove(&(place.0, place.1 ^ 1)) {
            sum = self.merge(device, sum, sibling);
            place = (place.0 + 1, place.1 / 2);
        }
        self.nodes.insert(place, sum);
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
        self.units.clear();
    }
}
