//! A query sees one instant, whatever others write meanwhile.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use forebay_store::NewRow;

use crate::fixture::Run;

/// Tells the other thread at its end, also when that is a failed assertion.
struct Raise<'a>(&'a AtomicBool);

impl Drop for Raise<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Rows are written to both tables in one batch, so at no instant do they differ.
#[test]
fn tables_that_are_joined_show_the_same_instant() {
    const QUERIES: usize = 12;
    const PAIRS_A_QUERY: usize = 100; // the writer runs ahead of the queries, but not out of sight
    let run = Run::with_tables();
    let [solver, checker] = ["solver", "checker"].map(|name| run.store.table(name).unwrap());
    let (asked, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for pair in 0..QUERIES * PAIRS_A_QUERY {
                while pair >= (asked.load(Ordering::Acquire) + 1) * PAIRS_A_QUERY {
                    if over.load(Ordering::Acquire) {
                        return;
                    }
                    std::thread::yield_now();
                }
                let mut batch = run.store.batch();
                for table in [&solver, &checker] {
                    batch.insert(table, NewRow::new(0, &format!("q{pair}_0_0")).unwrap(), []).unwrap();
                }
                batch.commit().unwrap();
            }
        });
        let sql = "SELECT (SELECT count(sample_id) FROM solver) AS a, (SELECT count(sample_id) FROM checker) AS b, \
                   (SELECT count(*) FROM solver s FULL JOIN checker c USING (sample_id) \
                    WHERE s.sample_id IS NULL OR c.sample_id IS NULL) AS alone, \
                   (SELECT min(written) FROM system.tables) AS least, (SELECT max(written) FROM system.tables) AS most";
        let _over = Raise(&over);
        for _ in 0..QUERIES {
            let rows = run.rows(sql);
            let count = |column: &str| rows[0][column].as_u64().unwrap();
            assert_eq!(count("alone"), 0);
            assert_eq!([count("b"), count("least"), count("most")], [count("a"); 3]);
            asked.fetch_add(1, Ordering::Release);
        }
    });
    assert!(run.store.table("solver").unwrap().counts().written as usize >= (QUERIES - 1) * PAIRS_A_QUERY);
}

/// Steps move rows, versions and counts together; no query sees one without the other.
#[test]
fn a_step_is_seen_whole_or_not_at_all() {
    let run = Run::with_tables();
    let solver = run.store.table("solver").unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _done = Raise(&done);
            for version in 0..40 {
                let input = format!("q{version}");
                crate::fixture::finished_group(&solver, version, &input, [1.0, 0.0]);
                run.commit_step("solver", &[input.as_str()]);
            }
        });
        let sql = "SELECT t.current_version, t.consumed, t.written = t.consumed + t.excluded + t.open AS whole, \
                   (SELECT count(*) FROM solver WHERE step IS NOT NULL) AS stepped \
                   FROM system.tables t WHERE t.table_name = 'solver'";
        while !done.load(Ordering::Acquire) {
            let row = &run.rows(sql)[0];
            let number = |column: &str| row[column].as_u64().unwrap();
            assert_eq!(number("consumed"), 2 * number("current_version"), "{row}");
            assert_eq!(number("stepped"), number("consumed"));
            assert_eq!(row["whole"], true);
        }
    });
    assert_eq!(run.column("SELECT current_version FROM system.tables WHERE table_name = 'solver'"), [40]);
}
