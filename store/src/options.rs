//! How a store is opened: settings that are plain data, and the seams that are live parts.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, SystemClock};
use crate::disk::{Disk, LocalDisk};
use crate::durability::Durability;
use crate::error::{Cause, Result};
use crate::limits::{Budgets, Limits};
use crate::object::ObjectOptions;
use crate::randomness::{Randomness, SystemRandomness};
use crate::retention::Retention;

/// How value bytes get into their extent.
///
/// Measured on two cores, ext4, samples of 10 KB in batches of 64, in thousands of samples a second (64 MiB files, the
/// median of six), where the kernel has the file in pages of 4 KiB: into new files, mapped stores 120 (30 when write-back
/// interferes), the same with pages populated ahead 118, one `pwrite` a batch 150, one a sample 80; into files used before
/// whose pages are mapped and writable, mapped stores 500, one `pwrite` a batch 290; into files used before that were synced
/// since (the kernel then protects their pages), mapped stores 117, one `pwrite` a batch 350. Where it has the file in pages
/// of 2 MiB, with a checksum and a sync twice a second beside it, values of 4 KiB: mapped stores 9 to 11 GB/s, one `pwrite` a
/// batch 6.
///
/// Of the whole store, thousands of samples a second at `memory` and `logged`, one writer, a gibibyte, one to three runs of each in turn:
/// into new files 54 to 70 through the mapping in large pages, which the kernel zeroes first, and 105 to 162 gathered; into files used
/// again and again 148 through the mapping and 135 to 155 gathered, with two writers 176 to 230 and 145 to 208.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ValuePath {
    /// Through the mapping where versions go by a [retention](Options::retention), so that files are used again and again, where
    /// they have large pages, and the store is not one that syncs with each call; gathered elsewhere, but for small batches.
    #[default]
    Chosen,
    /// Each value through the mapping.
    Mapped,
    /// Gathered, then in one call to the kernel.
    Gathered,
}

/// How a store is opened.
///
/// ```
/// use std::time::Duration;
/// use forebay_store::Options;
/// let options = Options::default().lease(Duration::from_secs(60));
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) read_only: bool,
    pub(crate) create: bool,
    pub(crate) lease: Duration,
    pub(crate) durability: Durability,
    pub(crate) sync_interval: Duration,
    pub(crate) extent_bytes_first: usize,
    pub(crate) extent_bytes_max: usize,
    pub(crate) free_extent_bytes_max: u64,
    pub(crate) value_path: ValuePath,
    pub(crate) disk_bytes_max: Option<u64>,
    pub(crate) memory_bytes_max: Option<u64>,
    pub(crate) capacity_wait: Duration,
    pub(crate) snapshot_age_max: Option<Duration>,
    pub(crate) check_values: bool,
    pub(crate) segment_bytes_max: u64,
    pub(crate) object_versions_kept: usize,
    pub(crate) claims_kept: usize,
    pub(crate) checkpoint_records: u64,
    pub(crate) retention: Retention,
    pub(crate) objects: ObjectOptions,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) randomness: Arc<dyn Randomness>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            read_only: false,
            create: true,
            lease: Duration::from_secs(300),
            durability: Durability::default(),
            sync_interval: Duration::from_secs(1),
            extent_bytes_first: 1 << 20,
            extent_bytes_max: 1 << 30,
            free_extent_bytes_max: 8 << 30,
            value_path: ValuePath::Chosen,
            disk_bytes_max: None,
            memory_bytes_max: None,
            capacity_wait: Duration::from_secs(10),
            snapshot_age_max: None,
            check_values: false,
            segment_bytes_max: 64 << 20,
            object_versions_kept: 2,
            claims_kept: 1 << 16,
            checkpoint_records: 250_000,
            retention: Retention::default(),
            objects: ObjectOptions::default(),
            clock: Arc::new(SystemClock),
            disk: Arc::new(LocalDisk),
            randomness: Arc::new(SystemRandomness),
        }
    }
}

impl Options {
    /// The budgets that a store begins with.
    pub(crate) fn budgets(&self) -> Budgets {
        Budgets { memory_bytes_max: self.memory_bytes_max, disk_bytes_max: self.disk_bytes_max }
    }

    /// Every setting that is plain data, for people, with the limits that hold now.
    pub(crate) fn shown(&self, now: &Limits) -> Vec<(&'static str, Option<String>)> {
        let retention = now.retention();
        let always = |value: &dyn std::fmt::Display| Some(value.to_string());
        let limit = |value: Option<u64>| value.map(|value| value.to_string());
        let time = |value: Duration| (value != Duration::MAX).then(|| value.as_millis().to_string());
        vec![
            ("read_only", always(&self.read_only)),
            ("durability", Some(format!("{:?}", self.durability).to_lowercase())),
            ("lease_ms", time(self.lease)),
            ("sync_interval_ms", time(self.sync_interval)),
            ("extent_bytes_first", always(&self.extent_bytes_first)),
            ("extent_bytes_max", always(&self.extent_bytes_max)),
            ("free_extent_bytes_max", always(&self.free_extent_bytes_max)),
            ("value_path", Some(format!("{:?}", self.value_path).to_lowercase())),
            ("disk_bytes_max", limit(now.disk_bytes_max())),
            ("memory_bytes_max", limit(now.memory_bytes_max())),
            ("capacity_wait_ms", time(self.capacity_wait)),
            ("snapshot_age_max_ms", self.snapshot_age_max.and_then(time)),
            ("check_values", always(&self.check_values)),
            ("segment_bytes_max", always(&self.segment_bytes_max)),
            ("checkpoint_records", always(&self.checkpoint_records)),
            ("object_versions_kept", always(&self.object_versions_kept)),
            ("claims_kept", always(&self.claims_kept)),
            ("retention_versions", limit(retention.versions_kept())),
            ("retention_consumed_for_ms", retention.consumed_kept_for().and_then(time)),
        ]
    }

    /// Opens for reading only: nothing in the directory is changed, and every call that would is refused.
    /// Default: false.
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Whether a store is made where there is none yet. Default: true.
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// How long a claim is leased before its rows go to another holder. Default: five minutes. Longer than the slowest
    /// rollout or gradient step; too short a lease does work twice, too long a one waits for the dead.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// What an acknowledgement promises where a call does not ask for another level. Default: [`Durability::Logged`].
    pub fn durability(mut self, level: Durability) -> Self {
        self.durability = level;
        self
    }

    /// How long what was acknowledged may stay unsynced while somebody calls [`Store::run_once`](crate::Store::run_once) or
    /// [`Store::sync_if_due`](crate::Store::sync_if_due):
    /// what a power failure can take from the levels below `synced`, but for what a store at `memory` wrote at that level.
    /// Default: one second. `Duration::MAX` leaves syncing to checkpoints and to calls that ask for it: a power failure may take all since the last of those.
    pub fn sync_interval(mut self, interval: Duration) -> Self {
        self.sync_interval = interval;
        self
    }

    /// The least and the greatest size of an extent, in bytes; a writer begins with the least, and goes on with about an
    /// eighth of what it wrote of the last version. Default: 1 MiB and 1 GiB. What other engines call segment or block size.
    pub fn extent_bytes(mut self, first: usize, max: usize) -> Self {
        (self.extent_bytes_first, self.extent_bytes_max) = (first, max);
        self
    }

    /// How many bytes of extents that nobody needs any more are kept to be used again; the rest is deleted. Default:
    /// 8 GiB. At least what one policy version writes is a good size: then the next one needs no new pages.
    pub fn free_extent_bytes_max(mut self, bytes: u64) -> Self {
        self.free_extent_bytes_max = bytes;
        self
    }

    /// How value bytes get into their extent. Default: what measured best.
    pub fn value_path(mut self, path: ValuePath) -> Self {
        self.value_path = path;
        self
    }

    /// The most bytes that extents, log and the pages of the last checkpoint may take. A writer that needs more waits for room
    /// ([`capacity_wait`](Options::capacity_wait)), then is refused with a `capacity` error that names the largest pin.
    /// Counted when an extent is begun, so log and pages may run past it by what is written meanwhile. Default: no limit but
    /// the disk's. It can be changed while the store is open ([`Store::change_budgets`](crate::Store::change_budgets)).
    pub fn disk_bytes_max(mut self, bytes: u64) -> Self {
        self.disk_bytes_max = Some(bytes);
        self
    }

    /// The most bytes of memory that the store may take ([`Stats::memory_bytes`](crate::Stats::memory_bytes)). A batch
    /// that begins rows waits at seven eighths of it, other writes at all of it
    /// ([`capacity_wait`](Options::capacity_wait)), and is then refused with a `capacity` error that names the largest
    /// pin. Before that, and in [`Store::run_once`](crate::Store::run_once) when three quarters are taken, what lies in
    /// a checkpoint as well is let go. Counted now and then, so the store may run past it by a 64th and what is written
    /// at the same time. At least 1 MiB. Default: no limit. It can be changed as the disk's can.
    pub fn memory_bytes_max(mut self, bytes: u64) -> Self {
        self.memory_bytes_max = Some(bytes);
        self
    }

    /// How long a writer at a budget waits for room, and one whom a [rate limiter](crate::RateLimiter) holds back for its
    /// consumer, unless a batch says [otherwise](crate::WriteBatch::wait). Default: ten seconds.
    pub fn capacity_wait(mut self, wait: Duration) -> Self {
        self.capacity_wait = wait;
        self
    }

    /// For how long a snapshot gives values. One that is older is overdue ([`PinInfo::overdue`](crate::PinInfo::overdue)) and
    /// warned of: reading it is an error, and it holds back the space of values no longer. What was read of it before stays, and so
    /// do its pages in memory until it is dropped. Default: no age is too great.
    pub fn snapshot_age_max(mut self, age: Duration) -> Self {
        self.snapshot_age_max = Some(age);
        self
    }

    /// Whether every value that lies in an extent (lists, tensors, and texts and bytes of more than 12 bytes) is held against its
    /// checksum whenever it is read: from a claim, a snapshot, a cell or with SQL. One that has come to be damaged on its medium is then an error (`corrupt`, with file and offset) and no value. Costs
    /// one more pass over the bytes. Default: it is not, and [`verify`](crate::verify()) finds out.
    ///
    /// ```
    /// # use forebay_store::*;
    /// # let dir = tempfile::tempdir().unwrap();
    /// let store = Store::open(dir.path().join("store"), Options::default().check_values(true))?;
    /// # Ok::<(), forebay_store::Error>(())
    /// ```
    pub fn check_values(mut self, check: bool) -> Self {
        self.check_values = check;
        self
    }

    /// How large a log segment grows before the next is begun, in bytes. Default: 64 MiB.
    pub fn segment_bytes_max(mut self, bytes: u64) -> Self {
        self.segment_bytes_max = bytes;
        self
    }

    /// After how many records of the log [`Store::run_once`](crate::Store::run_once) or
    /// [`Store::checkpoint_if_due`](crate::Store::checkpoint_if_due) takes a checkpoint: what opening the
    /// store replays at most. Default: 250,000, which take about half a second.
    pub fn checkpoint_records(mut self, records: u64) -> Self {
        self.checkpoint_records = records.max(1);
        self
    }

    /// How many of the states that a policy stood on are kept with their objects; older ones are removed when a newer is
    /// committed, and [`Store::rewind`](crate::Store::rewind) goes no further back. Default: 2, at least 1.
    pub fn object_versions_kept(mut self, versions: usize) -> Self {
        self.object_versions_kept = versions.max(1);
        self
    }

    /// Which rows are deleted by [`Store::run_once`](crate::Store::run_once), and when. Default: none. The rule can be changed
    /// while the store is open ([`Store::change_retention`](crate::Store::change_retention)).
    pub fn retention(mut self, retention: Retention) -> Self {
        self.retention = retention;
        self
    }

    /// How objects are kept that are set and got ([`Store::objects`](crate::Store::objects)). Default: see
    /// [`ObjectOptions`].
    pub fn objects(mut self, objects: ObjectOptions) -> Self {
        self.objects = objects;
        self
    }

    /// The clock seam. Default: the machine's clock.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The disk seam. Default: the machine's file system.
    pub fn disk(mut self, disk: Arc<dyn Disk>) -> Self {
        self.disk = disk;
        self
    }

    /// The randomness seam. Default: seeded by the operating system.
    pub fn randomness(mut self, randomness: Arc<dyn Randomness>) -> Self {
        self.randomness = randomness;
        self
    }

    pub(crate) fn validate(&self) -> Result<()> {
        let (first, max) = (self.extent_bytes_first, self.extent_bytes_max);
        if first < 4096 || max < first || max > 1 << 30 {
            let reason =
                format!("{first} and {max} must lie between 4096 and 1073741824, first not above max");
            return Err(Cause::Argument { what: "extent_bytes", reason }.into());
        }
        self.budgets().validate(self.extent_bytes_first)
    }
}
