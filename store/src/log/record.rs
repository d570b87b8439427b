//! What happened: the records of the log.
//!
//! A record holds what was decided, not what was asked for: row numbers, claim numbers and versions are in it, so that
//! applying the same records gives the same state. The order of variants is part of the format: new ones go last.

use rkyv::{Archive, Deserialize, Serialize};

/// One record: an event and the time at which it happened.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub(crate) struct Record {
    /// Microseconds since the Unix epoch.
    pub(crate) time: i64,
    pub(crate) event: Event,
    /// The values that the event names, in its order, each as it stands in its file, trailer included; or nothing. What is
    /// carried is on stable storage with the log and needs no sync of its own.
    pub(crate) carried: Vec<u8>,
}

/// An event of the store's life.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub(crate) enum Event {
    /// A process took over the store: every live claim of the one before it ends.
    Opened { incarnation: u64, pid: u32 },
    /// A policy exists from here on, at this version.
    PolicyCreated { name: String, version: u64, objects: Vec<ObjectRecord>, state_keys: Vec<String> },
    /// A table exists from here on.
    TableCreated { name: String, policy: u32, columns: Vec<ColumnRecord> },
    /// A consumer exists from here on; rows that are there already are indexed for it.
    ConsumerCreated { name: String, declaration: ConsumerRecord },
    /// Cells and rows were written, all or none.
    Written { operations: Vec<Operation> },
    /// Rows were handed to a holder.
    Claimed(ClaimRecord),
    /// A claim's rows went back to be claimed again.
    Returned { claims: Vec<u64>, why: ReturnReason },
    /// A task's claim was completed together with what it wrote.
    Finished { claim: u64, operations: Vec<Operation> },
    /// The gradient of a claim is in its policy's cache.
    Accumulated { claim: u64 },
    /// A step was begun with this membership.
    StepBegun { step: u64, plan: Vec<PlanRecord> },
    /// A step was committed: its rows are consumed, its policies move, at once. What a rewind to a step before
    /// `rewind_floor` would need may be gone from here on.
    StepCommitted { step: u64, updates: Vec<UpdateRecord>, rewind_floor: u64 },
    /// A step was given up; its claims were returned before.
    StepAbandoned { step: u64 },
    /// What [`WentBack`](Event::WentBack) is now, as it was written before: groups were counted anew without the members that
    /// were deleted, and with every row that came late.
    Rewound { step: u64, exclude: bool },
    /// The columns of a table changed, to this version of its schema.
    SchemaChanged { table: u32, version: u32, change: SchemaChange },
    /// Rows were deleted for good.
    Deleted { deletions: Vec<DeleteRecord> },
    /// Values were copied to other extents; their cells stand for the copies from here on.
    Moved { moves: Vec<MoveRecord> },
    /// A rank of a gang has the gradient of its part of a claim; others have not yet.
    RankAccumulated { claim: u64, rank: u32 },
    /// The lease of a claim ends later.
    Extended { claim: u64, deadline: i64 },
    /// What [`SteppedBack`](Event::SteppedBack) is now, as it was written before: groups kept their size (a member that was deleted
    /// is out, and a row that came late has a place only where one is left), and what came after a row was left out was forgotten.
    WentBack { step: u64, exclude: bool },
    /// A consumer forgot the groups of peers' rows of which a table has none any more.
    GroupsForgotten { consumer: u32, table: u32 },
    /// Every step after `step` was undone; 0 undoes all. The rows of those steps are trained on again, or excluded. `recall` says
    /// what is known still of rows and groups that come back: see [`Recall`](crate::consumer::Recall).
    SteppedBack { step: u64, exclude: bool, recall: u16 },
}

/// A data column of a table.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub(crate) struct ColumnRecord {
    pub(crate) name: String,
    /// 1 bool, 2 number, 3 utf8, 4 binary, 5 list, 6 tensor.
    pub(crate) kind: u8,
    /// The element's tag, or 0.
    pub(crate) element: u8,
    pub(crate) shape: Vec<u32>,
    /// Equal values are stored once.
    pub(crate) shared: bool,
    /// The role's tag, or 0.
    pub(crate) role: u8,
    /// Read only when named.
    pub(crate) lazy: bool,
    /// Taken out of the table.
    pub(crate) retired: bool,
}

/// Rows of a table that are deleted for good.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub(crate) struct DeleteRecord {
    pub(crate) table: u32,
    /// Runs of row numbers, first and last.
    pub(crate) rows: Vec<(u32, u32)>,
    /// Versions that are retired, first and last. Where there are no rows and they are retired already, they were moved out:
    /// somebody took their rows elsewhere before they were deleted.
    pub(crate) retired: Option<(u64, u64)>,
    /// The rows of every step up to this one are among those that are deleted now or were before.
    pub(crate) consumed_up_to: u64,
}

/// How the columns of a table change. A column is named by its position, which never changes.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub(crate) enum SchemaChange {
    /// A column comes, behind all others.
    Add(ColumnRecord),
    /// A column gets another name.
    Rename { column: u16, name: String },
    /// A column is taken out.
    Retire { column: u16 },
}

/// The declaration of a consumer.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub(crate) struct ConsumerRecord {
    pub(crate) trainer: bool,
    pub(crate) tables: Vec<u32>,
    /// Required columns, by table in the order of `tables`: a bit a data column.
    pub(crate) required: Vec<u64>,
    pub(crate) grouping: Option<GroupingRecord>,
    /// A bit a purpose that it takes.
    pub(crate) purposes: u8,
    pub(crate) conditions: Vec<ConditionRecord>,
    /// The column that orders what is ready, by table in the order of `tables`; empty where age does.
    pub(crate) priority: Vec<u16>,
    /// How many versions behind a row may be; `None` for strict.
    pub(crate) staleness: Option<u64>,
    /// Whose rows it takes: 0 this run's, 1 all, 2 peers'.
    pub(crate) origins: u8,
    pub(crate) limiter: Option<Box<LimiterRecord>>,
}

/// How a consumer and those who insert for it are held together.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub(crate) struct LimiterRecord {
    /// The bits of a 64-bit floating point number.
    pub(crate) samples_per_insert: u64,
    pub(crate) min_size_to_sample: u64,
    /// The bits of a 64-bit floating point number.
    pub(crate) error_buffer: u64,
}

/// How a consumer groups rows.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub(crate) struct GroupingRecord {
    /// 1 by input, 2 by input and turn, 3 by input, turn and agent, 4 by parent.
    pub(crate) by: u8,
    pub(crate) size: u32,
    /// When a member fails: 0 next attempt, 1 shrink, 2 exclude the group.
    pub(crate) rule: u8,
    /// The fewest members of a group that shrinks.
    pub(crate) least: u32,
    /// Members are trajectories and not rows.
    pub(crate) trajectories: bool,
    /// The rows with which a trajectory ends, or 0 when it has to be closed.
    pub(crate) trajectory_rows: u32,
}

/// What a cell must say for a consumer to take its row.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub(crate) struct ConditionRecord {
    /// By table in the order of the declaration's tables.
    pub(crate) columns: Vec<u16>,
    /// 0 less, 1 at most, 2 equal, 3 not equal, 4 at least, 5 greater.
    pub(crate) comparison: u8,
    /// The bits of a 64-bit floating point number.
    pub(crate) number: u64,
}

/// One change of a row.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub(crate) enum Operation {
    /// A row came. Apart, so that it does not set the size of every operation.
    Insert(Box<InsertRecord>),
    /// Cells turned final.
    Write { table: u32, row: u32, cells: Vec<CellRecord> },
    /// A partial cell grew.
    Append { table: u32, row: u32, column: u16, view: [u8; 16] },
    /// A row was left out, for good.
    Exclude { table: u32, row: u32, reason: String },
    /// Something was said of a group of a consumer.
    Group { consumer: u32, table: u32, policy_version: u64, key: String, change: GroupChangeRecord },
    /// A row's response goes on under another version, from token `start` on.
    Span { table: u32, row: u32, start: u32, version: u64 },
    /// Only the tokens of a row from `start` on are trained on.
    Mask { table: u32, row: u32, start: u32 },
    /// Cells written from here on may stand for this value of a shared column, found by the hash of its content.
    Share { view: [u8; 16], hash: u128 },
}

/// What was said of a group.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq)]
pub(crate) enum GroupChangeRecord {
    /// It has so many members.
    Expected(u32),
    /// Whoever was not ready by then was late.
    Closed,
    /// The trajectory of that number had all its rows.
    TrajectoryClosed(u32),
}

/// A value that was copied to another extent.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub(crate) struct MoveRecord {
    pub(crate) table: u32,
    pub(crate) row: u32,
    pub(crate) column: u16,
    /// Which fragment of a partial cell, counted from 1; 0 for the value of a final one.
    pub(crate) fragment: u32,
    pub(crate) from: [u8; 16],
    pub(crate) to: [u8; 16],
}

/// A new row.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub(crate) struct InsertRecord {
    pub(crate) table: u32,
    pub(crate) row: u32,
    pub(crate) policy_version: u64,
    pub(crate) input: String,
    pub(crate) turn: u32,
    pub(crate) trajectory: u32,
    pub(crate) attempt: u32,
    /// The row whose attempt this one supersedes, plus one; 0 for none.
    pub(crate) supersedes: u32,
    /// Empty: as the table is called.
    pub(crate) agent: String,
    /// 0 train, 1 eval, 2 warm-up.
    pub(crate) purpose: u8,
    /// `PEER/ROUND`, or empty for this run.
    pub(crate) origin: String,
    /// Text of the parent's identity, or empty.
    pub(crate) parent: String,
    /// Fingerprint of the weights that the rollout runs on, or empty.
    pub(crate) weights: String,
    /// Idempotency token, 0 for none.
    pub(crate) token: u128,
    /// The trajectory's number was given out by the store.
    pub(crate) numbered: bool,
    pub(crate) cells: Vec<CellRecord>,
}

/// A cell's value.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub(crate) struct CellRecord {
    pub(crate) column: u16,
    pub(crate) value: StoredValue,
}

/// A value as the table holds it.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq)]
pub(crate) enum StoredValue {
    Null,
    Inline(u64),
    View([u8; 16]),
}

/// A claim as it was granted.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub(crate) struct ClaimRecord {
    pub(crate) claim: u64,
    pub(crate) consumer: u32,
    pub(crate) table: u32,
    pub(crate) rows: Vec<u32>,
    pub(crate) owner: String,
    /// Microseconds since the Unix epoch.
    pub(crate) deadline: i64,
    /// The step that the claim belongs to, 0 for none.
    pub(crate) step: u64,
    /// Place in the order of the step's claims of this consumer, from 0.
    pub(crate) sequence_in_step: u32,
    /// The ranks that it was granted to as one.
    pub(crate) gang: Option<GangRecord>,
}

/// The ranks that take a claim as one.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub(crate) struct GangRecord {
    pub(crate) name: String,
    pub(crate) world: u32,
    /// The rank that has each row; empty where every rank has all of them.
    pub(crate) ranks: Vec<u32>,
    /// Elements of the column that the micro-batch rule counts, over all rows.
    pub(crate) tokens: u64,
}

/// Why claimed rows went back.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReturnReason {
    Released,
    Expired,
    CacheDropped,
}

/// What one consumer takes in a step.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub(crate) struct PlanRecord {
    pub(crate) consumer: u32,
    /// Planned groups, or empty when only a number of rows is planned.
    pub(crate) groups: Vec<String>,
    /// Planned rows, where no groups are named.
    pub(crate) rows: u64,
}

/// How a step moves one policy.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub(crate) struct UpdateRecord {
    pub(crate) policy: u32,
    pub(crate) objects: Vec<ObjectRecord>,
}

/// A committed object: large state in a file of its own.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub(crate) struct ObjectRecord {
    pub(crate) key: String,
    pub(crate) version: u64,
    pub(crate) bytes: u64,
    pub(crate) crc32c: u32,
}

impl Record {
    /// Appends the stored form, and gives its length.
    pub(crate) fn encode_to(&self, bytes: &mut Vec<u8>) -> Result<usize, String> {
        let start = bytes.len();
        rkyv::api::high::to_bytes_in::<_, rkyv::rancor::Error>(self, &mut *bytes)
            .map_err(|e| e.to_string())?;
        Ok(bytes.len() - start)
    }

    /// Reads the stored form, checking every offset in it.
    pub(crate) fn decode(payload: &[u8]) -> Result<Self, String> {
        rkyv::from_bytes::<Self, rkyv::rancor::Error>(payload).map_err(|e| e.to_string())
    }
}

impl Event {
    /// The objects that it names: it holds as long as they are there.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &ObjectRecord> {
        let (created, updates): (&[ObjectRecord], &[UpdateRecord]) = match self {
            Event::PolicyCreated { objects, .. } => (objects, &[]),
            Event::StepCommitted { updates, .. } => (&[], updates),
            _ => (&[], &[]),
        };
        created.iter().chain(updates.iter().flat_map(|update| &update.objects))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_record_survives_its_stored_form() {
        let cells = vec![CellRecord { column: 1, value: StoredValue::View([7; 16]) }];
        let event = Event::Written { operations: vec![Operation::Write { table: 0, row: 4, cells }] };
        let record = Record { time: -5, event, carried: vec![1, 2] };
        for before in [0, 1, 3, 8] {
            let mut bytes = vec![9; before]; // a record needs no alignment
            let length = record.encode_to(&mut bytes).unwrap();
            assert_eq!(bytes.len(), before + length);
            assert_eq!(Record::decode(&bytes[before..]).unwrap(), record);
        }
    }

    proptest! {
        #[test]
        fn hostile_payloads_are_errors(payload in prop::collection::vec(any::<u8>(), 0..512)) {
            let _ = Record::decode(&payload);
        }
    }
}
