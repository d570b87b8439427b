//! How objects are kept: settings that are plain data.

use std::path::PathBuf;

use crate::error::{Cause, Result};

/// Where the segments of the host tier lie.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HostFolder {
    /// In `/dev/shm`: memory that outlives the process and ends with the boot. Where that cannot be had, as `Anonymous`,
    /// with a line in the log.
    #[default]
    Shared,
    /// In a folder of that path, which should be of a file system in memory. Where that cannot be had, as `Anonymous`, with
    /// a line in the log.
    At(PathBuf),
    /// In memory without a name: it ends with the process.
    Anonymous,
}

/// How a store keeps its objects; see [`Options::objects`](crate::Options::objects).
///
/// ```
/// use forebay_store::{ObjectOptions, Options};
/// let objects = ObjectOptions::default().host_bytes_max(64 << 30).versions_kept(3);
/// let options = Options::default().objects(objects);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectOptions {
    pub(crate) host_bytes_max: u64,
    pub(crate) host_folder: HostFolder,
    pub(crate) segment_bytes: u64,
    pub(crate) pageable_bytes_max: u64,
    pub(crate) versions_kept: usize,
    pub(crate) water_marks_percent: (u8, u8),
    pub(crate) direct_io: bool,
}

impl Default for ObjectOptions {
    fn default() -> Self {
        ObjectOptions {
            host_bytes_max: 16 << 30,
            host_folder: HostFolder::default(),
            segment_bytes: 256 << 20,
            pageable_bytes_max: 4 << 30,
            versions_kept: 2,
            water_marks_percent: (90, 80),
            direct_io: true,
        }
    }
}

impl ObjectOptions {
    /// The most bytes that segments of the host tier may take. Default: 16 GiB. What an operator lets the machine give to
    /// suspended agents; segments are mapped once and kept.
    pub fn host_bytes_max(mut self, bytes: u64) -> Self {
        self.host_bytes_max = bytes;
        self
    }

    /// Where segments lie. Default: [`HostFolder::Shared`].
    pub fn host_folder(mut self, folder: HostFolder) -> Self {
        self.host_folder = folder;
        self
    }

    /// How large segments become, in bytes; they begin at 4 MiB, double, and a payload that is larger has one of its own.
    /// Default: 256 MiB.
    pub fn segment_bytes(mut self, bytes: u64) -> Self {
        self.segment_bytes = bytes;
        self
    }

    /// How many bytes of heap memory may be used where `host_bytes_max` is reached. They are counted
    /// ([`ObjectStats::pageable_fallbacks`](crate::ObjectStats::pageable_fallbacks)), slower to copy to a device, and end
    /// with the process. 0 for none. Default: 4 GiB.
    pub fn pageable_bytes_max(mut self, bytes: u64) -> Self {
        self.pageable_bytes_max = bytes;
        self
    }

    /// How many of the newest versions of a key are kept. Those that somebody holds are kept too. Default: 2, at least 1.
    pub fn versions_kept(mut self, versions: usize) -> Self {
        self.versions_kept = versions.max(1);
        self
    }

    /// From how full a host tier on [`Objects::run_once`](crate::Objects::run_once) spills, and down to where, in percent of
    /// `host_bytes_max`. Default: 90 and 80.
    pub fn water_marks_percent(mut self, high: u8, low: u8) -> Self {
        self.water_marks_percent = (high, low);
        self
    }

    /// Whether what is spilled, and what comes back, goes past the memory that the system keeps of files (`O_DIRECT`), which large states
    /// would fill with what nobody reads soon. Where the file system has no such way it does not, and is not counted
    /// ([`ObjectStats::direct_bytes`](crate::ObjectStats::direct_bytes)). Default: true.
    pub fn direct_io(mut self, direct: bool) -> Self {
        self.direct_io = direct;
        self
    }

    pub(crate) fn validate(&self) -> Result<()> {
        let (high, low) = self.water_marks_percent;
        if low > high || high > 100 {
            let reason = format!("{high} and {low} must be percentages, the first not below the second");
            return Err(Cause::Argument { what: "water_marks_percent", reason }.into());
        }
        if self.segment_bytes < 1 << 20 {
            let reason = format!("{} is less than the least segment of 1048576", self.segment_bytes);
            return Err(Cause::Argument { what: "segment_bytes", reason }.into());
        }
        Ok(())
    }
}
