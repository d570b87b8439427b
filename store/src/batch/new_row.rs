//! What is known of a row before it is inserted.

use super::no_reason;
use crate::error::{Cause, Result};
use crate::log::record::{CellRecord, InsertRecord};
use crate::origin::Origin;
use crate::sample_id::SampleId;
use crate::state::Insertion;
use crate::table::{Purpose, Table, VersionSpan};

/// A new row: its identity, and what is known of it from the start.
///
/// ```
/// use forebay_store::{NewRow, Purpose};
/// let row = NewRow::new(3, "q17_1_0")?.parent("solver/q17_0_0").token(17);
/// # Ok::<(), forebay_store::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NewRow {
    /// Its sample id; the number of its trajectory says nothing where the store gives one.
    pub sample: SampleId,
    /// The store gives the trajectory its number.
    pub numbered: bool,
    /// The version that its rollout starts under.
    pub policy_version: u64,
    /// See [`NewRow::agent`].
    pub agent: Option<String>,
    /// See [`NewRow::purpose`].
    pub purpose: Purpose,
    /// See [`NewRow::external`].
    pub origin: Option<Origin>,
    /// See [`NewRow::parent`]; empty for none.
    pub parent: String,
    /// See [`NewRow::weights`]; empty where they are not known.
    pub weights: String,
    /// See [`NewRow::token`]; 0 for none.
    pub token: u128,
    /// See [`NewRow::span`].
    pub spans: Vec<VersionSpan>,
    /// See [`NewRow::trainable_from`]; 0 for all tokens.
    pub trainable_from: u32,
    /// See [`NewRow::next_attempt`].
    pub next_attempt: bool,
    /// See [`NewRow::late`].
    pub late: bool,
    /// See [`NewRow::excluded`].
    pub excluded: Option<String>,
}

impl NewRow {
    /// A row of the policy version that its rollout starts under. An id that ends in `_?` leaves the number of the
    /// trajectory to the store, as [`NewRow::next_trajectory`] does.
    ///
    /// # Errors
    /// `input` when the sample id does not parse.
    pub fn new(policy_version: u64, sample_id: &str) -> Result<Self> {
        match sample_id.strip_suffix("_?") {
            None => Ok(Self::of(policy_version, sample_id.parse()?)),
            Some(start) => {
                let first: SampleId = format!("{start}_0").parse()?;
                Ok(NewRow { numbered: true, ..Self::of(policy_version, first) })
            }
        }
    }

    /// A row on a trajectory of its own: the store gives it the next number that is free for the input and turn. With a
    /// [token](NewRow::token), a repetition gives the row that the first insert made.
    ///
    /// # Errors
    /// `input` when the input id is empty.
    pub fn next_trajectory(policy_version: u64, input: &str, turn: u32) -> Result<Self> {
        Ok(NewRow { numbered: true, ..Self::of(policy_version, SampleId::new(input, turn, 0)?) })
    }

    /// As [`NewRow::new`], from a sample id that is parsed already.
    pub fn of(policy_version: u64, sample: SampleId) -> Self {
        NewRow {
            sample,
            numbered: false,
            policy_version,
            agent: None,
            purpose: Purpose::Train,
            origin: None,
            parent: String::new(),
            weights: String::new(),
            token: 0,
            spans: Vec::new(),
            trainable_from: 0,
            next_attempt: false,
            late: false,
            excluded: None,
        }
    }

    /// The same row on the trajectory that is `offset` further on, with a token of its own.
    pub(super) fn replica(&self, offset: u32) -> Self {
        let mut replica = self.clone();
        if !self.numbered {
            replica.sample = self.sample.on_trajectory(self.sample.trajectory().saturating_add(offset));
        }
        if self.token != 0 && offset > 0 {
            let parts = [&self.token.to_le_bytes()[..], &offset.to_le_bytes()].concat();
            replica.token = xxhash_rust::xxh3::xxh3_128(&parts).max(1);
        }
        replica
    }

    /// The agent that the row belongs to. Default: the table's name.
    pub fn agent(mut self, agent: &str) -> Self {
        self.agent = Some(agent.to_owned());
        self
    }

    /// What the row is for. Default: [`Purpose::Train`].
    pub fn purpose(mut self, purpose: Purpose) -> Self {
        self.purpose = purpose;
        self
    }

    /// Says that the row comes from a peer: it is external from here on. Trainers take such rows only where they are
    /// [declared](crate::Consumer::origins) to, and are not bound by its version then; in other trainers' tables it is left
    /// out as `external`. Members of a group are of one origin. The version names the row, together with its sample id, and
    /// counts for retention: give the one that the policy has now, whichever the peer was at. One that is retired is refused.
    pub fn external(mut self, origin: &Origin) -> Self {
        self.origin = Some(origin.clone());
        self
    }

    /// The row that this one continues, as `TABLE/SAMPLE_ID`.
    pub fn parent(mut self, parent: &str) -> Self {
        self.parent = parent.to_owned();
        self
    }

    /// The fingerprint of the weights that the rollout runs on.
    pub fn weights(mut self, fingerprint: &str) -> Self {
        self.weights = fingerprint.to_owned();
        self
    }

    /// Makes the insert safe to repeat: a row that was inserted with the same token is returned as it is. 0 is no token.
    pub fn token(mut self, token: u128) -> Self {
        self.token = token;
        self
    }

    /// Says that the rollout went on under a later version, from token `start` on: it was cut by new weights and resumed before
    /// the row was inserted. To be said once for each version, in their order. As [`Table::span`] says of a row that is there, but
    /// with nothing in between: no trainer is given a row of this run before its policy has reached the last of them. A trainer
    /// without [`staleness`](crate::Consumer::staleness) is not given it then either, for the row's own version is left behind.
    ///
    /// ```
    /// # use forebay_store::*;
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = Store::open(dir.path().join("store"), Options::default())?;
    /// let solver = store.create_table("solver", Schema::new().data("reward", DataType::Float32))?;
    /// let row = solver.insert_row(NewRow::new(3, "q17_0_0")?.span(120, 4).trainable_from(120), [])?;
    /// # assert_eq!(row.policy_version(), 3);
    /// let info = solver.get(3, &"q17_0_0".parse()?).unwrap();
    /// assert_eq!((info.version_spans[1], info.trainable_from), (VersionSpan { start: 120, version: 4 }, 120));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn span(mut self, start: u32, version: u64) -> Self {
        self.spans.push(VersionSpan { start, version });
        self
    }

    /// Says that only the tokens from `start` on are trained on, as [`Table::trainable_from`] does of a row that is there. Whether
    /// the row may still be inserted goes by the version that its rollout started under. Default: all of them.
    pub fn trainable_from(mut self, start: u32) -> Self {
        self.trainable_from = start;
        self
    }

    /// Says that the rollout began before its version was left behind. Such a row is kept, and left out as `stale` where it
    /// would be refused otherwise.
    pub fn late(mut self) -> Self {
        self.late = true;
        self
    }

    /// The row is left out from the start, with this reason: its place is taken, and nobody waits for it.
    pub fn excluded(mut self, reason: &str) -> Self {
        self.excluded = Some(reason.to_owned());
        self
    }

    /// The row is the next attempt of the one with this identity, which is left out as `superseded`.
    pub fn next_attempt(mut self) -> Self {
        self.next_attempt = true;
        self
    }
    /// Refuses what no table can make sense of.
    pub(super) fn check(&self) -> Result<()> {
        if self.excluded.as_deref() == Some("") {
            return Err(no_reason());
        }
        if let Some(fault) = self.origin.as_ref().and_then(Origin::fault) {
            return Err(Cause::Argument { what: "origin", reason: fault.to_owned() }.into());
        }
        Ok(())
    }

    /// The row as the state is asked for it. Its record is made here, where nothing is locked; what only the state knows of it
    /// (its number, which attempt it is) is filled in there.
    pub(super) fn asked_for(self, table: &Table, key: u64, cells: Vec<CellRecord>) -> Insertion {
        let record = InsertRecord {
            table: table.id(),
            row: 0,
            policy_version: self.policy_version,
            input: self.sample.input().to_owned(),
            turn: self.sample.turn(),
            trajectory: self.sample.trajectory(),
            attempt: 0,
            supersedes: 0,
            agent: self.agent.filter(|agent| *agent != table.name()).unwrap_or_default(),
            purpose: self.purpose as u8,
            origin: self.origin.map_or(String::new(), |origin| origin.to_string()),
            parent: self.parent,
            weights: self.weights,
            token: self.token,
            numbered: self.numbered,
            cells,
        };
        Insertion {
            sample: self.sample,
            key,
            next_attempt: self.next_attempt,
            late: self.late,
            spans: self.spans,
            trainable_from: self.trainable_from,
            excluded: self.excluded,
            record: Box::new(record),
        }
    }
}
