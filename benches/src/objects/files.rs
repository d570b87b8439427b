//! To the disk and back.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use forebay_store::Which;

use super::memory::size;
use super::{ObjectScale, Opened, flat, megabytes, noise, set, sum};
use crate::Outcome;
use crate::measure::{Pair, timed, typical};
use crate::row::{Goal, Row};

/// What a call of the disk tier moves.
const PIECE_BYTES: usize = 1 << 20;

pub(super) fn rows(scale: &ObjectScale, print: &mut dyn FnMut(Row)) -> Outcome<()> {
    let bytes = scale.spilled_bytes;
    let (layout, source) = (flat(bytes)?, noise(bytes));
    let opened = Opened::new(1)?;
    let objects = &opened.objects;
    let bare = opened.path().join("bare");
    let (mut spills, mut restores, mut exchanges) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..scale.repetitions {
        set(objects, "a", &layout, &source)?;
        let (value, done) = timed(|| objects.demote("a", Which::Latest));
        done?;
        let (limit, done) = timed(|| write(&bare, &source));
        done?;
        spills.push(Pair { value: megabytes(bytes, value), limit: megabytes(bytes, limit) });
        let (value, held) = timed(|| objects.get("a", Which::Latest));
        drop(held?);
        let (limit, done) = timed(|| read(&bare));
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
        format!("spill of {size}, checked and synced"),
        spills,
        "MB/s",
        "a bare write and sync of as many bytes",
    ));
    print(row(
        format!("restore of {size}, checked, warm"),
        restores,
        "MB/s",
        "a bare read of as many bytes, warm",
    ));
    print(row(
        format!("exchange of {size} on the disk against {size} in memory"),
        exchanges,
        "ms",
        "one after the other",
    ));
    Ok(())
}

fn write(path: &Path, bytes: &[u8]) -> Outcome<()> {
    let _ = std::fs::remove_file(path); // a new file each time, as a spill makes
    let mut file = File::create(path)?;
    bytes.chunks(PIECE_BYTES).try_for_each(|piece| file.write_all(piece))?;
    Ok(file.sync_data()?)
}

fn read(path: &Path) -> Outcome<u64> {
    let (mut file, mut piece, mut all) = (File::open(path)?, vec![0; PIECE_BYTES], 0_u64);
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(all),
            count => all = all.wrapping_add(count as u64),
        }
    }
}
