//! How many values are from one to another.

use arrow_array::types::IntervalMonthDayNano;
use arrow_schema::{DataType, TimeUnit};
use datafusion::common::exec_err;
use datafusion::error::Result as PlanResult;

use super::argument::Argument;
use super::bytes::sum;

const SECOND: i128 = 1_000_000_000;
/// The shortest there is, where clocks go forward.
const DAY: i128 = 23 * 3600 * SECOND;
const MONTH_DAYS: i128 = 28;

/// The values of the series of all rows, ends counted: at least as many as there will be.
///
/// # Errors
/// A step that goes forward and backward at once: such a series may never come to its end.
pub(super) fn values(arguments: &[Argument], rows: usize) -> PlanResult<u64> {
    if arguments.iter().any(|argument| argument.data_type().is_null()) {
        return Ok(0);
    }
    match (arguments, arguments.first().and_then(|start| nanoseconds(start.data_type()))) {
        ([start, stop, step], Some(unit)) => of_times(&start.whole()?, &stop.whole()?, step, unit, rows),
        ([stop], None) => of_numbers(&[None, Some(stop), None], rows),
        ([start, stop], None) => of_numbers(&[Some(start), Some(stop), None], rows),
        ([start, stop, step], None) => of_numbers(&[Some(start), Some(stop), Some(step)], rows),
        _ => Ok(0), // which the function refuses
    }
}

/// From 0 or `start` to `stop` by 1 or `step`.
fn of_numbers([start, stop, step]: &[Option<&Argument>; 3], rows: usize) -> PlanResult<u64> {
    let [start, stop, step] = [start, stop, step].map(|argument| argument.map(Argument::whole).transpose());
    let (start, stop, step) = (start?, stop?, step?);
    let number = |argument: &Option<Argument>, row, otherwise| match argument {
        Some(argument) => argument.number(row),
        None => Some(otherwise),
    };
    let of_row = |row| {
        let (start, stop, step) = (number(&start, row, 0)?, number(&stop, row, 0)?, number(&step, row, 1)?);
        Some(count(i128::from(stop) - i128::from(start), step.into()))
    };
    Ok(sum((0..rows).filter_map(of_row)))
}

/// From `start` to `stop`, numbers of a unit of so many nanoseconds.
fn of_times(start: &Argument, stop: &Argument, step: &Argument, unit: i128, rows: usize) -> PlanResult<u64> {
    let mut sum = 0_u64;
    for row in 0..rows {
        let (Some(start), Some(stop), Some(step)) = (start.number(row), stop.number(row), step.interval(row))
        else {
            continue;
        };
        let width = (i128::from(stop) - i128::from(start)) * unit;
        sum = sum.saturating_add(count(width, shortest(step)?));
    }
    Ok(sum)
}

/// The nanoseconds of a unit of a time; `None` for what is none.
fn nanoseconds(kind: &DataType) -> Option<i128> {
    Some(match kind {
        DataType::Date32 => 24 * 3600 * SECOND,
        DataType::Date64 | DataType::Timestamp(TimeUnit::Millisecond, _) => SECOND / 1_000,
        DataType::Timestamp(TimeUnit::Second, _) => SECOND,
        DataType::Timestamp(TimeUnit::Microsecond, _) => SECOND / 1_000_000,
        DataType::Timestamp(TimeUnit::Nanosecond, _) => 1,
        _ => return None,
    })
}

/// The least that a step of an interval may be, in nanoseconds.
fn shortest(step: IntervalMonthDayNano) -> PlanResult<i128> {
    let parts = [i128::from(step.months), i128::from(step.days), i128::from(step.nanoseconds)];
    if parts.iter().any(|part| *part > 0) && parts.iter().any(|part| *part < 0) {
        return exec_err!(
            "a series in steps of {} months, {} days and {} nanoseconds goes forward and backward at once and may have no end; give \
             a step whose parts have one sign",
            step.months,
            step.days,
            step.nanoseconds
        );
    }
    let [months, days, nanoseconds] = parts;
    Ok((months * MONTH_DAYS + days) * DAY + nanoseconds)
}

/// The steps over a width, and its start. None where the step leads away, or nowhere: which the function refuses.
fn count(width: i128, step: i128) -> u64 {
    if step == 0 || (width != 0 && (width > 0) != (step > 0)) {
        return 0;
    }
    u64::try_from(width / step + 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_has_at_least_its_values() {
        for (width, step, values) in [
            (10, 1, 11),
            (10, 3, 4),
            (-10, -3, 4),
            (0, 5, 1),
            (10, -1, 0),
            (10, 0, 0),
            (i128::from(i64::MAX) - i128::from(i64::MIN), 1, u64::MAX),
        ] {
            assert_eq!(count(width, step), values, "{width} by {step}");
        }
    }

    #[test]
    fn a_step_that_goes_both_ways_is_refused() {
        let both = IntervalMonthDayNano::new(1, -31, 0);
        assert!(shortest(both).unwrap_err().to_string().contains("1 months, -31 days"));
        assert_eq!(shortest(IntervalMonthDayNano::new(-1, 0, 0)).unwrap(), -28 * DAY);
    }
}
