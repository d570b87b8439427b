//! The benchmark's engines give the same answers. What it measures here says nothing.

#![allow(clippy::unwrap_used, reason = "a test stops where its benchmark fails")]

use forebay_query_benches::{Scale, run};

#[test]
fn the_engines_that_need_no_python_agree() {
    let scale = Scale {
        rows: 2048,
        repetitions: 2,
        python: "there-is-no-such-interpreter".to_owned(),
        ..Scale::default()
    };
    let (mut rows, mut said) = (Vec::new(), Vec::new());
    run(&scale, &mut |row| rows.push(row), &mut |line| said.push(line)).unwrap();
    assert!(said.iter().any(|line| line.contains("no Python engines")), "{said:?}");
    let compared = rows.iter().filter(|row| row.measure().contains("warm")).count();
    assert!(compared >= 18, "six questions beside two engines and the better of them: {compared}");
    assert!(rows.iter().all(|row| row.ratio().is_finite() && row.ratio() > 0.0));
}
