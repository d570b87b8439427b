//! The other process: does what it is told a line at a time, and prints how long it took, in nanoseconds.

use std::fs::OpenOptions;
use std::hint::black_box;
use std::io::Write;
use std::path::Path;

use forebay::client::{HeldObject, Objects};
use forebay_benches::{Outcome, noise, sum, timed};
use forebay_client::{Client, ConnectOptions};
use forebay_store::{Expected, Which};
use memmap2::MmapMut;

use super::between::layout;

/// The first word of its arguments.
pub(super) const CHILD: &str = "--other-process";
pub(super) const CLASS: &str = "weights";
pub(super) const TENSOR: &str = "flat";

/// Runs as the other process, when it was started as that; otherwise gives false at once.
///
/// # Errors
/// When the store cannot be reached.
pub fn answer_as_other(words: &[String]) -> Outcome<bool> {
    let [first, address, bytes, bare] = words else { return Ok(false) };
    if first != CHILD {
        return Ok(false);
    }
    let bytes: usize = bytes.parse()?;
    let objects = Client::connect(address, &ConnectOptions::default())?.objects();
    let (source, mut warm) = (noise(bytes), mapped(Path::new(bare))?);
    warm.copy_from_slice(&source); // its pages are known from here on
    for line in std::io::stdin().lines() {
        match line?.as_str() {
            "set" => {
                let (set, done) = timed(|| set(&objects, &source));
                done?;
                let (copied, ()) = timed(|| warm.copy_from_slice(black_box(&source)));
                println!("{} {}", set.as_nanos(), copied.as_nanos());
            }
            "get" => {
                let (got, held) = timed(|| objects.get("ours", Which::Latest));
                let held = held?;
                let (read, found) = timed(|| sum_of(&held));
                let found = found?;
                let (bare_read, _) = timed(|| black_box(sum(black_box(&warm))));
                let (map, bare) = timed(|| mapped(Path::new(bare)));
                drop((held, bare?));
                let [got, map, read, bare_read] = [got, map, read, bare_read].map(|took| took.as_nanos());
                println!("{got} {map} {read} {bare_read} {found}");
            }
            other => return Err(format!("{other:?} is nothing that the other process does").into()),
        }
        std::io::stdout().flush()?;
    }
    Ok(true)
}

fn set(objects: &Objects, source: &[u8]) -> Outcome<u64> {
    let mut filling = objects.begin("theirs", Expected::Any, &layout(source.len())?)?;
    filling.write(TENSOR, 0, source)?;
    Ok(filling.commit()?)
}

/// The sum of all bytes where they lie.
fn sum_of(held: &HeldObject) -> Outcome<u64> {
    let bytes = held.tensor(TENSOR)?.bytes().ok_or("the version is not mapped here")?;
    #[allow(unsafe_code, reason = "a get without a copy is what is measured")]
    // SAFETY: the version is held as long as `bytes` is there, so its memory stays mapped and nobody writes it: versions never change.
    let bytes = unsafe { std::slice::from_raw_parts(bytes.address() as *const u8, bytes.length()) };
    Ok(black_box(sum(black_box(bytes))))
}

fn mapped(path: &Path) -> Outcome<MmapMut> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    #[allow(unsafe_code, reason = "the limit is a bare mapping")]
    // SAFETY: the file lies in a temporary folder of this run; its maker writes it before this process is started, and nobody cuts it.
    Ok(unsafe { MmapMut::map_mut(&file)? })
}
