//! Trainers as process groups: what `[process_groups]` in the configuration asks for.
//!
//! Each agent's trainer is `world` processes of the `forebay` executable ([`serve_rank`]). With room for all of them they stay; with fewer
//! slots agents take turns, and who has nothing to train on, or has to leave, is suspended: its state is set and its processes end.
//! `docs/process-groups.md` says how a group works; here it is joined with the main job.
//!
//! # Who owns what
//! - The *store* has the truth: rows, steps, the version of each policy, and with each step the object with the trainer's state behind it,
//!   the same bytes as of a trainer in this process. So a run may be resumed with the section or without it.
//! - The *state* of a group, among the store's objects ([`crate::ObjectStates`]), has what is newer than that: gradients of the step that is
//!   open, and its update until that is committed. It lies in shared memory and outlives every process. After the end of the machine it
//!   is gone, and the run goes on from its last step, as without groups.
//! - *Ranks* own weights, moments and cache while they are there. They reach the states through a socket of this process's server.
//! - *This process* coordinates: it alone commits states and steps. Of each policy it has one version of the weights, those of the last
//!   committed step, for rollouts to sample from and for measuring. It reads them from the state that the update was saved in, hands the
//!   same bytes to the store for the step's commit, and publishes them (`policies`) once the step is committed.
//!
//! # Each gradient once
//! A claim of the store ends with this process, so the ledger of a group does not name claims: it names *gradients*
//! ([`gradient_name`]):
//! step, planned position (and member, where members are trained as they come: [`members`]), and a digest of the rows. Whatever claim brings a group of rows, its gradient has the same name, in every life
//! of the run. A gradient that the ledger has is not computed again; the claim is marked accumulated as it is.
//!
//! A step of an agent ([`GroupTrainer::train_step`])
//! 1. accumulates each micro-batch in the ranks and marks its claim accumulated in the store, early, while rollouts go on;
//! 2. when all that is planned is in: `apply`, then `save`, in the same turn;
//! 3. the main thread hands the state to the store and commits the step of all agents in one record;
//! 4. `settle` at the beginning of the agent's next turn: the ledger need not name the step's gradients any more.
//!
//! An update is made of exactly the gradients that are accumulated in the store. Where the state has others, of rows that came out
//! otherwise or were left out since, everything that is accumulated is forgotten and trained again.
//!
//! What dies when
//! - A rank: the group is suspended with what its newest state and the other ranks have. Claims of which the ledger does not name every
//!   gradient go back (the store's `return_lost`) and come again; the others stay accumulated. If the update stands in the state, it is not made again.
//! - This process: ranks end by themselves, the store gives the open step's rows back. The next life finds the state ([`opening`]): of the
//!   committed version, with gradients of the step that is begun again; or one update ahead of it, with all of that step's gradients
//!   applied, so that only the commit is missing. A state that is neither belongs to another past (an earlier life without groups came
//!   between), and is replaced by what the store has.
//!
//! A run that ends well, with the section or without it, leaves no states of its agents behind ([`forget_states`]).
//!
//! # Threads
//! As without groups: in a step each agent has a thread, which has its group to itself, waits for micro-batches without holding slots, and
//! for its turn (`Fleet`). The server has threads of its own. No lock is held here.

mod claimed;
mod forgetting;
mod gradient_name;
mod group_trainer;
mod members;
mod opening;
mod rank;
mod ranks;
mod seat;
mod turn;

pub(super) use forgetting::forget_states;
pub(super) use group_trainer::GroupTrainer;
pub use rank::serve_rank;
pub(super) use ranks::Ranks;
