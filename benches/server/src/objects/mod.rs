//! Objects between two processes, and objects of a GPU's memory.
//!
//! `between`: the process that measures serves the store at a Unix socket; the other one is this program again, connected to it as any
//! client of the same machine. `device`: what goes out of a device's memory and into it.

mod between;
mod device;
mod not_run;
mod other;
mod update;
mod version;

pub use between::between;
pub use device::{DeviceRows, device_rows};
pub use not_run::NotRun;
pub use other::answer_as_other;
