//! The machine doing nothing but what a part of a swap cannot do without.

use std::fs::OpenOptions;
use std::hint::black_box;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use forebay_benches::Outcome;
use memmap2::MmapMut;

use super::Bytes;

/// Makes this program return at once.
const NOTHING: &str = "FOREBAY_SWAP_NOTHING";

/// Whether this process was started to do nothing.
pub fn is_nothing() -> bool {
    std::env::var_os(NOTHING).is_some()
}

/// Medians, in milliseconds.
pub(super) struct Limits {
    /// Starting a process that returns at once, and seeing its end.
    pub(super) process: f64,
    /// Mapping a warm file of the state's size.
    pub(super) map: f64,
    /// A copy of what is set into warm shared memory.
    pub(super) set: f64,
    /// A copy of the state from warm shared memory into memory that nobody has touched.
    pub(super) get: f64,
}

impl Limits {
    pub(super) fn of(rounds: usize, bytes: Bytes, folder: &Path) -> Outcome<Self> {
        let (set, got) = (usize::try_from(bytes.set)?, usize::try_from(bytes.got)?);
        let path = folder.join("limit");
        let mut shared = mapped(&path, set.max(got))?;
        let source = vec![7_u8; set.max(got)];
        shared.copy_from_slice(&source);
        let program = std::env::current_exe()?;
        let mut took = [const { Vec::new() }; 4];
        for _ in 0..rounds.max(3) {
            took[0].push(timed(|| {
                Ok(Command::new(&program).env(NOTHING, "1").stdout(Stdio::null()).status()?)
            })?);
            took[1].push(timed(|| mapped(&path, set.max(got)))?);
            took[2].push(timed(|| {
                shared[..set].copy_from_slice(&source[..set]);
                Ok(())
            })?);
            took[3].push(timed(|| Ok(black_box(shared[..got].to_vec())))?);
        }
        let [process, map, set, get] = took.map(median);
        std::fs::remove_file(path)?;
        Ok(Limits { process, map, set, get })
    }
}

fn mapped(path: &Path, bytes: usize) -> Outcome<MmapMut> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    file.set_len(bytes as u64)?;
    #[allow(unsafe_code, reason = "the limit is a bare mapping")]
    // SAFETY: the file lies in a temporary folder of this run, and nobody else writes it or cuts it.
    Ok(unsafe { MmapMut::map_mut(&file)? })
}

fn timed<T>(work: impl FnOnce() -> Outcome<T>) -> Outcome<Duration> {
    let start = Instant::now();
    let made = work()?;
    let took = start.elapsed();
    drop(black_box(made));
    Ok(took)
}

/// In milliseconds.
pub(super) fn median(mut took: Vec<Duration>) -> f64 {
    took.sort_unstable();
    took.get(took.len() / 2).map_or(f64::NAN, |took| took.as_secs_f64() * 1e3)
}
