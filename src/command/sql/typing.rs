//! What the line editor asks while somebody types: what Tab offers, and whether Enter ends the line.

use rustyline::completion::Completer;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Context, Helper};

use super::completion::Names;
use super::interrupt::Interrupt;
use super::statements;

/// The line editor's helper.
#[derive(Debug)]
pub(super) struct Typing {
    names: Names,
    interrupt: Interrupt,
}

impl Typing {
    pub(super) fn new(names: Names, interrupt: Interrupt) -> Self {
        Typing { names, interrupt }
    }
}

impl Completer for Typing {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        cursor: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(self.names.offers(line, cursor))
    }
}

impl Validator for Typing {
    /// Asked at each Enter, while Ctrl-C is still a key among others.
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let typed = context.input();
        let ready = typed.trim_start().starts_with('\\') || statements::is_whole(typed);
        self.interrupt.forget();
        Ok(if ready { ValidationResult::Valid(None) } else { ValidationResult::Incomplete })
    }
}

impl Hinter for Typing {
    type Hint = String;
}

impl Highlighter for Typing {}

impl Helper for Typing {}
