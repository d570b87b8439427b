//! The gradient cache out of a trainer and back, to the bit: suspended in the middle of a step, resumed elsewhere.
//!
//! A trainer's state has two parts: [`Trainer::state`] (weights, moments, counters) changes with an update, the cache with
//! every unit. A cache belongs to one policy, one version, one set of weights and one loss; any other trainer refuses it.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use super::payload::{CachePayload, FlatType};
use super::stream::Run;
use super::words::{MEMBER_WORDS, member_of, member_words, total_words, totals_of};
use super::{Trainer, TrainerOptions};
use crate::device::Device;
use crate::error::Error;
use crate::gradient::{GradientCache, GroupSums, LossForm, Member, Nodes, PolicyTerm, RewardValues};

const UNIT_WORDS: usize = 5;
const NODE_WORDS: usize = 3;
const GROUP_WORDS: usize = 6;
const SHA256_DIGITS: usize = 64;

/// A cache and its open groups.
pub(super) type CacheParts<D> = (GradientCache<D>, BTreeMap<usize, GroupSums<D>>);

impl<D: Device> Trainer<D> {
    /// The gradient cache: units, tree, totals and open groups. The same cache gives the same bytes.
    ///
    /// Of a device that has failed it is worthless: ask [`Device::check`] before it is kept.
    pub fn export_cache(&self) -> CachePayload {
        let mut payload = CachePayload::default();
        for run in self.cache_runs(&self.weights_sha256()) {
            payload.put_run(&self.device, &run);
        }
        payload.seal()
    }

    /// The cache, and whose it is: of the policy with these `weights`.
    pub(super) fn cache_runs(&self, weights: &str) -> Vec<Run<'_, D>> {
        let length = self.policy.layout().length();
        let mut runs = self.identity(weights);
        let units = self.cache.units().iter();
        let units: Vec<u64> = units
            .flat_map(|(&position, totals)| [vec![position as u64], total_words(totals).to_vec()].concat())
            .collect();
        runs.push(Run::words("units", &units));
        let mut nodes = Vec::new();
        for (&(level, index), sum) in self.cache.nodes() {
            nodes.extend([u64::from(level), index as u64, u64::from(sum.is_some())]);
            runs.extend(sum.as_ref().map(|sum| Run::buffer(node_name(level, index), sum, length)));
        }
        runs.push(Run::words("nodes", &nodes));
        self.group_runs(&mut runs);
        runs
    }

    fn group_runs<'a>(&'a self, runs: &mut Vec<Run<'a, D>>) {
        let length = self.policy.layout().length();
        let mut rows = Vec::new();
        for (position, group) in &self.groups {
            let (kind, one, other) = match group.rewards {
                RewardValues::Any { reference } => (0, reference, 0.0),
                RewardValues::Two { low, high } => (1, low, high),
            };
            let (one, other) = (one.to_bits(), other.to_bits());
            let members = group.members.len() as u64;
            rows.extend([*position as u64, members, kind, one, other, u64::from(group.rest.is_some())]);
            let members: Vec<u64> = group.members.iter().flat_map(member_words).collect();
            runs.push(Run::words(group_name(*position, "members"), &members));
            let parts = [
                ("first", Some(&group.first)),
                ("second", Some(&group.second)),
                ("rest", group.rest.as_ref()),
            ];
            let parts = parts.into_iter().filter_map(|(part, sums)| sums.map(|sums| (part, sums)));
            runs.extend(parts.map(|(part, sums)| Run::sums(group_name(*position, part), sums, length)));
        }
        runs.push(Run::words("groups", &rows));
    }

    /// Puts a cache back that was taken out of a trainer with the same policy, weights and loss. From here on the step goes
    /// on as if it had never been interrupted, to the bit.
    ///
    /// # Errors
    /// [`Error::CacheNotEmpty`] if this trainer has units or open groups; [`Error::Foreign`] if the cache is of another
    /// policy, version, set of weights or loss; [`Error::Tensor`] if a part is missing or damaged; [`Error::HostMemory`] if there is no memory
    /// for it, but for that of open groups; [`Error::Device`] if the device has failed. The cache is then as before.
    pub fn import_cache(&mut self, payload: &CachePayload) -> Result<(), Error> {
        self.check_cache_empty()?;
        let (cache, groups) = self.read_cache(payload, BTreeMap::new())?;
        self.device.check()?;
        (self.cache, self.groups) = (cache, groups);
        Ok(())
    }

    /// Adds the units of another trainer of the same policy, weights and loss to this cache: what each rank of a
    /// data-parallel step has. The sum has the same bits as if all units had been accumulated here.
    ///
    /// # Errors
    /// As [`Self::import_cache`]; [`Error::PositionTaken`] if both have a unit at a place, [`Error::OpenGroups`] if either
    /// has open groups: close them first; [`Error::Device`] if the device has failed. The cache is then as before.
    pub fn merge_cache(&mut self, payload: &CachePayload) -> Result<(), Error> {
        self.merge_caches(&[((), payload)]).map_err(|(_, error)| error)
    }

    /// The same for several, all or none; the error comes with the name of the payload that has it, or without where it is this
    /// trainer's own.
    pub(crate) fn merge_caches<N: Copy, P: Borrow<CachePayload>>(
        &mut self,
        payloads: &[(N, P)],
    ) -> Result<(), (Option<N>, Error)> {
        let mut others: Vec<GradientCache<D>> = Vec::new();
        for (name, payload) in payloads {
            let own = |error| (Some(*name), error);
            let other = self.read_closed(payload.borrow()).map_err(own)?;
            for &position in other.units().keys() {
                let free = self.cache.check_free(position);
                let free = others.iter().fold(free, |free, earlier| free.and(earlier.check_free(position)));
                free.map_err(own)?;
            }
            others.push(other);
        }
        self.device.check().map_err(|error| (None, error))?;
        for other in others {
            self.cache.absorb(&self.device, other);
        }
        Ok(())
    }

    /// Puts a joined cache in the place of this one, which it holds.
    pub(crate) fn replace_cache(&mut self, payload: &CachePayload) -> Result<(), Error> {
        let joined = self.read_closed(payload)?;
        self.device.check()?;
        self.cache = joined;
        Ok(())
    }

    /// Refuses while there is anything in the cache.
    pub(super) fn check_cache_empty(&self) -> Result<(), Error> {
        let units = self.cache.units().len() + self.groups.len();
        if units == 0 { Ok(()) } else { Err(Error::CacheNotEmpty { units }) }
    }

    /// Refuses while groups are open.
    pub(crate) fn check_closed(&self) -> Result<(), Error> {
        let positions: Vec<usize> = self.groups.keys().copied().collect();
        if positions.is_empty() { Ok(()) } else { Err(Error::OpenGroups { positions }) }
    }

    /// A cache without open groups, for a trainer without open groups.
    fn read_closed(&self, payload: &CachePayload) -> Result<GradientCache<D>, Error> {
        self.check_closed()?;
        let (cache, groups) = self.read_cache(payload, BTreeMap::new())?;
        let positions: Vec<usize> = groups.keys().copied().collect();
        if positions.is_empty() { Ok(cache) } else { Err(Error::OpenGroups { positions }) }
    }

    /// What the cache belongs to; `weights` tells those of a version apart.
    fn identity(&self, weights: &str) -> Vec<Run<'_, D>> {
        let TrainerOptions { loss_form, entropy_coefficient, .. } = self.options;
        let form = match loss_form {
            LossForm::TokenMean => [0, 0],
            LossForm::SampleMean => [1, 0],
            LossForm::ConstantLength(length) => [2, u64::from(length)],
        };
        let bits = |value: f32| u64::from(value.to_bits());
        let term = match self.objective.policy_term {
            PolicyTerm::Score => vec![0, 0, 0],
            PolicyTerm::Clipped { low, high } => vec![1, bits(low), bits(high)],
            PolicyTerm::Truncated { cap } => vec![2, bits(cap), 0],
            PolicyTerm::ClippedTruncated { low, high, cap } => vec![3, bits(low), bits(high), bits(cap)],
        };
        let rest =
            [bits(entropy_coefficient), bits(self.objective.kl_coefficient), self.early.fraction_bits.into()];
        vec![
            Run::text("policy", &self.options.policy),
            Run::text("weights", weights),
            Run::words("version", &[self.version()]),
            Run::words("loss", &[&form[..], &term, &rest].concat()),
        ]
    }

    fn check_identity(&self, payload: &CachePayload) -> Result<(), Error> {
        // A payload names weights by their SHA-256, a stream by their fingerprint.
        let is_sha256 = payload.bytes("weights", FlatType::U8)?.len() == SHA256_DIGITS;
        let weights = if is_sha256 { self.weights_sha256() } else { self.weights_fingerprint() };
        let mut own = CachePayload::default();
        self.identity(&weights).iter().for_each(|run| own.put_run(&self.device, run));
        for field in ["policy", "version", "weights", "loss"] {
            let show = |payload: &CachePayload| {
                let tensor = payload.tensors().get(field);
                tensor.map_or("missing".into(), |tensor| match tensor.flat_type {
                    FlatType::U8 => String::from_utf8_lossy(&tensor.bytes).into_owned(),
                    _ => format!("{:?}", payload.words(field, 1).unwrap_or_default()),
                })
            };
            if own.tensors().get(field) != payload.tensors().get(field) {
                return Err(Error::Foreign { field, expected: show(&own), found: show(payload) });
            }
        }
        Ok(())
    }

    /// The cache of a payload; sums of the tree that are on the device already are in `buffers`.
    pub(super) fn read_cache(
        &self,
        payload: &CachePayload,
        mut buffers: BTreeMap<String, D::Buffer>,
    ) -> Result<CacheParts<D>, Error> {
        self.check_identity(payload)?;
        let mut units = BTreeMap::new();
        for words in payload.words("units", UNIT_WORDS)?.chunks_exact(UNIT_WORDS) {
            units.insert(position(words[0])?, totals_of(&words[1..]));
        }
        let mut nodes = Nodes::<D>::new();
        for words in payload.words("nodes", NODE_WORDS)?.chunks_exact(NODE_WORDS) {
            let (level, index) = (words[0] as u32, position(words[1])?);
            let name = node_name(level, index);
            let sum = match (words[2] != 0, buffers.remove(&name)) {
                (true, Some(buffer)) => Some(buffer),
                (true, None) => Some(self.read_node(payload, &name)?),
                (false, _) => None,
            };
            nodes.insert((level, index), sum);
        }
        let cache = GradientCache::from_parts(self.policy.layout().length(), units, nodes)
            .map_err(|reason| Error::Tensor { name: "nodes".into(), reason })?;
        let mut groups = BTreeMap::new();
        for words in payload.words("groups", GROUP_WORDS)?.chunks_exact(GROUP_WORDS) {
            let place = position(words[0])?;
            cache.check_free(place)?;
            groups.insert(place, self.read_group(payload, place, words)?);
        }
        Ok((cache, groups))
    }

    fn read_node(&self, payload: &CachePayload, name: &str) -> Result<D::Buffer, Error> {
        let bytes = payload.bytes(name, FlatType::F32)?;
        let values: Vec<f32> = bytes.as_chunks().0.iter().copied().map(f32::from_le_bytes).collect();
        self.check_length(name, values.len())?;
        let mut buffer = self.device.try_allocate(values.len())?;
        self.device.upload(&values, &mut buffer, 0);
        Ok(buffer)
    }

    fn check_length(&self, name: &str, found: usize) -> Result<(), Error> {
        let length = self.policy.layout().length();
        let reason = format!("{found} values, the policy has {length}");
        if found == length { Ok(()) } else { Err(Error::Tensor { name: name.to_owned(), reason }) }
    }

    fn read_group(&self, payload: &CachePayload, place: usize, words: &[u64]) -> Result<GroupSums<D>, Error> {
        let (one, other) = (f64::from_bits(words[3]), f64::from_bits(words[4]));
        let rewards = match words[2] {
            0 => RewardValues::Any { reference: one },
            _ => RewardValues::Two { low: one, high: other },
        };
        let name = group_name(place, "members");
        let members: Vec<Member> =
            payload.words(&name, MEMBER_WORDS)?.chunks_exact(MEMBER_WORDS).map(member_of).collect();
        let mut group = self.new_group(members.len(), rewards);
        if members.len() as u64 != words[1] || group.rest.is_some() != (words[5] != 0) {
            let reason = "does not fit the list of groups".into();
            return Err(Error::Tensor { name, reason });
        }
        group.members = members;
        let parts = [
            ("first", Some(&mut group.first)),
            ("second", Some(&mut group.second)),
            ("rest", group.rest.as_mut()),
        ];
        for (part, sums) in parts.into_iter().filter_map(|(part, sums)| sums.map(|sums| (part, sums))) {
            let name = group_name(place, part);
            let bytes = payload.bytes(&name, FlatType::I64)?;
            let units: Vec<i64> = bytes.as_chunks().0.iter().copied().map(i64::from_le_bytes).collect();
            self.check_length(&name, units.len())?;
            self.device.upload_sums(&units, sums);
        }
        Ok(group)
    }
}

fn node_name(level: u32, index: usize) -> String {
    format!("node.{level}.{index}")
}

fn group_name(position: usize, part: &str) -> String {
    format!("group.{position}.{part}")
}

fn position(word: u64) -> Result<usize, Error> {
    let reason = format!("position {word} does not fit this machine");
    usize::try_from(word).map_err(|_| Error::Tensor { name: "units".into(), reason })
}
