//! What a rank of a run is: this executable once more, told by its environment what to train.

use std::ffi::OsString;
use std::io::{ErrorKind, Read};
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use forebay_trainer_adapter::process_group::{Observer, RankPlace, Recipe, RecipeError, serve_local_rank};
use forebay_trainer_adapter::{CpuDevice, Trainer};
use serde::{Deserialize, Serialize};

use crate::ObjectStates;
use crate::client::{Client, ConnectOptions};
use crate::config::{AgentConfig, Config, file};
use crate::run::setup::as_configured;

/// The variable that has a [`Setup`] as TOML.
const SETUP: &str = "FOREBAY_RUN_RANK";

const LINK_ENDED: [ErrorKind; 3] =
    [ErrorKind::UnexpectedEof, ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];

/// What a rank is told: everything that decides what it computes is from the coordinator, and nothing is read from files that somebody
/// may have changed meanwhile.
#[derive(Serialize, Deserialize)]
pub(super) struct Setup {
    /// Where the store is served to ranks.
    pub(super) store: String,
    pub(super) vocabulary_tokens: usize,
    pub(super) config: file::File,
}

impl Setup {
    /// The variable of a rank's environment.
    pub(super) fn variable(&self) -> Result<(OsString, OsString)> {
        Ok((SETUP.into(), toml::to_string(self)?.into()))
    }

    /// The setup of this process; nothing if it is no rank.
    fn of_this_process() -> Result<Option<Self>> {
        let Some(text) = std::env::var_os(SETUP) else { return Ok(None) };
        let text = text.into_string().map_err(|_| anyhow!("{SETUP} is no text"))?;
        toml::from_str(&text).map(Some).with_context(|| format!("{SETUP} is not what a run sets"))
    }
}

/// Serves as a rank of a run if [`run`](super::super::run) has started this process as one, and gives true once the run has told it to
/// end; false at once for any other process. A program that runs a job with `[process_groups]` calls this at the beginning of its
/// `main`: its ranks are the same program.
///
/// # Errors
/// If the store cannot be reached, or the run's process is gone.
pub fn serve_rank() -> Result<bool> {
    let Some(setup) = Setup::of_this_process()? else { return Ok(false) };
    let config = Config::resolve(setup.config, Path::new("rank"))?;
    let client = Client::connect(&setup.store, &ConnectOptions::default());
    let states = ObjectStates::new(client.context("the run's store cannot be reached")?.objects());
    let mut recipe = PolicyRecipe { config, vocabulary_tokens: setup.vocabulary_tokens, placed: None };
    match serve_local_rank(&states, &mut recipe, &Observer::default()) {
        Err(error) if LINK_ENDED.contains(&error.kind()) => Ok(true), // the run has ended without a word
        served => served.context("a rank failed"),
    }
}

/// Makes the trainer of whichever agent the rank is of, as [`run`](super::super::run) makes it in its own process.
struct PolicyRecipe {
    config: Config,
    vocabulary_tokens: usize,
    placed: Option<AgentConfig>,
}

impl Recipe for PolicyRecipe {
    type Device = CpuDevice;

    fn open_device(&mut self, place: &RankPlace) -> Result<CpuDevice, RecipeError> {
        let agent = self.config.agent(&place.agent);
        let agent = agent.ok_or_else(|| format!("the run has no agent {:?}", place.agent))?;
        self.placed = Some(agent.clone());
        Ok(CpuDevice::new(self.config.file.trainer.threads))
    }

    fn create(&mut self, _device: &CpuDevice) -> Result<Trainer<CpuDevice>, RecipeError> {
        Err("a run sets the first state of its agents itself".into())
    }

    fn restore(
        &mut self,
        device: &CpuDevice,
        state: &mut dyn Read,
    ) -> Result<Trainer<CpuDevice>, RecipeError> {
        let agent = self.placed.clone().ok_or("no device was opened")?;
        let shape = self.config.policy_config(self.vocabulary_tokens);
        let trainer = Trainer::restore_from(device, &shape, agent.trainer.clone(), state)?;
        Ok(as_configured(trainer, &agent)?)
    }
}
