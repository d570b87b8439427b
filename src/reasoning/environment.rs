//! Prompts and rewards of solver and checker.

use std::collections::HashMap;

use forebay_rollout_adapter::Failure;
use forebay_rollout_adapter::environment::{Environment, Turn};

use super::problem::Problem;
use super::vocabulary::Vocabulary;
use crate::config::{AgentConfig, Role};

/// Asks problems, and knows their answers.
///
/// A solver answers the problem. A checker sees the problem and the solver's answer, and writes the answer that it holds
/// to be right: the same one confirms, another one rejects and corrects. Both get 1 when what they wrote, brought to its
/// end, is the data's own answer to the letter, else 0.
pub struct Reasoning {
    vocabulary: Vocabulary,
    problems: HashMap<String, Problem>,
    roles: HashMap<String, Role>,
}

impl Reasoning {
    /// An environment over these problems.
    pub fn new(vocabulary: Vocabulary, problems: Vec<Problem>, agents: &[AgentConfig]) -> Self {
        let problems = problems.into_iter().map(|problem| (problem.id.clone(), problem)).collect();
        let roles = agents.iter().map(|agent| (agent.name.clone(), agent.role)).collect();
        Reasoning { vocabulary, problems, roles }
    }

    fn problem(&self, input: &str) -> Result<&Problem, Failure> {
        self.problems.get(input).ok_or_else(|| format!("no problem has the id {input:?}").into())
    }

    fn role(&self, agent: &str) -> Result<Role, Failure> {
        self.roles.get(agent).copied().ok_or_else(|| format!("agent {agent:?} has no role").into())
    }
}

impl Environment for Reasoning {
    fn first_prompt(&self, agent: &str, input: &str) -> Result<Vec<u32>, Failure> {
        match self.role(agent)? {
            Role::Solver => Ok(self.vocabulary.solver_prompt(&self.problem(input)?.question)),
            Role::Checker => Err(format!("agent {agent:?} checks answers; it cannot come first").into()),
        }
    }

    fn reward(&self, turn: &Turn<'_>) -> Result<f32, Failure> {
        let problem = self.problem(turn.sample.input())?;
        let right =
            self.vocabulary.said(turn.response).is_some_and(|answer| answer == problem.answer.as_bytes());
        Ok(if right { 1.0 } else { 0.0 })
    }

    fn next_prompt(&self, next_agent: &str, turn: &Turn<'_>) -> Result<Vec<u32>, Failure> {
        match self.role(next_agent)? {
            Role::Checker => {
                let answer = self.vocabulary.decode(turn.response);
                Ok(self.vocabulary.checker_prompt(&self.problem(turn.sample.input())?.question, &answer))
            }
            Role::Solver => {
                Err(format!("agent {next_agent:?} solves problems; it cannot come after another").into())
            }
        }
    }

    fn text(&self, tokens: &[u32]) -> String {
        String::from_utf8_lossy(&self.vocabulary.decode(tokens)).into_owned()
    }
}
