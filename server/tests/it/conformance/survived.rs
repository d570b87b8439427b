//! What is acknowledged survives what its level says: the process that has the store is killed in the middle of work, and
//! begun again.
//!
//! A case has two halves. Embedded, the first is done by the process that is killed; on all other ways by this one, whose server is
//! killed under it.

use std::net::TcpListener;

use forebay_client::{CellValue, Changes, Plan, Step};
use forebay_store::{Durability, Kind};

use super::keeper::{Keeper, Part, options};
use super::*;

/// A text too long for a record to carry, for a row of that number.
fn long(number: u64) -> String {
    format!("prompt {number} ").repeat(2_000)
}

fn insert(client: &Client, id: &str, number: u64, level: Durability) -> Row {
    let mut changes = Changes::new();
    let text = long(number);
    changes.durability(level);
    changes.insert("solver", NewRow::new(number, id).unwrap(), [("prompt", (&*text).into())]);
    client.write(&changes).unwrap()[0]
}

/// What is held when the store is killed.
pub(super) struct Held {
    pub(super) task: Claim,
    pub(super) micro_batch: Claim,
    pub(super) step: Step,
}

/// Rows at each level, a committed step, and work that is under way.
pub(super) fn first_half(client: &Client) -> Held {
    let (table, judge, train) = (solver(client), judge(client), trainer(client));
    row(&table, 0, "first_0_0", Some(1.0));
    let mut step = client.begin_step(&Plan::new().rows("train", 1)).unwrap();
    step.next(&train, up_to(1), LONG).unwrap().unwrap().accumulated().unwrap();
    step.commit([("solver", vec![])]).unwrap();
    insert(client, "memory_0_0", 3, Durability::Memory);
    insert(client, "logged_0_0", 4, Durability::Logged);
    insert(client, "synced_0_0", 5, Durability::Synced);
    let grows = table.insert(NewRow::new(1, "grows_0_0").unwrap(), []).unwrap();
    table.append(grows, "response", vec![7_i32, 8].into()).unwrap();
    for id in ["a_0_0", "b_0_0"] {
        row(&table, 1, id, Some(0.5));
    }
    let step = client.begin_step(&Plan::new().rows("train", 2)).unwrap();
    step.next(&train, up_to(1), LONG).unwrap().unwrap().accumulated().unwrap();
    let micro_batch = step.next(&train, up_to(1), LONG).unwrap().unwrap();
    let task = judge.claim(up_to(1), LONG).unwrap().unwrap();
    insert(client, "last_0_0", 6, Durability::Memory); // nothing comes after it
    Held { task, micro_batch, step }
}

/// Everything that was acknowledged is there, nothing that was not is in a step, and what was held is for others, once.
fn second_half(client: &Client, way: Way) {
    let table = client.table("solver").unwrap();
    let find = |version: u64, id: &str| table.get(version, &id.parse().unwrap()).unwrap();
    for (version, id) in [(3, "memory_0_0"), (4, "logged_0_0"), (5, "synced_0_0")] {
        // That of `memory` lies before acknowledged ones in the log, which has an order.
        let row = find(version, id).unwrap_or_else(|| panic!("{way:?}: {id} was acknowledged")).row;
        assert_eq!(table.cell(row, "prompt").unwrap(), CellValue::Bytes(long(version).into()), "{id}");
    }
    if let Some(last) = find(6, "last_0_0") {
        let whole = CellValue::Bytes(long(6).into());
        assert_eq!(table.cell(last.row, "prompt").unwrap(), whole, "whole or absent");
    }
    let grows = find(1, "grows_0_0").unwrap().row;
    assert!(matches!(table.cell(grows, "response").unwrap(), CellValue::Partial(bytes) if bytes.len() == 8));
    table.append(grows, "response", vec![9_i32].into()).unwrap();
    assert_eq!(client.policy("solver").unwrap().version, 1);
    assert_eq!(client.replay(1).unwrap()[0].samples[0].to_string(), "first_0_0");
    assert_eq!(table.counts().unwrap().consumed, 1);
    let (judge, train) = (client.consumer("judge").unwrap(), client.consumer("train").unwrap());
    let mut judged = Vec::new();
    while let Some(claim) = judge.claim(up_to(1), LONG).unwrap() {
        judged.extend(ids(&claim));
        claim.finish(&Changes::new()).unwrap();
        if judged.len() == 2 {
            break;
        }
    }
    judged.sort();
    assert_eq!(judged, ["a_0_0", "b_0_0"], "each once; that of the version before is over");
    let mut step = client.begin_step(&Plan::new().rows("train", 2)).unwrap();
    assert_eq!(step.number(), 2, "it is begun again under its number");
    while let Some(claim) = step.next(&train, up_to(1), LONG).unwrap() {
        assert_eq!(table.show(claim.rows()[0]).unwrap().step, None);
        claim.accumulated().unwrap();
    }
    assert_eq!(
        step.commit([("solver", vec![])]).unwrap().rows,
        2,
        "the one that was accumulated came back, too"
    );
}

/// Who held something when the store was killed ends nothing any more.
fn is_fenced(Held { task, micro_batch, step }: Held) {
    let mut step = step;
    let verdict = verdicts(&task, 1.0);
    let refused = [
        ("finish", task.finish(&verdict).map(drop)),
        ("accumulated", micro_batch.accumulated()),
        ("commit", step.commit([("solver", vec![])]).map(drop)),
    ];
    for (what, refused) in refused {
        let error = refused.expect_err(what);
        assert_eq!(error.kind(), Kind::State, "{what}: {error}");
    }
}

fn client_of(way: Way, dir: &std::path::Path, address: &str) -> Client {
    let address = match way {
        Way::Tcp | Way::Packed => format!("grpc://{address}"),
        _ => format!("unix://{}", dir.join("grpc.sock").display()),
    };
    Client::connect(&address, &way.options()).unwrap()
}

// DESIGN 3.1, 3.4, 3.5
#[test]
fn what_was_acknowledged_survives_a_kill_and_what_was_held_is_for_others() {
    for way in Way::ALL {
        eprintln!("on the way {way:?}");
        let dir = tempfile::tempdir().unwrap();
        // An address of this process alone, so that nobody takes the port while the server is away.
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let free = TcpListener::bind((format!("127.78.{high}.{low}"), 0)).unwrap();
        let address = free.local_addr().unwrap().to_string();
        drop(free);
        if way == Way::Embedded {
            Keeper::begin(Part::Works, dir.path(), &address).kill();
            let store = Store::open(dir.path().join("store"), options(dir.path())).unwrap();
            second_half(&Client::embedded(store), way);
            continue;
        }
        let keeper = Keeper::begin(Part::Serves, dir.path(), &address);
        let client = client_of(way, dir.path(), &address);
        let held = first_half(&client);
        keeper.kill();
        let _keeper = Keeper::begin(Part::Serves, dir.path(), &address);
        is_fenced(held); // by the client that lived on
        second_half(&client_of(way, dir.path(), &address), way);
        assert_eq!(client.policy("solver").unwrap().version, 2, "{way:?}: the client that lived on goes on");
    }
}
