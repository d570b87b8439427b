//! Routing: agents to policies, agents to tables, and a trajectory from one agent to the next.
//!
//! An agent's number is its place in the declaration; `next_agent_id` in a row is such a number, or null where the
//! trajectory ends. An agent without a policy of its own shares one, and then shares that policy's table too: rows are
//! told apart by their `agent` column.

use forebay_store::{NewRow, SampleId};

use crate::error::{Cause, Error, Result};

/// One agent of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    name: String,
    policy: String,
    next: Option<String>,
}

impl Agent {
    /// An agent with a policy and a table of its own name, whose trajectories end with it.
    pub fn new(name: &str) -> Self {
        Agent { name: name.to_owned(), policy: name.to_owned(), next: None }
    }

    /// The policy that acts for this agent. Several agents may share one.
    pub fn policy(mut self, policy: &str) -> Self {
        self.policy = policy.to_owned();
        self
    }

    /// The agent that goes on where this one ends.
    pub fn then(mut self, next: &str) -> Self {
        self.next = Some(next.to_owned());
        self
    }
}

/// Knows every agent of a run.
///
/// ```
/// use forebay_pipeline::route::{Agent, Router};
/// let router = Router::new([Agent::new("solver").then("checker"), Agent::new("checker")])?;
/// assert_eq!(router.next_agent_id("solver")?, Some(1));
/// assert_eq!(router.next_agent_id("checker")?, None);
/// assert!(router.policy_of("solvr").unwrap_err().to_string().contains("\"solver\", \"checker\""));
/// # Ok::<(), forebay_pipeline::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Router {
    agents: Vec<Agent>,
}

impl Router {
    /// A router over these agents.
    ///
    /// # Errors
    /// `input` when a name is used twice, a next agent does not exist, or a lineage comes back to an agent.
    pub fn new(agents: impl IntoIterator<Item = Agent>) -> Result<Self> {
        let router = Router { agents: agents.into_iter().collect() };
        for (index, agent) in router.agents.iter().enumerate() {
            if router.agents[..index].iter().any(|other| other.name == agent.name) {
                return Err(Cause::AgentTwice { name: agent.name.clone() }.into());
            }
            router.lineage(&agent.name)?;
        }
        Ok(router)
    }

    /// The agents, by their ids.
    pub fn agents(&self) -> impl Iterator<Item = &str> {
        self.agents.iter().map(|agent| agent.name.as_str())
    }

    /// The policies, each once, in the order in which agents first name them.
    pub fn policies(&self) -> Vec<&str> {
        let mut policies: Vec<&str> = Vec::new();
        for agent in &self.agents {
            if !policies.contains(&agent.policy.as_str()) {
                policies.push(&agent.policy);
            }
        }
        policies
    }

    /// The agents from `agent` to the end of its lineage.
    pub fn lineage(&self, agent: &str) -> Result<Vec<&str>> {
        let mut path: Vec<&str> = Vec::new();
        let mut current = Some(agent);
        while let Some(name) = current {
            let agent = self.agent(name)?;
            if path.contains(&agent.name.as_str()) {
                path.push(&agent.name);
                return Err(Cause::Cycle { path: path.join(" -> ") }.into());
            }
            path.push(&agent.name);
            current = agent.next.as_deref();
        }
        Ok(path)
    }

    /// The policy that answers an agent's observations.
    pub fn policy_of(&self, agent: &str) -> Result<&str> {
        Ok(&self.agent(agent)?.policy)
    }

    /// The table that an agent's trajectories go to: the one of its policy.
    pub fn table_of(&self, agent: &str) -> Result<&str> {
        self.policy_of(agent)
    }

    /// An agent's number.
    pub fn id_of(&self, agent: &str) -> Result<usize> {
        self.agents.iter().position(|known| known.name == agent).ok_or_else(|| self.unknown(agent))
    }

    /// What `next_agent_id` says in a row of this agent.
    pub fn next_agent_id(&self, agent: &str) -> Result<Option<usize>> {
        self.agent(agent)?.next.as_deref().map(|next| self.id_of(next)).transpose()
    }

    /// The agent of that number.
    pub fn agent_of_id(&self, id: i64) -> Result<&str> {
        let agent = usize::try_from(id).ok().and_then(|id| self.agents.get(id));
        let last = self.agents.len().saturating_sub(1);
        agent.map(|agent| agent.name.as_str()).ok_or_else(|| Cause::UnknownAgentId { id, last }.into())
    }

    /// The row with which the next agent continues a trajectory: the same lineage one turn on, with its parent named.
    /// `version` is the version of the next agent's policy.
    pub fn continue_row(&self, from: &str, sample: &SampleId, to: &str, version: u64) -> Result<NewRow> {
        self.agent(to)?;
        let parent = format!("{}/{sample}", self.table_of(from)?);
        Ok(NewRow::of(version, sample.next_turn()).agent(to).parent(&parent))
    }

    fn agent(&self, name: &str) -> Result<&Agent> {
        self.agents.iter().find(|agent| agent.name == name).ok_or_else(|| self.unknown(name))
    }

    fn unknown(&self, name: &str) -> Error {
        let known: Vec<String> = self.agents().map(|agent| format!("{agent:?}")).collect();
        Cause::UnknownAgent { name: name.to_owned(), known: known.join(", ") }.into()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    // PL-11
    #[test]
    fn an_observation_goes_to_the_policy_of_its_agent_and_an_unknown_agent_is_named() {
        let router =
            Router::new([Agent::new("a").policy("shared"), Agent::new("b").policy("shared")]).unwrap();
        assert_eq!(router.policy_of("b").unwrap(), "shared");
        let error = router.policy_of("c").unwrap_err().to_string();
        assert!(error.contains("\"c\"") && error.contains("\"a\", \"b\""), "{error}");
    }

    // PL-12, PL-13
    #[test]
    fn roles_share_a_policy_and_its_table_or_have_one_each() {
        let shared = Router::new([Agent::new("a").policy("p"), Agent::new("b").policy("p")]).unwrap();
        assert_eq!(
            (shared.policies(), shared.table_of("a").unwrap()),
            (vec!["p"], shared.table_of("b").unwrap())
        );
        let own = Router::new([Agent::new("a"), Agent::new("b")]).unwrap();
        assert_eq!(own.policies(), ["a", "b"]);
        assert_ne!(own.table_of("a").unwrap(), own.table_of("b").unwrap());
    }

    #[test]
    fn a_lineage_that_cannot_end_is_refused() {
        let cases = [
            (vec![Agent::new("a").then("b"), Agent::new("b").then("a")], "a -> b -> a"),
            (vec![Agent::new("a").then("a")], "a -> a"),
            (vec![Agent::new("a").then("nobody")], "\"nobody\""),
            (vec![Agent::new("a"), Agent::new("a")], "declared twice"),
        ];
        for (agents, text) in cases {
            let error = Router::new(agents).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
    }

    // FX-19
    #[test]
    fn ids_lead_to_agents_and_null_ends_the_trajectory() {
        let router = Router::new([Agent::new("solver").then("checker"), Agent::new("checker")]).unwrap();
        let next = router.next_agent_id("solver").unwrap().unwrap();
        assert_eq!(router.agent_of_id(next as i64).unwrap(), "checker");
        assert!(router.agent_of_id(2).is_err() && router.agent_of_id(-1).is_err());
        assert_eq!(router.next_agent_id("checker").unwrap(), None);
    }
}
