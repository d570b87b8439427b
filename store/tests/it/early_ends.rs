//! Members of groups that are not complete, and everything that a claim can end by: exactly the rows whose gradients were lost come
//! again, once.

use std::collections::{BTreeMap, BTreeSet};

use forebay_store::*;

use crate::early::draw;
use crate::support::*;

const MEMBERS: u64 = 3;
const ROOM: usize = 2;
const STEPS: u64 = 2;

/// The members of three groups, in an order in which every group is open for some time.
fn members(version: u64) -> Vec<String> {
    [(0, 1), (1, 0), (2, 2), (0, 0), (2, 0), (1, 1), (2, 1), (0, 2), (1, 2)]
        .map(|(group, member)| format!("q{version}{group}_0_{member}"))
        .into()
}

fn keys(version: u64) -> [String; 3] {
    [0, 1, 2].map(|group| format!("q{version}{group}"))
}

fn open(world: &World) -> Result<Store> {
    Store::open(ROOT, world.options().object_versions_kept(8))
}

fn exists<T>(result: Result<T>) -> Result<()> {
    match result {
        Err(error) if !matches!(error.cause(), Cause::Exists { .. }) => Err(error),
        _ => Ok(()),
    }
}

/// What a step does that trains members as they come: it goes on with whatever a process before has left of the rows. Gives what was
/// handed out in the step that this process committed last.
fn work(store: &Store) -> Result<Vec<Vec<String>>> {
    exists(store.create_table("solver", solver_schema()))?;
    let declared = Consumer::trainer(["solver"]).ready(["reward"]).group(GroupBy::Input, MEMBERS as u32);
    exists(store.create_consumer("train", declared))?;
    let mut taken = Vec::new();
    for version in 0..STEPS {
        if store.policy("solver")?.version == version {
            taken = train(store, version)?;
        }
    }
    Ok(taken)
}

fn train(store: &Store, version: u64) -> Result<Vec<Vec<String>>> {
    let (table, train) = (store.table("solver")?, store.consumer("train")?);
    let step = store.begin_step(StepPlan::new().groups(&train, keys(version)))?;
    let mut taken = Vec::new();
    for (at, id) in members(version).iter().enumerate() {
        let row = match table.find(version, &id.parse()?) {
            Some(row) => row,
            None => table.insert(version, id.as_str(), [])?,
        };
        match at {
            6 => exclude(&table, row)?, // a member that never comes, of a group that is handed out in part
            _ => table.write(row, [("reward", (at as f64).into())])?,
        }
        take(&step, &train, &mut taken)?;
        if at == 4 {
            store.checkpoint()?;
        }
    }
    take(&step, &train, &mut taken)?;
    assert!(step.is_complete(&train));
    let weights = store.put_object("solver", version + 1, &[version as u8; 64])?;
    assert_eq!(step.commit([("solver", vec![weights])])?.rows, 8);
    Ok(taken)
}

fn exclude(table: &Table, row: Row) -> Result<()> {
    match table.exclude(row, "failed") {
        Err(error) if !matches!(error.cause(), Cause::RowExcluded { .. }) => Err(error),
        _ => Ok(()),
    }
}

fn take(step: &Step, train: &ConsumerHandle, taken: &mut Vec<Vec<String>>) -> Result<()> {
    while let Some(claim) = step.next(train, MicroBatch::early(2, ROOM), Wait::No)? {
        let rows = ids(&claim);
        claim.accumulated()?;
        taken.push(rows);
    }
    Ok(())
}

/// All rows of a step but the one that never came, each once.
fn check_taken(version: u64, taken: &[Vec<String>], when: &str) {
    let mut rows = taken.concat();
    let mut expected = members(version);
    expected.remove(6);
    rows.sort();
    expected.sort();
    assert_eq!(rows, expected, "{when}");
}

// FX-57, FX-39: kill -9 between any two operations of the disk
#[test]
fn whatever_operation_the_process_dies_in_each_row_counts_once() {
    let undisturbed = World::new();
    let store = open(&undisturbed).unwrap();
    let taken = work(&store).unwrap();
    check_taken(STEPS - 1, &taken, "undisturbed");
    assert!(taken.len() > 4, "members came one by one: {taken:?}");
    let (end, operations) = (scan_content(&store), undisturbed.disk.operations());
    drop(store);
    for at in 1..=operations {
        let world = World::new();
        world.disk.fail_at(at);
        if let Ok(store) = open(&world) {
            _ = work(&store);
            std::mem::forget(store);
        }
        world.disk.restart();
        let store = open(&world).unwrap();
        let is_held = |claim: &ClaimInfo| ["leased", "accumulated"].contains(&claim.progress.as_str());
        assert!(!store.claims().iter().any(is_held), "operation {at}");
        let is_over = store.policy("solver").is_ok_and(|policy| policy.version == STEPS);
        let taken = work(&store).unwrap();
        if !is_over {
            check_taken(STEPS - 1, &taken, &format!("operation {at}"));
        }
        assert_eq!(scan_content(&store), end, "operation {at}");
        check_counts(&store);
        let of_table = store.table("solver").unwrap().counts();
        assert_eq!((of_table.consumed, of_table.excluded["failed"]), (16, 2), "operation {at}");
    }
    assert!(operations > 40, "{operations} operations");
}

#[test]
fn steps_of_parts_are_replayed_in_their_order_and_trained_on_again() {
    let world = World::new();
    let store = open(&world).unwrap();
    let last = work(&store).unwrap();
    let replayed = |store: &Store, step| -> Vec<Vec<String>> {
        let batches = store.replay(step).unwrap();
        batches.iter().map(|batch| batch.sample_ids().iter().map(ToString::to_string).collect()).collect()
    };
    assert_eq!(replayed(&store, STEPS), last);
    let outcome = store.rewind(1, Rewind::TrainAgain).unwrap();
    assert_eq!((outcome.steps_undone, outcome.rows), (1, 8));
    std::mem::forget(store);
    world.disk.restart();
    let store = open(&world).unwrap();
    let train = store.consumer("train").unwrap();
    let step = store.begin_step(StepPlan::new().groups(&train, keys(1))).unwrap();
    let mut again = Vec::new();
    take(&step, &train, &mut again).unwrap();
    check_taken(1, &again, "rewound");
    assert!(step.is_complete(&train));
    step.commit([("solver", vec![store.put_object("solver", 2, &[1; 64]).unwrap()])]).unwrap();
    assert_eq!(replayed(&store, 3), again);
}

/// A trainer of one step, and what it believes to have.
struct Life {
    world: World,
    store: Store,
    table: Table,
    train: ConsumerHandle,
    step: Option<Step>,
    held: Vec<Claim>,
    /// Rows whose gradients are in the cache, by claim.
    cache: BTreeMap<(u64, u64), Vec<String>>,
    to_come: Vec<String>,
    left_out: BTreeSet<String>,
}

impl Life {
    fn new(inputs: &[String]) -> Self {
        let world = World::new();
        let (store, table, train) = trained(&world, Some(4));
        let step = Some(store.begin_step(StepPlan::new().groups(&train, inputs.to_vec())).unwrap());
        let members = |input: &String| (0..4).map(|member| format!("{input}_0_{member}")).collect::<Vec<_>>();
        let to_come = inputs.iter().flat_map(members).collect();
        let (held, cache, left_out) = Default::default();
        Life { world, store, table, train, step, held, cache, to_come, left_out }
    }

    fn step(&self) -> &Step {
        self.step.as_ref().unwrap()
    }

    fn arrive(&mut self, state: &mut u64) {
        if self.to_come.is_empty() {
            return;
        }
        let id = self.to_come.swap_remove(draw(state, self.to_come.len() as u64) as usize);
        if draw(state, 6) > 0 {
            finished(&self.table, 0, &id);
            return;
        }
        let row = self.table.insert(0, id.as_str(), []).unwrap();
        self.table.exclude(row, "failed").unwrap();
        self.left_out.insert(id);
    }

    /// What is handed out is in nobody's hands, and in no cache.
    fn take(&mut self, rule: MicroBatch) {
        let Some(claim) = self.step().next(&self.train, rule, Wait::No).unwrap() else { return };
        let there: BTreeSet<String> =
            self.held.iter().flat_map(ids).chain(self.cache.values().flatten().cloned()).collect();
        let rows = ids(&claim);
        assert!(rows.iter().all(|row| !there.contains(row)), "{rows:?} of {there:?}");
        self.held.push(claim);
    }

    fn accumulate(&mut self) {
        for claim in self.held.drain(..) {
            let (epoch, rows) = (claim.epoch(), ids(&claim));
            claim.accumulated().unwrap();
            self.cache.insert(epoch, rows);
        }
    }

    /// Some of the gradients are gone.
    fn lose(&mut self, state: &mut u64) {
        let lost: Vec<(u64, u64)> = self.cache.keys().copied().filter(|_| draw(state, 2) == 0).collect();
        let rows: usize =
            lost.iter().filter_map(|epoch| self.cache.remove(epoch)).map(|rows| rows.len()).sum();
        assert_eq!(self.step().return_lost(&lost).unwrap(), rows as u64);
    }

    fn expire(&mut self) {
        self.world.clock.advance(LEASE * 2);
        let late = std::mem::take(&mut self.held);
        self.take(MicroBatch::early(2, ROOM)); // who comes next ends them
        for claim in late {
            assert!(claim.accumulated().is_err(), "its lease has ended");
        }
    }

    /// The process dies, or only the step.
    fn begin_again(&mut self, state: &mut u64, inputs: &[String]) {
        self.cache.clear();
        match draw(state, 3) {
            0 => {
                self.held.clear();
                self.step.take().unwrap().abandon().unwrap();
            }
            kind => {
                if kind == 1 {
                    self.store.checkpoint().unwrap();
                }
                self.held.drain(..).for_each(std::mem::forget);
                std::mem::forget(self.step.take());
                self.store = self.world.reopen(self.store.clone());
                self.table = self.store.table("solver").unwrap();
                self.train = self.store.consumer("train").unwrap();
            }
        }
        let plan = StepPlan::new().groups(&self.train, inputs.to_vec());
        self.step = Some(self.store.begin_step(plan).unwrap());
    }

    fn is_over(&self) -> bool {
        self.to_come.is_empty() && self.held.is_empty() && self.step().is_complete(&self.train)
    }
}

// FX-57
#[test]
fn whatever_gradients_are_lost_their_rows_come_again_and_no_others() {
    let inputs: Vec<String> = (0..4).map(|input| format!("q{input}")).collect();
    for seed in 0..80 {
        let (mut state, mut life) = (seed, Life::new(&inputs));
        let mut disturbances = 6;
        while !life.is_over() {
            let kind = draw(&mut state, 12);
            disturbances -= u32::from(kind >= 8 && disturbances > 0);
            match kind {
                0..3 => life.arrive(&mut state),
                3..6 => life.take(MicroBatch::early(1 + draw(&mut state, 5) as usize, 1 + ROOM)),
                8 if disturbances > 0 => life.lose(&mut state),
                9 if disturbances > 0 => life.expire(),
                10 if disturbances > 0 => life.begin_again(&mut state, &inputs),
                11 if disturbances > 0 => {
                    let at = draw(&mut state, 1 + life.held.len() as u64) as usize;
                    life.held.drain(at..).for_each(drop);
                }
                _ => life.accumulate(),
            }
        }
        let trained: Vec<String> = life.cache.values().flatten().cloned().collect();
        assert_eq!(trained.len() + life.left_out.len(), 16, "seed {seed}");
        if !trained.is_empty() {
            let committed = life.step.take().unwrap().commit([("solver", vec![])]).unwrap();
            assert_eq!(committed.rows as usize, trained.len(), "seed {seed}");
        }
        check_counts(&life.store);
    }
}
