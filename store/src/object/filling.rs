//! A version that is being filled: nobody sees it before its commit.
//!
//! Any number of threads fill it, each its own ranges. A commit takes its number from the catalog under the catalog's lock,
//! by comparing what the key's newest version is with what was expected; so of two fillers that expect the same exactly one
//! gets it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::catalog::Incoming;
use super::filled::{Filled, check_filled};
use super::host::HostExtent;
use super::layout::Layout;
use super::objects::Objects;
use super::owner::Owner;
use super::set::{Expected, too_long};
use super::version::{Copies, HostCopy};
use super::{Dtype, Manifest};
use crate::error::{Cause, Result};
use crate::sync::Mutex;

/// Zeros that fill a tensor up to where the next may begin.
const PAD: [u8; 256] = [0; 256];

/// A version of an object that is being filled. Dropping it gives its memory back; nobody has seen it then.
#[derive(Debug)]
pub struct Filling {
    objects: Objects,
    key: String,
    layout: Layout,
    owner: Owner,
    once: bool,
    extents: Option<Arc<Vec<HostExtent>>>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    expected: Expected,
    payloads: Vec<Filled>,
    metadata: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Filling,
    Committing,
    Committed,
    Failed,
}

impl Phase {
    fn as_str(self) -> &'static str {
        match self {
            Phase::Filling => "being filled",
            Phase::Committing => "being committed",
            Phase::Committed => "committed",
            Phase::Failed => "given up",
        }
    }
}

impl Filling {
    pub(super) fn new(
        objects: Objects,
        key: &str,
        layout: &Layout,
        (expected, owner, once): (Expected, Owner, bool),
    ) -> Result<Self> {
        let arena = &objects.core.arena;
        let extents: Result<Vec<HostExtent>> =
            layout.payloads().iter().map(|payload| arena.allocate(payload.bytes)).collect();
        let payloads = layout.payloads().iter().map(|payload| Filled::new(payload.bytes)).collect();
        let state = State { phase: Phase::Filling, expected, payloads, metadata: BTreeMap::new() };
        let extents = Some(Arc::new(extents?));
        let (key, layout) = (key.to_owned(), layout.clone());
        Ok(Filling { objects, key, layout, owner, once, extents, state: Mutex::new(state) })
    }

    /// The key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// What is filled.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    fn extents(&self) -> &[HostExtent] {
        self.extents.as_deref().map_or(&[], |extents| extents)
    }

    /// Where the payloads lie in the segments, for another process that fills them through a mapping of its own: segment and
    /// offset; `None` for one in heap memory. What it has filled is told by [`filled_elsewhere`](Self::filled_elsewhere).
    pub fn places(&self) -> Vec<Option<(u32, u64)>> {
        self.extents().iter().map(HostExtent::place).collect()
    }

    /// Fills a part of a tensor: `bytes` from byte `offset` of it on. Any number of threads may fill at a time, each its own
    /// ranges.
    ///
    /// # Errors
    /// `input` when there is no such tensor, or the bytes reach beyond it; `state` when another thread is filling a part of
    /// the range now, or the version is committed.
    pub fn write(&self, tensor: &str, offset: u64, bytes: &[u8]) -> Result<()> {
        let found = self.layout.tensor(tensor)?;
        let end = offset.checked_add(bytes.len() as u64).filter(|end| *end <= found.bytes);
        if end.is_none() {
            let found = format!("{} bytes at {offset}", bytes.len());
            return Err(too_long(tensor, found, self.layout.tensor(tensor)?.bytes).into());
        }
        self.write_payload(found.payload, found.offset + offset, bytes)
    }

    /// Fills a whole tensor, when it is what is meant.
    ///
    /// # Errors
    /// As for [`write`](Self::write), and `input` when the type or the shape is another.
    pub fn put(&self, tensor: &str, dtype: Dtype, shape: &[u64], bytes: &[u8]) -> Result<()> {
        let found = self.layout.tensor(tensor)?;
        if (found.dtype, &*found.shape) != (dtype, shape) {
            return Err(Cause::TensorMismatch {
                tensor: tensor.to_owned(),
                expected: format!("{} {:?}", found.dtype, found.shape),
                found: format!("{dtype} {shape:?}"),
            }
            .into());
        }
        if bytes.len() as u64 != found.bytes {
            return Err(too_long(tensor, format!("{} bytes", bytes.len()), found.bytes).into());
        }
        self.write(tensor, 0, bytes)
    }

    /// Fills a part of a memory class, whatever tensors lie there: `bytes` from byte `offset` of its payload on. For whoever
    /// has the whole class in one buffer of the same layout; what lies between tensors is kept as it is given.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub fn write_class(&self, class: &str, offset: u64, bytes: &[u8]) -> Result<()> {
        let payload = self.layout.payload(class)?;
        let there = self.layout.payloads()[payload].bytes;
        if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > there) {
            return Err(too_long(class, format!("{} bytes at {offset}", bytes.len()), there).into());
        }
        self.write_payload(payload, offset, bytes)
    }

    fn write_payload(&self, payload: usize, start: u64, bytes: &[u8]) -> Result<()> {
        let end = start + bytes.len() as u64;
        let range = start..end + self.layout.pad_after(payload, end, bytes.len());
        let mut pieces = self.take(payload, range.clone())?;
        let extent = &self.extents()[payload];
        for piece in &mut pieces {
            let data = &bytes[(piece.start.min(end) - start) as usize..(piece.end.min(end) - start) as usize];
            let mut crc = extent.write_summed(piece.start, data, piece.crc.unwrap_or(0));
            if piece.end > end {
                let pad = &PAD[..(piece.end - piece.start.max(end)) as usize];
                crc = extent.write_summed(piece.start.max(end), pad, crc);
            }
            piece.crc = piece.crc.map(|_| crc);
        }
        self.state.lock().payloads[payload].written(range, &pieces);
        Ok(())
    }

    fn take(&self, payload: usize, range: Range<u64>) -> Result<Vec<super::filled::Piece>> {
        self.objects.check_open()?; // a forked child shares the memory with its parent
        let mut state = self.state.lock();
        self.check_phase(state.phase)?;
        state.payloads[payload].take(range.clone()).map_err(|busy| {
            let class = self.layout.payloads()[payload].class.clone();
            Cause::FillOverlap { key: self.key.clone(), class, start: busy.start, end: busy.end }.into()
        })
    }

    fn check_phase(&self, phase: Phase) -> Result<()> {
        match phase {
            Phase::Filling => Ok(()),
            other => Err(Cause::FillingOver { key: self.key.clone(), found: other.as_str() }.into()),
        }
    }

    /// Says that another process has filled all of a memory class through a mapping of its own, and will not write there any
    /// more. Its bytes are read once, at the commit.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub fn filled_elsewhere(&self, class: &str) -> Result<()> {
        let payload = self.layout.payload(class)?;
        let range = 0..self.layout.payloads()[payload].bytes;
        let mut pieces = self.take(payload, range.clone())?;
        pieces.iter_mut().for_each(|piece| piece.crc = None);
        self.state.lock().payloads[payload].written(range, &pieces);
        Ok(())
    }

    /// Says something of the version, for those who read it.
    ///
    /// # Errors
    /// `input` for the key `forebay`, under which files keep the manifest; `state` when the version is committed.
    pub fn metadata(&self, name: &str, value: &str) -> Result<()> {
        if name == super::disk::METADATA_KEY {
            let reason = format!("{name:?} is taken by the engine; choose another name");
            return Err(Cause::Argument { what: "metadata", reason }.into());
        }
        let mut state = self.state.lock();
        self.check_phase(state.phase)?;
        state.metadata.insert(name.to_owned(), value.to_owned());
        Ok(())
    }

    /// Expects something else of the newest version from now on: for a commit that was refused and shall be tried again.
    pub fn expect(&self, expected: Expected) {
        self.state.lock().expected = expected;
    }

    /// Makes it the key's newest version, wakes who waits for it, and gives its number: one more than the newest so far.
    ///
    /// # Errors
    /// `state` when the newest version is not the expected one (the filling stays: [`expect`](Self::expect) another and
    /// commit again, or drop it), when something was not filled (the tensor is named), or is being filled now.
    pub fn commit(&self) -> Result<u64> {
        self.commit_numbered(None)
    }

    /// As [`commit`](Self::commit), under a number that was chosen: for versions that are numbered by somebody else, as those of
    /// a policy are.
    ///
    /// # Errors
    /// As for [`commit`](Self::commit), and `input` when the key has that version already, `state` when it had newer ones.
    pub fn commit_as(&self, version: u64) -> Result<u64> {
        self.commit_numbered(Some(version))
    }

    fn commit_numbered(&self, version: Option<u64>) -> Result<u64> {
        let incoming = self.prepare(version)?;
        let committed = self.objects.commit_all(vec![incoming]);
        self.concluded(&committed);
        committed.map(|versions| versions[0])
    }

    /// Gives what a commit needs, and keeps writers out from here on. [`concluded`](Self::concluded) has to follow.
    pub(super) fn prepare(&self, version: Option<u64>) -> Result<Incoming> {
        let extents = self.extents.clone().ok_or_else(|| self.over())?;
        let mut state = self.state.lock();
        self.check_phase(state.phase)?;
        check_filled(&self.key, &self.layout, &state.payloads)?;
        state.phase = Phase::Committing;
        let mut payloads = std::mem::take(&mut state.payloads);
        let (expected, metadata) = (state.expected, state.metadata.clone());
        drop(state); // summing up takes its time
        let sums = payloads.iter_mut().zip(extents.iter()).map(|(filled, extent)| {
            filled.checksums(|range| extent.sum(range.start, range.end - range.start))
        });
        let checksums = sums.collect();
        self.state.lock().payloads = payloads;
        let manifest = Manifest {
            key: self.key.clone(),
            version: version.unwrap_or(0),
            layout: self.layout.clone(),
            checksums,
            metadata,
            created_at: self.objects.core.clock.now(),
        };
        let copy = Arc::new(HostCopy::new(extents, true, self.owner.is_here()));
        Ok(Incoming {
            manifest,
            numbered: version.is_some(),
            expected,
            once: self.once,
            copies: Copies::host(copy),
        })
    }

    /// A commit that was prepared has gone through, or not.
    pub(super) fn concluded<T>(&self, outcome: &Result<T>) {
        let phase = if outcome.is_ok() { Phase::Committed } else { Phase::Filling };
        self.state.lock().phase = phase;
    }

    fn over(&self) -> Cause {
        Cause::FillingOver { key: self.key.clone(), found: Phase::Failed.as_str() }
    }

    /// Gives the filling up because what it was to hold cannot be had, and tells everybody who waits for a version of the
    /// key: their gets fail with this reason. As with [`abort`](Self::abort), who filled it has let go.
    pub fn fail(mut self, reason: &str) {
        self.owner = Owner::Here;
        self.state.lock().phase = Phase::Failed;
        self.objects.filling_failed(&self.key, reason);
    }

    /// Gives the memory back now, also where another process filled it: it says that it has let go.
    pub fn abort(mut self) {
        self.owner = Owner::Here;
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        let Some(extents) = self.extents.take() else { return };
        if self.objects.store.check_process().is_err() {
            return; // a forked child: another thread of its parent may have held any lock
        }
        let committed = matches!(self.state.lock().phase, Phase::Committed);
        if !committed && !self.owner.may_be_trusted_gone() {
            self.objects.quarantine(self.owner.clone(), extents);
        }
    }
}
