//! Many threads on one store: nothing is lost, nothing is handed out twice, no instant is torn.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use forebay_store::*;

use crate::support::*;

const WRITERS: usize = 4;
const ROWS: usize = 200;

struct Run {
    store: Store,
    tables: [Table; 2],
    task: ConsumerHandle,
    taken: Mutex<Vec<String>>,
    finished: AtomicUsize,
    written: AtomicBool,
}

/// Each row is a row in both tables, inserted at once; its response grows; then it is given to the task or left out.
fn write(run: &Run, writer: usize) {
    for i in 0..ROWS {
        let id = format!("w{writer}_0_{i}");
        let mut batch = run.store.batch();
        for table in &run.tables {
            let text = format!("prompt of {id}, which lies in an extent");
            batch.insert(table, NewRow::new(0, &id).unwrap(), [("prompt", text.into())]).unwrap();
        }
        let rows = batch.commit().unwrap();
        let [first, second] = &run.tables;
        first.append(rows[0], "response", vec![i as i32; i % 30].into()).unwrap();
        first.append(rows[0], "response", vec![-1_i32; 3].into()).unwrap();
        first.finalize(rows[0], "response").unwrap();
        if i % 10 == 0 {
            second.exclude(rows[1], "every tenth").unwrap();
        }
    }
}

/// Takes rows until there are none any more; gives every seventh micro-batch back the first time.
fn take(run: &Run) {
    let mut turn = 0;
    loop {
        let claim = run.task.claim(MicroBatch::up_to(5), "me", Wait::No).unwrap();
        let Some(claim) = claim else {
            if run.finished.load(Ordering::SeqCst) == WRITERS * ROWS {
                return;
            }
            std::thread::yield_now();
            continue;
        };
        turn += 1;
        if turn % 7 == 0 {
            continue; // dropped
        }
        let mine = ids(&claim);
        let rows = claim.rows().to_vec();
        let write = |batch: &mut WriteBatch<'_>| {
            rows.iter().try_for_each(|&row| batch.write(&run.tables[0], row, [("reward", 1.0.into())]))
        };
        claim.finish(write).unwrap();
        run.finished.fetch_add(mine.len(), Ordering::SeqCst);
        run.taken.lock().unwrap().extend(mine);
    }
}

/// Looks at both tables: a batch over them is in both or in none, and what was seen once stays.
fn look(run: &Run) {
    let (mut before, mut last) = (0, 0);
    while !run.written.load(Ordering::SeqCst) {
        let snapshot = run.store.snapshot();
        let ids =
            ["a", "b"].map(|name| scan_of(snapshot.table(name).unwrap(), |column| column == "sample_id"));
        assert_eq!(ids[0], ids[1], "torn at commit {}", snapshot.commit());
        assert!(ids[0].len() >= before && snapshot.commit() >= last);
        (before, last) = (ids[0].len(), snapshot.commit());
        let shown =
            scan_of(snapshot.table("a").unwrap(), |column| ["response", "response_status"].contains(&column));
        assert!(
            shown
                .iter()
                .all(|row| row.starts_with("response=null") == row.ends_with("response_status=false"))
        );
    }
}

// FX-91, FX-15
#[test]
fn four_writers_two_claimers_and_a_reader() {
    let world = World::new();
    let store = world.open();
    let tables = ["a", "b"].map(|name| store.create_table(name, solver_schema()).unwrap());
    let task = store.create_consumer("task", Consumer::task(["a"]).ready(["response"])).unwrap();
    let run = Run {
        store,
        tables,
        task,
        taken: Mutex::default(),
        finished: AtomicUsize::new(0),
        written: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                scope.spawn({
                    let run = &run;
                    move || write(run, writer)
                })
            })
            .collect();
        (0..2).for_each(|_| _ = scope.spawn(|| take(&run)));
        scope.spawn(|| look(&run));
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        run.written.store(true, Ordering::SeqCst);
    });
    let taken = run.taken.into_inner().unwrap();
    assert_eq!(taken.len(), WRITERS * ROWS);
    assert_eq!(taken.iter().collect::<HashSet<_>>().len(), taken.len(), "no row twice");
    check_counts(&run.store);
    assert!(pick(&run.store, "a", &["reward"]).iter().all(|row| row[0] == "1.0"));
    assert_eq!(run.tables[1].counts().excluded["every tenth"], (WRITERS * ROWS / 10) as u64);
    let before = scan(&run.store);
    drop((run.tables, run.task));
    assert_eq!(scan(&world.reopen(run.store)), before);
}

#[test]
fn a_value_is_whole_however_many_read_it_while_it_turns_final() {
    let (_, table) = solver(&World::new());
    for i in 0..100 {
        let row = table.insert(0, &format!("q_0_{i}"), []).unwrap();
        table.append(row, "prompt", "a first half that is long, ".into()).unwrap();
        table.append(row, "prompt", "and a second half".into()).unwrap();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                loop {
                    match table.cell(row, "prompt").unwrap() {
                        Cell::Partial(bytes) => assert_eq!(bytes.len(), 44),
                        Cell::Bytes(bytes) => return bytes.len(),
                        other => panic!("{other:?}"),
                    }
                }
            });
            table.finalize(row, "prompt").unwrap();
            assert_eq!(reader.join().unwrap(), 44);
        });
    }
}
