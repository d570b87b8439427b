//! The handle: what one can ask of a store's objects.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::catalog::Ask;
use super::core::Core;
use super::filling::Filling;
use super::held::Held;
use super::host::SegmentInfo;
use super::layout::Layout;
use super::manifest::Manifest;
use super::owner::{Owner, ProcessHandle};
use super::set::{Expected, TensorBytes, conflict};
use super::stats::ObjectStats;
use super::version::Tier;
use crate::clock::Timestamp;
use crate::consumer::Wait;
use crate::error::{Cause, Result};
use crate::schema::check_name;
use crate::store::Store;

/// Which version of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The newest.
    Latest,
    /// This one.
    Exact(u64),
    /// The newest, once it is this one or a later one; how long to wait for that.
    AtLeast(u64, Wait),
}

/// How an object is asked for, beyond its key and version.
///
/// ```
/// use forebay_store::{Get, Tier};
/// let get = Get::default().tier(Tier::Disk); // by default: in the host tier, of any layout, for this process
/// ```
#[derive(Clone, Debug, Default)]
pub struct Get {
    pub(super) tier: Tier,
    pub(super) layout: Option<Layout>,
    pub(super) owner: Owner,
}

impl Get {
    /// Where its bytes are to be. It is copied there when they are not. Default: [`Tier::Host`].
    pub fn tier(mut self, tier: Tier) -> Self {
        self.tier = tier;
        self
    }

    /// What it is to be made of; another layout is refused. Default: any.
    pub fn layout(mut self, layout: &Layout) -> Self {
        self.layout = Some(layout.clone());
        self
    }

    /// Who will have its memory mapped. Default: this process.
    pub fn owner(mut self, owner: Owner) -> Self {
        self.owner = owner;
        self
    }
}

/// One version, as a list shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectInfo {
    /// What is known of it.
    pub manifest: Arc<Manifest>,
    /// Where its bytes are.
    pub tiers: Vec<Tier>,
    /// How many hold it.
    pub leases: usize,
    /// Whether it goes with the first who receives it.
    pub once: bool,
}

/// The objects of a store: state of agents, set under keys in immutable versions. Cheap to clone; any thread may call.
///
/// ```
/// use forebay_store::*;
/// # let dir = tempfile::tempdir().unwrap();
/// # let options = Options::default().objects(ObjectOptions::default().host_folder(HostFolder::At(dir.path().join("host"))));
/// let store = Store::open(dir.path().join("store"), options)?;
/// let objects = store.objects()?;
/// let layout = Layout::builder()
///     .tensor("weights", "head", Dtype::F32, &[2, 2])
///     .tensor("moments", "head.first", Dtype::F32, &[2, 2])
///     .build()?;
///
/// let filling = objects.begin("solver", Expected::Absent, &layout)?;
/// filling.write("head", 0, &[1; 16])?; // any number of threads, each its own ranges
/// filling.write_class("moments", 0, &[0; 256])?;
/// assert_eq!(filling.commit()?, 1);
///
/// let held = objects.get("solver", Which::Latest)?; // stays as long as it is held
/// assert_eq!(held.tensor("head")?.rows(1..2)?.to_vec()?, [1; 8]);
/// # Ok::<(), forebay_store::Error>(())
/// ```
#[derive(Clone)]
pub struct Objects {
    pub(super) store: Store,
    pub(super) core: Arc<Core>,
}

impl Objects {
    pub(crate) fn new(store: Store, core: Arc<Core>) -> Self {
        Objects { store, core }
    }

    pub(super) fn check_open(&self) -> Result<()> {
        self.store.0.check_writable("use its objects")
    }

    /// Begins a version, in the host tier. Nobody sees it before its commit; until then it is compared with what the key's
    /// newest version is only now and at the commit.
    ///
    /// # Errors
    /// `input` when the key is not a legal name; `state` when the newest version is not the expected one; `capacity` when there
    /// is no memory for it.
    pub fn begin(&self, key: &str, expected: Expected, layout: &Layout) -> Result<Filling> {
        self.begin_for(key, expected, layout, Owner::Here)
    }

    /// As [`begin`](Self::begin), for another process that fills it through a mapping of its own.
    ///
    /// # Errors
    /// As for [`begin`](Self::begin).
    pub fn begin_for(&self, key: &str, expected: Expected, layout: &Layout, owner: Owner) -> Result<Filling> {
        self.check_open()?;
        check_name("object", key)?;
        let newest = self.core.catalog.lock().find(key, Ask::Latest);
        let meant = match expected {
            Expected::Any => true,
            Expected::Absent => newest.is_none(),
            Expected::Version(version) => newest == Some(version),
        };
        if !meant {
            self.core.counters.conflicts.add(1);
            return Err(conflict(key, expected, newest).into());
        }
        Filling::new(self.clone(), key, layout, (expected, owner, false))
    }

    /// Sets the next version of a key, whole, and gives its number.
    ///
    /// # Errors
    /// As for [`begin`](Self::begin) and [`Filling::put`].
    pub fn set(&self, key: &str, tensors: &[TensorBytes<'_>]) -> Result<u64> {
        self.filled(key, tensors, false)?.commit()
    }

    pub(super) fn filled(&self, key: &str, tensors: &[TensorBytes<'_>], once: bool) -> Result<Filling> {
        self.check_open()?;
        check_name("object", key)?;
        let layout = Layout::of(tensors)?;
        let filling = Filling::new(self.clone(), key, &layout, (Expected::Any, Owner::Here, once))?;
        tensors.iter().try_for_each(|tensor| filling.write(tensor.name, 0, tensor.bytes))?;
        Ok(filling)
    }

    /// Gets a version in the host tier.
    ///
    /// # Errors
    /// `input` when there never was such a key; `state` when the version is gone; `retry` when it has not come yet, or in time, or
    /// whoever was to fill it gave up; `corrupt` when its bytes are damaged; `capacity` when it has to be copied and there is no
    /// room.
    pub fn get(&self, key: &str, which: Which) -> Result<Held> {
        self.get_with(key, which, &Get::default())
    }

    /// As [`get`](Self::get), in the tier and under the conditions of `get`.
    ///
    /// # Errors
    /// As for [`get`](Self::get), and `input` when it has another layout than was meant.
    pub fn get_with(&self, key: &str, which: Which, get: &Get) -> Result<Held> {
        let (ask, wait) = match which {
            Which::Latest => (Ask::Latest, Wait::No),
            Which::Exact(version) => (Ask::Exact(version), Wait::No),
            Which::AtLeast(version, wait) => (Ask::AtLeast(version), wait),
        };
        self.lease_when_there(key, ask, wait)?.hold(get)
    }

    /// Every version that can be had, by key and number.
    pub fn list(&self) -> Vec<ObjectInfo> {
        let catalog = self.core.catalog.lock();
        let versions = catalog.keys.values().flat_map(|state| state.versions.values());
        let shown = versions.filter(|version| !version.is_deleted()).map(|version| ObjectInfo {
            manifest: version.manifest.clone(),
            tiers: version.tiers(),
            leases: version.leases(),
            once: version.once,
        });
        shown.collect()
    }

    /// The segments of the host tier, for whoever passes them to other processes.
    ///
    /// # Errors
    /// `state` when a descriptor cannot be made.
    pub fn segments(&self) -> Result<Vec<SegmentInfo>> {
        Ok(self.core.arena.show().map_err(|e| Cause::io("open", "a segment of the host tier", e))?)
    }

    /// The folder of the segments; `None` where they have no names.
    pub fn segment_folder(&self) -> Option<&std::path::Path> {
        self.core.folder.as_ref().map(super::host::Folder::path)
    }

    /// Another process has let go of memory that it was given, to read a version, by somebody who is gone since without its word: a
    /// holder that was dropped, or the process that had the store open before. It names where the payloads lie. One such loan ends;
    /// false where it has none. Whoever looks after a loan ends it with [`Held::let_go`](crate::Held::let_go) instead.
    pub fn let_go_of(&self, process: &ProcessHandle, places: &[(u32, u64)]) -> bool {
        let record = process.record();
        let mut catalog = self.core.catalog.lock();
        let Some(number) = catalog.quarantined(&record, places) else { return false };
        let free = catalog.end_loan(number, true);
        drop(catalog);
        drop(free);
        true
    }

    /// Counters since the store was opened.
    pub fn stats(&self) -> ObjectStats {
        let counters = &self.core.counters;
        let mut stats = ObjectStats {
            sets: counters.sets.get(),
            set_bytes: counters.set_bytes.get(),
            host_gets: counters.host_gets.get(),
            host_get_bytes: counters.host_get_bytes.get(),
            disk_gets: counters.disk_gets.get(),
            disk_get_bytes: counters.disk_get_bytes.get(),
            spills: counters.spills.get(),
            spilled_bytes: counters.spilled_bytes.get(),
            promotions: counters.promotions.get(),
            promoted_bytes: counters.promoted_bytes.get(),
            direct_bytes: counters.direct_bytes.get(),
            conflicts: counters.conflicts.get(),
            corrupt: counters.corrupt.get(),
            layout_mismatches: counters.layout_mismatches.get(),
            commit_time: Duration::from_micros(counters.commit_microseconds.get()),
            get_time: Duration::from_micros(counters.get_microseconds.get()),
            ..ObjectStats::default()
        };
        self.core.arena.count_into(&mut stats);
        let catalog = self.core.catalog.lock();
        let (leases, oldest) = catalog.leases();
        stats.leases = leases;
        stats.oldest_lease = oldest.map_or(Duration::ZERO, |since| self.core.clock.now().since(since));
        stats.quarantine_bytes = catalog.quarantine_bytes();
        stats
    }

    /// When now is.
    pub(super) fn now(&self) -> Timestamp {
        self.core.clock.now()
    }
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Objects of {}", self.store.path().display())
    }
}
