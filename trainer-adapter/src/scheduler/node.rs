//! Nodes, their device slots, and what of them is taken.

use std::collections::BTreeMap;
use std::fmt;

/// Names a device for good: its UUID, or whatever else is the same in every process and after every restart.
///
/// Never an ordinal of the driver: it differs by process (`CUDA_VISIBLE_DEVICES`) and may differ by boot.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId(pub String);

impl DeviceId {
    /// Where the device stands among those that a process sees, each by its own name.
    ///
    /// ```
    /// use forebay_trainer_adapter::scheduler::DeviceId;
    /// let wanted = DeviceId("GPU-b".into());
    /// assert_eq!(wanted.ordinal_among(&["GPU-c", "GPU-b"]), Some(1));
    /// assert_eq!(wanted.ordinal_among(&["GPU-a"]), None);
    /// ```
    pub fn ordinal_among(&self, visible: &[impl AsRef<str>]) -> Option<usize> {
        visible.iter().position(|name| name.as_ref() == self.0)
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A device and the memory that ranks may take of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceSlot {
    /// Its name.
    pub id: DeviceId,
    /// Its place on the node. Ranks are given devices in this order, whatever order they were named in.
    pub ordinal: usize,
    /// Memory for ranks, in bytes.
    pub bytes: u64,
}

/// A machine: all ranks of an agent are on one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its devices; no two of one name.
    pub devices: Vec<DeviceSlot>,
}

/// What an agent needs while it trains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    /// Ranks, each on a device of its own. At least one.
    pub ranks: usize,
    /// Memory of each rank on its device, in bytes.
    pub bytes_per_rank: u64,
}

/// Where an agent's ranks are: one node, and rank `i` on device `i`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// The node.
    pub node: String,
    /// A device a rank; no device twice.
    pub devices: Vec<DeviceId>,
}

/// Free bytes of a node's devices, in the order of their ordinals.
#[derive(Debug, Clone)]
pub(super) struct Room {
    devices: Vec<(DeviceId, u64)>,
}

impl Room {
    /// A node of which nothing is taken.
    pub(super) fn empty(node: &Node) -> Self {
        let mut slots: Vec<&DeviceSlot> = node.devices.iter().collect();
        slots.sort_by(|a, b| (a.ordinal, &a.id).cmp(&(b.ordinal, &b.id)));
        Self { devices: slots.into_iter().map(|slot| (slot.id.clone(), slot.bytes)).collect() }
    }

    /// Devices for all ranks, or none. The fullest devices that will do are taken, so that whole ones stay free.
    pub(super) fn fit(&self, demand: Demand) -> Option<Vec<DeviceId>> {
        let mut fitting: Vec<(u64, usize)> = self
            .devices
            .iter()
            .enumerate()
            .filter(|(_, (_, free))| *free >= demand.bytes_per_rank)
            .map(|(index, (_, free))| (*free, index))
            .collect();
        fitting.sort_unstable();
        let mut chosen: Vec<usize> = fitting.iter().take(demand.ranks).map(|&(_, index)| index).collect();
        chosen.sort_unstable();
        (chosen.len() == demand.ranks)
            .then(|| chosen.iter().map(|&index| self.devices[index].0.clone()).collect())
    }

    /// Takes the bytes of every rank.
    pub(super) fn take(&mut self, devices: &[DeviceId], bytes_per_rank: u64) {
        for (_, free) in self.devices.iter_mut().filter(|(id, _)| devices.contains(id)) {
            *free = free.saturating_sub(bytes_per_rank);
        }
    }

    pub(super) fn free_bytes(&self) -> u64 {
        self.devices.iter().map(|&(_, free)| free).sum()
    }

    /// Free bytes by device.
    pub(super) fn by_device(&self) -> BTreeMap<DeviceId, u64> {
        self.devices.iter().cloned().collect()
    }
}
