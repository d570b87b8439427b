//! Process groups with real processes, real files and real kills.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "../suite/common/mod.rs"]
mod common;

mod beginning;
mod budget;
mod commits;
mod fleet;
mod kills;
mod life;
mod losses;
mod open_groups;
mod program;
mod refusing;
mod scarce;
mod states;
mod training;

use forebay_trainer_adapter::CpuDevice;

pub(crate) type TestDevice = CpuDevice;

pub(crate) fn device(threads: usize) -> TestDevice {
    CpuDevice::new(threads)
}
