//! A random life of a store, from a seed: every kind of call that changes it, at levels that change from call to call.
//!
//! The same seed makes the same calls, as long as every call before was acknowledged.

use std::time::Duration;

use forebay_store::*;

use super::grouped::{Member, declare_team};
use super::upkeep::{Life, check_sums, shared_schema};
use crate::support::*;

/// Hears of every acknowledged call, with what its acknowledgement promises.
pub(crate) type Told<'a> = &'a mut dyn FnMut(&Store, Durability);

/// Throws from a seed.
pub(crate) struct Dice(SeededRandomness);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Dice(SeededRandomness::new(seed))
    }

    pub(crate) fn below(&self, limit: u64) -> u64 {
        self.0.next_u64() % limit
    }

    pub(crate) fn one_of<T: Copy>(&self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

pub(crate) const LEVELS: [Durability; 3] = Durability::ALL;

pub(crate) struct Workload<'a> {
    world: &'a World,
    pub(super) life: Life,
    pub(super) dice: Dice,
    pub(super) level: Durability,
    pub(super) rows: Vec<(Row, &'static str)>,
    next_input: u64,
    /// Rows of groups, how many groups were begun, and how many columns came.
    pub(super) members: Vec<Member>,
    pub(super) groups: u64,
    pub(super) columns: u64,
    /// Steps that ranks have trained groups in.
    pub(super) trained: u64,
}

impl<'a> Workload<'a> {
    pub(crate) fn new(world: &'a World, seed: u64, life: Life) -> Self {
        let dice = Dice::new(seed);
        let level =
            dice.one_of(&[Durability::Memory, Durability::Logged, Durability::Logged, Durability::Synced]);
        let level = if life.is_short() { life.level(&dice) } else { level };
        let (rows, members) = (Vec::new(), Vec::new());
        Workload { world, life, dice, level, rows, next_input: 0, members, groups: 0, columns: 0, trained: 0 }
    }

    pub(crate) fn open(&self) -> Result<Store> {
        Store::open(ROOT, self.life.options(self.world.options().durability(self.level)))
    }

    /// The whole life. Ends with the first call that fails.
    pub(crate) fn run(&mut self, told: Told<'_>) -> (Option<Store>, Result<()>) {
        let mut store = match self.open() {
            Ok(store) => Some(store),
            Err(error) => return (None, Err(error)),
        };
        let result = self.live(&mut store, told);
        (store, result)
    }

    fn live(&mut self, slot: &mut Option<Store>, told: Told<'_>) -> Result<()> {
        let calls = 20 + self.dice.below(25);
        if let Some(store) = slot {
            told(store, self.level);
            declare(store, self.life, &mut |store| told(store, self.level))?;
        }
        for _ in 0..calls {
            if self.dice.below(30) == 0 {
                self.open_again(slot, told)?;
            }
            if let Some(store) = slot.clone() {
                self.call(&store, told)?;
            }
        }
        Ok(())
    }

    fn call(&mut self, store: &Store, told: Told<'_>) -> Result<()> {
        if self.life == Life::Grouped && self.dice.below(4) > 0 {
            return self.group(store, told);
        }
        if matches!(self.life, Life::Whole | Life::Grouped) && self.dice.below(3) == 0 {
            return self.upkeep(store, told);
        }
        if self.life.is_short() && self.dice.below(3) > 0 {
            return self.come_and_go(store, told);
        }
        match self.dice.below(24) {
            0..4 => self.insert(store, told),
            4..7 => self.insert_many(store, told),
            7..11 => self.write(store, told),
            11..14 => self.grow(store, told),
            14 => self.leave_out(store, told),
            15 => self.start_over(store, told),
            16..18 => self.score(store, told),
            18..21 => self.train(store, told),
            21 => self.sync(store, told),
            _ => self.pass_time(store, told),
        }
    }

    /// Every acknowledged row has to be there for the next process, so all is synced first.
    fn open_again(&mut self, slot: &mut Option<Store>, told: Told<'_>) -> Result<()> {
        if let Some(store) = slot.take() {
            store.sync()?;
            told(&store, Durability::Synced);
        }
        self.level = self.life.level(&self.dice);
        let store = slot.insert(self.open()?);
        told(store, self.level);
        Ok(())
    }

    pub(super) fn text(&self) -> String {
        let length = self.dice.one_of(&[0, 5, 12, 13, 40, 200, 700, 1500]) + self.dice.below(7);
        let letters = "abcdefghijklmnopqrstuvwxyz ".as_bytes();
        (0..length).map(|_| char::from(self.dice.one_of(letters))).collect()
    }

    pub(super) fn tokens(&self) -> Vec<i32> {
        (0..self.dice.one_of(&[0, 1, 30, 150, 300])).map(|_| self.dice.below(1 << 20) as i32).collect()
    }

    pub(super) fn new_row(&mut self, version: u64) -> Result<NewRow> {
        let input = self.next_input;
        self.next_input += 1;
        let row = NewRow::new(version, &format!("in{}_0_{}", input / 2, input % 2))?;
        Ok(row.token(u128::from(input) + 1))
    }

    fn insert(&mut self, store: &Store, told: Told<'_>) -> Result<()> {
        let table = store.table("solver")?;
        let new = self.new_row(store.policy("solver")?.version)?;
        let row = table.insert_row(new, [("prompt", (&*self.text()).into())])?;
        told(store, self.level);
        self.rows.push((row, "solver"));
        Ok(())
    }

    fn insert_many(&mut self, store: &Store, told: Told<'_>) -> Result<()> {
        let level = self.life.level(&self.dice);
        let mut batch = store.batch();
        batch.durability(level);
        let mut names = Vec::new();
        for _ in 0..=self.dice.below(3) {
            let name = self.dice.one_of(&["solver", "judge"]);
            let new = self.new_row(store.policy(name)?.version)?;
            batch.insert(&store.table(name)?, new, [("prompt", (&*self.text()).into())])?;
            names.push(name);
        }
        let rows = batch.commit()?;
        told(store, level);
        self.rows.extend(rows.into_iter().zip(names));
        Ok(())
    }

    pub(super) fn row(&self) -> Option<(Row, &'static str)> {
        (!self.rows.is_empty()).then(|| self.rows[self.dice.below(self.rows.len() as u64) as usize])
    }

    /// A call that is refused because of what the row is changes nothing and ends nothing.
    pub(super) fn unless_state(result: Result<()>) -> Result<bool> {
        match result {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == Kind::State && !matches!(error.cause(), Cause::Io { .. }) => {
                Ok(false)
            }
            // The row was deleted, and its page with it.
            Err(error) if matches!(error.cause(), Cause::Unknown { what: "row", .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether a cell can still be written: one of a row that is gone cannot.
    pub(super) fn is_empty(table: &Table, row: Row, column: &str) -> Result<bool> {
        let mut empty = false;
        Self::unless_state(table.cell(row, column).map(|cell| empty = matches!(cell, Cell::Empty)))?;
        Ok(empty)
    }

    /// Up to four rows get what they still lack for being trained on.
    fn write(&mut self, store: &Store, told: Told<'_>) -> Result<()> {
        let level = self.life.level(&self.dice);
        let mut batch = store.batch();
        batch.durability(level);
        let first = self.dice.below(self.rows.len().max(1) as u64) as usize;
        for &(row, name) in self.rows[first.min(self.rows.len())..].iter().take(4) {
            let table = store.table(name)?;
            let column = if name == "judge" { "verdict" } else { "reward" };
            if Self::is_empty(&table, row, column)? {
                batch.write(&table, row, [(column, (self.dice.below(8) as f64 / 4.0).into())])?;
            }
            if name == "solver" && Self::is_empty(&table, row, "response")? {
                batch.write(&table, row, [("response", (&self.tokens()).into())])?;
            }
        }
        if Self::unless_state(batch.commit().map(drop))? {
            told(store, level);
        }
        Ok(())
    }

    /// A response grows, and is closed sometimes.
    fn grow(&mut self, store: &Store, told: Told<'_>) -> Result<()> {
        let Some((row, "solver")) = self.row() else { return Ok(()) };
        let table = store.table("solver")?;
        if Self::unless_state(table.append(
            row,
            "logprobs",
            vec![0.5_f32; 1 + self.dice.below(90) as usize].into(),
        ))? {
            told(store, self.level);
        }
        if self.dice.below(2) == 0 && Self::unless_state(table.finalize(row, "logprobs"))? {
            told(store, self.level);
        }
        Ok(())
    }

    fn leave_out(&mut self, store: &Store, told: Told<'_>) -> Result<()> {
        let Some((row, name)) = self.row() else { return Ok(()) };
        if Self::unless_state(store.table(name)?.exclude(row, "failed"))? {
            told(store, self.level);
        }
        Ok(())
    }

    fn start_over(&mut self, store: &Store, told: Told<'_>) -> Result<()> {
        let at = self.dice.below(self.rows.len().max(1) as u64);
        let Some(&(_, "solver")) = self.rows.get(at as usize) else { return Ok(()) };
        let sample = SampleId::new(&format!("in{}", at / 2), 0, (at % 2) as u32)?;
        let new = NewRow::of(store.policy("solver")?.version, sample).next_attempt();
        match store.table("solver")?.insert_row(new, [("prompt", (&*self.text()).into())]) {
            Ok(row) => {
                told(store, self.level);
                self.rows.push((row, "solver"));
                Ok(())
            }
            Err(error) if matches!(error.cause(), Cause::Unknown { .. }) => Ok(()), // it is in the other table
            Err(error) => Self::unless_state(Err(error)).map(drop),
        }
    }

    /// The task writes rewards; now and then it gives its claim back.
    fn score(&mut self, store: &Store, told: Told<'_>) -> Result<()> {
        let task = store.consumer("score")?;
        let Some(claim) = task.claim(MicroBatch::up_to(3), "scorer", Wait::No)? else { return Ok(()) };
        told(store, Durability::Memory); // a lease ends with the process, whatever the log says
        if self.dice.below(4) == 0 {
            claim.release()?;
            told(store, Durability::Memory);
        } else {
            let (table, rows) = (store.table("solver")?, claim.rows().to_vec());
            claim.finish(|batch| {
                rows.iter()
                    .filter(|row| matches!(table.cell(**row, "reward"), Ok(Cell::Empty)))
                    .try_for_each(|row| batch.write(&table, *row, [("reward", 0.5.into())]))
            })?;
            told(store, self.level);
        }
        Ok(())
    }

    /// One step over what is ready, with the weights as objects.
    fn train(&mut self, store: &Store, told: Told<'_>) -> Result<()> {
        let open = store.begin_step(plan(store)?)?;
        told(store, self.level);
        let mut trained = Vec::new();
        for (consumer, policy) in [("train", "solver"), ("train-judge", "judge")] {
            let consumer = store.consumer(consumer)?;
            while let Some(claim) = open.next(&consumer, MicroBatch::up_to(3), Wait::No)? {
                told(store, Durability::Memory);
                claim.accumulated()?;
                told(store, self.level);
                trained.push(policy);
            }
        }
        trained.dedup();
        let mut updates = Vec::new();
        for policy in trained {
            let payload = vec![self.dice.below(256) as u8; self.dice.one_of(&[10, 600, 3000])];
            let version = store.policy(policy)?.version + 1;
            updates.push((policy, vec![store.put_object(policy, version, &payload)?]));
        }
        open.commit(updates)?;
        told(store, self.level);
        Ok(())
    }

    pub(super) fn sync(&mut self, store: &Store, told: Told<'_>) -> Result<()> {
        store.sync()?;
        told(store, Durability::Synced);
        Ok(())
    }

    pub(super) fn pass_time(&mut self, store: &Store, told: Told<'_>) -> Result<()> {
        self.world.clock.advance(Duration::from_millis(self.dice.below(3000)));
        store.run_once()?;
        told(store, Durability::Memory);
        Ok(())
    }
}

/// What is ready of both tables.
fn plan(store: &Store) -> Result<StepPlan> {
    let (train, judge) = (store.consumer("train")?, store.consumer("train-judge")?);
    Ok(StepPlan::new().rows(&train, 4).rows(&judge, 3))
}

/// Makes what is not there yet.
pub(crate) fn declare(store: &Store, life: Life, told: &mut dyn FnMut(&Store)) -> Result<()> {
    let exists = |result: Result<()>| match result {
        Err(error) if !matches!(error.cause(), Cause::Exists { .. }) => Err(error),
        _ => Ok(()),
    };
    let judge = Schema::new().data("prompt", DataType::Utf8).data("verdict", DataType::Float32);
    for policy in ["solver", "judge"] {
        exists(store.create_policy(policy, 0, &[]))?;
        told(store);
    }
    exists(store.create_table("solver", solver_schema()).map(drop))?;
    told(store);
    exists(store.create_table("judge", judge).map(drop))?;
    told(store);
    if life == Life::Grouped {
        declare_team(store, told)?;
    }
    if matches!(life, Life::Whole | Life::Grouped) {
        exists(store.create_policy("shared", 0, &[]))?;
        told(store);
        exists(store.create_table("shared", shared_schema()).map(drop))?;
        told(store);
    }
    let plenty = RateLimiter::new(1.0, 1, 1000.0); // counts, and holds nobody back
    let trainer = Consumer::trainer(["solver"]).ready(["response", "reward"]).rate_limiter(plenty);
    exists(store.create_consumer("train", trainer).map(drop))?;
    told(store);
    exists(store.create_consumer("train-judge", Consumer::trainer(["judge"]).ready(["verdict"])).map(drop))?;
    told(store);
    exists(store.create_consumer("score", Consumer::task(["solver"]).ready(["response"])).map(drop))?;
    told(store);
    Ok(())
}

/// The engine goes on: rows come, grow, are scored and trained on, whatever was there before.
pub(crate) fn go_on(store: &Store, turn: u64) -> Result<()> {
    declare(store, Life::Plain, &mut |_| ())?;
    let (solver, judge) = (store.table("solver")?, store.table("judge")?);
    let versions = [store.policy("solver")?.version, store.policy("judge")?.version];
    let row = solver.insert(
        versions[0],
        &format!("on{turn}_0_0"),
        [("prompt", "a prompt of a later life".into())],
    )?;
    solver.append(row, "logprobs", vec![1.0_f32; 40].into())?;
    solver.finalize(row, "logprobs")?;
    solver.write(row, [("response", vec![turn as i32; 50].into()), ("reward", 1.0.into())])?;
    judge.insert(versions[1], &format!("on{turn}_0_0"), [("prompt", "".into()), ("verdict", 1.0.into())])?;
    let open = store.begin_step(StepPlan::new().rows(&store.consumer("train")?, 1000))?;
    let claim = open.next(&store.consumer("train")?, MicroBatch::up_to(1000), Wait::No)?;
    let claim = claim.expect("the row that was just written is ready");
    assert!(claim.rows().contains(&row));
    let shown = show_batch(&claim.columns(["sample_id", "response", "logprobs", "reward"])?);
    assert_eq!(shown.len(), claim.len());
    claim.accumulated()?;
    let weights = store.put_object("solver", versions[0] + 1, &[turn as u8; 100])?;
    open.commit([("solver", vec![weights])])?;
    assert_eq!(store.policy("solver")?.version, versions[0] + 1);
    check_sums(store);
    Ok(())
}
