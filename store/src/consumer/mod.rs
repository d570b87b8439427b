//! Consumers: declared reader classes, each with its own consumption state.
//!
//! Nothing scans. The write that makes the last required cell of a row final moves the row to its consumer's ready
//! queue, alone or, when the consumer takes whole groups, together with the group's last member.
//!
//! Groups are exact: a group is handed out when it has the members (rows, or trajectories of one or many rows) that were
//! expected, none of which is waited for any more; what comes beyond that is left out with its reason.
//!
//! Read in this order: [`declaration`], [`grouping`], [`condition`] and [`micro_batch`] are what a user says; [`state`]
//! is the consumer as the engine holds it, a [`partition`] for each table and version with its [`queue`] of what is
//! ready and its [`groups`]; [`rows`] and [`members`] are how they change, [`hold`] what keeps a row back, [`reindex`] and
//! [`deleted`] what they are after a rewind, [`forgotten`] when they go,
//! [`select`] what a claim takes, [`plan`] how far a step has come; [`handle`] is what callers hold, [`signal`] how they wait.
//! [`limiter`] holds those who insert and those who claim together, [`throttle`] is how the former wait.

mod condition;
mod declaration;
mod deleted;
mod early;
mod forgotten;
mod future;
mod group;
mod grouping;
mod groups;
mod handle;
mod hold;
mod image;
mod limiter;
mod members;
mod micro_batch;
mod parent_key;
mod partition;
mod plan;
mod queue;
mod recall;
mod reindex;
mod rows;
mod select;
mod signal;
mod signals;
mod state;
mod throttle;

pub use condition::Comparison;
pub use declaration::{Consumer, ConsumerKind};
pub use future::ClaimFuture;
pub(crate) use group::GroupName;
pub use grouping::{GroupBy, GroupRule, Grouping, Member, TrajectoryEnd};
pub(crate) use grouping::{KeyParts, MEMBERS_MAX};
pub(crate) use groups::{GroupPages, GroupRuns};
pub(crate) use handle::Attempt;
pub use handle::{ConsumerHandle, Wait};
pub(crate) use image::{ConsumerStateImage, PartitionImage, PartitionPages};
pub use limiter::{RateLimiter, RateLimiterInfo};
pub(crate) use members::{GroupChange, GroupInfo};
pub use micro_batch::MicroBatch;
pub(crate) use recall::Recall;
pub(crate) use reindex::Back;
pub(crate) use rows::number_out;
pub(crate) use select::{Choice, Selection, Shortage, length};
pub(crate) use signal::Readiness;
pub(crate) use signals::Signals;
pub(crate) use state::{ConsumedTable, ConsumerState, Fallout};
pub(crate) use throttle::Inserting;
