//! Text to tokens and back: the fixed parts of question templates are one token each, everything else is bytes.
//!
//! Encoding takes, from the left, the longest phrase that the rest begins with, else one byte. Special tokens never come
//! from text. So `decode(encode(x)) == x` for every `x`.

use std::path::Path;

use serde::Deserialize;

use super::problem::DataError;

/// The tokens of the main job.
#[derive(Clone, Debug)]
pub struct Vocabulary {
    phrases: Vec<Vec<u8>>,
    first_phrase: u32,
    first_byte: u32,
    /// Ends a response.
    pub end: u32,
    /// Comes between a question and its answer.
    pub answer: u32,
    /// Asks the checker for what it holds to be right.
    pub check: u32,
}

#[derive(Deserialize)]
struct VocabularyFile {
    special: Vec<String>,
    phrases: Vec<String>,
}

impl Vocabulary {
    /// Reads a vocabulary file.
    ///
    /// # Errors
    /// When it cannot be read, is malformed, or lacks one of the special tokens.
    pub fn load(path: &Path) -> Result<Self, DataError> {
        let bytes =
            std::fs::read(path).map_err(|source| DataError::Unreadable { path: path.to_owned(), source })?;
        let refuse = |reason: String| DataError::Vocabulary { path: path.to_owned(), reason };
        let file: VocabularyFile =
            serde_json::from_slice(&bytes).map_err(|error| refuse(error.to_string()))?;
        let mut tokens: Vec<&String> = file.special.iter().chain(&file.phrases).collect();
        tokens.sort();
        if let Some(pair) = tokens.windows(2).find(|pair| pair[0] == pair[1] || pair[0].is_empty()) {
            return Err(refuse(format!("the token {:?} is empty or stands twice", pair[0])));
        }
        let special = |name: &str| {
            let position = file.special.iter().position(|token| token == name);
            position.map(|id| id as u32).ok_or_else(|| refuse(format!("the special token {name} is missing")))
        };
        let first_phrase = file.special.len() as u32;
        Ok(Vocabulary {
            first_phrase,
            first_byte: first_phrase + file.phrases.len() as u32,
            end: special("<end>")?,
            answer: special("<answer>")?,
            check: special("<check>")?,
            phrases: file.phrases.into_iter().map(String::into_bytes).collect(),
        })
    }

    /// How many tokens there are.
    pub fn size(&self) -> usize {
        self.first_byte as usize + 256
    }

    /// The tokens of some text.
    pub fn encode(&self, text: &[u8]) -> Vec<u32> {
        let mut tokens = Vec::new();
        let mut rest = text;
        while let Some(&byte) = rest.first() {
            let matching = self.phrases.iter().enumerate().filter(|(_, phrase)| rest.starts_with(phrase));
            let (token, length) = match matching.max_by_key(|(_, phrase)| phrase.len()) {
                Some((index, phrase)) => (self.first_phrase + index as u32, phrase.len()),
                None => (self.first_byte + u32::from(byte), 1),
            };
            tokens.push(token);
            rest = &rest[length..];
        }
        tokens
    }

    /// The text of some tokens; special ones are nothing.
    pub fn decode(&self, tokens: &[u32]) -> Vec<u8> {
        let mut text = Vec::new();
        for &token in tokens {
            if let Some(byte) = token.checked_sub(self.first_byte) {
                text.extend(u8::try_from(byte));
            } else if let Some(index) = token.checked_sub(self.first_phrase) {
                text.extend_from_slice(&self.phrases[index as usize]);
            }
        }
        text
    }

    /// The prompt of a solver.
    pub fn solver_prompt(&self, question: &str) -> Vec<u32> {
        let mut prompt = self.encode(question.as_bytes());
        prompt.push(self.answer);
        prompt
    }

    /// The prompt of a checker.
    pub fn checker_prompt(&self, question: &str, answer: &[u8]) -> Vec<u32> {
        let mut prompt = self.solver_prompt(question);
        prompt.extend(self.encode(answer));
        prompt.push(self.check);
        prompt
    }

    /// The response that says `answer` and ends.
    pub fn finished(&self, answer: &[u8]) -> Vec<u32> {
        let mut response = self.encode(answer);
        response.push(self.end);
        response
    }

    /// What a response says, if it was brought to its end and holds nothing but text.
    pub fn said(&self, response: &[u32]) -> Option<Vec<u8>> {
        let (last, body) = response.split_last()?;
        let finished = *last == self.end && body.iter().all(|token| *token >= self.first_phrase);
        finished.then(|| self.decode(body))
    }
}
