//! Which row of a sample is meant by a row that names the sample alone.
//!
//! A row names what it continues by table and sample id (`parent`), and a sample may be there in many versions. One of them is
//! meant: that of the row's own version; where there is none, because policies move one by one, the newest that was there when
//! the row was made.

use super::member::Member;

/// Of the rows of one sample those that `by` means: of one version, with all attempts.
pub(super) fn meant<'a>(by: &Member, rows: &[&'a Member]) -> Vec<&'a Member> {
    let is_there = |by: &&&Member| by.created_at;
    let before = || rows.iter().filter(|row| row.created_at <= by.created_at).max_by_key(is_there);
    let version = match rows.iter().any(|row| row.version == by.version) {
        true => Some(by.version),
        false => before().or_else(|| rows.iter().min_by_key(is_there)).map(|row| row.version),
    };
    rows.iter().filter(|row| Some(row.version) == version).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::super::member::tests::row;
    use super::*;

    #[test]
    fn one_version_of_a_sample_is_meant() {
        let there: Vec<Member> =
            [(0, 10), (1, 20), (3, 40)].map(|(v, at)| row("solver", "q_0_0", v, at, None)).into();
        let there: Vec<&Member> = there.iter().collect();
        for (version, at, expected) in [(1, 50, 1), (2, 50, 3), (2, 30, 1), (2, 20, 1), (7, 5, 0)] {
            let found = meant(&row("checker", "q_1_0", version, at, None), &there);
            assert_eq!(found.iter().map(|row| row.version).collect::<Vec<_>>(), [expected], "{version} {at}");
        }
        assert!(meant(there[0], &[]).is_empty());
    }
}
