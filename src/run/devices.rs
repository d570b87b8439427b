//! What the gradients of each agent are computed on.

use anyhow::{Context, Result, anyhow};
use forebay_trainer_adapter::device::cuda::{CudaDevice, CudaLibraries, CudaOptions, gpus};
use forebay_trainer_adapter::{CpuDevice, StandInDevice, StandInOptions};

use crate::config::{AgentConfig, Config, DeviceChoice};

/// A device that is open.
pub(super) enum AgentDevice {
    Cpu(CpuDevice),
    StandIn(StandInDevice),
    Cuda(Box<CudaDevice>),
}

/// Opens the device of every agent, in their order: two agents on one GPU open it twice, so that neither waits for the other's queue.
///
/// # Errors
/// When there is no such GPU, or it cannot be computed on. Nothing else has been touched then.
pub(super) fn open_devices(config: &Config) -> Result<Vec<AgentDevice>> {
    let threads = config.file.trainer.threads;
    let open = |agent: &AgentConfig| match agent.device {
        DeviceChoice::Cpu => Ok(AgentDevice::Cpu(CpuDevice::new(threads))),
        DeviceChoice::StandIn => {
            let options = StandInOptions { threads, seed: config.file.seed, ..StandInOptions::default() };
            Ok(AgentDevice::StandIn(StandInDevice::new(options)))
        }
        DeviceChoice::Cuda(ordinal) => {
            let opened = open_gpu(ordinal).map(|device| AgentDevice::Cuda(Box::new(device)));
            opened.with_context(|| {
                format!("agent {:?} is to be trained on device \"cuda:{ordinal}\"", agent.name)
            })
        }
    };
    config.agents.iter().map(open).collect()
}

fn open_gpu(ordinal: usize) -> Result<CudaDevice> {
    let libraries = CudaLibraries::from_environment();
    let there = gpus(&libraries)?;
    let gpu = there.iter().find(|gpu| gpu.ordinal == ordinal).ok_or_else(|| {
        let names: Vec<String> =
            there.iter().map(|gpu| format!("cuda:{} ({})", gpu.ordinal, gpu.name)).collect();
        anyhow!("there is no such GPU; there are {}", names.join(", "))
    })?;
    Ok(CudaDevice::open(&CudaOptions { uuid: Some(gpu.uuid), libraries, ..CudaOptions::default() })?)
}
