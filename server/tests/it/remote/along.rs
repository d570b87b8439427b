//! What comes along with a claim, so that reading it costs no round trip.

use forebay_client::{CellValue, Changes, Claim, ConsumerHandle, Table};
use forebay_store::{Consumer, NewRow, Wait};

use crate::client::samples_at;
use crate::conformance::*;

/// How often that method was called.
fn calls(world: &World, method: &str) -> f64 {
    let name = format!("forebay_calls_total{{method=\"{method}\",outcome=\"ok\"}}");
    samples_at(world.server.as_ref().unwrap().address().unwrap()).get(&name).copied().unwrap_or_default()
}

/// Every way on which a store is behind a server.
fn on_every_way_out(case: impl Fn(&World)) {
    on_every_way(|world| {
        if world.way != Way::Embedded {
            case(world);
        }
    });
}

/// Longer than what is sent by a neighbour.
fn prompt(at: usize) -> String {
    format!("prompt {at} ").repeat(500)
}

fn insert(table: &Table, at: usize) {
    table.insert(NewRow::new(0, &format!("q{at}_0_0")).unwrap(), [("prompt", prompt(at).into())]).unwrap();
}

fn claim(consumer: &ConsumerHandle) -> Claim {
    consumer.claim(up_to(1), Wait::No).unwrap().unwrap()
}

fn prompt_of(claim: &Claim) -> String {
    let cells = claim.cells(["prompt"]).unwrap().remove(0);
    let CellValue::Bytes(bytes) = &cells[0] else { panic!("{cells:?}") };
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn cells_that_were_read_of_a_claim_come_along_with_the_next() {
    on_every_way_out(|world| {
        let client = world.client();
        let table = solver(&client);
        let read = client.create_consumer("read", Consumer::task(["solver"]).ready(["prompt"])).unwrap();
        (0..4).for_each(|at| insert(&table, at));
        for at in 0..4 {
            let claim = claim(&read);
            assert_eq!(prompt_of(&claim), prompt(at));
            assert_eq!(calls(world, "Columns"), 1.0, "claim {at}: for the first, and then never");
            claim.finish(&Changes::new()).unwrap();
        }
    });
}

#[test]
fn a_cell_that_was_not_final_when_it_came_is_looked_at_again() {
    on_every_way_out(|world| {
        let client = world.client();
        let table = solver(&client);
        let read = client.create_consumer("read", Consumer::task(["solver"]).ready(["prompt"])).unwrap();
        (0..2).for_each(|at| insert(&table, at));
        for _ in 0..2 {
            let claim = claim(&read);
            assert_eq!(claim.cells(["response"]).unwrap(), [[CellValue::Empty]]);
            table.write(claim.rows()[0], [("response", vec![1_i32, 2].into())]).unwrap();
            let cells = claim.cells(["response"]).unwrap().remove(0);
            assert!(matches!(&cells[0], CellValue::Bytes(bytes) if bytes.len() == 8), "{cells:?}");
            claim.finish(&Changes::new()).unwrap();
        }
    });
}
