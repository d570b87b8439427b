//! Random calls, checked one by one against a model that scans.
//!
//! The store counts as it goes (queues, groups, open rows); the model keeps plain rows and looks through all of them
//! each time. After every call both must show the same rows, the same counts and the same number of claimable rows.
//!
//! Processes end in between: they close the store, are killed, or the power fails. Calls are acknowledged at levels of
//! their own, so the next process need not find all of them, but no less than was promised, and always the content of a
//! prefix of the calls; the model goes on from there ([`life::History`]).
//!
//! Each test follows 60 random runs, or as many as `FOREBAY_CASES` says: a thousand take some minutes. proptest prints the
//! calls and the disk's seed of a failure, shrunk; that becomes a plain test, a call of [`follow`].

mod cells;
mod claims;
mod ends;
mod life;
mod op;
mod row;
mod steps;

use std::collections::BTreeMap;

use forebay_store::*;
use proptest::prelude::*;

use self::life::{History, Life, STATES_KEPT, VERSIONS_KEPT};
use self::op::{End, Op, op, rewinding};
use self::row::{ModelRow, SHOWN};
use crate::support::*;

const MEMBERS: u32 = 2;

#[derive(Debug)]
struct ModelClaim {
    handle: Claim,
    trainer: bool,
    deadline: Timestamp,
}

#[derive(Clone, Debug)]
enum Plan {
    Rows(u64),
    Inputs(Vec<u32>),
}

/// What a run is about.
#[derive(Clone, Copy, Debug, Default)]
struct Setup {
    /// Consumers take groups of an input.
    group: bool,
    /// How many versions behind a row may be.
    window: Option<u64>,
    /// What is left to chance on the disk.
    disk_seed: u64,
}

struct Run {
    setup: Setup,
    world: World,
    store: Option<Store>,
    table: Option<Table>,
    /// What this process acknowledges where a call says nothing else.
    level: Durability,
    life: Life,
    history: History,
    step: Option<(Step, Plan)>,
    claims: BTreeMap<u64, ModelClaim>,
}

fn options(world: &World, setup: Setup, level: Durability) -> Options {
    let options = world.options().durability(level).object_versions_kept(STATES_KEPT);
    match setup.window {
        None => options.retention(Retention::default().versions(VERSIONS_KEPT)),
        Some(_) => options,
    }
}

impl Run {
    fn new(setup: Setup) -> Self {
        let world = World { segment_bytes: 4000, ..World::on(SimulatedDisk::seeded(setup.disk_seed)) };
        let level = Durability::default();
        let store = Store::open(ROOT, options(&world, setup, level)).unwrap();
        let schema = Schema::new()
            .data("text", DataType::Utf8)
            .data("list", DataType::list(Element::Int32))
            .data("reward", DataType::Float32);
        let table = store.create_table("t", schema).unwrap();
        let declare =
            |consumer: Consumer| if setup.group { consumer.group(GroupBy::Input, MEMBERS) } else { consumer };
        let trainer = declare(Consumer::trainer(["t"]).ready(["list", "reward"]));
        let trainer = if let Some(versions) = setup.window {
            trainer.staleness(versions).origins(Origins::All)
        } else {
            trainer
        };
        store.create_consumer("train", trainer).unwrap();
        store.create_consumer("task", declare(Consumer::task(["t"]).ready(["text"]))).unwrap();
        store.sync().unwrap(); // what is declared outlives whatever comes
        let mut history = History::new(store.stats().commits, Life::default());
        history.synced_through(store.stats().durable_commits);
        let (life, claims) = (Life::default(), BTreeMap::new());
        let (store, table) = (Some(store), Some(table));
        Run { setup, world, store, table, level, life, history, step: None, claims }
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    fn table(&self) -> &Table {
        self.table.as_ref().unwrap()
    }

    fn at(&self, index: usize) -> Option<usize> {
        index.checked_rem(self.life.rows.len())
    }

    /// Makes one call, of the store and of the model.
    fn apply(&mut self, op: &Op) {
        let mut level = self.level;
        match *op {
            Op::Insert { level: asked, .. } => {
                level = asked;
                self.insert(op);
            }
            Op::Again { row, out } => self.again(row, out),
            Op::Write { row, column, value, level: asked } => {
                level = asked;
                self.write(row, column, value, asked);
            }
            Op::Append { row, column } => self.append(row, column),
            Op::Finalize { row, column } => self.finalize(row, column),
            Op::Resume { row, mask } => self.resume(row, mask),
            Op::Exclude { row, word } => self.exclude(row, word),
            Op::Delete { row, rows } => self.delete(row, rows),
            Op::TaskClaim { rows } => self.task_claim(rows),
            Op::TaskFinish { claim, write } => {
                if !self.task_finish(claim, write) {
                    level = Durability::Memory; // all that there may be is a lease that was given back
                }
            }
            Op::Begin { rows, inputs } => self.begin(rows, inputs),
            Op::Next { rows } => self.next(rows),
            Op::Accumulate { claim } => self.accumulate(claim),
            Op::Drop { claim } => self.drop_claim(claim),
            Op::DropCache => self.drop_cache(),
            Op::DropStep => self.drop_step(),
            Op::Commit { named } => self.commit(named),
            Op::Rewind { back, exclude } => self.rewind(back, exclude),
            Op::Advance { seconds } => self.advance(seconds),
            Op::Checkpoint => _ = self.store().checkpoint().unwrap(),
            Op::Sync => {
                level = Durability::Synced;
                self.store().sync().unwrap();
                self.history.synced_through(self.store().stats().commits);
            }
            Op::End { how, level } => return self.end(how, level),
        }
        // Nobody acknowledges what a handle says by being dropped, or what time does; leases end with the process.
        let lease = matches!(op, Op::TaskClaim { .. } | Op::Next { .. });
        if lease || matches!(op, Op::Drop { .. } | Op::DropStep | Op::Advance { .. }) {
            level = Durability::Memory;
        }
        self.history.acknowledged(self.store().stats(), level, &self.life);
    }

    fn check(&self) {
        let mut expected: Vec<&ModelRow> = self.life.rows.iter().filter(|row| !row.deleted).collect();
        expected.sort_by_key(|row| (row.identity(), row.attempt));
        let version = self.life.version;
        let expected: Vec<Vec<String>> = expected.into_iter().map(|row| row.show(version)).collect();
        assert_eq!(pick(self.store(), "t", &SHOWN), expected);
        let mut counts = TableCounts::default();
        for row in self.life.rows.iter().filter(|row| !row.eval) {
            counts.written += 1;
            counts.consumed += u64::from(row.step.is_some());
            if let Some(reason) = row.excluded {
                *counts.excluded.entry(reason.to_owned()).or_default() += 1;
            }
        }
        assert_eq!(self.table().counts(), counts);
        for info in self.store().consumers() {
            let claimable = self.claimable(info.kind == "trainer").len();
            assert_eq!(info.ready_rows as usize, claimable, "{}", info.name);
        }
        assert_eq!(self.store().policy("t").unwrap().version, version);
    }
}

fn follow(setup: Setup, ops: &[Op]) {
    let mut run = Run::new(setup);
    for op in ops {
        run.apply(op);
        run.check();
    }
    run.end(End::Killed, Durability::Logged);
    run.check();
}

fn cases() -> u32 {
    std::env::var("FOREBAY_CASES").map_or(60, |cases| cases.parse().expect("FOREBAY_CASES is a number"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rows_follow_the_model(disk_seed: u64, ops in prop::collection::vec(op(), 1..80)) {
        follow(Setup { disk_seed, ..Setup::default() }, &ops);
    }

    #[test]
    fn groups_follow_the_model(disk_seed: u64, ops in prop::collection::vec(op(), 1..80)) {
        follow(Setup { group: true, disk_seed, window: None }, &ops);
    }

    #[test]
    fn rows_follow_the_model_to_and_fro(disk_seed: u64, ops in prop::collection::vec(rewinding(), 1..60)) {
        follow(Setup { disk_seed, ..Setup::default() }, &ops);
    }

    #[test]
    fn groups_follow_the_model_to_and_fro(disk_seed: u64, ops in prop::collection::vec(rewinding(), 1..60)) {
        follow(Setup { group: true, disk_seed, window: None }, &ops);
    }

    // DESIGN 3.6: a row stays while its oldest trainable span is within the window, and leaves it as stale.
    #[test]
    fn rows_follow_the_model_within_a_window(
        disk_seed: u64, window in 0..3_u64, ops in prop::collection::vec(op(), 1..80)
    ) {
        follow(Setup { window: Some(window), disk_seed, group: false }, &ops);
    }

    #[test]
    fn groups_follow_the_model_within_a_window(
        disk_seed: u64, window in 0..3_u64, ops in prop::collection::vec(op(), 1..80)
    ) {
        follow(Setup { window: Some(window), disk_seed, group: true }, &ops);
    }
}
