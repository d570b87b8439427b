//! The Forebay engine: tables of samples that are written column by column, and handed to trainers in exact, complete,
//! current micro-batches.
//!
//! Start with [`Store`], whose example is a whole life in twenty lines. The words:
//!
//! - A [`Table`] holds the samples of one agent. A *row* is one sample, named by policy version and [`SampleId`].
//! - A *cell* is written once, when its value is known; a row is *staged*: prompt first, reward last.
//! - A [`Consumer`] is a declared class of readers. Once a row's required cells are final (and its group is complete),
//!   the row is ready and whoever waits is woken. Nothing polls and nothing scans.
//! - A [`Claim`] is a leased micro-batch. A [`Step`] takes the claims of a global batch and commits them at once,
//!   together with the new versions of the policies that they trained.
//! - [`Objects`] are the state of agents, set and got under keys in immutable versions, in shared memory and in files.
//!
//! # What it promises
//! An acknowledged call survives what its level says ([`Durability`]): nothing, any end of the process (the default),
//! or a power failure. Opening a store replays its log; a record that is damaged is an error that names file and
//! offset, never skipped.
//!
//! Any number of processes may read beside the one that writes: [`Store::open_read_only`] and [`Store::refresh`].
//! [`verify`](fn@verify) checks every byte that a store stands on.
//!
//! # Layout
//! What a newcomer should read, in this order: [`store`](Store) (threads and locks), `state` (a pure function of the
//! log), `table`, `consumer`, `claim`, `step` (the parts of the state), `log` and `extent` (where things lie), and the
//! seams: [`Clock`], [`Disk`], [`Randomness`].
//!
//! This crate knows files, memory and Arrow arrays. It starts no thread and no async runtime, and knows no SQL, no
//! network and no device.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "tests"))]

mod admission;
mod aside;
mod backup;
mod batch;
mod checkpoint;
pub mod checksum;
mod claim;
mod clock;
mod compaction;
mod consumer;
mod copy;
mod directory;
mod disk;
mod durability;
mod error;
mod extent;
#[cfg(test)]
mod format_document;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(test)]
mod golden_coverage;
mod header;
mod heap;
mod index;
mod limits;
mod local;
mod log;
mod maps;
mod memory;
mod numbered;
mod object;
mod options;
mod origin;
mod page;
mod policy;
mod process;
mod randomness;
mod reader;
mod recovery;
mod repair;
mod retention;
mod sample_id;
mod schema;
mod shared;
mod snapshot;
mod state;
mod stats;
mod step;
mod store;
mod sync;
mod sync_gate;
mod table;
mod tabular;
mod texts;
mod unsynced;
mod value;
mod verify;

pub use backup::{BackupOptions, BackupProgress, BackupReport};
pub use batch::{NewRow, WriteBatch};
pub use checkpoint::CheckpointReport;
pub use claim::{Claim, ClaimInfo, ClaimProgress};
pub use clock::{Clock, SimulatedClock, SystemClock, Timestamp};
pub use compaction::CompactReport;
pub use consumer::{
    ClaimFuture, Comparison, Consumer, ConsumerHandle, ConsumerKind, GroupBy, GroupRule, Grouping, Member,
    MicroBatch, RateLimiter, RateLimiterInfo, TrajectoryEnd, Wait,
};
pub use directory::FORMAT_VERSION;
pub use disk::{
    Disk, DiskFault, DiskFile, DiskOperation, HeldLock, LocalDisk, LockKind, Mapping, SimulatedDisk,
};
pub use durability::Durability;
pub use error::{Cause, Error, Kind, Result};
pub use extent::{ExtentInfo, PinInfo, ValueBytes};
pub use limits::{BudgetChange, Budgets};
pub use local::{
    CellName, Copied, ExtentFiller, Hold, LentExtent, Loan, Placed, PlacedKind, Places, Slab, SlabFiller,
    Spot, ValuePlace, ValueReader,
};
pub use object::{
    CopiedObject, Dtype, Exchanged, Expected, Filling, FillingRange, Get, Held, HeldFuture, HostFolder,
    HostLeftover, Layout, LayoutBuilder, Manifest, NeighbourFilling, NeighbourSegments, OBJECT_CHUNK_BYTES,
    OBJECT_KEYS_MAX, ObjectBytes, ObjectInfo, ObjectMapping, ObjectNews, ObjectOptions, ObjectParts,
    ObjectPut, ObjectReader, ObjectRef, ObjectStats, Objects, Owner, Payload, ProcessHandle,
    RECEIVE_MANY_WAIT, RECEIVE_WAIT, Received, SegmentInfo, TENSOR_ALIGN_BYTES, Tensor, TensorBytes,
    TensorView, Tier, Watch, Which, host_leftovers,
};
pub use options::{Options, ValuePath};
pub use origin::{Origin, Origins};
pub use policy::{Policy, PolicyInfo};
pub use randomness::{Randomness, SeededRandomness, SystemRandomness};
pub use recovery::RecoveryReport;
pub use repair::{RepairReport, repair};
pub use retention::Retention;
pub use sample_id::SampleId;
pub use schema::{
    ColumnClass, DATA_COLUMNS_MAX, DataColumn, DataType, Element, META_COLUMNS, Role, Schema, StorageClass,
};
pub use snapshot::{
    Kinds, Lists, Part, Peek, ScanColumn, ScanOrder, Snapshot, TableSnapshot, VersionRows, compact,
    compact_to_copy,
};
pub use state::ConsumerInfo;
pub use stats::Stats;
pub use step::{
    CommittedStep, Gang, GangMember, GradientId, GradientInfo, PolicyUpdate, ReplayedBatch, Rewind,
    RewoundTo, Split, Step, StepInfo, StepPlan, StepProgress,
};
pub use store::Store;
pub use sync::EventListener;
pub use table::{CHUNK_ROWS, Cell, Delete, Deleted, Purpose, Row, RowInfo, Table, TableCounts, VersionSpan};
pub use tabular::BatchCells;
pub use value::Value;
pub use verify::{Checked, FaultKind, VerifyFault, VerifyProgress, VerifyReport, VerifyStage, verify};
