//! A tiny hour runs, its threads agree with the store on what was done, and what it leaves behind can be read.

use forebay_benches::{Hour, Outcome};

#[test]
fn an_hour_leaves_a_table_and_a_picture() -> Outcome<()> {
    let folder = tempfile::tempdir()?;
    let (csv, plot) = (folder.path().join("hour.csv"), folder.path().join("hour.svg"));
    let rows = Hour { csv: Some(csv.clone()), plot: Some(plot.clone()), ..Hour::quick() }.run()?;
    for what in ["slope", "disk", "samples", "p99.9"] {
        assert!(rows.iter().any(|row| row.measure().contains(what)), "{what}");
    }
    let text = std::fs::read_to_string(csv)?;
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let head = lines.next().ok_or("an empty file")?;
    let looks: Vec<_> = lines.collect();
    assert!(looks.iter().all(|look| look.len() == head.len()), "{text}");
    let column = |name| head.iter().position(|other| *other == name).ok_or("a column is missing");
    let last = |name| {
        Ok::<f64, Box<dyn std::error::Error + Send + Sync>>(looks[looks.len() - 1][column(name)?].parse()?)
    };
    assert!(
        last("steps")? >= 6.0 && last("samples")? > 0.0 && last("scored")? > 0.0 && last("disk_bytes")? > 0.0
    );
    let picture = std::fs::read_to_string(plot)?;
    assert!(picture.starts_with("<svg") && picture.contains("disk") && picture.contains("minutes"));
    Ok(())
}
