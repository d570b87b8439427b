//! The line through a measure, and how sure its slope is.
//!
//! What a store takes goes up and down with its versions and checkpoints, so one look says something of the next, and the
//! error that least squares would give for the single looks is far too small. The looks are therefore cut into
//! [`BLOCKS`] blocks in a row, each long against those waves, and the line goes through the means of the blocks.

/// How many blocks.
const BLOCKS: usize = 24;
/// Fewer points have no line whose error can be told.
pub(super) const POINTS_MIN: usize = 3;

/// A line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Fit {
    /// The measure's unit, an hour.
    pub(super) slope: f64,
    /// The standard error of the slope.
    pub(super) slope_error: f64,
    pub(super) mean: f64,
    pub(super) most: f64,
}

impl Fit {
    /// The least-squares line through points of hours and values; `None` for fewer than three.
    pub(super) fn of(points: &[(f64, f64)]) -> Option<Self> {
        let block = points.len().div_ceil(BLOCKS).max(1);
        let means: Vec<(f64, f64)> = points.chunks(block).map(mean_of).collect();
        let (x, y) = mean_of(&means);
        let spread: f64 = means.iter().map(|point| (point.0 - x).powi(2)).sum();
        if means.len() < POINTS_MIN || spread == 0.0 {
            return None;
        }
        let slope = means.iter().map(|point| (point.0 - x) * (point.1 - y)).sum::<f64>() / spread;
        let residual = |point: &(f64, f64)| (point.1 - y - slope * (point.0 - x)).powi(2);
        let variance = means.iter().map(residual).sum::<f64>() / (means.len() - 2) as f64;
        let most = points.iter().map(|point| point.1).fold(f64::MIN, f64::max);
        Some(Fit { slope, slope_error: (variance / spread).sqrt(), mean: mean_of(points).1, most })
    }
}

fn mean_of(points: &[(f64, f64)]) -> (f64, f64) {
    let sum = points.iter().fold((0.0, 0.0), |sum, point| (sum.0 + point.0, sum.1 + point.1));
    let count = points.len().max(1) as f64;
    (sum.0 / count, sum.1 / count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Outcome;

    fn fit(points: &[(f64, f64)]) -> Outcome<Fit> {
        Ok(Fit::of(points).ok_or("too few points")?)
    }

    /// Saw teeth of a hundred looks with a slope: an hour, a look every two seconds.
    fn teeth(slope: f64) -> Vec<(f64, f64)> {
        let hours = |look: usize| look as f64 / 1800.0;
        (0..1800).map(|look| (hours(look), 500.0 + (look % 100) as f64 + slope * hours(look))).collect()
    }

    #[test]
    fn waves_are_noise_and_growth_is_not() -> Outcome<()> {
        let (flat, growing) = (fit(&teeth(0.0))?, fit(&teeth(200.0))?);
        assert!(flat.slope.abs() <= 2.0 * flat.slope_error, "{flat:?}");
        assert!(growing.slope > 2.0 * growing.slope_error, "{growing:?}");
        assert!((growing.slope - 200.0).abs() < 30.0, "{growing:?}");
        assert_eq!(Fit::of(&teeth(0.0)[..2]), None);
        Ok(())
    }

    #[test]
    fn a_line_is_found_as_it_is() -> Outcome<()> {
        let points: Vec<(f64, f64)> = (0..10).map(|at| (f64::from(at), 3.0 + 2.0 * f64::from(at))).collect();
        let fit = fit(&points)?;
        assert!((fit.slope - 2.0).abs() < 1e-9 && fit.slope_error < 1e-9);
        assert_eq!((fit.mean, fit.most), (12.0, 21.0));
        Ok(())
    }
}
