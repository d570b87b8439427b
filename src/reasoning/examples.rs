//! What the supervised warm-up shows: prompts with the responses that are wanted.

use std::collections::HashMap;

use super::problem::{Problem, WrongAnswers};
use super::vocabulary::Vocabulary;
use crate::config::Role;

/// A prompt, and the response that is wanted for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Example {
    /// Token ids that are given.
    pub prompt: Vec<u32>,
    /// Token ids that are wanted, the end token last.
    pub response: Vec<u32>,
}

/// The examples of a role: each warm-up problem with its answer, or, for the checker, each wrong answer with the right
/// one. A checker that is shown right answers too learns to copy and never to judge.
pub fn examples(
    role: Role,
    vocabulary: &Vocabulary,
    problems: &[Problem],
    wrong_answers: &[WrongAnswers],
) -> Vec<Example> {
    let example = |problem: &Problem, prompt| Example {
        prompt,
        response: vocabulary.finished(problem.answer.as_bytes()),
    };
    match role {
        Role::Solver => problems.iter().map(|p| example(p, vocabulary.solver_prompt(&p.question))).collect(),
        Role::Checker => {
            let wrong: HashMap<&str, &[String]> =
                wrong_answers.iter().map(|answers| (answers.id.as_str(), answers.wrong.as_slice())).collect();
            let wrong_of = |problem: &Problem| wrong.get(problem.id.as_str()).copied().unwrap_or_default();
            let pairs = problems.iter().flat_map(|p| wrong_of(p).iter().map(move |wrong| (p, wrong)));
            pairs
                .map(|(p, wrong)| example(p, vocabulary.checker_prompt(&p.question, wrong.as_bytes())))
                .collect()
        }
    }
}
