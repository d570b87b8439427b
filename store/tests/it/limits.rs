//! Budgets and retention that change while the store is open.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use forebay_store::*;

use crate::support::*;

const MIB: u64 = 1 << 20;
const LONG: Duration = Duration::from_secs(3600);
/// More than any budget here has room for.
const ROWS: usize = 400;

/// The machine's clock, which tells when somebody begins to wait.
#[derive(Debug)]
struct Telling(SystemClock, std::sync::Mutex<Sender<()>>);

impl Clock for Telling {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn wait(&self, listener: EventListener, deadline: Option<Timestamp>) -> bool {
        _ = self.1.lock().unwrap().send(()); // the test may be over
        self.0.wait(listener, deadline)
    }
}

/// A store of a world in real time, and word of each wait.
fn opened(budget: impl Fn(Options) -> Options) -> (Store, Table, Receiver<()>) {
    let (tell, told) = channel();
    let clock = Arc::new(Telling(SystemClock, tell.into()));
    let options = World::new().options().clock(clock).capacity_wait(LONG);
    let store = Store::open(ROOT, budget(options)).unwrap();
    let table = store.create_table("solver", solver_schema()).unwrap();
    (store, table, told)
}

/// Inserts rows with long prompts.
fn insert(table: &Table, rows: std::ops::Range<usize>) {
    let text = "x".repeat(5_000);
    for row in rows {
        table.insert(0, &format!("q{row}_0_0"), [("prompt", text.as_str().into())]).unwrap();
    }
}

#[test]
fn who_waits_for_room_goes_on_as_soon_as_the_budget_says_so() {
    type Budget = fn(Options) -> Options;
    type Change = fn(BudgetChange) -> BudgetChange;
    let cases: [(&str, Budget, Change); 4] = [
        ("disk, raised", |o| o.disk_bytes_max(300_000), |c| c.disk_bytes_max(Some(MIB << 10))),
        ("disk, lifted", |o| o.disk_bytes_max(300_000), |c| c.disk_bytes_max(None)),
        ("memory, raised", |o| o.memory_bytes_max(MIB), |c| c.memory_bytes_max(Some(MIB << 10))),
        ("memory, lifted", |o| o.memory_bytes_max(MIB), |c| c.memory_bytes_max(None)),
    ];
    for (case, budget, change) in cases {
        let (store, table, told) = opened(budget);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                // Snapshots keep what is changed behind them, in memory and on the disk.
                let mut snapshots = Vec::new();
                for row in 0..ROWS {
                    insert(&table, row..row + 1);
                    snapshots.push(store.snapshot());
                }
            });
            told.recv_timeout(LONG).unwrap();
            assert!(!writer.is_finished(), "{case}");
            let budgets = store.change_budgets(&change(BudgetChange::new())).unwrap();
            assert_eq!(budgets, store.budgets(), "{case}");
            writer.join().unwrap();
        });
        assert_eq!(table.counts().written, ROWS as u64, "{case}");
    }
}

#[test]
fn a_budget_below_what_is_taken_holds_writers_back_and_drops_nothing() {
    let world = World::new();
    let options = world.options().capacity_wait(Duration::from_secs(5));
    let store = Store::open(ROOT, options).unwrap();
    let table = store.create_table("solver", solver_schema()).unwrap();
    insert(&table, 0..100);
    assert!(!store.holds_writers_back());
    store.change_budgets(&BudgetChange::new().disk_bytes_max(Some(8192))).unwrap();
    assert!(store.holds_writers_back());
    let text = "y".repeat(70_000); // needs an extent of its own
    let refused = table.insert(0, "late_0_0", [("prompt", text[..60_000].into())]).unwrap_err();
    assert_eq!(refused.kind(), Kind::Capacity, "{refused}");
    assert_eq!(table.counts().written, 100);
    store.change_budgets(&BudgetChange::new().disk_bytes_max(None)).unwrap();
    table.insert(0, "late_0_0", [("prompt", text[..60_000].into())]).unwrap();
}

thread_local! {
    /// Whether this thread waits aside now, and how often it has.
    static ASIDE: Cell<(bool, usize)> = const { Cell::new((false, 0)) };
}

fn aside(wait: &mut dyn FnMut()) {
    ASIDE.set((true, ASIDE.get().1 + 1));
    wait();
    ASIDE.set((false, ASIDE.get().1));
}

/// A clock of a thread that waits aside alone.
#[derive(Debug)]
struct OnlyAside(SimulatedClock);

impl Clock for OnlyAside {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn wait(&self, listener: EventListener, deadline: Option<Timestamp>) -> bool {
        assert!(ASIDE.get().0, "it waits on a thread that others need");
        self.0.wait(listener, deadline)
    }
}

#[test]
fn a_batch_that_waits_aside_waits_nowhere_else_for_whatever_it_waits() {
    type Budget = fn(Options) -> Options;
    let limiter = RateLimiter::new(1.0, 1, 2.0);
    let cases: [(&str, Budget, Option<RateLimiter>); 3] = [
        ("disk", |options| options.disk_bytes_max(300_000), None),
        ("memory", |options| options.memory_bytes_max(MIB), None),
        ("a limiter", |options| options, Some(limiter)),
    ];
    for (case, budget, limiter) in cases {
        let clock = Arc::new(OnlyAside(SimulatedClock::new(Timestamp(0))));
        let options = World::new().options().clock(clock).capacity_wait(Duration::from_secs(5));
        let store = Store::open(ROOT, budget(options)).unwrap();
        let table = store.create_table("solver", solver_schema()).unwrap();
        if let Some(limiter) = limiter {
            let read = Consumer::task(["solver"]).ready(["prompt"]).rate_limiter(limiter);
            store.create_consumer("read", read).unwrap();
        }
        ASIDE.set((false, 0));
        let (text, mut snapshots) = ("x".repeat(5_000), Vec::new());
        let insert = |row: usize| {
            let mut batch = store.batch();
            batch.wait_aside(aside);
            let new = NewRow::new(0, &format!("q{row}_0_0")).unwrap();
            batch.insert(&table, new, [("prompt", text.as_str().into())])?;
            batch.commit()
        };
        let refused = (0..ROWS).find_map(|row| {
            snapshots.push(store.snapshot());
            insert(row).err()
        });
        assert!(refused.is_some() && ASIDE.get().1 > 0, "{case}: {refused:?}");
    }
}

#[test]
fn a_budget_under_which_nothing_fits_changes_nothing_at_all() {
    let world = World::new();
    let store = Store::open(ROOT, world.options().memory_bytes_max(8 * MIB)).unwrap();
    let before = store.budgets();
    for change in [
        BudgetChange::new().memory_bytes_max(Some(0)),
        BudgetChange::new().memory_bytes_max(Some(MIB - 1)),
        BudgetChange::new().disk_bytes_max(Some(0)),
        BudgetChange::new().disk_bytes_max(Some(4095)),
        BudgetChange::new().disk_bytes_max(None).memory_bytes_max(Some(7)),
    ] {
        let refused = store.change_budgets(&change).unwrap_err();
        assert_eq!(refused.kind(), Kind::Input, "{change:?}: {refused}");
        assert!(refused.to_string().contains("at least"), "{refused}");
        assert_eq!(store.budgets(), before);
    }
    let most = BudgetChange::new().memory_bytes_max(Some(u64::MAX)).disk_bytes_max(Some(u64::MAX - 1));
    let table = store.create_table("solver", solver_schema()).unwrap();
    store.change_budgets(&most).unwrap();
    insert(&table, 0..3);
    drop((table, store));
    let store = Store::open(ROOT, world.options().read_only(true)).unwrap();
    assert_eq!(store.change_budgets(&BudgetChange::new()).unwrap_err().kind(), Kind::State);
    assert_eq!(store.change_retention(Retention::default()).unwrap_err().kind(), Kind::State);
}

#[test]
fn what_holds_now_is_shown_and_the_next_opening_begins_with_its_own() {
    let world = World::new();
    let store = Store::open(ROOT, world.options().memory_bytes_max(8 * MIB)).unwrap();
    let shown = |store: &Store, name: &str| {
        store.settings().into_iter().find(|(setting, _)| *setting == name).unwrap().1
    };
    assert_eq!(shown(&store, "memory_bytes_max").as_deref(), Some("8388608"));
    store.change_budgets(&BudgetChange::new().memory_bytes_max(None).disk_bytes_max(Some(9 * MIB))).unwrap();
    store.change_retention(Retention::default().versions(3).consumed_for(Duration::from_secs(60))).unwrap();
    for (name, value) in [
        ("memory_bytes_max", None),
        ("disk_bytes_max", Some("9437184")),
        ("retention_versions", Some("3")),
        ("retention_consumed_for_ms", Some("60000")),
    ] {
        assert_eq!(shown(&store, name).as_deref(), value, "{name}");
    }
    let store = world.reopen(store);
    assert_eq!((store.budgets(), store.retention()), (Budgets::default(), Retention::default()));
}

#[test]
fn another_rule_of_retention_is_followed_from_the_next_duty_on() {
    let (store, table, train) = trained(&World::new(), None);
    for version in 0..4 {
        finished(&table, version, &format!("q{version}_0_0"));
        train_once(&store, &train, StepPlan::new().rows(&train, 1), "solver");
    }
    let rows = |store: &Store| pick(store, "solver", &["sample_id"]).len();
    store.run_once().unwrap();
    assert_eq!(rows(&store), 4, "all are kept");
    let rule = Retention::default().versions(2);
    store.change_retention(rule).unwrap();
    assert_eq!(store.retention(), rule);
    store.run_once().unwrap();
    assert!(rows(&store) < 4);
    let left = rows(&store);
    store.change_retention(Retention::default()).unwrap();
    finished(&table, 4, "q4_0_0");
    train_once(&store, &train, StepPlan::new().rows(&train, 1), "solver");
    store.run_once().unwrap();
    assert_eq!(rows(&store), left + 1, "nothing goes any more");
}
