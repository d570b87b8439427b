//! Set and get in the host tier.

use std::hint::black_box;

use forebay_store::Which;

use super::{ObjectScale, Opened, flat, megabytes, noise, set, sum};
use crate::Outcome;
use crate::limit::mapped;
use crate::measure::{Pair, timed, typical};
use crate::row::{Goal, Row};

pub(super) fn rows(scale: &ObjectScale, print: &mut dyn FnMut(Row)) -> Outcome<()> {
    let bytes = scale.state_bytes;
    let (layout, source) = (flat(bytes)?, noise(bytes));
    let opened = Opened::new(1)?;
    let objects = &opened.objects;
    let bare_folder = tempfile::tempdir_in("/dev/shm")?;
    let mut bare = mapped(&bare_folder.path().join("bare"), bytes)?;
    bare.copy_from_slice(&source);
    for _ in 0..2 {
        set(objects, "solver", &layout, &source)?; // the extent of one version, and that of the next
    }
    let (mut sets, mut gets, mut reads) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..scale.repetitions {
        let (value, _) = timed(|| set(objects, "solver", &layout, &source));
        let (limit, ()) = timed(|| bare.copy_from_slice(&source));
        sets.push(Pair { value: megabytes(bytes, value), limit: megabytes(bytes, limit) });

        let (value, held) = timed(|| objects.get("solver", Which::Latest));
        let file = std::fs::File::open(bare_folder.path().join("bare"))?;
        #[allow(unsafe_code, reason = "the limit is a bare mapping")]
        // SAFETY: the file was made by this run, and nobody writes or cuts it while it is mapped.
        let (limit, _map) = timed(|| unsafe { memmap2::Mmap::map(&file) });
        gets.push(Pair { value: value.as_secs_f64() * 1e3, limit: limit.as_secs_f64() * 1e3 });
        drop(held?);

        let (value, found) = timed(|| -> Outcome<u64> {
            let held = objects.get("solver", Which::Latest)?;
            Ok(sum(black_box(held.tensor("flat")?.as_bytes().ok_or("not in memory")?)))
        });
        let (limit, meant) = timed(|| sum(black_box(&bare)));
        if found? != meant {
            return Err("what was got is not what was set".into());
        }
        reads.push(Pair { value: megabytes(bytes, value), limit: megabytes(bytes, limit) });
    }
    let size = size(bytes);
    let unit = "MB/s";
    let row = |measure: String, pairs: Vec<Pair>, unit, kind, goal| {
        let pair = typical(pairs);
        Row { digest: sum(&source) | 1, ..Row::new(measure, (pair.value, unit), (pair.limit, kind), goal) }
    };
    let kind = "a bare memcpy into warm shared memory";
    print(row(format!("set of {size}, with checksums"), sets, unit, kind, Goal::RatioAtLeast(0.85)));
    let kind = "mapping a warm file of that size";
    print(row(format!("get of {size}"), gets, "ms", kind, Goal::AtMost(1.0)));
    let kind = "reading warm shared memory";
    print(row(format!("get of {size} and read of every byte"), reads, unit, kind, Goal::RatioAtLeast(0.7)));
    Ok(())
}

/// A size as people say it.
pub(super) fn size(bytes: usize) -> String {
    if bytes >= 1 << 30 { format!("{} GiB", bytes >> 30) } else { format!("{} MiB", bytes >> 20) }
}
