//! What clients do, each in a process of its own.

use std::collections::VecDeque;
use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use forebay_benches::{Outcome, Random};
use forebay_client::{Changes, Client, Writing};
use forebay_store::{MicroBatch, NewRow, Wait};

use crate::crowd::raise_open_files;
use crate::many::group;
use crate::{bare, bulk, connect, connect_to_send, connect_to_share};

/// How many samples are written at once.
pub(crate) const BATCH: usize = 64;
/// How many writes of a kind are under way at a time, where none is waited for before the next is made.
const AHEAD: usize = 4;
/// Tokens of a prompt and of a response; a response has as many log-probabilities.
const PROMPT: usize = 512;
const RESPONSE: usize = 1024;
/// Bytes of a sample's values.
pub(crate) const SAMPLE_BYTES: usize = 4 * (PROMPT + 2 * RESPONSE);

/// Does what the words say, and prints what was measured.
///
/// # Errors
/// When a call fails, or the words say nothing.
pub fn child(words: &[String]) -> Outcome<()> {
    let [what, address, count] = words else {
        return Err("a client wants to know what, where and how often".into());
    };
    let count: usize = count.parse()?;
    if ["hold", "take"].contains(&what.as_str()) {
        raise_open_files()?;
        return group(what == "take", address, count);
    }
    let numbers = match what.as_str() {
        "echo" => percentiles(bare::round_trips(Path::new(address), count)?).to_vec(),
        "trips" => trips(&connect(address)?, count)?.to_vec(),
        "send" => send(&connect(address)?, count).map(|()| Vec::new())?,
        "hear" => hear(&connect(address)?, count)?.to_vec(),
        "samples" => samples(&connect(address)?, count, 1)?.to_vec(),
        "samples-ahead" => samples(&connect(address)?, count, AHEAD)?.to_vec(),
        "samples-slabs" => samples(&connect_to_share(address)?, count, 1)?.to_vec(),
        "samples-slabs-ahead" => samples(&connect_to_share(address)?, count, AHEAD)?.to_vec(),
        "samples-sent" => samples(&connect_to_send(address)?, count, 1)?.to_vec(),
        "samples-sent-ahead" => samples(&connect_to_send(address)?, count, AHEAD)?.to_vec(),
        "large-values" => bulk::values(&connect(address)?, count)?.to_vec(),
        other => return Err(format!("{other:?} is nothing that a client does").into()),
    };
    println!("{}", numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "));
    Ok(())
}

/// The median and the 99th percentile.
fn percentiles(mut times: Vec<f64>) -> [f64; 2] {
    times.sort_by(f64::total_cmp);
    let at =
        |share: f64| times.get(((times.len() as f64 * share) as usize).min(times.len().saturating_sub(1)));
    [at(0.5), at(0.99)].map(|time| time.copied().unwrap_or(f64::NAN))
}

fn trips(client: &Client, rounds: usize) -> Outcome<[f64; 2]> {
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let begun = Instant::now();
        client.consumer("train")?;
        times.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    Ok(percentiles(times))
}

/// Nanoseconds of a clock that all processes share.
fn now() -> Outcome<i64> {
    Ok(i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos())?)
}

/// Writes rows, each when the one before was heard.
fn send(client: &Client, rounds: usize) -> Outcome<()> {
    let (table, answer) = (client.table("ping")?, client.consumer("answer")?);
    for round in 0..rounds {
        let row = table.insert(NewRow::new(0, &format!("p{round}_0_0"))?, [])?;
        table.write(row, [("sent", now()?.into())])?;
        let claim = answer.claim(MicroBatch::of(1), Wait::Forever)?.ok_or("nothing was heard")?;
        claim.finish(&Changes::new())?;
    }
    Ok(())
}

/// Waits for each row, and tells how old its last cell is.
fn hear(client: &Client, rounds: usize) -> Outcome<[f64; 2]> {
    let hear = client.consumer("hear")?;
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let claim =
            hear.claim_with(MicroBatch::of(1), Wait::Forever, &["sent"])?.ok_or("nothing was sent")?;
        let held = now()?;
        let sent = claim.columns(["sent"])?.column(0).as_primitive::<Int64Type>().value(0);
        times.push((held - sent) as f64 / 1e3);
        let mut changes = Changes::new();
        changes.write("ping", claim.rows()[0], [("heard", held.into())]);
        claim.finish(&changes)?;
    }
    Ok(percentiles(times))
}

/// Writes samples in batches, in two stages, with so many writes under way at a time, then claims them: MB/s, and the median and
/// 99th percentile of a claim in microseconds.
pub(crate) fn samples(client: &Client, count: usize, ahead: usize) -> Outcome<[f64; 3]> {
    let begun = Instant::now();
    write_samples(client, count, ahead)?;
    let written = (count * SAMPLE_BYTES) as f64 / 1e6 / begun.elapsed().as_secs_f64();
    let [p50, p99] = percentiles(claim_samples(client)?);
    Ok([written, p50, p99])
}

fn write_samples(client: &Client, count: usize, ahead: usize) -> Outcome<()> {
    let mut random = Random::new(7);
    let prompt: Vec<i32> = random.tokens(PROMPT).collect();
    let response: Vec<i32> = random.tokens(RESPONSE).collect();
    let logprobs: Vec<f32> = (0..RESPONSE).map(|_| -(random.unit() as f32)).collect();
    let (mut inserts, mut rewards) = (VecDeque::new(), VecDeque::new());
    for batch in 0..count / BATCH {
        let mut first = Changes::new();
        for at in 0..BATCH {
            let cells = [
                ("prompt", (&prompt[..]).into()),
                ("response", (&response[..]).into()),
                ("logprobs", (&logprobs[..]).into()),
            ];
            first.insert("solver", NewRow::new(0, &format!("q{batch}_0_{at}"))?, cells);
        }
        inserts.push_back(client.write_async(&first)?);
        if inserts.len() >= ahead {
            reward(client, &mut inserts, &mut rewards)?;
        }
        if rewards.len() >= ahead {
            rewards.pop_front().map(Writing::wait).transpose()?;
        }
    }
    while !inserts.is_empty() {
        reward(client, &mut inserts, &mut rewards)?;
    }
    rewards.into_iter().try_for_each(|write| write.wait().map(drop))?;
    Ok(())
}

/// Gives the rows of the oldest insert their rewards.
fn reward(client: &Client, inserts: &mut VecDeque<Writing>, rewards: &mut VecDeque<Writing>) -> Outcome<()> {
    let rows = inserts.pop_front().map(Writing::wait).transpose()?.unwrap_or_default();
    let mut second = Changes::new();
    rows.iter().for_each(|row| _ = second.write("solver", *row, [("reward", 1.0.into())]));
    rewards.push_back(client.write_async(&second)?);
    Ok(())
}

fn claim_samples(client: &Client) -> Outcome<Vec<f64>> {
    let (train, columns) = (client.consumer("train")?, ["prompt", "response", "logprobs", "reward"]);
    let mut times = Vec::new();
    loop {
        let begun = Instant::now();
        let Some(claim) = train.claim_with(MicroBatch::of(16), Wait::No, &columns)? else { break };
        let batch = claim.columns(columns)?;
        times.push(begun.elapsed().as_secs_f64() * 1e6);
        if batch.num_rows() != 16 {
            return Err(format!("a claim of {} rows", batch.num_rows()).into());
        }
        claim.finish(&Changes::new())?;
    }
    Ok(times)
}
