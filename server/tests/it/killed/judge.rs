//! A judge: takes rows with responses, reads them, and finishes with a reward and a verdict each. One claims them, the other has
//! subscribed.

use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use forebay_client::{Changes, Claim, ConsumerHandle, SubscribeOptions, Subscription};
use forebay_store::{Kind, MicroBatch, NewRow, Wait};

use super::process::{Worker, tell};
use super::promised::{REWARD, sample_of, whole};

/// How long a judge waits for rows.
const WAIT: Wait = Wait::For(Duration::from_millis(200));

pub(super) fn work(worker: &Worker) {
    let judge = worker.insist("consumer", |client| client.consumer("judge"));
    match worker.number.is_multiple_of(2) {
        true => loop {
            judge_all(worker, || judge.claim(MicroBatch::up_to(3), WAIT));
        },
        false => loop {
            let claims = worker.insist("subscribe", |_| subscribe(&judge));
            judge_all(worker, || claims.next(WAIT)); // until the server was away for too long
        },
    }
}

fn subscribe(judge: &ConsumerHandle) -> forebay_client::Result<Subscription> {
    judge.subscribe(MicroBatch::up_to(3), &SubscribeOptions::default().outstanding(3).columns(["response"]))
}

/// Judges what comes, until nobody answers.
fn judge_all(worker: &Worker, next: impl Fn() -> forebay_client::Result<Option<Claim>>) {
    for turn in 0.. {
        let enough = worker.is_enough();
        let claim = match worker.call("claim", |_| next()) {
            Ok(claim) if enough => worker.hold(&claim),
            Ok(Some(claim)) if turn % 5 < 4 => claim,
            Ok(_) => continue, // nothing there, or dropped
            Err(error) => {
                assert_eq!(error.kind(), Kind::Retry, "{error}");
                return;
            }
        };
        let ids: Vec<String> = claim.sample_ids().iter().map(ToString::to_string).collect();
        match worker.call("columns", |_| look(&claim)).and_then(|()| worker.call("finish", |_| finish(claim)))
        {
            Ok(()) => tell(&format!("finished {}", ids.join(" "))),
            // The server was begun again meanwhile, and the claim is nobody's.
            Err(error) => assert!([Kind::Retry, Kind::State].contains(&error.kind()), "{error}"),
        }
    }
}

/// Reads what is claimed: whole values, in the order of the rows.
fn look(claim: &Claim) -> forebay_client::Result<()> {
    let batch = claim.columns(["response"])?;
    let responses = batch.column(0).as_list_opt::<i32>().map(|list| list.iter().collect::<Vec<_>>());
    let responses = responses.unwrap_or_else(|| batch.column(0).as_list_view::<i32>().iter().collect());
    for (id, response) in claim.sample_ids().iter().zip(responses) {
        let response = response.expect("it is final");
        let numbers: Vec<i32> = response.as_primitive::<Int32Type>().values().to_vec();
        assert_eq!(numbers, whole(sample_of(&id.to_string())), "{id}");
    }
    Ok(())
}

/// What a judge makes of a claim. A second verdict on a row would be numbered as another trajectory, and be seen.
pub(super) fn finish(claim: Claim) -> forebay_client::Result<()> {
    let ids: Vec<String> = claim.sample_ids().iter().map(ToString::to_string).collect();
    let mut changes = Changes::new();
    for (row, id) in claim.rows().iter().zip(&ids) {
        changes.write(claim.table().to_owned(), *row, [("reward", REWARD.into())]);
        let input = id.split('_').next().unwrap_or_default();
        changes.insert("verdicts", NewRow::new(0, &format!("{input}_0_?"))?, [("said", (&**id).into())]);
    }
    claim.finish(&changes).map(drop)
}
