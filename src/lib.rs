//! An embedded experience store for reinforcement learning of language-model agents.
//!
//! This crate joins the parts and adds the main job; each part can be used alone:
//!
//! - [`store`]: tables, staged cells, consumers, claims, steps. The engine; start there.
//! - [`pipeline`]: triggers, planned membership, versions, advantages, routing.
//! - [`query`]: SQL over a live store.
//! - [`rollout`]: rollout workers and what they write.
//! - [`trainer`]: the reference policy, its gradient cache and its devices.
//! - [`server`]: a store for other processes: over gRPC, Arrow Flight SQL and HTTP.
//! - [`client`]: one interface to a store, in this process or behind a server.
//!
//! What is only here: [`config`] (the TOML file of a run), [`reasoning`] (an environment of real problems), [`run`]
//! (the loop that `forebay run` starts), [`ObjectStates`] and [`DeviceTier`] (states and device memory as objects of a store) and
//! [`Duties`] and [`Archiving`] (the threads that a store's background duties and its archive want).

mod archiving;
pub mod config;
mod device_tier;
mod duties;
pub mod reasoning;
pub mod run;
mod states;

pub use archiving::Archiving;
pub use device_tier::{
    DeviceExchange, DevicePart, DevicePartMut, DeviceTier, DeviceTierError, DeviceTierStats, GotFrom, Nearest,
};
pub use duties::Duties;
pub use forebay_client as client;
pub use forebay_pipeline as pipeline;
pub use forebay_query as query;
pub use forebay_rollout_adapter as rollout;
pub use forebay_server as server;
pub use forebay_store as store;
pub use forebay_trainer_adapter as trainer;
pub use states::ObjectStates;

/// The README's program compiles and holds what it asserts.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeDoctests;
