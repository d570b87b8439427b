//! Copies versions and looks at every byte, until it is killed.

use forebay_client::{Error, HeldObject};
use forebay_store::{Kind, Options, Store, Wait, Which};

use super::content::{KEY, ONCE, check_tensor, layout, seed_of};
use crate::killed::process::{Worker, host_memory, tell};

/// The number of the reader that asks no server.
pub(super) const BESIDE: u64 = 2;
/// How much is copied at a time.
const PIECE: usize = 300_000;

pub(in crate::killed) fn read(worker: &Worker) {
    if worker.number == BESIDE {
        return read_beside(worker);
    }
    for round in 0_u64.. {
        let done = if round.is_multiple_of(4) { receive(worker) } else { get(worker) };
        if let Err(error) = done {
            check_is_outage(error.kind(), &error.to_string());
        }
    }
}

/// There is nothing yet, or the server was begun again.
fn check_is_outage(kind: Kind, error: &str) {
    assert!([Kind::Retry, Kind::State, Kind::Input, Kind::Capacity].contains(&kind), "{error}");
    std::thread::yield_now();
}

fn get(worker: &Worker) -> Result<(), Error> {
    let held = worker.client.objects().get(KEY, Which::Latest)?;
    let seed = copy(&held)?;
    tell(&format!("read {} {seed}", held.version()));
    Ok(())
}

fn receive(worker: &Worker) -> Result<(), Error> {
    let received = worker.client.objects().receive(ONCE, Wait::No)?;
    let seed = copy(&received)?;
    received.done()?;
    tell(&format!("received {seed}"));
    Ok(())
}

/// Every byte, piece by piece, in the reader's own memory; then compared.
fn copy(held: &HeldObject) -> Result<u64, Error> {
    let seed = seed_of(held.manifest()).unwrap();
    let mut told = false;
    for tensor in layout().tensors() {
        let class = &held.manifest().layout.payloads()[tensor.payload].class;
        let mut all = vec![0; tensor.bytes as usize];
        for (piece, part) in all.chunks_mut(PIECE).enumerate() {
            held.read_class(class, tensor.offset + (piece * PIECE) as u64, part)?;
            if !std::mem::replace(&mut told, true) {
                tell("copies");
            }
        }
        check_tensor(&tensor.name, seed, &all);
    }
    Ok(seed)
}

/// The same from the store's memory and files, whether there is a server or not.
fn read_beside(worker: &Worker) {
    let options = || Options::default().read_only(true).objects(host_memory(&worker.dir));
    loop {
        let done = Store::open(worker.dir.join("store"), options()).and_then(|store| {
            let copied = store.object_reader()?.newest(KEY)?;
            tell("copies");
            let seed = seed_of(copied.manifest()).unwrap();
            for tensor in layout().tensors() {
                check_tensor(&tensor.name, seed, &copied.tensor(&tensor.name)?);
            }
            tell(&format!("read {} {seed}", copied.version()));
            Ok(())
        });
        if let Err(error) = done {
            check_is_outage(error.kind(), &error.to_string());
        }
    }
}
