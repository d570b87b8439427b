//! A trajectory goes on with the next agent.

use forebay_rollout_adapter::columns::token_lists;
use forebay_store::{Cell, MicroBatch, StepPlan, Wait};

use crate::support::{Parity, fixture};

// FX-19, PL-12: the next agent's row has the same lineage, and its prompt holds what the one before wrote
#[test]
fn the_next_agents_row_continues_the_lineage() {
    let f = fixture(Parity::default());
    assert_eq!(f.begin(), 12);
    f.drain();
    let second = f.store.table("second").unwrap();
    for input in f.membership.inputs() {
        for sample in f.membership.samples(input, 1).unwrap() {
            let row = second.find(0, &sample).unwrap();
            let Cell::Bytes(prompt) = second.cell(row, "prompt").unwrap() else { panic!("no prompt") };
            let expected = [input.len() as u32, 7, sample.trajectory(), 99].map(u32::to_le_bytes).concat();
            assert_eq!(*prompt, *expected);
            assert!(
                matches!(second.cell(row, "next_agent_id").unwrap(), Cell::Null),
                "the trajectory ends here"
            );
        }
    }
    let first = f.store.table("first").unwrap();
    let row = first.find(0, &f.membership.samples(&f.membership.inputs()[0], 0).unwrap()[0]).unwrap();
    assert!(matches!(first.cell(row, "next_agent_id").unwrap(), Cell::Inline(1)));
}

// AW-12: every rollout of a group runs the same task
#[test]
fn all_members_of_a_group_have_the_same_prompt() {
    let f = fixture(Parity::default());
    f.begin();
    f.drain();
    let step = f.store.begin_step(StepPlan::new().groups(&f.trainers[0], f.keys(0))).unwrap();
    while let Some(claim) = step.next(&f.trainers[0], MicroBatch::of(4), Wait::No).unwrap() {
        let batch = claim.columns(["prompt"]).unwrap();
        let prompts = token_lists("first", &batch, "prompt").unwrap();
        assert!(prompts.iter().all(|prompt| *prompt == prompts[0]));
        claim.accumulated().unwrap();
    }
}

// A crash after the first rows of a step: the same step is begun again and finds them
#[test]
fn beginning_a_step_twice_inserts_its_rows_once() {
    let f = fixture(Parity::default());
    assert_eq!(f.begin(), 12);
    f.drain();
    assert_eq!(f.begin(), 12);
    assert_eq!(f.store.table("first").unwrap().counts().written, 12);
    assert!(!f.worker("late").run_once().unwrap(), "nothing is generated again");
}
