//! Process groups: all trainer processes of an agent, started where there is room, ended when it is needed, resumed anywhere.
//!
//! A *group* has `world` ranks, each a process with a device of its own. The *coordinator* is the process that has the
//! [`ProcessGroup`]; it owns the life of the group and is the only one that commits its state. *Suspending* ends the processes:
//! nothing of them is left on a device, and everything of them is in the state. The gradient cache is part of the state, and so
//! is the [`Ledger`]: which micro-batches are in it.
//!
//! One round
//! 1. `suspend`: ranks stage what has changed, the coordinator commits it as the next version, the processes end.
//! 2. The scheduler gives the room to another agent, and later some room, anywhere, to this one.
//! 3. `resume`: processes are made, each gets its part of the newest version, the group is active.
//!
//! Invariants
//! - From the first `activate` on there is one newest version, whole, whatever dies at whatever moment ([`Boundary`] names the
//!   moments): a version is made by one commit, and nothing but a commit makes one.
//! - A claim's gradient is in the newest version if and only if its ledger names the claim. A claim is computed whole by one rank.
//! - All ranks are there or none, outside of a call. A call that returns without all of them returns with no process left.
//! - A rank's process ends with its link, a child when its coordinator dies.
//! - If a rank is lost, the others' work is kept: lost is what it accumulated since the version it began with, and nothing else.
//! - Ranks share out the parts of a state by number, so a state may be resumed with another number of ranks.
//! - An open group, whose members are trained as they finish, is in the sums of one rank, from its first member on until it is closed or
//!   forgotten. Its sums are part of that rank's cache; the ledger names the members that are in them.
//!
//! One thread owns a group; a call with several ranks asks them side by side, on threads that end with the call.
//!
//! Read [`Life`], then [`ProcessGroup`]; [`Fleet`] runs many groups with a [`crate::scheduler::Scheduler`]. A rank's program
//! calls [`serve_local_rank`].

mod batch;
mod beginning;
mod boundary;
mod cached;
mod counts;
mod draft;
mod early;
mod error;
mod fleet;
mod group;
mod launcher;
mod ledger;
mod life;
mod local;
mod member;
mod message;
mod rank;
mod setting;
mod starting;
mod timed;
mod trajectory;
mod wire;
mod work;

pub use batch::{BatchRow, BatchUnit, ClaimId, MicroBatch};
pub use boundary::{Boundary, Observer};
pub use cached::OpenMembers;
pub use counts::{GroupCounts, Spent};
pub use error::GroupError;
pub use fleet::{Fleet, FleetMember, Next};
pub use group::{GroupOptions, ProcessGroup};
pub use launcher::{Launched, Launcher, Link, RankExit, RankPlace, RankProcess};
pub use ledger::Ledger;
pub use life::Life;
pub use local::LocalLauncher;
pub use message::LoadTimes;
pub use rank::{ORPHAN_EXIT_CODE, Recipe, RecipeError, serve_local_rank, serve_rank};
pub use setting::SuspendReport;
pub use starting::StartReport;
pub use trajectory::{BatchTrajectory, GroupPlan};
pub use work::{BatchOutcome, UpdateReport};
