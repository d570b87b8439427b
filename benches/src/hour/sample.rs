//! What is looked at every few seconds.

use std::fs::{self, read_to_string};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::work::Work;
use crate::Outcome;

/// One look at the run. Bytes on disk are allocated blocks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sample {
    pub(super) seconds: f64,
    /// Samples written so far, all three stages of them.
    pub(super) samples: f64,
    /// Samples a second since the look before.
    pub(super) speed: f64,
    /// Memory of no file that is resident.
    pub(super) anonymous_bytes: f64,
    /// Mapped files that are resident: page cache that this process has touched.
    pub(super) mapped_bytes: f64,
    /// What the store says that it takes.
    pub(super) store_bytes: f64,
    pub(super) disk_bytes: f64,
    pub(super) extent_disk_bytes: f64,
    pub(super) log_disk_bytes: f64,
    pub(super) page_disk_bytes: f64,
    pub(super) object_disk_bytes: f64,
    pub(super) log_segments: f64,
    pub(super) extents: f64,
    pub(super) free_extent_bytes: f64,
    pub(super) extents_recycled: f64,
    pub(super) logged_bytes: f64,
    pub(super) commits: f64,
    pub(super) steps: f64,
    pub(super) claims: f64,
    /// Samples that were scored.
    pub(super) scored: f64,
    /// The longest batch since the look before.
    pub(super) batch_max_us: f64,
}

type Field = fn(&Sample) -> f64;

/// The columns of the CSV.
const COLUMNS: [(&str, Field); 21] = [
    ("seconds", |s| s.seconds),
    ("samples", |s| s.samples),
    ("samples_per_second", |s| s.speed),
    ("anonymous_bytes", |s| s.anonymous_bytes),
    ("mapped_bytes", |s| s.mapped_bytes),
    ("store_bytes", |s| s.store_bytes),
    ("disk_bytes", |s| s.disk_bytes),
    ("extent_disk_bytes", |s| s.extent_disk_bytes),
    ("log_disk_bytes", |s| s.log_disk_bytes),
    ("page_disk_bytes", |s| s.page_disk_bytes),
    ("object_disk_bytes", |s| s.object_disk_bytes),
    ("log_segments", |s| s.log_segments),
    ("extents", |s| s.extents),
    ("free_extent_bytes", |s| s.free_extent_bytes),
    ("extents_recycled", |s| s.extents_recycled),
    ("logged_bytes", |s| s.logged_bytes),
    ("commits", |s| s.commits),
    ("steps", |s| s.steps),
    ("claims", |s| s.claims),
    ("scored", |s| s.scored),
    ("batch_max_us", |s| s.batch_max_us),
];

impl Sample {
    /// What has to be flat.
    pub(super) const MEASURES: [(&'static str, Field); 4] = [
        ("resident memory of no file", |s| s.anonymous_bytes),
        ("resident memory, mapped files among it", |s| s.anonymous_bytes + s.mapped_bytes),
        ("memory by the store's own count", |s| s.store_bytes),
        ("disk", |s| s.disk_bytes),
    ];

    /// The first line of the CSV.
    pub(super) fn head() -> String {
        COLUMNS.map(|(name, _)| name).join(",")
    }

    /// One line of the CSV.
    pub(super) fn line(&self) -> String {
        COLUMNS.map(|(_, of)| format!("{}", (of(self) * 10.0).round() / 10.0)).join(",")
    }

    /// For people who wait.
    pub(super) fn words(&self) -> String {
        let megabytes = |bytes: f64| bytes / 1e6;
        format!(
            "{:.0} samples/s, {:.0} MB of memory ({:.0} by the store's count), {:.0} MB mapped, {:.0} MB on disk, step {:.0}",
            self.speed,
            megabytes(self.anonymous_bytes),
            megabytes(self.store_bytes),
            megabytes(self.mapped_bytes),
            megabytes(self.disk_bytes),
            self.steps
        )
    }
}

/// Looks at the process, the directory and the store.
#[derive(Debug)]
pub(super) struct Sampler {
    directory: PathBuf,
    before: Sample,
}

impl Sampler {
    pub(super) fn new(directory: &Path) -> Self {
        Sampler { directory: directory.join("store"), before: Sample::default() }
    }

    pub(super) fn look(&mut self, work: &Work<'_>, elapsed: Duration) -> Outcome<Sample> {
        let mut sample = Sample { seconds: elapsed.as_secs_f64(), ..Sample::default() };
        work.count(&mut sample);
        let (samples, seconds) = (sample.samples - self.before.samples, sample.seconds - self.before.seconds);
        sample.speed = if self.before.seconds > 0.0 { samples / seconds } else { 0.0 };
        (sample.anonymous_bytes, sample.mapped_bytes) = resident()?;
        self.measure_disk(&mut sample);
        self.before = sample;
        Ok(sample)
    }

    fn measure_disk(&self, sample: &mut Sample) {
        let of = |folder: &str| allocated(&self.directory.join(folder));
        sample.disk_bytes = allocated(&self.directory);
        sample.extent_disk_bytes = of("extents");
        sample.log_disk_bytes = of("log");
        sample.page_disk_bytes = of("pages");
        sample.object_disk_bytes = of("objects");
        sample.log_segments = fs::read_dir(self.directory.join("log")).map_or(0, Iterator::count) as f64;
    }
}

/// Bytes in memory of no file, and of mapped files.
fn resident() -> Outcome<(f64, f64)> {
    let status = read_to_string("/proc/self/status")?;
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let kilobytes = line.and_then(|text| text.trim().strip_suffix("kB")?.trim().parse::<f64>().ok());
        kilobytes.map(|kilobytes| kilobytes * 1024.0).ok_or_else(|| format!("no {name} in /proc/self/status"))
    };
    Ok((of("RssAnon")?, of("RssFile")?))
}

/// The blocks that a folder's files take. What goes while it is looked at counts nothing.
fn allocated(folder: &Path) -> f64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let bytes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => allocated(&entry.path()),
        Ok(metadata) => metadata.blocks() as f64 * 512.0,
        Err(_) => 0.0,
    });
    bytes.fold(0.0, |sum, bytes| sum + bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_what_the_head_names() -> Outcome<()> {
        let sample = Sample { seconds: 2.0, batch_max_us: 17.4, ..Sample::default() };
        assert_eq!(sample.line().split(',').count(), Sample::head().split(',').count());
        assert!(sample.line().starts_with("2,0,") && sample.line().ends_with(",17.4"));
        let folder = tempfile::tempdir()?;
        fs::create_dir(folder.path().join("deep"))?;
        fs::write(folder.path().join("deep/file"), vec![1; 20_000])?;
        assert!(allocated(folder.path()) >= 20_000.0);
        assert!(resident()?.0 > 0.0);
        Ok(())
    }
}
