//! What can be wrong with `[process_groups]`.

use super::error::ConfigError;
use super::file;
use super::resolve::check;

/// More ranks than any machine has devices for.
const WORLD_MAX: usize = 64;

/// Refuses numbers that no group could be run with, and names that its state could not have.
pub(super) fn check_groups(file: &file::File) -> Result<(), ConfigError> {
    let Some(groups) = &file.process_groups else { return Ok(()) };
    let world = groups.world;
    let few = format!("give 1 to {WORLD_MAX} ranks");
    check((1..=WORLD_MAX).contains(&world), "process_groups.world", &world, &few)?;
    let slots = groups.slots.unwrap_or(world);
    let all_or_none =
        format!("an agent's {world} ranks are there together or not at all; give at least {world}");
    check(slots >= world, "process_groups.slots", &slots, &all_or_none)?;
    let most = crate::states::NAME_BYTES_MAX;
    let short = format!("in [process_groups] a name has at most {most} letters");
    let long = file.agents.iter().find(|agent| agent.name.len() > most);
    long.map_or(Ok(()), |agent| check(false, "agents.name", &agent.name, &short))
}
