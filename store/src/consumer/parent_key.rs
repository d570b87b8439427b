//! Keys of groups by parent.
//!
//! Such a group is named by the parent of its rows or, where they have none, by their input: two texts that callers choose. A key
//! tells which of them it names by how that looks, and where the looks deceive, by a mark before it:
//!
//! | key | names |
//! | --- | --- |
//! | `q17` | the input `q17` |
//! | `/solver/q17_0_3` | the input `solver/q17_0_3`, which looks like a parent |
//! | `solver/q17_0_3` | the parent `solver/q17_0_3` |
//! | `?/q17_0_3` | the parent `q17_0_3`, which looks like an input |
//!
//! # Invariants
//! - No two groups have one key, and each is found by its own.
//! - Records name groups by keys, and there were logs before there were marks. Keys without one mean what they meant then. Of those with one,
//!   none stood for a parent, for a table's name begins with a letter; inputs that begin with `?/` are the only ones that did for something.

use std::borrow::Cow;

use crate::sample_id::SampleId;

/// Stands before an input that would be taken for something else.
const INPUT: &str = "/";
/// Stands before a parent that is not told as a row of a table.
const PARENT: &str = "?/";

/// The key of an input's rows that have no parent.
pub(super) fn of_input(input: &str) -> Cow<'_, str> {
    if is_mistakable(input) { format!("{INPUT}{input}").into() } else { input.into() }
}

/// The key of a parent's children.
pub(super) fn of_parent(parent: &str) -> Cow<'_, str> {
    let is_marked = parent.starts_with(INPUT) || parent.starts_with(PARENT);
    if names_a_row(parent) && !is_marked { parent.into() } else { format!("{PARENT}{parent}").into() }
}

/// The text of the input or the parent that a key names, and whether it is a parent.
pub(super) fn parse(key: &str) -> (&str, bool) {
    if let Some(input) = key.strip_prefix(INPUT).filter(|input| is_mistakable(input)) {
        return (input, false);
    }
    match key.strip_prefix(PARENT) {
        Some(parent) if !parent.is_empty() => (parent, true),
        _ => (key, names_a_row(key)),
    }
}

/// Whether an input would be taken for something else if it stood alone.
fn is_mistakable(input: &str) -> bool {
    names_a_row(input) || input.trim_start_matches(INPUT).starts_with(PARENT)
}

/// Whether a text is `TABLE/SAMPLE_ID`.
fn names_a_row(text: &str) -> bool {
    text.split_once('/').is_some_and(|(_, sample)| sample.parse::<SampleId>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_gives_back_what_it_names_and_no_two_names_share_one() {
        let texts = ["q", "q_0_9", "t/q_0_9", "root", "a/b", "/data/a.json", "/data/a_1_2", "?", "?/", "/"];
        let marked =
            |text: &&str| ["/", "?/", "//", "/?/", "?//", "?/?/"].map(|marks| format!("{marks}{text}"));
        let plain = texts.iter().map(|text| (*text).to_owned());
        let texts: Vec<String> = texts.iter().flat_map(marked).chain(plain).collect();
        for text in &texts {
            assert_eq!(parse(&of_input(text)), (text.as_str(), false));
            assert_eq!(parse(&of_parent(text)), (text.as_str(), true));
        }
    }

    #[test]
    fn what_is_not_mistakable_is_its_own_key() {
        for input in ["q", "q_0_9", "a/b", "/data/a.json", "?"] {
            assert_eq!(of_input(input), input);
        }
        assert_eq!(of_parent("solver/q_0_9"), "solver/q_0_9");
    }
}
