//! The identity of a sample: `{input_id}_{turn}_{trajectory_id}`.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::error::{Cause, Error, Result};

/// Names one sample of one policy version: which input it answers, at which turn, on which trajectory.
///
/// The text form is parsed *from the right*, so an input id may hold underscores: `a_b_1_0` is turn 1 of trajectory 0
/// of input `a_b`. A sample id is unique in a table together with the policy version.
///
/// # Order
/// By input, then turn, then trajectory, all *numerically*: runs of digits inside an input id compare as numbers, so
/// `q2` comes before `q10`.
///
/// ```
/// use forebay_store::SampleId;
/// let id: SampleId = "a_b_1_0".parse()?;
/// assert_eq!((id.input(), id.turn(), id.trajectory()), ("a_b", 1, 0));
/// assert!("2_1".parse::<SampleId>().is_err());
/// assert!("2_0_0".parse::<SampleId>()? < "10_0_0".parse::<SampleId>()?);
/// # Ok::<(), forebay_store::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SampleId {
    input: Arc<str>,
    turn: u32,
    trajectory: u32,
}

impl SampleId {
    /// Puts a sample id together from its parts.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::Kind::Input) when the input id is empty.
    pub fn new(input: &str, turn: u32, trajectory: u32) -> Result<Self> {
        if input.is_empty() {
            let id = format!("_{turn}_{trajectory}");
            return Err(Cause::SampleId { id, reason: "the input id is empty" }.into());
        }
        Ok(SampleId { input: input.into(), turn, trajectory })
    }

    /// The same, borrowed.
    pub(crate) fn key(&self) -> SampleKey<'_> {
        SampleKey { input: &self.input, turn: self.turn, trajectory: self.trajectory }
    }

    /// The input (question, task, prompt) that this sample belongs to.
    pub fn input(&self) -> &str {
        &self.input
    }

    /// How many turns came before this one on its trajectory.
    pub fn turn(&self) -> u32 {
        self.turn
    }

    /// Which of the trajectories of the input this is.
    pub fn trajectory(&self) -> u32 {
        self.trajectory
    }

    /// The same input and turn on another trajectory.
    pub(crate) fn on_trajectory(&self, trajectory: u32) -> Self {
        SampleId { trajectory, ..self.clone() }
    }

    /// The same trajectory, one turn on: what the next agent's row is called.
    pub fn next_turn(&self) -> Self {
        SampleId { input: self.input.clone(), turn: self.turn + 1, trajectory: self.trajectory }
    }
}

impl FromStr for SampleId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refuse = |reason| Error::from(Cause::SampleId { id: text.to_owned(), reason });
        let mut parts = text.rsplitn(3, '_');
        let (trajectory, turn, input) = (parts.next(), parts.next(), parts.next());
        let input = input.ok_or_else(|| refuse("it has fewer than three parts"))?;
        let number = |part: Option<&str>, reason| {
            let digits = part.filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
            digits.and_then(|digits| digits.parse().ok()).ok_or_else(|| refuse(reason))
        };
        let turn = number(turn, "the turn is not a number from 0 to 4294967295")?;
        let trajectory = number(trajectory, "the trajectory is not a number from 0 to 4294967295")?;
        if input.is_empty() {
            return Err(refuse("the input id is empty"));
        }
        SampleId::new(input, turn, trajectory)
    }
}

impl fmt::Display for SampleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.key(), f)
    }
}

impl fmt::Debug for SampleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Ord for SampleId {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for SampleId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A [`SampleId`] whose input id lies elsewhere: what rows are compared and shown by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SampleKey<'a> {
    pub(crate) input: &'a str,
    pub(crate) turn: u32,
    pub(crate) trajectory: u32,
}

impl SampleKey<'_> {
    /// The same, with an input id of its own.
    pub(crate) fn to_id(self) -> SampleId {
        SampleId { input: self.input.into(), turn: self.turn, trajectory: self.trajectory }
    }
}

impl fmt::Display for SampleKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}_{}", self.input, self.turn, self.trajectory)
    }
}

impl Ord for SampleKey<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        numeric_order(self.input, other.input)
            .then(self.turn.cmp(&other.turn))
            .then(self.trajectory.cmp(&other.trajectory))
    }
}

impl PartialOrd for SampleKey<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Compares texts with runs of digits taken as numbers; equal numbers written differently compare as text.
fn numeric_order(left: &str, right: &str) -> Ordering {
    let (mut a, mut b) = (left.as_bytes(), right.as_bytes());
    while let (Some(&x), Some(&y)) = (a.first(), b.first()) {
        let order = if x.is_ascii_digit() && y.is_ascii_digit() {
            let ((number_a, rest_a), (number_b, rest_b)) = (split_number(a), split_number(b));
            (a, b) = (rest_a, rest_b);
            number_a.len().cmp(&number_b.len()).then(number_a.cmp(number_b))
        } else {
            (a, b) = (&a[1..], &b[1..]);
            x.cmp(&y)
        };
        if order.is_ne() {
            return order;
        }
    }
    a.len().cmp(&b.len()).then(left.cmp(right))
}

/// The leading digits without their leading zeros, and what follows them.
fn split_number(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
    let zeros = text[..end].iter().take_while(|&&b| b == b'0').count();
    (&text[zeros..end], &text[end..])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // FX-13
    #[test]
    fn ids_are_parsed_from_the_right() {
        for (text, input, turn, trajectory) in
            [("2_1_0", "2", 1, 0), ("a_b_1_0", "a_b", 1, 0), ("__0_7", "_", 0, 7)]
        {
            let id: SampleId = text.parse().unwrap();
            assert_eq!((id.input(), id.turn(), id.trajectory()), (input, turn, trajectory));
            assert_eq!(id.to_string(), text);
        }
    }

    // FX-13
    #[test]
    fn malformed_ids_are_refused_with_the_reason() {
        let cases = [
            ("", "fewer than three"),
            ("2_1", "fewer than three"),
            ("2_1_-1", "trajectory"),
            ("2_-1_1", "turn"),
            ("2_x_1", "turn"),
            ("2_1_x", "trajectory"),
            ("2_1_+1", "trajectory"),
            ("2_1_", "trajectory"),
            ("_1_0", "input id is empty"),
            ("2_1_4294967296", "trajectory"),
        ];
        for (text, reason) in cases {
            let error = text.parse::<SampleId>().unwrap_err();
            assert!(error.to_string().contains(reason), "{text:?}: {error}");
        }
    }

    // FX-15
    #[test]
    fn order_is_numeric_in_every_part() {
        let sorted = ["1_0_0", "2_0_2", "2_0_10", "2_1_0", "10_0_0", "q2_0_0", "q10_0_0"];
        let mut ids: Vec<SampleId> = sorted.iter().rev().map(|text| text.parse().unwrap()).collect();
        ids.sort();
        assert_eq!(ids.iter().map(ToString::to_string).collect::<Vec<_>>(), sorted);
    }

    proptest! {
        #[test]
        fn any_id_survives_its_text_form(input in ".{1,12}", turn: u32, trajectory: u32) {
            let id = SampleId::new(&input, turn, trajectory).unwrap();
            prop_assert_eq!(id.to_string().parse::<SampleId>().unwrap(), id);
        }

        #[test]
        fn order_agrees_with_equality_and_is_antisymmetric(a in "[a0-9_]{1,6}", b in "[a0-9_]{1,6}") {
            prop_assert_eq!(numeric_order(&a, &b), numeric_order(&b, &a).reverse());
            prop_assert_eq!(numeric_order(&a, &b).is_eq(), a == b);
        }
    }
}
