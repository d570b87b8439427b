//! What gradients are computed on.

use super::error::ConfigError;
use super::file;

/// What an agent's gradients are computed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The processor.
    #[default]
    Cpu,
    /// The processor with the manners of a GPU, for tests of order.
    StandIn,
    /// The GPU with that number in this process.
    Cuda(usize),
}

impl DeviceChoice {
    fn of(text: &str) -> Option<Self> {
        match text {
            "cpu" => Some(DeviceChoice::Cpu),
            "stand-in" => Some(DeviceChoice::StandIn),
            "cuda" => Some(DeviceChoice::Cuda(0)),
            other => other.strip_prefix("cuda:")?.parse().ok().map(DeviceChoice::Cuda),
        }
    }
}

/// What the file says for an agent.
pub(super) fn resolve_device(file: &file::File, agent: &file::Agent) -> Result<DeviceChoice, ConfigError> {
    let own = agent.device.as_deref().map(|text| (format!("agents.{}.device", agent.name), text));
    let shared = file.trainer.device.as_deref().map(|text| ("trainer.device".to_owned(), text));
    let Some((key, text)) = own.or(shared) else { return Ok(DeviceChoice::default()) };
    let refuse = |reason| Err(ConfigError::value(key, format!("{text:?}"), reason));
    match DeviceChoice::of(text) {
        None => refuse("the devices are \"cpu\", \"stand-in\" and \"cuda:N\", N the number of a GPU from 0"),
        Some(DeviceChoice::Cpu) => Ok(DeviceChoice::Cpu),
        Some(_) if file.process_groups.is_some() => {
            refuse("ranks of [process_groups] compute on the processor; leave out one of the two")
        }
        Some(device) => Ok(device),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_named_as_people_write_them() {
        let cases = [
            ("cpu", Some(DeviceChoice::Cpu)),
            ("stand-in", Some(DeviceChoice::StandIn)),
            ("cuda", Some(DeviceChoice::Cuda(0))),
            ("cuda:3", Some(DeviceChoice::Cuda(3))),
            ("cuda:", None),
            ("cuda:-1", None),
            ("CPU", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(DeviceChoice::of(text), expected, "{text:?}");
        }
    }
}
