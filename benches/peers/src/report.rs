//! What is printed.

use std::fmt::Write;

use crate::peer::Level;

/// One line of the table: a peer at a level.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Report {
    pub(crate) peer: String,
    pub(crate) version: String,
    pub(crate) language: String,
    pub(crate) level: Level,
    pub(crate) ingest_per_second: f64,
    pub(crate) write_p50_us: f64,
    pub(crate) write_p99_us: f64,
    pub(crate) through_per_second: f64,
    pub(crate) take_p50_us: f64,
    pub(crate) take_p99_us: f64,
    pub(crate) disk_bytes_per_sample: f64,
    pub(crate) note: String,
}

/// A peer that could not be measured, with the reason.
#[derive(Clone, Debug)]
pub(crate) struct Missing {
    pub(crate) peer: String,
    pub(crate) level: Level,
    pub(crate) reason: String,
}

const HEAD: &str = "\
| peer | version | from | level | ingest, samples/s | × | batch of 64, p50 / p99 us | end to end, samples/s | × \
| take 16, p50 / p99 us | × | disk, bytes/sample | notes |
| --- | --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |
";

/// The table in Markdown. `×` is Forebay's value at the same level over the peer's where more is better, and the peer's
/// over Forebay's where less is: above 1 Forebay wins.
pub(crate) fn table(rows: &[Result<Report, Missing>]) -> String {
    let mut text = HEAD.to_owned();
    let ours = |level| rows.iter().flatten().find(|row| row.peer == "Forebay" && row.level == level);
    for row in rows {
        let line = match row {
            Ok(report) => line(report, ours(report.level)),
            Err(Missing { peer, level, reason }) => {
                let reason = reason.replace(['|', '\n'], " ");
                format!("| {peer} | | | {} | | | | | | | | | not measured: {reason} |", level.as_str())
            }
        };
        text += &line;
        text.push('\n');
    }
    text
}

fn line(report: &Report, ours: Option<&Report>) -> String {
    let Report { peer, version, language, note, .. } = report;
    let times = |ratio: fn(&Report, &Report) -> f64| {
        ours.filter(|ours| ours.peer != report.peer)
            .map_or_else(String::new, |ours| format!("{:.2}", ratio(ours, report)))
    };
    let mut text = String::new();
    let mut cell = |value: &str| _ = write!(text, "| {value} ");
    cell(peer);
    cell(version);
    cell(language);
    cell(report.level.as_str());
    cell(&thousands(report.ingest_per_second));
    cell(&times(|ours, peer| ours.ingest_per_second / peer.ingest_per_second));
    cell(&format!("{} / {}", thousands(report.write_p50_us), thousands(report.write_p99_us)));
    cell(&thousands(report.through_per_second));
    cell(&times(|ours, peer| ours.through_per_second / peer.through_per_second));
    cell(&format!("{} / {}", thousands(report.take_p50_us), thousands(report.take_p99_us)));
    cell(&times(|ours, peer| peer.take_p50_us / ours.take_p50_us));
    cell(&thousands(report.disk_bytes_per_sample));
    cell(note);
    text.push('|');
    text
}

/// A whole number with its thousands apart.
fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_stand_apart() {
        assert_eq!([0.4, 999.0, 1_000.0, 1_234_567.8].map(thousands), ["0", "999", "1,000", "1,234,568"]);
    }

    #[test]
    fn who_is_missing_has_a_line_with_the_reason() {
        let missing = Missing { peer: "Reverb".into(), level: Level::Memory, reason: "no\nvenv".into() };
        let text = table(&[Err(missing)]);
        assert!(text.contains("| Reverb |") && text.contains("not measured: no venv"), "{text}");
    }
}
