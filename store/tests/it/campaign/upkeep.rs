//! The calls of a whole life: what makes room and what goes back, beside what is written and trained on.
//!
//! Their thresholds are small, so that within some forty calls checkpoints are taken, segments of the log are removed, rows
//! are deleted by rules and by hand, extents are used again, and steps are undone.

use std::ops::ControlFlow;

use forebay_store::*;

use super::workload::{Dice, LEVELS, Told, Workload};
use crate::support::*;

/// Which calls a life is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// What is written and trained on: the lives of the seeds that once failed.
    Plain,
    /// And what makes room and goes back.
    Whole,
    /// And groups, whose rows go on under other versions, are of peers and of columns that come and go; ranks take them.
    Grouped,
    /// At `memory`: rows that come and go between syncs, and extents that are used again in their wake.
    Brief,
    /// The same at `logged`: extents are over before a sync comes to them.
    Passing,
}

impl Life {
    pub(crate) fn options(self, options: Options) -> Options {
        match self {
            Life::Plain => options,
            Life::Whole | Life::Grouped => options
                .checkpoint_records(30)
                .object_versions_kept(3)
                .retention(Retention::default().versions(4)),
            Life::Brief | Life::Passing => options.checkpoint_records(60).extent_bytes(4096, 4096),
        }
    }

    /// Whether rows come and go more often than anything else happens.
    pub(super) fn is_short(self) -> bool {
        matches!(self, Life::Brief | Life::Passing)
    }

    /// What a store is opened at, and what calls ask for.
    pub(super) fn level(self, dice: &Dice) -> Durability {
        match self {
            Life::Plain | Life::Whole | Life::Grouped => dice.one_of(&LEVELS),
            Life::Brief | Life::Passing if dice.below(12) == 0 => dice.one_of(&LEVELS),
            Life::Brief => Durability::Memory,
            Life::Passing => Durability::Logged,
        }
    }
}

impl Workload<'_> {
    pub(super) fn upkeep(&mut self, store: &Store, told: Told<'_>) -> Result<()> {
        match self.dice.below(7) {
            0..2 => self.checkpoint(store, told),
            2 => self.delete(store, told),
            3 => self.go_back(store, told),
            4 => self.compact(store, told),
            _ => self.share(store, told),
        }
    }

    /// Values that fill extents, and their end.
    pub(super) fn come_and_go(&mut self, store: &Store, told: Told<'_>) -> Result<()> {
        match self.dice.below(6) {
            0..3 => self.fill(store, told),
            3..5 => self.empty(store, told),
            _ if self.life == Life::Passing => self.sync_and_tend(store, told),
            _ => self.pass_time(store, told),
        }
    }

    /// What is over then is used again from there on: the second sync brings the proof.
    fn sync_and_tend(&mut self, store: &Store, told: Told<'_>) -> Result<()> {
        self.fill(store, told)?;
        self.empty(store, told)?;
        self.sync(store, told)?;
        self.fill(store, told)?;
        self.sync(store, told)?;
        self.pass_time(store, told)
    }

    fn fill(&mut self, store: &Store, told: Told<'_>) -> Result<()> {
        let (table, version) = (store.table("solver")?, store.policy("solver")?.version);
        for _ in 0..=self.dice.below(3) {
            let prompt = format!("prompt {} ", self.dice.below(1000)).repeat(130);
            let new = self.new_row(version)?;
            let row = table.insert_row(new, [("prompt", (&*prompt).into())])?;
            told(store, self.level);
            self.rows.push((row, "solver"));
        }
        Ok(())
    }

    /// The oldest rows, or all.
    fn empty(&mut self, store: &Store, told: Told<'_>) -> Result<()> {
        let count = self.rows.len() / (1 + self.dice.below(2) as usize);
        let over: Vec<(Row, &str)> = self.rows.drain(..count).collect();
        for name in ["solver", "judge"] {
            let rows: Vec<Row> = over.iter().filter(|(_, of)| *of == name).map(|(row, _)| *row).collect();
            let rule = Delete::rows(rows).force();
            if Self::unless_state(store.table(name)?.delete(&rule).map(drop))? {
                told(store, self.level);
            }
        }
        Ok(())
    }

    fn checkpoint(&mut self, store: &Store, told: Told<'_>) -> Result<()> {
        store.checkpoint()?;
        told(store, Durability::Memory);
        Ok(())
    }

    /// Some rows, or a version that is over, or one that is not.
    fn delete(&mut self, store: &Store, told: Told<'_>) -> Result<()> {
        let Some((row, name)) = self.row() else { return Ok(()) };
        let version = store.policy(name).map_or(0, |policy| policy.version);
        let rule = match self.dice.below(4) {
            0 => Delete::versions_up_to(version.saturating_sub(self.dice.below(3))),
            1 => Delete::rows([row]).force(),
            _ => Delete::rows([row]),
        };
        if Self::unless_state(store.table(name)?.delete(&rule).map(drop))? {
            told(store, self.level);
        }
        Ok(())
    }

    /// To a step that stands, as far back as it happens to be.
    fn go_back(&mut self, store: &Store, told: Told<'_>) -> Result<()> {
        let stands = |step: &&StepInfo| step.progress == StepProgress::Committed;
        let steps: Vec<u64> = store.steps().iter().filter(stands).map(|step| step.step).collect();
        let step = steps.len().checked_sub(1 + self.dice.below(3) as usize).map_or(0, |at| steps[at]);
        let rows = self.dice.one_of(&[Rewind::TrainAgain, Rewind::TrainAgain, Rewind::Exclude]);
        if Self::unless_state(store.rewind(step, rows).map(drop))? {
            told(store, self.level);
        }
        Ok(())
    }

    fn compact(&mut self, store: &Store, told: Told<'_>) -> Result<()> {
        store.compact()?;
        told(store, Durability::Memory);
        Ok(())
    }

    /// Rows whose prompts are among a few that are stored once.
    fn share(&mut self, store: &Store, told: Told<'_>) -> Result<()> {
        let table = store.table("shared")?;
        let level = self.life.level(&self.dice);
        let mut batch = store.batch();
        batch.durability(level);
        for _ in 0..=self.dice.below(3) {
            let prompt = format!("prompt {} ", self.dice.below(3)).repeat(40);
            let new = self.new_row(store.policy("solver")?.version)?;
            batch.insert(&table, new, [("prompt", (&*prompt).into()), ("verdict", 0.5.into())])?;
        }
        batch.commit()?;
        told(store, level);
        Ok(())
    }
}

/// The table of shared prompts, which nobody trains on.
pub(super) fn shared_schema() -> Schema {
    Schema::new().data_shared("prompt", DataType::Utf8).data("verdict", DataType::Float32)
}

/// `written = consumed + excluded + open`; what a scan shows agrees as long as nothing was deleted.
pub(crate) fn check_sums(store: &Store) {
    let names = store.tables();
    let tables = || names.iter().map(|name| store.table(name).unwrap());
    let shown = |name: &String| store.snapshot().table(name).unwrap().row_count();
    if tables().zip(&names).all(|(table, name)| table.counts().written <= shown(name) as u64) {
        return check_counts(store);
    }
    for table in tables() {
        let counts = table.counts();
        let excluded: u64 = counts.excluded.values().sum();
        assert_eq!(counts.written, counts.consumed + excluded + counts.open(), "{counts:?}");
    }
}

/// Every byte that the store stands on is what was written.
pub(crate) fn check_verified(world: &World, when: &dyn std::fmt::Display) {
    let report = verify(ROOT, &world.options(), &mut |_| ControlFlow::Continue(())).unwrap();
    assert!(report.is_sound(), "{when}: {:?}", report.faults);
}
