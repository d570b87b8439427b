//! What all groups of a run share: who starts ranks, where states are kept, which slots there are.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use forebay_store::Store;
use forebay_trainer_adapter::process_group::{Fleet, GroupOptions, LocalLauncher, ProcessGroup};
use forebay_trainer_adapter::scheduler::{
    DeviceId, DeviceSlot, Node, Placement, Scheduler, SchedulerOptions,
};

use super::rank::Setup;
use super::seat::Seat;
use crate::ObjectStates;
use crate::client::Client;
use crate::config::{Config, ProcessGroups};

/// The only node: this machine.
const NODE: &str = "local";
/// A slot is room for one rank.
const RANK_BYTES: u64 = 1;

/// The machinery of process groups.
pub(in crate::run) struct Ranks {
    settings: ProcessGroups,
    launcher: Arc<LocalLauncher>,
    states: Arc<ObjectStates>,
    /// Where there is not room for all.
    fleet: Option<Fleet>,
    socket: PathBuf,
}

impl Ranks {
    /// Gets ready to start ranks; nothing where the configuration has no process groups. Ranks find the store at
    /// [`socket`](Self::socket), where it has to be served before the first of them is started.
    ///
    /// # Errors
    /// When the folder for sockets cannot be made in `dir`, or its path is too long for them.
    pub(in crate::run) fn new(
        config: &Config,
        vocabulary_tokens: usize,
        store: &Store,
        dir: &Path,
    ) -> Result<Option<Self>> {
        let Some(settings) = config.file.process_groups.clone() else { return Ok(None) };
        let folder = dir.join("ranks");
        let program = this_program().context("this program's own file cannot be found")?;
        let launcher = LocalLauncher::new(program, &folder).with_context(|| {
            format!("[process_groups] wants sockets in {}; give another --dir", dir.display())
        })?;
        let socket = folder.join("store");
        let address = format!("unix://{}", socket.display());
        let (name, text) =
            Setup { store: address, vocabulary_tokens, config: config.file.clone() }.variable()?;
        let launcher = Arc::new(launcher.variable(name, text));
        let states = Arc::new(ObjectStates::new(Client::embedded(store.clone()).objects()));
        let fleet = fleet(&settings, config.agents.len())?;
        Ok(Some(Ranks { settings, launcher, states, fleet, socket }))
    }

    /// Where the store is to be served to ranks.
    pub(in crate::run) fn socket(&self) -> &Path {
        &self.socket
    }

    pub(super) fn losses_max(&self) -> u32 {
        self.settings.losses_max
    }

    /// The group of an agent as its newest state says.
    pub(super) fn group(&self, agent: &str) -> Result<ProcessGroup> {
        let options = GroupOptions { world: self.settings.world, ..GroupOptions::default() };
        Ok(ProcessGroup::create(agent, options, self.launcher.clone(), self.states.clone())?)
    }

    /// Gives a group its slots; it is the `index`th of the agents.
    pub(super) fn seat(&self, index: usize, group: ProcessGroup) -> Result<Seat> {
        if let Some(fleet) = &self.fleet {
            return Ok(Seat::Shared(Box::new(fleet.join(group, RANK_BYTES)?)));
        }
        let first = index * self.settings.world;
        let devices = (first..first + self.settings.world).map(slot_name).collect();
        Ok(Seat::Own { group: Box::new(group), placement: Placement { node: NODE.to_owned(), devices } })
    }
}

/// What runs now, also when another version has been installed in its place since: ranks that are started later are of the same.
fn this_program() -> std::io::Result<PathBuf> {
    let own = PathBuf::from("/proc/self/exe");
    if cfg!(target_os = "linux") && own.exists() { Ok(own) } else { std::env::current_exe() }
}

fn fleet(settings: &ProcessGroups, agents: usize) -> Result<Option<Fleet>> {
    let all = agents * settings.world;
    let slots = settings.slots.unwrap_or(all);
    if slots >= all {
        return Ok(None);
    }
    let device = |ordinal| DeviceSlot { id: slot_name(ordinal), ordinal, bytes: RANK_BYTES };
    let node = Node { name: NODE.to_owned(), devices: (0..slots).map(device).collect() };
    let options = SchedulerOptions { turn_ms: settings.turn_ms, ..SchedulerOptions::default() };
    Ok(Some(Fleet::new(Scheduler::new(options, [node])?)))
}

fn slot_name(ordinal: usize) -> DeviceId {
    DeviceId(format!("slot-{ordinal}"))
}
