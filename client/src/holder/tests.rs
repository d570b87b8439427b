use std::sync::mpsc;

use forebay_store::{Consumer, ConsumerHandle as Handle, DataType, MicroBatch, Options, Schema, Value};

use super::*;

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(30);

/// A holder over a store with some rows, and the task and the trainer that take them.
fn world(rows: usize) -> (tempfile::TempDir, Holder, Handle, Handle) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("store"), Options::default()).unwrap();
    let schema = Schema::new().data("prompt", DataType::Utf8).data("reward", DataType::Float32);
    let solver = store.create_table("solver", schema).unwrap();
    for at in 0..rows {
        solver.insert(0, &format!("q{at}_0_0"), [("prompt", "why?".into())]).unwrap();
    }
    let judge = store.create_consumer("judge", Consumer::task(["solver"]).ready(["prompt"])).unwrap();
    let train = store.create_consumer("train", Consumer::trainer(["solver"]).ready(["prompt"])).unwrap();
    (dir, Holder::new(store, "me"), judge, train)
}

fn ask(consumer: &'static str, role: Role) -> Ask<'static> {
    Ask { consumer, rule: MicroBatch::up_to(1), role, owner: None, columns: &[] }
}

/// Ends a claim while somebody is reading it, who reads on afterwards; what the end came to.
fn end_under_a_reader(holder: &Holder, epoch: Epoch, end: impl FnOnce() -> Result<()> + Send) -> Result<()> {
    let ((reads, begun), (go_on, held_up)) = (mpsc::channel(), mpsc::channel::<()>());
    let (over, ended) = mpsc::channel();
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            holder.look(epoch, |claim| {
                reads.send(()).unwrap();
                let _ = held_up.recv(); // until it may go on
                claim.columns(["sample_id", "prompt"])
            })
        });
        begun.recv_timeout(LONG).unwrap();
        scope.spawn(move || over.send(end()));
        let ended = ended.recv_timeout(LONG);
        drop(go_on);
        assert_eq!(reader.join().unwrap().unwrap().unwrap().num_rows(), 1, "who reads it reads on");
        ended.expect("it waits for who reads the claim")
    })
}

fn claim_at_once(holder: &Holder) -> Option<Granted> {
    holder.claim(&ask("judge", Role::Task), Wait::No).unwrap()
}

#[test]
fn who_reads_a_claim_holds_up_nobody_who_ends_it() {
    let (_dir, holder, ..) = world(1);
    let first = claim_at_once(&holder).unwrap();
    end_under_a_reader(&holder, first.epoch, || {
        holder.release(first.epoch)?;
        assert!(claim_at_once(&holder).is_some(), "the row is there again though somebody reads it");
        Ok(())
    })
    .unwrap();
    assert!(claim_at_once(&holder).is_none(), "who was reading has given nothing back that is another's");
    assert_eq!(holder.release(first.epoch).unwrap_err().cause(), "ClaimFenced");
}

#[test]
fn a_claim_that_is_read_is_finished_accumulated_and_given_back_with_all_else() {
    let (_dir, holder, ..) = world(2);
    let task = claim_at_once(&holder).unwrap();
    let mut changes = Changes::new();
    changes.write("solver", task.rows[0], [("reward", 1.0.into())]);
    end_under_a_reader(&holder, task.epoch, || holder.finish(task.epoch, &changes).map(drop)).unwrap();
    let last = claim_at_once(&holder).unwrap();
    let back = || {
        holder.give_back();
        assert!(claim_at_once(&holder).is_some(), "it went back though somebody reads it");
        Ok(())
    };
    end_under_a_reader(&holder, last.epoch, back).unwrap();
    assert!(claim_at_once(&holder).is_none());
    let step = holder.begin_step(&Plan::new().rows("train", 1)).unwrap();
    let part = holder.claim(&ask("train", Role::Step(step)), Wait::No).unwrap().unwrap();
    end_under_a_reader(&holder, part.epoch, || holder.accumulated(part.epoch)).unwrap();
    let commit = Commit { updates: vec![("solver".to_owned(), Vec::new())], ..Commit::default() };
    assert_eq!(holder.commit_step(step, &commit).unwrap().rows, 1, "it was accumulated");
}

#[test]
fn rows_go_back_at_once_when_an_end_fails_though_somebody_reads_them() {
    let (_dir, holder, ..) = world(1);
    let wrong: [(&str, Value<'static>); 2] = [("nothing", 1.0.into()), ("prompt", "another".into())];
    for (column, value) in wrong {
        let held = claim_at_once(&holder).unwrap();
        let mut changes = Changes::new();
        changes.write("solver", held.rows[0], [(column, value)]);
        let failed = end_under_a_reader(&holder, held.epoch, || {
            let failed = holder.finish(held.epoch, &changes).map(drop);
            let again = claim_at_once(&holder).expect("the row is there again");
            holder.release(again.epoch).unwrap();
            failed
        });
        assert!(failed.is_err(), "{column}");
    }
    assert!(claim_at_once(&holder).is_some());
}

#[test]
fn who_is_closed_keeps_no_claim_that_comes_late() {
    let (_dir, holder, judge, _) = world(1);
    let late = judge.claim(MicroBatch::up_to(1), "me", Wait::No).unwrap().unwrap();
    holder.close();
    let error = holder.keep_unless_closed(late, Role::Task).unwrap_err();
    assert_eq!((error.kind(), holder.claims()), (Kind::Closed, 0));
    assert!(judge.claim(MicroBatch::up_to(1), "other", Wait::No).unwrap().is_some(), "its row went back");
}

#[test]
fn claims_that_have_ended_by_themselves_are_forgotten() {
    let (_dir, holder, judge, _) = world(1);
    let step = holder.begin_step(&Plan::new().rows("train", 1)).unwrap();
    holder.claim(&ask("train", Role::Step(step)), Wait::No).unwrap().unwrap();
    holder.abandon_step(step).unwrap();
    lock(&holder.inner).sweep_at = 1;
    let next = judge.claim(MicroBatch::up_to(1), "me", Wait::No).unwrap().unwrap();
    let kept = holder.keep_unless_closed(next, Role::Task).unwrap();
    assert!(holder.claims() == 1 && holder.look(kept.epoch, Claim::is_live).unwrap());
}

#[test]
fn who_joins_again_and_again_has_so_many_places_of_a_step_and_all_of_the_next() {
    let (_dir, holder, ..) = world(1);
    let plan = Plan::new().rows("train", 1);
    let join = |step| holder.join_step(step, "train", Gang::new("ranks", 0, 2));
    for _ in 0..2 {
        let step = holder.begin_step(&plan).unwrap();
        (0..MEMBERS_MAX).for_each(|_| _ = join(step).unwrap());
        let error = join(step).unwrap_err();
        assert_eq!((error.kind(), error.cause()), (Kind::Capacity, "Members"), "{error}");
        holder.abandon_step(step).unwrap();
    }
}
