//! The gradient cache as a stream: what [`CachePayload`] has, straight from the device's buffers and into them.
//!
//! It has no digest of its own, and tells weights apart by their fingerprint ([`Trainer::weights_fingerprint`]) instead of their SHA-256:
//! whoever keeps streams has checksums of their bytes, and a swap is to cost what moving those bytes costs.

use std::collections::BTreeMap;
use std::io::Read;

use safetensors::Dtype;

use super::Trainer;
use super::cache_state::CacheParts;
use super::payload::{CachePayload, FlatType};
use super::stream::{FlatStream, Incoming};
use crate::device::Device;
use crate::error::Error;

impl<D: Device> Trainer<D> {
    /// The gradient cache, for whoever writes it somewhere: to be put back by [`Self::import_cache_from`] or
    /// [`Self::merge_cache_from`]. The same cache gives the same bytes.
    pub fn cache_stream(&self) -> FlatStream<'_, D> {
        FlatStream::new(&self.device, self.cache_runs(&self.weights_fingerprint()))
    }

    /// As [`Self::import_cache`], of a [`Self::cache_stream`] that is read to its end.
    ///
    /// # Errors
    /// As [`Self::import_cache`]; [`Error::Payload`] if the stream fails or ends early. The cache is then as before.
    pub fn import_cache_from(&mut self, from: &mut dyn Read) -> Result<(), Error> {
        self.check_cache_empty()?;
        let (cache, groups) = self.read_cache_stream(from)?;
        self.device.check()?;
        (self.cache, self.groups) = (cache, groups);
        Ok(())
    }

    /// Adds what another trainer of the same policy, weights and loss has in its [`Self::cache_stream`], which is read to its end: its
    /// units as [`Self::merge_cache`] does, and its open groups, which go on here.
    ///
    /// # Errors
    /// As [`Self::import_cache`]; [`Error::PositionTaken`] if both have a unit or an open group at a place; [`Error::Payload`] if the stream
    /// fails or ends early. The cache is then as before.
    pub fn merge_cache_from(&mut self, from: &mut dyn Read) -> Result<(), Error> {
        let (other, groups) = self.read_cache_stream(from)?;
        let mut positions = other.units().keys().chain(groups.keys());
        positions.try_for_each(|&position| self.check_place(position))?;
        self.device.check()?;
        self.cache.absorb(&self.device, other);
        self.groups.extend(groups);
        Ok(())
    }

    /// What tells the current weights apart from others, worked out at the speed of memory: 32 hexadecimal digits of XXH3. It finds
    /// mistakes and no malice; what is reported of weights is [`Self::weights_sha256`].
    pub fn weights_fingerprint(&self) -> String {
        format!("{:032x}", self.policy.fingerprint(&self.device))
    }

    fn read_cache_stream(&self, from: &mut dyn Read) -> Result<CacheParts<D>, Error> {
        let length = self.policy.layout().length();
        let (mut payload, mut buffers) = (CachePayload::default(), BTreeMap::new());
        let mut incoming = Incoming::open(from)?;
        while let Some(head) = incoming.next() {
            if head.dtype == Dtype::F32 {
                let buffer = incoming.buffer(&self.device, &head, length, "policy")?;
                buffers.insert(head.name, buffer);
                continue;
            }
            let bytes = incoming.bytes(&head)?;
            let reason = format!("stored as {:?}", head.dtype);
            let flat_type =
                FlatType::of(head.dtype).ok_or(Error::Tensor { name: head.name.clone(), reason })?;
            payload.put(head.name, flat_type, bytes);
        }
        incoming.finish()?;
        self.read_cache(&payload, buffers)
    }
}
