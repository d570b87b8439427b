//! Rows of peers: where they come from, and who takes them.
//!
//! A row of a peer was made by another policy, of another model maybe, so no version of the table's own policy says
//! whether it is fresh: it is off-policy by construction. It is inserted with its [`Origin`] and is *external* from then
//! on. No trainer takes it unless its declaration says so; where it does, such rows pass by the version rule, and nobody
//! else's do. Tasks take them like any other row, at whatever version, for the receiver computes rewards itself.

use std::fmt;

use crate::table::RowMeta;
use crate::texts::TextId;

/// The reason of rows of peers in a table whose trainer takes its own run's rows only.
pub(crate) const EXTERNAL: &str = "external";

/// In the place of a version, where rows of peers are queued and grouped: it is never reached and never over. No policy
/// gives it to a row of its own.
pub(crate) const EXTERNAL_VERSION: u64 = u64::MAX;

/// Stands between the origin and the key in the name of a group of a peer's rows.
const SEPARATOR: char = '\u{1f}';

/// Where a row comes from that is not from this run: a peer, and the peer's round in which it was made.
///
/// ```
/// use forebay_store::Origin;
/// let origin = Origin { peer: "berlin-3".to_owned(), round: 17 };
/// assert_eq!(origin.to_string(), "berlin-3/17");
/// assert_eq!(Origin::parse("berlin-3/17"), Some(origin));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Origin {
    /// The peer's name.
    pub peer: String,
    /// The peer's round.
    pub round: u64,
}

impl Origin {
    /// Reads the text form, `PEER/ROUND`. A peer's name may hold slashes.
    pub fn parse(text: &str) -> Option<Self> {
        let (peer, round) = parts(text)?;
        Some(Origin { peer: peer.to_owned(), round })
    }

    /// The name of a group of this origin's rows, where a group is named by its key: in the plan of a step, and for
    /// [`expect_group`](crate::ConsumerHandle::expect_group) and its like, which then do not look at the version.
    ///
    /// ```
    /// # use forebay_store::*;
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = Store::open(dir.path().join("store"), Options::default())?;
    /// let solver = store.create_table("solver", Schema::new().data("reward", DataType::Float32))?;
    /// let train = Consumer::trainer(["solver"]).ready(["reward"]).group(GroupBy::Input, 2).origins(Origins::All);
    /// let train = store.create_consumer("train", train)?;
    /// let origin = Origin { peer: "berlin-3".to_owned(), round: 17 };
    /// for id in ["q1_0_0", "q1_0_1"] {
    ///     solver.insert_row(NewRow::new(0, id)?.external(&origin), [("reward", 1.0.into())])?;
    /// }
    /// let step = store.begin_step(StepPlan::new().groups(&train, [origin.group("q1")]))?;
    /// assert_eq!(step.next(&train, MicroBatch::up_to(8), Wait::No)?.unwrap().len(), 2);
    /// # Ok::<(), forebay_store::Error>(())
    /// ```
    pub fn group(&self, key: &str) -> String {
        group_name(&self.to_string(), key)
    }

    /// What is wrong with it, if something is.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        match self.peer.as_str() {
            "" => Some("the peer has no name"),
            name if name.contains(SEPARATOR) => Some("the peer's name has a control character in it"),
            _ => None,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.peer, self.round)
    }
}

/// The peer and the round of an origin's text form.
pub(crate) fn parts(text: &str) -> Option<(&str, u64)> {
    let (peer, round) = text.rsplit_once('/')?;
    Some((peer, round.parse().ok().filter(|_| !peer.is_empty())?))
}

/// The name of a group of an origin's rows; empty for this run's own.
pub(crate) fn group_name(origin: &str, key: &str) -> String {
    if origin.is_empty() { key.to_owned() } else { format!("{origin}{SEPARATOR}{key}") }
}

/// Takes the name of a group apart: its origin, empty for this run's own, and its key.
pub(crate) fn split_group_name(name: &str) -> (&str, &str) {
    let split = name.split_once(SEPARATOR);
    split.filter(|(origin, _)| parts(origin).is_some()).unwrap_or(("", name))
}

/// Whose rows a consumer takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origins {
    /// Rows of this run only. What trainers take, unless they say otherwise.
    Own,
    /// Rows of this run and of peers. What tasks take, unless they say otherwise.
    All,
    /// Rows of peers only: for tasks that judge them, or encode their texts anew.
    External,
}

const ALL: [Origins; 3] = [Origins::Own, Origins::All, Origins::External];

impl Origins {
    pub(crate) fn tag(self) -> u8 {
        ALL.iter().position(|other| *other == self).unwrap_or_default() as u8
    }

    pub(crate) fn from_tag(tag: u8) -> Option<Self> {
        ALL.get(usize::from(tag)).copied()
    }

    /// Whether rows are taken that are external, or that are not.
    pub(crate) fn takes(self, external: bool) -> bool {
        match self {
            Origins::Own => !external,
            Origins::All => true,
            Origins::External => external,
        }
    }
}

impl RowMeta {
    /// Whether the row comes from a peer.
    pub(crate) fn is_external(&self) -> bool {
        self.origin != TextId::EMPTY
    }

    /// The version under which the row is queued and grouped: its own, or the one that stands for rows of peers.
    pub(crate) fn lane(&self) -> u64 {
        if self.is_external() { EXTERNAL_VERSION } else { self.policy_version }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_group_gives_back_its_origin_and_its_key() {
        for (origin, key) in [("a/3", "q1"), ("a/b/3", "q/1_0/x"), ("", "q1"), ("", "a/3")] {
            assert_eq!(split_group_name(&group_name(origin, key)), (origin, key));
        }
        assert_eq!(split_group_name("no origin\u{1f}q1"), ("", "no origin\u{1f}q1"));
        assert_eq!(["", "a", "/3", "a/", "a/x", "a/-1"].map(Origin::parse), [const { None }; 6]);
    }
}
