//! A swap at four sizes (FX-85): what grows with the state, and what does not.
//!
//! The sizes are in the proportion of models of 3, 7, 14 and 32 billion parameters, scaled down to a machine's memory. Moving the state
//! ("offload", "onload") is expected to grow with it, ending and starting processes to stay as it is. What the paper has measured, on GPUs
//! that nobody here has, stands beside in its own units: as a target, and as how much the largest takes of the smallest, which needs no
//! machine of theirs.

use std::sync::OnceLock;

use forebay_benches::{Goal, Outcome, Row};

use super::kept::Kept;
use super::limits::Limits;
use super::model::{LAYER_PARAMETERS, layers};
use super::timings::Timings;
use super::{Case, Swap, swaps};

/// Billions of parameters.
const BILLIONS: [u64; 4] = [3, 7, 14, 32];
const TARGETS: &str = include_str!("../../../paper_targets.csv");

/// What the paper says of one measure at one size.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// The item of SPEC that it is of.
    pub spec_id: &'static str,
    /// What was measured.
    pub measure: &'static str,
    /// Of which size.
    pub size: &'static str,
    /// How much it was.
    pub value: f64,
    /// In what.
    pub unit: &'static str,
    /// Under which conditions.
    pub conditions: &'static str,
}

/// Every row of `benches/paper_targets.csv`.
pub fn targets() -> &'static [Target] {
    static ROWS: OnceLock<Vec<Target>> = OnceLock::new();
    ROWS.get_or_init(|| TARGETS.lines().skip(1).filter_map(target).collect())
}

fn target(line: &'static str) -> Option<Target> {
    let mut cells = line.splitn(6, ',');
    let mut next = || cells.next();
    let (spec_id, measure, size, value) = (next()?, next()?, next()?, next()?.parse().ok()?);
    Some(Target { spec_id, measure, size, value, unit: next()?, conditions: next()? })
}

/// What one size took, in milliseconds.
struct Taken {
    megabytes: f64,
    offload: f64,
    onload: f64,
    processes: f64,
}

/// Measures a swap after an update at each size, `scale` times smaller than its name says.
///
/// # Errors
/// When a process, the store or a socket fails.
pub fn measure_sizes(swap: &Swap, (scale, rounds): (u64, usize), print: &mut dyn FnMut(Row)) -> Outcome<()> {
    if scale == 0 || rounds == 0 {
        return Err("--scale and the rounds of a size have to be at least 1".into());
    }
    let mut all = Vec::new();
    for billions in BILLIONS {
        let count = (billions * 1_000_000_000 / scale / LAYER_PARAMETERS).max(1);
        let kept = Kept::new(swap.are_objects)?;
        let (size, mut timings) = (layers(count), Timings::default());
        let bytes = swaps(swap, &kept, (&size, rounds), Case::Updated, &mut timings)?;
        let limits = Limits::of(rounds, bytes, kept.folder())?;
        let taken = Taken {
            megabytes: bytes.set as f64 / 1e6,
            offload: timings.median("set"),
            onload: timings.median("copy"),
            processes: ["exit", "spawn", "context", "registration"]
                .map(|part| timings.median(part))
                .iter()
                .sum(),
        };
        let head = format!("{billions}B / {scale}: {:.0} MB", taken.megabytes);
        let started = (limits.process, "a process that returns at once, started and ended");
        for (what, value, limit) in [
            ("offload", taken.offload, (limits.set, "one copy of the bytes into warm shared memory")),
            ("onload", taken.onload, (limits.get, "one copy of them into memory that nobody has touched")),
            ("suspend and resume without the state", taken.processes, started),
            ("suspend and resume with everything", timings.median("swap"), started),
        ] {
            print(Row::new(format!("FX-85, {head}, {what}"), (value, "ms"), limit, Goal::None));
        }
        all.push(taken);
    }
    print_growth(&all, print);
    Ok(())
}

/// How much the largest takes of the smallest.
fn print_growth(all: &[Taken], print: &mut dyn FnMut(Row)) {
    let (Some(first), Some(last)) = (all.first(), all.last()) else { return };
    let of = |value: fn(&Taken) -> f64| value(last) / value(first);
    let limit = (of(|taken| taken.megabytes), "as much as the bytes grow");
    for (what, value) in [
        ("offload", of(|taken| taken.offload)),
        ("onload", of(|taken| taken.onload)),
        ("suspend and resume without the state", of(|taken| taken.processes)),
    ] {
        let measure = format!("FX-85, {what}, 32B over 3B{}", told(what));
        print(Row::new(measure, (value, "times"), limit, Goal::None));
    }
}

/// What the paper has of a measure at both ends.
fn told(measure: &str) -> String {
    let at = |size: &str| targets().iter().find(|row| row.measure == measure && row.size == size);
    match (at("3B"), at("32B")) {
        (Some(small), Some(large)) => {
            let (unit, growth) = (small.unit, large.value / small.value);
            format!(" (in the paper {} and {} {unit}: {growth:.1})", small.value, large.value)
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_papers_targets_is_read() {
        assert_eq!(targets().len(), TARGETS.lines().count() - 1);
        assert!(targets().iter().all(|row| row.spec_id == "FX-85" && row.value > 0.0));
        assert_eq!(told("offload"), " (in the paper 0.5 and 3.8 s: 7.6)");
        assert_eq!(told("onload"), "");
    }
}
