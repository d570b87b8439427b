//! Values that are large: what a write in frames carries, and what a claim brings back.

use std::collections::VecDeque;
use std::time::Instant;

use arrow_array::cast::AsArray;
use forebay_benches::{Outcome, Random};
use forebay_client::{Changes, Client, Writing};
use forebay_store::{MicroBatch, NewRow, Wait};

/// Bytes of a value.
pub(crate) const VALUE_BYTES: usize = 1 << 20;
/// One value is moved for so many samples of the other rows.
pub(crate) const SAMPLES_PER_VALUE: usize = 16;
/// Values of a write, and of a claim.
const TOGETHER: usize = 16;
/// How many writes are under way at a time.
const AHEAD: usize = 4;
/// Values that are under way at a time: the fewest that show what they cost.
pub(crate) const AT_ONCE: usize = AHEAD * TOGETHER;

/// Writes so many values, then claims them: MB/s of the one and of the other. Before that as many as are under way at a time, for
/// the first of a connection find no memory that was used before.
pub(crate) fn values(client: &Client, count: usize) -> Outcome<[f64; 2]> {
    let megabytes = (count * VALUE_BYTES) as f64 / 1e6;
    let mut random = Random::new(11);
    let bytes: Vec<u8> = (0..VALUE_BYTES / 8).flat_map(|_| random.bits().to_le_bytes()).collect();
    write(client, &bytes, "warm", AT_ONCE)?;
    claim(client)?;

    let begun = Instant::now();
    write(client, &bytes, "s", count)?;
    let written = megabytes / begun.elapsed().as_secs_f64();

    let begun = Instant::now();
    let claimed = claim(client)?;
    let read = megabytes / begun.elapsed().as_secs_f64();
    if claimed != count * VALUE_BYTES {
        return Err(format!("{claimed} bytes came back of {}", count * VALUE_BYTES).into());
    }
    Ok([written, read])
}

fn write(client: &Client, bytes: &[u8], name: &str, count: usize) -> Outcome<()> {
    let mut writes = VecDeque::new();
    for write in 0..count / TOGETHER {
        let mut changes = Changes::new();
        for at in 0..TOGETHER {
            let new = NewRow::new(0, &format!("{name}{write}_0_{at}"))?;
            changes.insert("images", new, [("image", bytes.into())]);
        }
        writes.push_back(client.write_async(&changes)?);
        if writes.len() >= AHEAD {
            writes.pop_front().map(Writing::wait).transpose()?;
        }
    }
    writes.into_iter().try_for_each(|write| write.wait().map(drop))?;
    Ok(())
}

fn claim(client: &Client) -> Outcome<usize> {
    let (read, mut bytes) = (client.consumer("read")?, 0);
    while let Some(claim) = read.claim_with(MicroBatch::of(TOGETHER), Wait::No, &["image"])? {
        let batch = claim.columns(["image"])?;
        bytes += batch.column(0).as_binary_view().iter().flatten().map(<[u8]>::len).sum::<usize>();
        claim.finish(&Changes::new())?;
    }
    Ok(bytes)
}
