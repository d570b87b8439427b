//! Which step: its number is that of a step that was given up before, too.

use crate::error::{Cause, Result};
use crate::state::State;

/// A step that was begun. The caches of those that have the same number have other epochs, so they tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Begun {
    pub(crate) number: u64,
    /// Where the epochs of its gradient caches begin.
    pub(crate) caches_from: u32,
}

impl Begun {
    /// Both in one word, which no other step has; 0 is none. Numbers of steps have 32 bits, and begin with 1.
    pub(crate) fn word(self) -> u64 {
        self.number << 32 | u64::from(self.caches_from)
    }
}

impl State {
    /// The step that is open.
    pub(crate) fn open_begun(&self) -> Option<Begun> {
        let number = self.open_step()?;
        Some(Begun { number, caches_from: self.membership(number).first_cache_epoch })
    }

    /// Refuses a step that is not open, also where another of its number is.
    pub(crate) fn check_begun(&self, step: Begun) -> Result<()> {
        match self.open_begun() {
            Some(open) if open == step => Ok(()),
            Some(open) if open.number == step.number => {
                let Begun { number: step, caches_from } = step;
                Err(Cause::StepBegunAgain { step, caches_from, open_caches_from: open.caches_from }.into())
            }
            _ => Err(Cause::StepClosed { step: step.number }.into()),
        }
    }
}
