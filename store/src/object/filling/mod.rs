//! A version that is being filled: nobody sees it before its commit.
//!
//! Any number of threads fill it, each its own ranges. A commit takes its number from the catalog under the catalog's lock,
//! by comparing what the key's newest version is with what was expected; so of two fillers that expect the same exactly one
//! gets it.

mod commit;
pub(in crate::object) mod filled;
pub(in crate::object) mod lent;
pub(in crate::object) mod write;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use filled::{Filled, Piece};
pub use lent::FillingRange;
use lent::Lender;

use super::host::HostExtent;
use super::layout::Layout;
use super::lent::Lent;
use super::mapping::ObjectMapping;
use super::objects::Objects;
use super::owner::Owner;
use super::set::Expected;
use crate::error::{Cause, Result};
use crate::sync::Mutex;

/// The most bytes that are said of a version.
const METADATA_BYTES_MAX: usize = 64 << 10;

/// A version of an object that is being filled. Dropping it gives its memory back; nobody has seen it then.
#[derive(Debug)]
pub struct Filling {
    objects: Objects,
    key: String,
    layout: Layout,
    /// Nobody but this process fills it.
    is_ours: bool,
    once: bool,
    extents: Arc<Vec<HostExtent>>,
    /// Where another process fills it.
    lent: Option<Lent>,
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
    pub(in crate::object) fn new(
        objects: Objects,
        key: &str,
        layout: &Layout,
        (expected, owner, once): (Expected, Owner, bool),
    ) -> Result<Self> {
        let payloads = layout.payloads().iter();
        let extents: Result<Vec<HostExtent>> =
            payloads.map(|payload| objects.allocate(payload.bytes)).collect();
        let payloads = layout.payloads().iter().map(|payload| Filled::new(payload.bytes)).collect();
        let state = State { phase: Phase::Filling, expected, payloads, metadata: BTreeMap::new() };
        let extents = Arc::new(extents?);
        let (is_ours, lent) = (owner.is_here(), Lent::lend(&objects, &owner, &extents)?);
        let (key, layout) = (key.to_owned(), layout.clone());
        Ok(Filling { objects, key, layout, is_ours, once, extents, lent, state: Mutex::new(state) })
    }

    /// The key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// What is filled.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Where the payloads lie in the segments, for another process that fills them through a mapping of its own: segment and
    /// offset; `None` for one in heap memory. What it has filled is told by [`filled_elsewhere`](Self::filled_elsewhere).
    pub fn places(&self) -> Vec<Option<(u32, u64)>> {
        self.extents.iter().map(HostExtent::place).collect()
    }

    fn check_phase(&self, phase: Phase) -> Result<()> {
        match phase {
            Phase::Filling => Ok(()),
            other => Err(Cause::FillingOver { key: self.key.clone(), found: other.as_str() }.into()),
        }
    }

    /// Says something of the version, for those who read it.
    ///
    /// # Errors
    /// `input` for the key `forebay`, under which files keep the manifest, and beyond 64 KiB in all; `state` when the version is committed.
    pub fn metadata(&self, name: &str, value: &str) -> Result<()> {
        if name == super::disk::METADATA_KEY {
            let reason = format!("{name:?} is taken by the engine; choose another name");
            return Err(Cause::Argument { what: "metadata", reason }.into());
        }
        let mut state = self.state.lock();
        self.check_phase(state.phase)?;
        let others = state.metadata.iter().filter(|(other, _)| *other != name);
        let bytes = others.map(|(name, value)| name.len() + value.len()).sum::<usize>();
        if bytes + name.len() + value.len() > METADATA_BYTES_MAX {
            let reason = format!(
                "{name:?} makes it longer than {METADATA_BYTES_MAX} bytes; keep what is long in a tensor"
            );
            return Err(Cause::Argument { what: "metadata", reason }.into());
        }
        state.metadata.insert(name.to_owned(), value.to_owned());
        Ok(())
    }

    /// Expects something else of the newest version from now on: for a commit that was refused and shall be tried again.
    pub fn expect(&self, expected: Expected) {
        self.state.lock().expected = expected;
    }

    /// Gives the filling up because what it was to hold cannot be had, and tells everybody who waits for a version of the
    /// key: their gets fail with this reason. As with [`abort`](Self::abort), who filled it has let go.
    pub fn fail(self, reason: &str) {
        self.give_up(Some(reason));
    }

    /// Gives the memory back now, also where another process filled it: it says that it has let go.
    pub fn abort(self) {
        self.give_up(None);
    }

    /// The same for one that several have: its memory is given back with the last of them, and nobody fills or commits it any
    /// more. With a reason everybody hears of it who waits for a version of the key.
    pub fn give_up(&self, reason: Option<&str>) {
        self.lent.iter().for_each(Lent::let_go);
        self.state.lock().phase = Phase::Failed;
        reason.into_iter().for_each(|reason| self.objects.filling_failed(&self.key, reason));
    }
}

impl Lender for Filling {
    fn mapping(&self, payload: usize) -> Option<(ObjectMapping, usize)> {
        self.extents[payload].mapping()
    }

    fn sum(&self, payload: usize, range: Range<u64>, crc: u32) -> u32 {
        self.extents[payload].sum_onto(range.start, range.end - range.start, crc)
    }

    fn put(&self, payload: usize, offset: u64, bytes: &[u8], crc: u32) -> u32 {
        self.extents[payload].write_summed(offset, bytes, crc)
    }

    fn written(&self, payload: usize, range: Range<u64>, pieces: &[Piece]) {
        self.state.lock().payloads[payload].written(range, pieces);
    }

    fn left(&self, payload: usize, range: Range<u64>, pieces: &[Piece]) {
        self.state.lock().payloads[payload].left(&range, pieces);
    }
}

impl Drop for Filling {
    /// What was committed will not be written any more: who filled it has said so.
    fn drop(&mut self) {
        if let Some(lent) = self.lent.as_ref().filter(|_| self.objects.store.check_process().is_ok())
            && matches!(self.state.lock().phase, Phase::Committed)
        {
            lent.let_go();
        }
    }
}
