//! To the disk and back.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use forebay_store::{ObjectOptions, Which};
use rustix::fs::OFlags;

use super::memory::size;
use super::{ObjectScale, Opened, flat, megabytes, noise, set, sum};
use crate::Outcome;
use crate::measure::{Pair, timed, typical};
use crate::row::{Goal, Row};

/// What a call of the disk tier moves.
const PIECE_BYTES: usize = 1 << 20;
/// What memory, offsets and lengths have to be multiples of, past the cache.
const ALIGN_BYTES: usize = 4096;

/// Where bytes of files go through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Nowhere: the default.
    PastCache,
    /// The memory that the system keeps of files.
    ThroughCache,
}

impl Way {
    fn words(self) -> &'static str {
        match self {
            Way::PastCache => "past the cache",
            Way::ThroughCache => "through the cache, warm",
        }
    }

    /// Opens a file so; through the cache where the file system has no other way.
    fn open(self, options: &mut OpenOptions, path: &Path) -> std::io::Result<File> {
        if self == Way::PastCache {
            let direct = options.clone().custom_flags(OFlags::DIRECT.bits().cast_signed()).open(path);
            if !direct.as_ref().is_err_and(|error| error.kind() == ErrorKind::InvalidInput) {
                return direct;
            }
        }
        options.open(path)
    }
}

pub(super) fn rows(scale: &ObjectScale, way: Way, print: &mut dyn FnMut(Row)) -> Outcome<()> {
    let bytes = scale.spilled_bytes;
    let (layout, source) = (flat(bytes)?, noise(bytes));
    let opened = Opened::with(ObjectOptions::default().versions_kept(1).direct_io(way == Way::PastCache))?;
    let objects = &opened.objects;
    let bare = opened.path().join("bare");
    let (mut spills, mut restores, mut exchanges) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..scale.repetitions {
        set(objects, "a", &layout, &source)?;
        let (value, done) = timed(|| objects.demote("a", Which::Latest));
        done?;
        let (limit, done) = timed(|| write(&bare, &source, way));
        done?;
        spills.push(Pair { value: megabytes(bytes, value), limit: megabytes(bytes, limit) });
        let (value, held) = timed(|| objects.get("a", Which::Latest));
        drop(held?);
        let (limit, done) = timed(|| read(&bare, way));
        restores.push(Pair { value: megabytes(bytes, value), limit: megabytes(bytes, limit) });
        if done? == 0 {
            return Err("nothing was read".into());
        }

        // `b` waits on the disk, `a` lies in memory alone.
        set(objects, "b", &layout, &source)?;
        objects.demote("b", Which::Latest)?;
        set(objects, "a", &layout, &source)?;
        let (value, done) = timed(|| objects.exchange(("a", Which::Latest), ("b", Which::Latest)));
        done?;
        objects.demote("b", Which::Latest)?;
        set(objects, "a", &layout, &source)?;
        let (limit, done) = timed(|| -> Outcome<()> {
            objects.demote("a", Which::Latest)?;
            objects.get("b", Which::Latest)?;
            Ok(())
        });
        done?;
        exchanges.push(Pair { value: value.as_secs_f64() * 1e3, limit: limit.as_secs_f64() * 1e3 });
    }
    let row = |measure: String, pairs: Vec<Pair>, unit, kind| {
        let pair = typical(pairs);
        Row {
            digest: sum(&source) | 1,
            ..Row::new(measure, (pair.value, unit), (pair.limit, kind), Goal::None)
        }
    };
    let size = size(bytes);
    print(row(
        format!("spill of {size}, checked and synced, {}", way.words()),
        spills,
        "MB/s",
        "a bare write and sync of as many bytes, the same way",
    ));
    print(row(
        format!("restore of {size}, checked, {}", way.words()),
        restores,
        "MB/s",
        "a bare read of as many bytes, the same way",
    ));
    print(row(
        format!("exchange of {size} on the disk against {size} in memory, {}", way.words()),
        exchanges,
        "ms",
        "one after the other",
    ));
    Ok(())
}

/// A piece of memory that begins where any way wants it to.
struct Piece {
    memory: Vec<u8>,
    start: usize,
}

impl Piece {
    fn new() -> Self {
        let memory = vec![0; PIECE_BYTES + ALIGN_BYTES];
        let start = memory.as_ptr().align_offset(ALIGN_BYTES).min(ALIGN_BYTES);
        Piece { memory, start }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..PIECE_BYTES]
    }
}

/// Whole blocks, the last one filled up.
fn write(path: &Path, bytes: &[u8], way: Way) -> Outcome<()> {
    let _ = std::fs::remove_file(path); // a new file each time, as a spill makes
    let (mut file, mut piece) =
        (way.open(OpenOptions::new().write(true).create(true).truncate(true), path)?, Piece::new());
    for part in bytes.chunks(PIECE_BYTES) {
        let whole = part.len().next_multiple_of(ALIGN_BYTES);
        piece.bytes()[..part.len()].copy_from_slice(part);
        file.write_all(&piece.bytes()[..whole])?;
    }
    Ok(file.sync_data()?)
}

fn read(path: &Path, way: Way) -> Outcome<u64> {
    let (mut file, mut piece, mut all) =
        (way.open(OpenOptions::new().read(true), path)?, Piece::new(), 0_u64);
    loop {
        match file.read(piece.bytes())? {
            0 => return Ok(all),
            count => all = all.wrapping_add(count as u64),
        }
    }
}
