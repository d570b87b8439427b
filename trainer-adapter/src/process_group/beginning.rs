//! A state that was made elsewhere, and what of a state others may want.

use super::error::GroupError;
use super::group::ProcessGroup;
use super::ledger::Ledger;
use super::life::Life;
use super::rank::loaded::TRAINER;
use super::setting::LEDGER;
use crate::states::{StatesError, Which};

impl ProcessGroup {
    /// Makes a trainer that was made elsewhere the next version of the state: `trainer` is what [`crate::Trainer::state`] gave, nothing is
    /// in the cache, and the ledger is empty. So an agent whose trainer is kept by somebody else, too, begins from there; what the state
    /// had is left behind. Gives the version. No process is started.
    ///
    /// # Errors
    /// [`GroupError::States`]; [`GroupError::Life`] unless the group is absent or suspended.
    pub fn begin_from(&mut self, trainer: &[u8]) -> Result<u64, GroupError> {
        if !matches!(self.life, Life::Absent | Life::Suspended) {
            return Err(self.life_error("begin_from"));
        }
        let ledger = Ledger::default();
        let stage = |part: &str, bytes: &[u8]| self.states.stage(&self.agent, part, bytes);
        let commit = || -> Result<u64, StatesError> {
            let parts = [stage(TRAINER, trainer)?, stage(LEDGER, &ledger.to_bytes())?];
            self.states.commit(&self.agent, self.version, &parts)
        };
        self.version = commit().map_err(|error| self.failed(error))?;
        (self.kept_policy_version, self.current, self.kept) = (None, ledger.clone(), ledger);
        if self.life == Life::Absent {
            self.go(Life::Suspended);
        }
        Ok(self.version)
    }

    /// The trainer in the newest version of the state, as [`crate::Trainer::state`] gave it; nothing if there is no state. For whoever
    /// samples from it, or keeps it elsewhere, too.
    ///
    /// # Errors
    /// [`GroupError::States`].
    pub fn trainer_state(&self) -> Result<Option<Vec<u8>>, GroupError> {
        if self.version == 0 {
            return Ok(None);
        }
        let read = self.states.read(&self.agent, Which::Exact(self.version), TRAINER);
        read.map(Some).map_err(|error| self.failed(error))
    }
}
