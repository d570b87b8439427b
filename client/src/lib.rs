//! One interface to a Forebay store, in this process or behind a server.
//!
//! Start with [`Client`]: [`Client::embedded`] over a store that this process has opened, [`Client::connect`] to one that a
//! server has. What a program does with it afterwards is the same, and so are the errors: [`Error::kind`] says what to do next.
//!
//! ```
//! use forebay_client::{Client, Plan};
//! use forebay_store::*;
//! # let dir = tempfile::tempdir().unwrap();
//! let client = Client::embedded(Store::open(dir.path().join("store"), Options::default())?);
//! let solver = client.create_table("solver", Schema::new().data("reward", DataType::Float32))?;
//! let train = client.create_consumer("train", Consumer::trainer(["solver"]).ready(["reward"]))?;
//! let row = solver.insert(NewRow::new(0, "q17_0_0")?, [])?;
//! solver.write(row, [("reward", 1.0.into())])?;
//!
//! let mut step = client.begin_step(&Plan::new().rows("train", 1))?;
//! while let Some(claim) = step.next(&train, MicroBatch::up_to(16), Wait::Forever)? {
//!     assert_eq!(claim.columns(["sample_id", "reward"])?.num_rows(), 1);
//!     claim.accumulated()?;
//! }
//! assert_eq!(step.commit([("solver", vec![])])?.rows, 1);
//! assert_eq!(client.policy("solver")?.version, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Layout
//! [`client`](Client), [`table`](Table), [`consumer`](ConsumerHandle), [`claim`](Claim), [`subscription`](Subscription) and
//! [`step`](Step) are what callers hold; [`Connection`] is the seam under them, with [`Embedded`] and [`Remote`] behind it. [`wire`] turns plain data into
//! messages and back, for server and client alike; [`Holder`] keeps claims by name, for whoever holds them on behalf of others.
//!
//! A process that links this crate compiles no SQL engine and no server.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "tests"))]

mod admin;
mod cell;
mod changes;
mod claim;
mod client;
mod connection;
mod consumer;
mod embedded;
mod error;
mod frames;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod history;
mod holder;
mod neighbour;
mod objects;
mod remote;
mod slabs;
mod snapshots;
mod step;
mod subscription;
mod table;
pub mod wire;
mod writing;

pub use admin::{Admin, AdminCalls, Depth, Overview, Watch};
pub use cell::CellValue;
pub use changes::{Cells, Changes};
pub use claim::{Claim, ClaimFuture};
pub use client::Client;
pub use connection::{
    Answer, Answering, Ask, Commit, Connection, Declaration, Declared, Epoch, Granted, Granting, NextGranted,
    Plan, Pushing, Role, Waited,
};
pub use consumer::ConsumerHandle;
pub use embedded::{Embedded, Queries, consumers, declare, grow, read};
pub use error::{Error, Result};
pub use history::{HistoryCalls, RowShown, TrainedBatch};
pub use holder::Holder;
pub use objects::{
    Beginning, GetObject, HeldObject, HeldTensor, Holding, KeptObjects, LeasedBytes, LeasedObject, ObjectAsk,
    ObjectCalls, ObjectCommit, ObjectFilling, ObjectShown, ObjectWatch, Objects, ReceivedObject, Relocated,
    Relocation, WhichObject,
};
pub use remote::{Address, ConnectOptions, Remote};
pub use snapshots::{
    KeptSnapshots, ReadRows, Snapshot, SnapshotBatches, SnapshotCalls, SnapshotTable, TableShown,
    TakeSnapshot, TakenSnapshot,
};
pub use step::{GangMember, Step};
pub use subscription::{NextClaim, SubscribeOptions, Subscription};
pub use table::Table;
pub use writing::Writing;
