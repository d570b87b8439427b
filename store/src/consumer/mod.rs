//! Consumers: declared reader classes, each with its own consumption state.
//!
//! Nothing scans. The write that makes the last required cell of a row final moves the row to its consumer's ready
//! queue, alone or, when the consumer takes whole groups, together with the group's last member.
//!
//! Read in this order: [`declaration`] is what a user says, [`queue`] orders what is ready, [`group`] counts members,
//! [`state`] is the consumer as the engine holds it, [`handle`] is what callers hold.

mod declaration;
mod group;
mod handle;
mod image;
mod queue;
mod state;

pub use declaration::{Consumer, ConsumerKind, GroupBy, MicroBatch};
pub(crate) use group::GroupName;
pub use handle::{ConsumerHandle, Wait};
pub(crate) use image::ConsumerStateImage;
pub(crate) use state::{ConsumedTable, ConsumerState, Selection, Shortage};
