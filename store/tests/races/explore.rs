//! Tries one test under many schedules.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, Runner};

/// How many schedules of each kind one seed stands for. A priority scheduler learns in its first how long they are.
const SCHEDULES_A_SEED: usize = 8;
/// How many times a priority scheduler changes its mind: most bugs need no more.
const DEPTH: usize = 3;
/// Stack of a thread: the store's own threads are the caller's, with ordinary stacks.
const STACK_BYTES: usize = 1 << 20;

/// How many schedules saw something that a test must see now and then, or it would test nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen(Arc<AtomicU64>); // of the standard library: it outlives an execution

impl Seen {
    pub(crate) fn note(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

fn from_environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name)
        .map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// Says how to try the same schedules again.
struct Told(u64);

impl Drop for Told {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let name = std::thread::current().name().unwrap_or("").to_owned();
            let schedules = 2 * SCHEDULES_A_SEED;
            eprintln!(
                "again: FOREBAY_SEED={} FOREBAY_SCHEDULES={schedules} cargo test -p forebay-store --features shuttle \
                 --test races {name}",
                self.0
            );
        }
    }
}

/// Runs `body` under `FOREBAY_SCHEDULES` schedules (or `few`), of seeds from `FOREBAY_SEED` (1) on: half of them choose the
/// next thread by chance at every step, half give threads priorities and change them seldom.
pub(crate) fn explore(few: u64, body: impl Fn() + Send + Sync + 'static) {
    let body = Arc::new(body);
    let schedules = from_environment("FOREBAY_SCHEDULES", few);
    let seed = from_environment("FOREBAY_SEED", 1);
    let run = |scheduler: Box<dyn Scheduler + Send>| {
        let mut config = Config::new();
        config.stack_size = STACK_BYTES;
        config.silence_warnings = true; // of orders that are not modelled: src/sync says so
        config.failure_persistence = FailurePersistence::None; // the seed is shorter
        let body = body.clone();
        Runner::new(scheduler, config).run(move || body());
    };
    for seed in seed..seed + schedules.div_ceil(2 * SCHEDULES_A_SEED as u64).max(1) {
        let _told = Told(seed);
        run(Box::new(RandomScheduler::new_from_seed(seed, SCHEDULES_A_SEED)));
        run(Box::new(PctScheduler::new_from_seed(seed, DEPTH, SCHEDULES_A_SEED)));
    }
}
