//! A trainer: steps over two policies, whose weights name the rows that they were trained on.

use std::time::Duration;

use forebay_client::{Client, ConsumerHandle, Error, Plan, Step};
use forebay_store::{Kind, MicroBatch, Wait};

use super::process::{Worker, tell};
use super::promised::TABLES;

/// How many rows of each table a step takes.
const ROWS: u64 = 3;

pub(super) fn work(worker: &Worker) {
    let consumers =
        TABLES.map(|table| worker.insist("consumer", |client| client.consumer(&format!("train-{table}"))));
    loop {
        match step(worker, &consumers) {
            Ok(()) => {}
            // The server was begun again, or the step of a life before is not yet given up.
            Err(error) => assert!([Kind::Retry, Kind::State].contains(&error.kind()), "{error}"),
        }
    }
}

fn step(worker: &Worker, consumers: &[ConsumerHandle; 2]) -> Result<(), Error> {
    let plan = consumers.iter().fold(Plan::new(), |plan, consumer| plan.rows(consumer.name(), ROWS));
    let mut step = worker.call("begin_step", |client| client.begin_step(&plan))?;
    let mut trained = Vec::new();
    for consumer in consumers {
        trained.push(take(worker, &step, consumer)?);
    }
    let number = worker.call("commit", |client| commit(client, &mut step, &trained, tell))?;
    tell(&format!("trained {number}"));
    Ok(())
}

/// Takes all that was planned for one consumer; holds it where that is enough.
fn take(worker: &Worker, step: &Step, consumer: &ConsumerHandle) -> Result<Vec<String>, Error> {
    let mut taken = Vec::new();
    loop {
        let wait = Wait::For(Duration::from_millis(300));
        match worker.call("next", |_| step.next(consumer, MicroBatch::up_to(2), wait))? {
            claim if worker.is_enough() => worker.hold(&claim),
            Some(claim) => {
                taken.extend(claim.sample_ids().iter().map(ToString::to_string));
                worker.call("accumulated", |_| claim.accumulated())?;
            }
            None if worker.call("is_complete", |_| step.is_complete(consumer))? => return Ok(taken),
            None => {}
        }
    }
}

/// Commits, and says before what is meant to be committed: a commit whose answer is lost is known by it.
pub(super) fn commit(
    client: &Client,
    step: &mut Step,
    trained: &[Vec<String>],
    say: impl FnOnce(&str),
) -> Result<u64, Error> {
    let mut updates = Vec::new();
    for (policy, rows) in TABLES.into_iter().zip(trained) {
        let version = client.policy(policy)?.version + 1;
        updates.push((policy, vec![client.put_object(policy, version, rows.join(" ").as_bytes())?]));
    }
    say(&format!("intends {} {}", step.number(), trained.concat().join(" ")));
    Ok(step.commit(updates)?.step)
}
