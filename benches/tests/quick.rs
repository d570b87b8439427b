//! Every row runs, with tiny sizes, and gives the same digest twice: so none of them rots.

use forebay_benches::{Killed, ObjectScale, Outcome, Row, Scale, run, run_objects};

fn quick() -> Outcome<Vec<Row>> {
    let mut rows = Vec::new();
    let killed = Killed::at(env!("CARGO_BIN_EXE_killed"));
    run(Scale::QUICK, &killed, "", &mut |row| rows.push(row))?;
    Ok(rows)
}

#[test]
fn every_row_runs_and_does_the_same_work_each_time() -> Outcome<()> {
    let rows = quick()?;
    assert!(rows.len() >= 20, "{}", rows.len());
    for row in &rows {
        // At this size there may be nothing to use again.
        let least = if row.measure().ends_with("used again") { -1.0 } else { 0.0 };
        assert!(row.ratio().is_finite() && row.ratio() > least, "{row:?}");
        assert_ne!(row.digest(), 0, "{row:?}");
        let line = row.json();
        for key in ["measure", "level", "value", "unit", "limit", "limit_kind", "ratio", "goal", "met"] {
            assert!(line.contains(&format!("\"{key}\":")), "{line}");
        }
    }
    let digests = |rows: &[Row]| rows.iter().map(Row::digest).collect::<Vec<_>>();
    assert_eq!(digests(&rows), digests(&quick()?));
    Ok(())
}

#[test]
fn every_row_of_objects_runs_and_does_the_same_work_each_time() -> Outcome<()> {
    let rows = || -> Outcome<Vec<Row>> {
        let mut rows = Vec::new();
        run_objects(&ObjectScale::quick(), &mut |row| rows.push(row))?;
        Ok(rows)
    };
    let first = rows()?;
    assert_eq!(first.len(), 12);
    assert!(
        first.iter().all(|row| row.ratio().is_finite() && row.ratio() > 0.0 && row.digest() != 0),
        "{first:?}"
    );
    let digests = |rows: &[Row]| rows.iter().map(Row::digest).collect::<Vec<_>>();
    assert_eq!(digests(&first), digests(&rows()?));
    Ok(())
}
