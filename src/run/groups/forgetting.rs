//! The end of a run: states of its groups are of no use any more.

use anyhow::Result;
use forebay_store::{Store, Tier};

use crate::ObjectStates;
use crate::client::Client;

/// Deletes the states of these agents, whose last step is committed, and gives their memory back to the machine. What the store has
/// of the policies stays; a run that goes on later begins from that. They may be of an earlier life of the run, which this one has
/// gone on with without process groups.
pub(in crate::run) fn forget_states(store: &Store, agents: &[&str]) {
    let forget = || -> Result<()> {
        let states = ObjectStates::new(Client::embedded(store.clone()).objects());
        agents.iter().try_for_each(|agent| states.forget(agent))?;
        let objects = store.objects()?;
        objects.run_once()?; // memory that ranks had, which have ended
        if objects.list().iter().all(|object| !object.tiers.contains(&Tier::Host)) {
            objects.give_back_host()?;
        }
        Ok(())
    };
    if let Err(error) = forget() {
        tracing::warn!(error = format!("{error:#}"), "states of process groups were left in memory");
    }
}
