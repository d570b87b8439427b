//! A judge: claims rows with responses, reads them, and finishes with a reward and a verdict each.

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use forebay_client::{Changes, Claim};
use forebay_store::{Kind, MicroBatch, NewRow, Wait};

use super::process::{Worker, tell};
use super::promised::{REWARD, sample_of, whole};
use std::time::Duration;

pub(super) fn work(worker: &Worker) {
    let judge = worker.insist("consumer", |client| client.consumer("judge"));
    for turn in 0.. {
        let enough = worker.is_enough();
        let claim = worker
            .call("claim", |_| judge.claim(MicroBatch::up_to(3), Wait::For(Duration::from_millis(200))));
        let claim = match claim {
            Ok(claim) if enough => worker.hold(&claim),
            Ok(Some(claim)) if turn % 5 < 4 => claim,
            Ok(_) => continue, // nothing there, or dropped
            Err(error) => {
                assert_eq!(error.kind(), Kind::Retry, "{error}");
                continue;
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
