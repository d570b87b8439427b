//! `--bench objects`: what setting and getting agents' state takes, beside what bare memory and bare files take.
//!
//! In reading order: `memory` (set, get and read in the host tier), `control` (what a version costs beside its bytes), `files`
//! (spilling and restoring). What needs a server, the same between two processes, is in `benches/server`. A row and its limit take turns in one run; buffers are
//! warm before anything is timed.

mod control;
mod files;
mod memory;

use std::path::Path;

use files::Way;

use forebay_store::{Dtype, Expected, HostFolder, Layout, ObjectOptions, Objects, Options, Store};

use crate::Outcome;
use crate::random::Random;
use crate::row::Row;
use crate::workload::SEED;

/// How much of everything.
#[derive(Clone, Debug)]
pub struct ObjectScale {
    /// How often a row is measured; the one with the median ratio is printed.
    pub(crate) repetitions: usize,
    /// The state that is set and got in memory.
    pub(crate) state_bytes: usize,
    /// The state that goes to the disk and comes back.
    pub(crate) spilled_bytes: usize,
    /// How many tensors a state has where control time is measured; the last one has the goal.
    pub(crate) tensors: Vec<usize>,
    pub(crate) round_trips: usize,
}

impl ObjectScale {
    /// The sizes that are reported.
    pub fn full() -> Self {
        ObjectScale {
            repetitions: 7,
            state_bytes: 1 << 30,
            spilled_bytes: 512 << 20,
            tensors: vec![10, 100, 579, 5000, 10_000],
            round_trips: 20_000,
        }
    }

    /// Sizes that show that every row runs, and say nothing of speed.
    pub fn quick() -> Self {
        ObjectScale {
            repetitions: 1,
            state_bytes: 3 << 20,
            spilled_bytes: 3 << 20,
            tensors: vec![10, 40],
            round_trips: 20,
        }
    }

    /// How often a row is measured.
    pub fn repetitions(&self) -> usize {
        self.repetitions
    }

    /// Bytes of the state that is set and got in memory.
    pub fn state_bytes(&self) -> usize {
        self.state_bytes
    }
}

/// Measures every row, and gives each to `print` as soon as it is known.
///
/// # Errors
/// The first failure of the store or of the machine.
pub fn run_objects(scale: &ObjectScale, print: &mut dyn FnMut(Row)) -> Outcome<()> {
    memory::rows(scale, print)?;
    control::rows(scale, print)?;
    files::rows(scale, Way::PastCache, print)?;
    files::rows(scale, Way::ThroughCache, print)
}

/// A store whose host tier lies in `/dev/shm`, in a folder that goes with it.
struct Opened {
    objects: Objects,
    dir: tempfile::TempDir,
    _host: tempfile::TempDir,
}

impl Opened {
    fn new(versions_kept: usize) -> Outcome<Self> {
        Self::with(ObjectOptions::default().versions_kept(versions_kept))
    }

    fn with(objects: ObjectOptions) -> Outcome<Self> {
        let (dir, host) = (tempfile::tempdir()?, tempfile::tempdir_in("/dev/shm")?);
        let folder = HostFolder::At(host.path().to_owned());
        let objects = objects.host_folder(folder).pageable_bytes_max(0);
        let store = Store::open(dir.path().join("store"), Options::default().objects(objects))?;
        Ok(Opened { objects: store.objects()?, dir, _host: host })
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// Bytes that no memory or disk can make less of.
pub fn noise(bytes: usize) -> Vec<u8> {
    let mut random = Random::new(SEED);
    let mut words: Vec<u8> = Vec::with_capacity(bytes + 8);
    while words.len() < bytes {
        words.extend_from_slice(&random.bits().to_le_bytes());
    }
    words.truncate(bytes);
    words
}

/// One tensor of that size.
fn flat(bytes: usize) -> Outcome<Layout> {
    Ok(Layout::builder().tensor("weights", "flat", Dtype::U8, &[bytes as u64]).build()?)
}

fn set(objects: &Objects, key: &str, layout: &Layout, bytes: &[u8]) -> Outcome<u64> {
    let filling = objects.begin(key, Expected::Any, layout)?;
    filling.write("flat", 0, bytes)?;
    Ok(filling.commit()?)
}

/// The sum of all words, which reads every byte.
pub fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()));
    words.fold(0, u64::wrapping_add)
}

fn megabytes(bytes: usize, time: std::time::Duration) -> f64 {
    bytes as f64 / time.as_secs_f64() / 1e6
}
