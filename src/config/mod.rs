//! The configuration of a run: a TOML file, typed, checked, with unknown keys refused.
//!
//! [`mod@file`] is what a user writes, with every default; [`Config`] is what the program resolved from it: paths are
//! absolute to the file's place, names lead somewhere, numbers go together. Everything behind this module sees only the
//! second.

mod device;
mod early;
mod error;
pub mod file;
mod groups;
mod objective;
mod resolve;

pub use device::DeviceChoice;
pub use error::{ConfigError, nearest};
pub use file::{Archive as ArchiveTo, ProcessGroups};
pub use objective::AgentObjective;
pub(crate) use resolve::ramp;
pub use resolve::{AgentConfig, Config, Role};
