//! What a store may take: byte budgets, who waits at them and what he is told, and rate limiters.

use forebay_client::{Changes, Error};
use forebay_store::{BudgetChange, Delete, Kind, RateLimiter};

use super::*;

/// How long a writer waits for room, where a case does not say.
const PATIENCE: Duration = Duration::from_millis(20);

/// A store with a budget, on each way.
fn on_every_way_at(budget: impl Fn(Options) -> Options, case: impl Fn(&World)) {
    for way in Way::ALL {
        eprintln!("on the way {way:?}"); // shown when the case fails
        let options = Options::default().extent_bytes(1 << 16, 1 << 18).capacity_wait(PATIENCE);
        case(&World::with(way, budget(options)));
    }
}

/// Inserts a row whose prompt has so many bytes.
fn insert(client: &Client, id: &str, bytes: usize, wait: Option<Wait>) -> Result<Row, Error> {
    let long = "x".repeat(bytes);
    let mut changes = Changes::new();
    changes.insert("solver", NewRow::new(0, id).unwrap(), [("prompt", (&*long).into())]);
    wait.into_iter().for_each(|wait| _ = changes.wait(wait));
    Ok(client.write(&changes)?[0])
}

/// Inserts until one is refused. Gives the rows that came, and the refusal.
fn fill(client: &Client, name: &str, bytes: usize) -> (Vec<Row>, Error) {
    let mut rows = Vec::new();
    loop {
        match insert(client, &format!("{name}{}_0_0", rows.len()), bytes, None) {
            Ok(row) => rows.push(row),
            Err(error) => return (rows, error),
        }
        assert!(rows.len() < 10_000, "nobody is held back");
    }
}

// FX-B18, DESIGN 3.7: at the budget a writer is told the largest pin, nothing is lost, and it goes on when the pin is gone.
#[test]
fn at_the_disk_budget_a_writer_is_told_the_largest_pin_and_goes_on_when_it_is_gone() {
    on_every_way_at(
        |options| options.disk_bytes_max(8 << 20),
        |world| {
            let client = world.client();
            let table = solver(&client);
            let pinned: Vec<Row> =
                (0..40).map(|at| insert(&client, &format!("p{at}_0_0"), 100_000, None).unwrap()).collect();
            let snapshot = world.store.snapshot_for("slow reader");
            table.delete(&Delete::rows(pinned)).unwrap();
            let (rows, refused) = fill(&client, "q", 100_000);
            assert_eq!((refused.kind(), refused.cause()), (Kind::Capacity, "NoSpace"), "{refused}");
            assert!(refused.to_string().contains("slow reader"), "{refused}");
            let counts = table.counts().unwrap();
            assert_eq!(counts.open(), rows.len() as u64, "what was refused is not there: {counts:?}");
            drop(snapshot);
            let next = insert(&client, "next_0_0", 100_000, Some(LONG)).unwrap();
            for row in rows.into_iter().chain([next]) {
                let forebay_client::CellValue::Bytes(prompt) = table.cell(row, "prompt").unwrap() else {
                    panic!("nothing is dropped to make room")
                };
                assert!(prompt.len() == 100_000 && prompt.iter().all(|byte| *byte == b'x'));
            }
        },
    );
}

#[test]
fn who_waits_for_room_goes_on_when_the_budget_is_raised() {
    on_every_way_at(
        |options| options.disk_bytes_max(4 << 20),
        |world| {
            let client = world.client();
            let table = solver(&client);
            let (rows, refused) = fill(&client, "q", 100_000);
            assert_eq!(refused.kind(), Kind::Capacity, "{refused}");
            let at_once = insert(&client, "none_0_0", 100_000, Some(Wait::No)).unwrap_err();
            assert_eq!(at_once.kind(), Kind::Capacity, "{at_once}");
            std::thread::scope(|scope| {
                let writer = scope.spawn(|| insert(&client, "waits_0_0", 100_000, Some(LONG)));
                let admin = world.client().admin();
                admin.change_budgets(&BudgetChange::new().disk_bytes_max(Some(1 << 30))).unwrap();
                writer.join().unwrap().unwrap();
            });
            assert_eq!(table.counts().unwrap().written, rows.len() as u64 + 1);
        },
    );
}

#[test]
fn at_the_memory_budget_a_writer_is_told_the_largest_pin_and_rows_that_are_there_are_still_finished() {
    const AT_ONCE: usize = 1_024;
    on_every_way_at(
        |options| options.memory_bytes_max(2 << 20),
        |world| {
            let client = world.client();
            let table = solver(&client);
            let batch = |number: usize| {
                let mut changes = Changes::new();
                for at in 0..AT_ONCE {
                    let new = NewRow::new(0, &format!("q{number}_0_{at}")).unwrap();
                    changes.insert("solver", new, [("prompt", "a prompt".into())]);
                }
                client.write(&changes)
            };
            let mut rows: Vec<Row> = (0..8).flat_map(|number| batch(number).unwrap()).collect();
            let snapshot = world.store.snapshot_for("slow reader");
            for some in rows.chunks(AT_ONCE) {
                let mut changes = Changes::new();
                some.iter().for_each(|row| _ = changes.write("solver", *row, [("reward", 1.0.into())]));
                client.write(&changes).unwrap();
            }
            let refused = loop {
                assert!(rows.len() < 200 * AT_ONCE, "the budget holds nobody back");
                match batch(rows.len() / AT_ONCE) {
                    Ok(came) => rows.extend(came),
                    Err(error) => break error,
                }
            };
            assert_eq!((refused.kind(), refused.cause()), (Kind::Capacity, "NoMemory"), "{refused}");
            for told in ["2097152", "slow reader"] {
                assert!(refused.to_string().contains(told), "{told}: {refused}");
            }
            assert_eq!(table.counts().unwrap().written, rows.len() as u64, "what was refused is not there");
            let last = rows[rows.len() - 1];
            table.write(last, [("response", vec![1_i32].into())]).unwrap();
            drop(snapshot);
            assert_eq!(batch(10_000).unwrap().len(), AT_ONCE);
        },
    );
}

// FX-B18
#[test]
fn a_limiter_holds_claims_back_until_enough_has_come_and_inserts_until_enough_was_taken() {
    on_every_way_at(
        |options| options,
        |world| {
            let client = world.client();
            let table = solver(&client);
            let limited = Consumer::task(["solver"]).rate_limiter(RateLimiter::new(0.5, 4, 2.0));
            let task = client.create_consumer("task", limited).unwrap();
            let insert = |at: usize| insert(&client, &format!("q_0_{at}"), 3, Some(Wait::No));
            (0..3).for_each(|at| _ = insert(at).unwrap());
            let claim = |rule| task.claim(rule, Wait::No).unwrap();
            assert!(claim(up_to(8)).is_none(), "three of at least four");
            insert(3).unwrap();
            let first = claim(up_to(8)).unwrap();
            assert_eq!(first.len(), 2, "the buffer, and nothing is beyond the first four");
            assert!(claim(up_to(8)).is_none(), "all of the share is out");
            first.finish(&Changes::new()).unwrap();
            (4..6).for_each(|at| _ = insert(at).unwrap());
            let second = claim(up_to(8)).unwrap();
            assert_eq!(second.len(), 1, "a row for two inserts");
            second.release().unwrap();
            let held_back = (6..100).find_map(|at| insert(at).err()).expect("nobody takes any");
            assert_eq!((held_back.kind(), held_back.cause()), (Kind::Retry, "HeldBack"), "{held_back}");
            for told in ["\"task\"", "buffer of 2"] {
                assert!(held_back.to_string().contains(told), "{told}: {held_back}");
            }
            let written = table.counts().unwrap().written;
            claim(up_to(1)).unwrap().finish(&Changes::new()).unwrap();
            insert(1_000).unwrap();
            assert_eq!(table.counts().unwrap().written, written + 1);
        },
    );
}
