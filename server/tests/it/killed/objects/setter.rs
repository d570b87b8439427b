//! Sets versions, and publishes some, until it is killed.

use forebay_client::{Error, ObjectFilling};
use forebay_store::{Expected, Kind, Randomness, SystemRandomness};

use super::content::{KEY, ONCE, bytes, layout, metadata};
use crate::killed::process::{Worker, tell};

/// How much is written at a time.
const PIECE: usize = 300_000;

pub(in crate::killed) fn set(worker: &Worker) {
    loop {
        let seed = SystemRandomness.next_u64();
        let publishes = seed.is_multiple_of(4);
        tell(&format!("sets {seed}"));
        match set_one(worker, seed, publishes) {
            Ok(_) if publishes => tell(&format!("published {seed}")),
            Ok(version) => tell(&format!("set {version} {seed}")),
            // The server was begun again, or is away: what was filled is gone, or it is not known whether it was committed.
            Err(error) => assert!(
                [Kind::Retry, Kind::State, Kind::Capacity].contains(&error.kind()),
                "{error} ({})",
                error.cause()
            ),
        }
    }
}

fn set_one(worker: &Worker, seed: u64, publishes: bool) -> Result<u64, Error> {
    let objects = worker.client.objects();
    let mut filling = match publishes {
        true => objects.begin_published(ONCE, &layout())?,
        false => objects.begin(KEY, Expected::Any, &layout())?,
    };
    let (name, value) = metadata(seed);
    filling.metadata(name, &value);
    fill(&filling, seed)?;
    filling.commit()
}

fn fill(filling: &ObjectFilling, seed: u64) -> Result<(), Error> {
    let mut told = false;
    for tensor in layout().tensors() {
        let all = bytes(&tensor.name, seed, tensor.bytes as usize);
        for (piece, part) in all.chunks(PIECE).enumerate() {
            filling.write(&tensor.name, (piece * PIECE) as u64, part)?;
            if !std::mem::replace(&mut told, true) {
                tell("half");
            }
        }
    }
    Ok(())
}
