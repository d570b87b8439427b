//! On which terms changes are made.

use forebay::client::Changes;
use forebay::store::{Durability, Wait};
use pyo3::prelude::*;

use crate::failure::Result;
use crate::options;

/// How changes are acknowledged, and how long they may wait for room.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Terms {
    durability: Option<Durability>,
    wait: Option<Wait>,
}

impl Terms {
    pub(crate) fn of(
        durability: Option<&Bound<'_, PyAny>>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> Result<Self> {
        let durability = durability.map(options::durability).transpose()?;
        let wait = timeout.map(|time| options::seconds("timeout", time).map(Wait::For)).transpose()?;
        Ok(Terms { durability, wait })
    }

    /// No change yet, on these terms.
    pub(crate) fn changes<'v>(self) -> Changes<'v> {
        let mut changes = Changes::new();
        if let Some(level) = self.durability {
            changes.durability(level);
        }
        if let Some(wait) = self.wait {
            changes.wait(wait);
        }
        changes
    }
}
