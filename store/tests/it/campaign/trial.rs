//! Runs a workload once, then once more for each point and each fault that fits it.

use std::collections::BTreeMap;

use forebay_store::*;

use super::content::Content;
use super::upkeep::{Life, check_sums, check_verified};
use super::workload::{Dice, Workload, go_on};
use crate::support::*;

/// The undisturbed life of a seed.
pub(crate) struct Reference {
    seed: u64,
    life: Life,
    /// What was there after each acknowledged call, by the commit number then.
    contents: BTreeMap<u64, Content>,
    pub(crate) history: Vec<DiskOperation>,
    /// The most extents that were used again while it was open.
    pub(crate) used_again: u64,
    /// The most extents that were over before they were synced.
    pub(crate) never_synced: u64,
    /// Steps in which groups were trained.
    pub(crate) trained: u64,
}

/// One way to fail.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    pub(crate) at: u64,
    pub(crate) fault: DiskFault,
}

/// What was promised before the fault.
#[derive(Clone, Copy, Debug, Default)]
struct Promised {
    /// The last commit that was acknowledged at all, and at least at each level.
    memory: u64,
    logged: u64,
    synced: u64,
}

/// How many points were tried, by fault and by operation.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) by_fault: BTreeMap<DiskFault, u64>,
    pub(crate) by_operation: BTreeMap<DiskOperation, u64>,
    pub(crate) points: u64,
}

impl Tally {
    pub(crate) fn count(&mut self, point: Point, operation: DiskOperation) {
        self.points += 1;
        *self.by_fault.entry(point.fault).or_default() += 1;
        *self.by_operation.entry(operation).or_default() += 1;
    }
}

fn world(seed: u64, disk_seed: u64) -> World {
    let segment_bytes = Dice::new(seed ^ 1).one_of(&[900, 4000, 1 << 20]);
    World { segment_bytes, ..World::on(SimulatedDisk::seeded(disk_seed)) }
}

impl Promised {
    fn hear(&mut self, store: &Store, level: Durability) {
        let stats = store.stats();
        let commit = stats.commits;
        self.synced = self.synced.max(stats.durable_commits);
        self.memory = commit;
        if level >= Durability::Logged {
            self.logged = commit;
        }
        if level >= Durability::Synced {
            self.synced = commit;
        }
    }

    /// What is there whatever comes, after `end` and before it `fault`.
    fn floor(&self, fault: DiskFault, end: DiskFault) -> u64 {
        match end {
            _ if fault == DiskFault::SyncFailsAndForgets => self.synced,
            DiskFault::PowerFails => self.synced,
            _ => self.logged,
        }
    }
}

impl Reference {
    pub(crate) fn new(seed: u64, life: Life) -> Self {
        // Looking at objects reads the disk, so the points are counted in a run of their own.
        let unseen = world(seed, seed);
        let (_store, result) = Workload::new(&unseen, seed, life).run(&mut |_, _| ());
        result.unwrap_or_else(|error| panic!("seed {seed}, undisturbed: {error:?}"));
        let history = unseen.disk.history();
        let world = world(seed, seed);
        let mut contents = BTreeMap::from([(0, Content::default())]);
        let (mut used_again, mut never_synced) = (0, 0);
        let mut workload = Workload::new(&world, seed, life);
        let (_, result) = workload.run(&mut |store, _| {
            let stats = store.stats();
            used_again = stats.extents_recycled.max(used_again);
            never_synced = stats.extents_never_synced.max(never_synced);
            contents.insert(stats.commits, Content::of(store));
            check_sums(store);
        });
        result.unwrap_or_else(|error| panic!("seed {seed}, undisturbed: {error:?}"));
        let trained = workload.trained;
        Reference { seed, life, contents, history, used_again, never_synced, trained }
    }

    /// Every fault that fits every operation.
    pub(crate) fn points(&self) -> Vec<Point> {
        let at = |(i, &operation): (usize, &DiskOperation)| {
            let fitting = DiskFault::ALL.into_iter().filter(move |fault| fault.fits(operation));
            fitting.map(move |fault| Point { at: i as u64 + 1, fault })
        };
        self.history.iter().enumerate().flat_map(at).collect()
    }

    /// Fails at a point and looks at what is left.
    pub(crate) fn fail_at(&self, point: Point) {
        let disk_seed = self.seed ^ (point.at << 8) ^ ((point.fault as u64) << 56);
        let world = world(self.seed, disk_seed);
        world.disk.arm(point.at, point.fault);
        let mut promised = Promised::default();
        let mut workload = Workload::new(&world, self.seed, self.life);
        let (store, result) = workload.run(&mut |store, level| promised.hear(store, level));
        let trial = Trial { reference: self, promised, point, world: &world, dice: Dice::new(!disk_seed) };
        assert_eq!(world.disk.struck(), Some((point.at, point.fault)), "{trial}: it ran otherwise before");
        if point.fault.is_death() {
            drop(store); // its process is dead, so nothing of that reaches the disk
            trial.reopen(point.fault);
        } else if let Some(end) = trial.live_on(store, result) {
            trial.reopen(end);
        }
    }
}

/// One run that failed at one point.
struct Trial<'a> {
    reference: &'a Reference,
    promised: Promised,
    point: Point,
    world: &'a World,
    dice: Dice,
}

impl std::fmt::Display for Trial<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Point { at, fault } = self.point;
        let operation = self.reference.history[at as usize - 1];
        write!(
            f,
            "FOREBAY_LIFE={:?} FOREBAY_SEED={} FOREBAY_POINT={at}:{fault:?} ({operation:?})",
            self.reference.life, self.reference.seed
        )
    }
}

impl Trial<'_> {
    /// The process outlived the fault: what it shows is right, and it goes on or says why not. Gives how it ended then,
    /// unless all that could be looked at was.
    fn live_on(&self, store: Option<Store>, result: Result<()>) -> Option<DiskFault> {
        if let Err(error) = &result {
            let told = matches!(error.kind(), Kind::Closed | Kind::Capacity | Kind::State);
            assert!(told, "{self}: {error:?}");
        }
        if let Some(store) = store {
            if let Some(reason) = store.closed() {
                assert!(!reason.is_empty(), "{self}");
                let refused = store.create_policy("late", 0, &[]).unwrap_err();
                assert_eq!(refused.kind(), Kind::Closed, "{self}");
            } else {
                self.world.disk.mend();
                self.check_content(&store, self.promised.memory, "the store lives on");
                check_sums(&store);
                match go_on(&store, 0) {
                    Ok(()) => {
                        self.lived_on(store);
                        return None;
                    }
                    // What failed may be found by a later sync only.
                    Err(error) => assert_eq!(error.kind(), Kind::Closed, "{self}: {error:?}"),
                }
            }
        }
        Some(self.end())
    }

    /// The store went on as if nothing had been: so does the next process.
    fn lived_on(&self, store: Store) {
        store.sync().unwrap_or_else(|error| panic!("{self}: after all went on: {error:?}"));
        let content = Content::of(&store);
        drop(store);
        self.end();
        self.world.disk.restart();
        let store = self.open("after it had gone on");
        check_verified(self.world, &self);
        assert_eq!(content.difference(&Content::of(&store)), "", "{self}: after it had gone on");
    }

    fn end(&self) -> DiskFault {
        if self.dice.below(2) == 0 {
            self.world.disk.kill();
            DiskFault::ProcessDies
        } else {
            self.world.disk.cut_power();
            DiskFault::PowerFails
        }
    }

    fn open(&self, when: &str) -> Store {
        self.world.try_open().unwrap_or_else(|error| panic!("{self}: {when}: {error:?}"))
    }

    fn check_content(&self, store: &Store, floor: u64, when: &str) -> Content {
        let found = Content::of(store);
        let ceiling = self.promised.memory;
        let contents = &self.reference.contents;
        let first = contents.range(..=floor).next_back().map_or(0, |(&commit, _)| commit);
        let next = contents.range(ceiling + 1..).next().map_or(u64::MAX, |(&commit, _)| commit);
        let known = contents.range(first..=next).any(|(_, content)| *content == found);
        if !known {
            let promised = &contents[&first];
            panic!(
                "{self}: {when}: the content of no commit from {first} to {next}; against {first}:\n{}",
                promised.difference(&found)
            );
        }
        found
    }

    /// The next process finds the content of one commit that is not before the last promised one, the process after it
    /// the same, and it goes on.
    fn reopen(&self, end: DiskFault) {
        let disk = &self.world.disk;
        let mut floor = self.promised.floor(self.point.fault, end);
        disk.restart();
        if self.dice.below(3) == 0 {
            // Opening fails too, somewhere.
            let fault = self.dice.one_of(&[
                DiskFault::ProcessDies,
                DiskFault::PowerFails,
                DiskFault::SyncFailsAndForgets,
                end,
            ]);
            disk.arm(disk.operations() + 1 + self.dice.below(60), fault);
            let opened = self.world.try_open();
            if let Err(error) = &opened {
                assert_ne!(error.kind(), Kind::Corrupt, "{self}: dying in open: {error:?}");
            }
            if fault == DiskFault::SyncFailsAndForgets {
                floor = self.promised.synced;
            }
            if fault == DiskFault::PowerFails {
                floor = self.promised.synced;
                disk.cut_power();
            }
            disk.kill();
            drop(opened);
            disk.restart();
        }
        let store = self.open("the next process");
        let found = self.check_content(&store, floor, "the next process");
        check_sums(&store);
        check_verified(self.world, &self);
        if end == DiskFault::PowerFails {
            disk.cut_power();
        }
        disk.kill();
        drop(store);
        disk.restart();
        let store = self.open("the process after it");
        assert_eq!(found.difference(&Content::of(&store)), "", "{self}: opened twice");
        check_verified(self.world, &self);
        go_on(&store, 1).unwrap_or_else(|error| panic!("{self}: going on: {error:?}"));
        let found = Content::of(&store);
        drop(store);
        disk.restart();
        assert_eq!(
            found.difference(&Content::of(&self.open("the last process"))),
            "",
            "{self}: after going on"
        );
    }
}
