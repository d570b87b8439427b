//! The process dies at every operation of the disk, one run for each.
//!
//! A fixed workload runs once undisturbed; after every call its content is kept by commit number. Then it runs once
//! for each operation, which fails. What the next process finds must be the content at some commit that is not before
//! the last acknowledged one; and running the workload again from there must end where the undisturbed run ended.

use std::collections::BTreeMap;

use forebay_store::*;

use crate::support::*;

type Content = BTreeMap<String, Vec<String>>;
type Told<'a> = &'a mut dyn FnMut(&Store);

const STEPS: u64 = 3;

/// Values that a step's rows get; long ones lie in extents.
fn tokens(seed: u64) -> Vec<i32> {
    (0..10 + seed as i32 % 40).map(|i| i * 3 + seed as i32).collect()
}

/// The workload. Every part tolerates that it was done before, in whole or in part. `told` hears of every call that
/// was acknowledged, but for leases, which end with the process.
fn work(store: &Store, told: Told<'_>) -> Result<()> {
    declare(store, told)?;
    for step in 0..STEPS {
        if store.policy("solver")?.version > step {
            continue; // this step was committed before
        }
        roll_out(store, step, told)?;
        score(store, step, told)?;
        restart_and_leave_out(store, step, told)?;
        store.checkpoint()?;
        train(store, step, told)?;
        store.checkpoint()?;
    }
    Ok(())
}

fn exists<T>(result: Result<T>) -> Result<()> {
    match result {
        Err(error) if !matches!(error.cause(), Cause::Exists { .. }) => Err(error),
        _ => Ok(()),
    }
}

fn declare(store: &Store, told: Told<'_>) -> Result<()> {
    let judge = Schema::new().data("prompt", DataType::Utf8).data("verdict", DataType::Float32);
    let grouped = Consumer::trainer(["solver"]).ready(["response", "reward"]).group(GroupBy::Input, 3);
    exists(store.create_table("solver", solver_schema()))?;
    told(store);
    exists(store.create_table("judge", judge))?;
    told(store);
    exists(store.create_consumer("train", grouped))?;
    told(store);
    exists(store.create_consumer("train-judge", Consumer::trainer(["judge"]).ready(["verdict"])))?;
    told(store);
    exists(store.create_consumer("score", Consumer::task(["solver"]).ready(["response"])))?;
    told(store);
    Ok(())
}

fn id(step: u64, input: u64, trajectory: u64) -> String {
    format!("input-{step}-{input}_0_{trajectory}")
}

fn token(step: u64, input: u64, trajectory: u64, attempt: u64) -> u128 {
    u128::from(step * 1000 + input * 100 + trajectory * 10 + attempt + 1)
}

/// Two inputs of three trajectories: one response is written whole, one grows in two parts, one fails.
fn roll_out(store: &Store, step: u64, told: Told<'_>) -> Result<()> {
    let table = store.table("solver")?;
    for (input, trajectory) in (0..2).flat_map(|input| (0..3).map(move |t| (input, t))) {
        let (id, seed) = (id(step, input, trajectory), step * 7 + input * 3 + trajectory);
        let row = match table.find(step, &id.parse()?) {
            Some(row) => row,
            None => {
                let row = NewRow::new(step, &id)?.token(token(step, input, trajectory, 0));
                let prompt = format!("a prompt that {id} shares with nobody");
                let row = table.insert_row(row, [("prompt", prompt.into())])?;
                told(store);
                row
            }
        };
        let tokens = tokens(seed);
        match trajectory {
            0 => table.write(row, [("response", (&tokens).into()), ("logprobs", Value::Null)])?,
            1 => grow(store, &table, row, &tokens, told)?,
            _ => {}
        }
        told(store);
    }
    Ok(())
}

/// Goes on where the fragments that are there end.
fn grow(store: &Store, table: &Table, row: Row, tokens: &[i32], told: Told<'_>) -> Result<()> {
    let there = match table.cell(row, "response")? {
        Cell::Empty => 0,
        Cell::Partial(bytes) => bytes.len() / 4,
        Cell::Bytes(_) => return table.write(row, [("response", tokens.into())]), // the same bytes
        other => panic!("{other:?}"),
    };
    let cut = tokens.len() / 3;
    for (from, part) in [(0, &tokens[..cut]), (cut, &tokens[cut..])] {
        if there <= from {
            table.append(row, "response", part.into())?;
            told(store);
        }
    }
    table.finalize(row, "response")
}

/// The task writes rewards and hands on to the next agent, in one record a claim; the first claim is given back.
fn score(store: &Store, step: u64, told: Told<'_>) -> Result<()> {
    let (solver, judge, task) = (store.table("solver")?, store.table("judge")?, store.consumer("score")?);
    if let Some(claim) = task.claim(MicroBatch::up_to(3), "scorer", Wait::No)? {
        claim.release()?;
    }
    while let Some(claim) = task.claim(MicroBatch::up_to(3), "scorer", Wait::No)? {
        let rows: Vec<(Row, SampleId)> =
            claim.rows().iter().copied().zip(claim.sample_ids().to_vec()).collect();
        claim.finish(|batch| {
            for (row, sample) in rows.iter().filter(|(_, sample)| sample.trajectory() < 2) {
                let reward = f64::from(sample.trajectory()) + 0.5;
                batch.write(&solver, *row, [("reward", reward.into())])?;
                let next = NewRow::of(step, sample.next_turn()).parent(&format!("solver/{sample}"));
                let next = next.token(u128::from(sample.trajectory()) + 7);
                batch.insert(
                    &judge,
                    next,
                    [("prompt", format!("is {sample} right, do you think?").into())],
                )?;
            }
            Ok(())
        })?;
        told(store);
    }
    Ok(())
}

/// The third trajectory of input 0 is restarted and then done; that of input 1 is left out. The judge is asked.
fn restart_and_leave_out(store: &Store, step: u64, told: Told<'_>) -> Result<()> {
    let (solver, judge) = (store.table("solver")?, store.table("judge")?);
    let again = NewRow::new(step, &id(step, 0, 2))?.token(token(step, 0, 2, 1)).next_attempt();
    let row = solver.insert_row(again, [("prompt", "once more, with another prompt".into())])?;
    told(store);
    solver.write(row, [("response", tokens(step).into()), ("reward", 9.0.into())])?;
    told(store);
    let lost = solver.find(step, &id(step, 1, 2).parse()?).unwrap();
    solver.exclude(lost, "generation_failed")?;
    told(store);
    for input in 0..2 {
        let sample = SampleId::new(&format!("input-{step}-{input}"), 1, 0)?;
        let row = judge.find(step, &sample).unwrap();
        judge.write(row, [("verdict", 0.25.into())])?;
        told(store);
    }
    Ok(())
}

fn train(store: &Store, step: u64, told: Told<'_>) -> Result<()> {
    let (train, train_judge) = (store.consumer("train")?, store.consumer("train-judge")?);
    let groups = (0..2).map(|input| format!("input-{step}-{input}"));
    let open = store.begin_step(StepPlan::new().groups(&train, groups).rows(&train_judge, 2))?;
    told(store);
    if let Some(claim) = open.next(&train, MicroBatch::of(3), Wait::No)? {
        claim.release()?;
    }
    for consumer in [&train, &train_judge] {
        while let Some(claim) = open.next(consumer, MicroBatch::of(3), Wait::No)? {
            claim.accumulated()?;
            told(store);
        }
        assert!(open.is_complete(consumer));
    }
    let mut updates = Vec::new();
    for policy in ["solver", "judge"] {
        let payload = format!("weights of {policy} after step {step} ").repeat(20);
        updates.push((policy, vec![store.put_object(policy, step + 1, payload.as_bytes())?]));
        told(store);
    }
    let committed = open.commit(updates)?;
    assert_eq!(committed.rows, 3 + 2 + 2);
    told(store);
    Ok(())
}

fn objects(store: &Store) -> Vec<(u64, Option<Vec<u8>>)> {
    let latest =
        |policy: PolicyInfo| (policy.version, policy.objects.first().map(|o| store.object(o).unwrap()));
    store.policies().into_iter().map(latest).collect()
}

/// The undisturbed run: the content by commit, and how many operations it took.
fn undisturbed(segment_bytes: u64) -> (BTreeMap<u64, Content>, u64) {
    let world = World { segment_bytes, ..World::new() };
    let store = world.open();
    let mut contents = BTreeMap::from([(store.stats().commits, scan_content(&store))]);
    work(&store, &mut |store| {
        contents.insert(store.stats().commits, scan_content(store));
        check_counts(store);
    })
    .unwrap();
    (contents, world.disk.operations())
}

/// Runs until the operation fails; gives the last commit that was acknowledged.
fn die_at(world: &World, operation: u64) -> u64 {
    world.disk.fail_at(operation);
    let mut acknowledged = 0;
    if let Ok(store) = world.try_open() {
        acknowledged = store.stats().commits;
        let mut told = |store: &Store| acknowledged = store.stats().commits;
        _ = work(&store, &mut told); // it ends well when only the removal of an old object failed
        assert_eq!(store.create_policy("late", 0, &[]).unwrap_err().kind(), Kind::Closed);
        std::mem::forget(store);
    }
    world.disk.restart();
    acknowledged
}

/// The content that the undisturbed run had at a commit. A call that makes two records shows nothing new in between.
fn content_at(contents: &BTreeMap<u64, Content>, commit: u64) -> Content {
    contents.range(..=commit).next_back().map(|(_, content)| content.clone()).unwrap_or_default()
}

fn check_recovered(store: &Store, contents: &BTreeMap<u64, Content>, acknowledged: u64, at: u64) {
    let found = store.stats().commits - 1; // without the record of this opening
    assert!(
        found >= acknowledged,
        "operation {at}: {acknowledged} records were acknowledged, {found} are there"
    );
    assert!(found <= acknowledged + 4, "operation {at}: {found} of {acknowledged}");
    assert_eq!(scan_content(store), content_at(contents, found), "operation {at}");
    check_counts(store);
    assert!(store.claims().iter().all(|claim| !["leased", "accumulated"].contains(&claim.progress.as_str())));
    assert!(store.steps().iter().all(|step| step.progress != StepProgress::Open));
    objects(store);
}

#[test]
fn whatever_operation_the_process_dies_in_nothing_acknowledged_is_lost_and_the_work_ends_the_same() {
    let points: u64 = [1 << 20, 900].into_iter().map(die_at_every_operation).sum();
    assert!(points > 300, "{points} crash points");
    eprintln!("{points} crash points");
}

fn die_at_every_operation(segment_bytes: u64) -> u64 {
    let (contents, operations) = undisturbed(segment_bytes);
    let last = content_at(&contents, u64::MAX);
    let mut objects_at_end = None;
    for at in 1..=operations {
        let world = World { segment_bytes, ..World::new() };
        let acknowledged = die_at(&world, at);
        let store = world.open();
        if store.stats().commits > 1 {
            check_recovered(&store, &contents, acknowledged, at);
        }
        work(&store, &mut |store| check_counts(store)).unwrap();
        assert_eq!(scan_content(&store), last, "operation {at}, and the work done again");
        assert_eq!(objects_at_end.get_or_insert_with(|| objects(&store)), &objects(&store));
        let end = scan(&store);
        assert_eq!(scan(&world.reopen(store)), end, "operation {at}");
    }
    operations
}

#[test]
fn a_process_that_dies_while_it_opens_leaves_the_same_to_the_next() {
    let segment_bytes = 900;
    let (contents, operations) = undisturbed(segment_bytes);
    for at in (1..=operations).step_by(3) {
        let world = World { segment_bytes, ..World::new() };
        let acknowledged = die_at(&world, at);
        let mut deaths = 0;
        let store = loop {
            // Further each time by more than what a death in opening adds to the next opening.
            world.disk.fail_at(world.disk.operations() + 1 + deaths * (deaths + 1) / 2);
            match world.try_open() {
                Err(error) if deaths < 60 => {
                    assert_ne!(error.kind(), Kind::Corrupt, "operation {at}: {error}");
                }
                Err(error) => panic!("operation {at}: opening does not get further: {error:?}"),
                Ok(store) => break store,
            }
            world.disk.restart();
            deaths += 1;
        };
        world.disk.restart();
        let content = scan_content(&store);
        let known = contents.iter().any(|(commit, known)| *commit >= acknowledged && *known == content);
        assert!(known || acknowledged == 0, "operation {at}");
        check_counts(&store);
        let store = world.reopen(store);
        work(&store, &mut |_| ()).unwrap();
        assert_eq!(scan_content(&store), content_at(&contents, u64::MAX), "operation {at}");
    }
}
