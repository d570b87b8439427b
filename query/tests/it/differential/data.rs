//! Two agents, four versions, three steps: the same to the byte whenever it is made.

use std::sync::Arc;
use std::time::Duration;

use forebay_query::{Archive, ArchiveRule, Archiver, Session};
use forebay_store::{
    Consumer, DataType, Element, GroupBy, MicroBatch, NewRow, Options, Purpose, Row, Schema, SimulatedClock,
    StepPlan, Store, Table, Timestamp, Value, Wait,
};
use object_store::memory::InMemory;
use tempfile::TempDir;

use super::dice::Dice;

/// An open store with the content of every question, and a session over it.
pub(super) struct Data {
    pub(super) session: Session,
    store: Store,
    clock: Arc<SimulatedClock>,
    _directory: TempDir,
}

const VERSIONS: u64 = 4;
const INPUTS: u64 = 12;
const TRAJECTORIES: u32 = 4;

/// Numbers and texts that plans go wrong with: two zeros, NaN of either sign, infinities, numbers that a float32 and a float64
/// hold differently, the ends of 64 bits and what a float64 holds of whole numbers, texts in and beside a view of 12 bytes.
const ODD: [f32; 12] = [
    0.1,
    -0.1,
    0.25,
    0.0,
    -0.0,
    7.0,
    f32::NAN,
    -f32::NAN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::MIN_POSITIVE,
    16_777_216.0,
];
const SCORES: [f64; 12] = [
    0.1,
    -0.1,
    0.25,
    0.0,
    -0.0,
    7.0,
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    1e300,
    0.1 + 0.2,
    0.1_f32 as f64,
];
const BIG: [i64; 10] =
    [i64::MAX, i64::MAX - 1, i64::MIN, i64::MIN + 1, 0, -1, 17, 1 << 53, (1 << 53) + 1, -(1 << 53) - 1];
const NOTES: [&str; 12] = [
    "",
    " ",
    "a",
    "abcdefghijkl",
    "abcdefghijkm",
    "abcdefghijklm",
    "abcdefghijkln",
    "ABCDEFGHIJKLM",
    "\u{e4}\u{f6}\u{fc}\u{e4}\u{f6}\u{fc}",
    "\u{e4}\u{f6}\u{fc}\u{e4}\u{f6}\u{fc}a",
    "100%",
    "a_b\\c",
];

impl Data {
    pub(super) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let clock = Arc::new(SimulatedClock::new(Timestamp(1_750_000_000_000_000)));
        let options = Options::default().clock(clock.clone());
        let store = Store::open(directory.path().join("store"), options).unwrap();
        for agent in ["solver", "checker"] {
            let schema = Schema::new()
                .data("prompt", DataType::Utf8)
                .data("response", DataType::list(Element::Int32))
                .data("logprobs", DataType::list(Element::Float32))
                .data("reference", DataType::list(Element::Float32))
                .data("reward", DataType::Float32)
                .data("odd", DataType::Float32)
                .data("score", DataType::Float64)
                .data("big", DataType::Int64)
                .data("note", DataType::Utf8);
            store.create_table(agent, schema).unwrap();
            let trainer =
                Consumer::trainer([agent]).ready(["reward"]).group(GroupBy::InputAndTurn, TRAJECTORIES);
            store.create_consumer(&format!("train-{agent}"), trainer).unwrap();
        }
        let data = Data { session: Session::new(&store).unwrap(), store, clock, _directory: directory };
        let mut dice = [Dice::new(7), Dice::new(11)];
        for version in 0..VERSIONS {
            data.fill(version, &mut dice);
            if version + 1 < VERSIONS {
                data.step(["solver", "checker"], version);
            }
        }
        data
    }

    /// Another session over the same store.
    pub(super) fn session(&self, options: &forebay_query::Options) -> Session {
        Session::with_options(&self.store, options).unwrap()
    }

    /// An archive with what is over, versions 0 and 1, which leave the store.
    pub(super) fn archived(&self) -> Archive {
        let archive = Archive::in_store("memory:///archive", Arc::new(InMemory::new()));
        let archiver = Archiver::new(&self.store, &archive, ArchiveRule::keep_versions(1)).unwrap();
        let moved = std::iter::from_fn(|| archiver.run_once().unwrap());
        let moved: Vec<u64> = moved.map(|(due, _)| due.version).collect();
        assert_eq!(moved, [0, 0, 1, 1], "of both tables");
        archive
    }

    fn fill(&self, version: u64, dice: &mut [Dice; 2]) {
        let (solver, checker) = (self.store.table("solver").unwrap(), self.store.table("checker").unwrap());
        for input in 0..INPUTS {
            for trajectory in 0..TRAJECTORIES {
                let id = |turn: u32| format!("q{input}_{turn}_{trajectory}");
                // The first two inputs are trained on, so they are whole.
                let whole = input < 2;
                self.row(&solver, NewRow::new(version, &id(0)).unwrap(), dice, whole);
                if dice[0].below(3) > 0 {
                    self.row(&solver, NewRow::new(version, &id(1)).unwrap(), dice, false);
                }
                let parent = format!("solver/{}", id(0));
                self.row(&checker, NewRow::new(version, &id(0)).unwrap().parent(&parent), dice, whole);
                if input == 2 {
                    let parent = format!("checker/{}", id(0));
                    self.row(&checker, NewRow::new(version, &id(1)).unwrap().parent(&parent), dice, false);
                }
            }
        }
    }

    fn row(&self, table: &Table, row: NewRow, [dice, hostile]: &mut [Dice; 2], whole: bool) {
        self.clock.advance(Duration::from_millis(1 + dice.below(900)));
        let aside = !whole && dice.below(20) == 0;
        let row = if aside { row.purpose(Purpose::Eval) } else { row };
        let row = table.insert_row(row, []).unwrap();
        let number = dice.below(100);
        let prompt = match dice.below(12) {
            0 => String::new(),
            1 => format!("Größe «{number}» \"quoted\", 数 {number}"),
            _ => format!("What is {} + {number}? Answer with a number.", dice.below(10)),
        };
        let length = dice.below(25);
        let response: Vec<i32> = (0..length).map(|_| dice.below(16) as i32).collect();
        let logprobs: Vec<f32> = (0..length).map(|_| -(dice.below(400) as f32) / 100.0).collect();
        let reference: Vec<f32> =
            logprobs.iter().map(|own| own - dice.below(50) as f32 / 100.0 + 0.2).collect();
        let reward = match dice.below(6) {
            0 => 0.0,
            1 => 1.0,
            _ => dice.below(1000) as f64 / 1000.0,
        };
        let cells: [(&str, Value<'_>); 5] = [
            ("prompt", prompt.as_str().into()),
            ("response", (&response[..]).into()),
            ("logprobs", (&logprobs[..]).into()),
            ("reference", (&reference[..]).into()),
            ("reward", reward.into()),
        ];
        for cell in cells {
            self.clock.advance(Duration::from_millis(dice.below(200)));
            if whole || dice.below(8) > 0 {
                table.write(row, [cell]).unwrap();
            }
        }
        hostile_cells(table, row, hostile);
        if !whole && dice.below(15) == 0 {
            table.exclude(row, dice.one_of(&["too_long", "no_answer"])).unwrap();
        }
    }

    /// Trains on the first two groups of both agents.
    fn step(&self, agents: [&str; 2], version: u64) {
        let trainers = agents.map(|agent| self.store.consumer(&format!("train-{agent}")).unwrap());
        let plan = trainers.iter().fold(StepPlan::new(), |plan, train| plan.groups(train, ["q0_0", "q1_0"]));
        let step = self.store.begin_step(plan).unwrap();
        for train in &trainers {
            while let Some(claim) = step.next(train, MicroBatch::of(4), Wait::No).unwrap() {
                self.clock.advance(Duration::from_secs(1));
                claim.accumulated().unwrap();
            }
        }
        self.clock.advance(Duration::from_secs(1));
        let step = step.commit(agents.map(|agent| (agent, vec![]))).unwrap();
        assert_eq!(step.step, version + 1);
        self.clock.advance(Duration::from_secs(1));
    }
}

/// Writes what plans go wrong with; one cell of eight stays NULL.
fn hostile_cells(table: &Table, row: Row, dice: &mut Dice) {
    let cells: [(&str, Value<'_>); 4] = [
        ("odd", ODD[dice.below(12) as usize].into()),
        ("score", SCORES[dice.below(12) as usize].into()),
        ("big", BIG[dice.below(10) as usize].into()),
        ("note", NOTES[dice.below(12) as usize].into()),
    ];
    for cell in cells {
        if dice.below(8) > 0 {
            table.write(row, [cell]).unwrap();
        }
    }
}
