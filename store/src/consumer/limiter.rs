//! A rate limiter between those who insert rows and those who claim them: neither side runs far ahead of the other.
//!
//! # What is counted
//! A row is handed out once, so the limiter of a consumer compares how many of its rows have come (`inserted`) with how
//! many were handed out (`handed_out`: held by a claim, finished or trained on). Rows that do not count: those that the
//! consumer does not take, those that were left out, and those of versions that are over. So the balance moves with
//! inserts and claims, and just as well with a claim that is given back, a row that is excluded or deleted, and a step
//! that leaves a version behind. It is kept in the table ([`Tally`]) and follows from the log alone.
//!
//! # The rule
//! With `s` = `samples_per_insert`, `m` = `min_size_to_sample` and `b` = `error_buffer`, as Reverb has them,
//!
//! ```text
//! a claim may go on while   inserted >= m   and   handed_out (after it) <= s * (inserted - m) + b
//! an insert may go on while                       s * (inserted (with one more) - m) <= handed_out + b
//! ```
//!
//! The insert's side is asked for one row: a batch that finds room for one comes in whole, however many rows it has, and
//! may overshoot by the rest. So a batch that is larger than the buffer is not held back for ever.
//!
//! # Why nobody waits for ever for somebody whom he holds back
//! - What belongs to rows that are there is never held back: cells, fragments, finished claims (also with the rows that
//!   they bring), exclusions, closed groups, next attempts. Whoever a claimer waits for can always go on to the end with the rows that
//!   he has begun. A batch that does any of this besides inserting goes on whole.
//! - Inserts wait only for a consumer that could go on and does not. A claim that came away empty-handed leaves behind
//!   what it had asked for; as long as that cannot be had, for want of rows, of whole groups, of planned ones, or because
//!   the limiter holds the claim back, inserts go on, whatever the balance is. So the two sides are never both held
//!   back, and a limit that is smaller than a micro-batch is no trap.
//! - Every insert has a deadline unless its caller wants none, and is then refused: that is all that is left for callers
//!   who make each other wait outside of the store, as one thread that inserts for two trainers in an order in which
//!   neither trainer takes.

use crate::error::{Cause, Error};
use crate::log::record::LimiterRecord;
use crate::table::Tally;

/// Holds those who insert rows and those who claim them together: the declaration, see
/// [`Consumer::rate_limiter`](crate::Consumer::rate_limiter).
///
/// The counts are of the rows that the consumer takes, of versions that are not over, without those that were left out.
/// A claim waits, as for rows that are not ready, while fewer than `min_size_to_sample` have come, or while more would
/// be handed out after it than `samples_per_insert` times those that came beyond that number, and `error_buffer` more.
/// An insert waits while, with it, `samples_per_insert` times those that came beyond that number is more than what was
/// handed out and `error_buffer`. It waits for [`Options::capacity_wait`](crate::Options::capacity_wait), or what
/// [`WriteBatch::wait`](crate::WriteBatch::wait) says, and is then refused with `retry`; nothing has changed then.
///
/// Only what is new is held back. Cells of rows that are there, finished claims with the rows that they bring, next
/// attempts and repeated inserts with a known token go on. So do inserts while a claim that was asked for cannot be had.
///
/// With 1 sample an insert the buffer is how many rows may lie there that nobody has taken yet, beyond the first
/// `min_size_to_sample`. With fewer, the rest of the rows is for the consumer to choose from (with
/// [`Consumer::priority`](crate::Consumer::priority)) and is left behind with its version. A buffer smaller than
/// `samples_per_insert` times `min_size_to_sample` keeps that many rows less the buffer back from claims at all times.
///
/// ```
/// use forebay_store::{Consumer, RateLimiter};
/// // Rollouts run at most 64 rows ahead of the trainer, which begins when 32 are there.
/// let train = Consumer::trainer(["solver"]).ready(["reward"]).rate_limiter(RateLimiter::new(1.0, 32, 64.0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateLimiter {
    /// How many rows are handed out for each that is inserted: above 0, at most 1.
    pub samples_per_insert: f64,
    /// How many rows must have come before the first is handed out: at least 1.
    pub min_size_to_sample: u64,
    /// How many rows the balance may be off to either side: at least 1, and no less than a group has members.
    pub error_buffer: f64,
}

/// How a consumer's limiter stands.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct RateLimiterInfo {
    /// As it was declared.
    pub declared: RateLimiter,
    /// Rows that have come, of versions that are not over and without those left out.
    pub inserted: u64,
    /// Those of them that were handed out.
    pub handed_out: u64,
    /// How many more rows may come; 0 when inserts wait.
    pub may_insert: u64,
    /// How many more may be handed out, ready or not; 0 when claims wait.
    pub may_claim: u64,
}

impl RateLimiter {
    /// A limiter; what it must be is checked when its consumer is created.
    pub fn new(samples_per_insert: f64, min_size_to_sample: u64, error_buffer: f64) -> Self {
        RateLimiter { samples_per_insert, min_size_to_sample, error_buffer }
    }

    /// What is wrong with it for a consumer that takes rows by so many at least.
    fn fault(&self, members: u32) -> Option<String> {
        let RateLimiter { samples_per_insert: samples, min_size_to_sample: least, error_buffer: buffer } =
            *self;
        if !(samples > 0.0 && samples <= 1.0) {
            return Some(format!(
                "samples_per_insert is {samples}; a row is handed out once, so take a number above 0 and at most 1"
            ));
        }
        if least == 0 {
            return Some("min_size_to_sample is 0; take 1 to begin with the first row".to_owned());
        }
        let moves = f64::from(members.max(1));
        if !(buffer >= moves && buffer.is_finite()) {
            return Some(format!(
                "error_buffer is {buffer}, and the consumer takes {moves} rows at once; with less than that neither side could \
                 move, so make it {moves} at least"
            ));
        }
        None
    }

    /// The stored form, for a consumer that takes rows by so many at least.
    ///
    /// # Errors
    /// `input` when it could never move.
    pub(crate) fn record(&self, members: u32) -> Result<LimiterRecord, Error> {
        if let Some(reason) = self.fault(members) {
            return Err(Cause::Argument { what: "rate_limiter", reason }.into());
        }
        Ok(LimiterRecord {
            samples_per_insert: self.samples_per_insert.to_bits(),
            min_size_to_sample: self.min_size_to_sample,
            error_buffer: self.error_buffer.to_bits(),
        })
    }

    /// The declaration that was stored.
    pub(crate) fn from_record(record: &LimiterRecord, members: u32) -> Result<Self, String> {
        let LimiterRecord { samples_per_insert, min_size_to_sample, error_buffer } = *record;
        let (samples, buffer) = (f64::from_bits(samples_per_insert), f64::from_bits(error_buffer));
        let limiter = RateLimiter::new(samples, min_size_to_sample, buffer);
        limiter.fault(members).map_or(Ok(limiter), Err)
    }

    /// How many more rows may be handed out.
    pub(crate) fn may_claim(&self, tally: Tally) -> u64 {
        let Some(beyond) = tally.inserted.checked_sub(self.min_size_to_sample) else { return 0 };
        let most = self.samples_per_insert * beyond as f64 + self.error_buffer;
        (most as u64).saturating_sub(tally.handed_out) // a cast rounds down, and to the greatest what is beyond it
    }

    /// How many more rows may come.
    pub(crate) fn may_insert(&self, tally: Tally) -> u64 {
        let beyond = (tally.handed_out as f64 + self.error_buffer) / self.samples_per_insert;
        self.min_size_to_sample.saturating_add(beyond as u64).saturating_sub(tally.inserted)
    }

    /// How it stands.
    pub(crate) fn info(&self, tally: Tally) -> RateLimiterInfo {
        let Tally { inserted, handed_out } = tally;
        let (may_insert, may_claim) = (self.may_insert(tally), self.may_claim(tally));
        RateLimiterInfo { declared: *self, inserted, handed_out, may_insert, may_claim }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_balance_holds_the_side_back_that_is_ahead() {
        let one = RateLimiter::new(1.0, 4, 8.0);
        let half = RateLimiter::new(0.5, 1, 4.0);
        let keeps = RateLimiter::new(1.0, 10, 2.0);
        for (limiter, inserted, handed_out, may_insert, may_claim) in [
            (one, 0, 0, 12, 0),
            (one, 3, 0, 9, 0),
            (one, 4, 0, 8, 8),
            (one, 12, 0, 0, 16),
            (one, 12, 1, 1, 15),
            (one, 40, 0, 0, 44),
            (half, 1, 0, 8, 4),
            (half, 5, 6, 16, 0),
            (half, 9, 0, 0, 8),
            (keeps, 12, 4, 4, 0),
            (keeps, 13, 4, 3, 1),
        ] {
            let tally = Tally { inserted, handed_out };
            assert_eq!(
                (limiter.may_insert(tally), limiter.may_claim(tally)),
                (may_insert, may_claim),
                "{limiter:?} {tally:?}"
            );
        }
        let most = Tally { inserted: u64::MAX, handed_out: u64::MAX };
        assert_eq!(RateLimiter::new(f64::MIN_POSITIVE, u64::MAX, f64::MAX).may_insert(most), 0);
    }

    #[test]
    fn a_limiter_that_could_never_move_is_refused_with_the_way_out() {
        for (limiter, members, way_out) in [
            (RateLimiter::new(0.0, 1, 8.0), 1, "above 0"),
            (RateLimiter::new(-1.0, 1, 8.0), 1, "above 0"),
            (RateLimiter::new(f64::NAN, 1, 8.0), 1, "above 0"),
            (RateLimiter::new(1.5, 1, 8.0), 1, "at most 1"),
            (RateLimiter::new(f64::INFINITY, 1, 8.0), 1, "at most 1"),
            (RateLimiter::new(1.0, 0, 8.0), 1, "take 1"),
            (RateLimiter::new(1.0, 1, 0.5), 1, "make it 1"),
            (RateLimiter::new(1.0, 1, -8.0), 1, "make it 1"),
            (RateLimiter::new(1.0, 1, f64::NAN), 1, "make it 1"),
            (RateLimiter::new(1.0, 1, f64::INFINITY), 1, "make it 1"),
            (RateLimiter::new(1.0, 1, 7.0), 8, "make it 8"),
        ] {
            let error = limiter.record(members).unwrap_err();
            assert!(error.to_string().contains(way_out), "{limiter:?}: {error}");
            let stored = LimiterRecord {
                samples_per_insert: limiter.samples_per_insert.to_bits(),
                min_size_to_sample: limiter.min_size_to_sample,
                error_buffer: limiter.error_buffer.to_bits(),
            };
            assert!(RateLimiter::from_record(&stored, members).is_err(), "{limiter:?} from a log");
        }
        let good = RateLimiter::new(0.25, 3, 8.0);
        assert_eq!(RateLimiter::from_record(&good.record(8).unwrap(), 8), Ok(good));
    }
}
