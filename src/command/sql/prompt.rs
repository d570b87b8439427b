//! `forebay sql` on a terminal: a line editor with a history, and a fresh look at the store for each statement.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use forebay::query::Session;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{CompletionType, Config, Editor};

use super::command::{self, Command};
use super::completion::Names;
use super::interrupt::Interrupt;
use super::output::Output;
use super::runner::Runner;
use super::typing::Typing;
use super::{help, history, statements};

/// The rows of an answer that are shown unless more are asked for.
const ROWS_MAX: usize = 1000;
/// The lines that are kept.
const HISTORY_LINES_MAX: usize = 10_000;

const TABLES: &str = "SELECT table_schema AS schema, table_name AS name FROM information_schema.tables \
                      WHERE table_schema <> 'information_schema' ORDER BY table_schema <> 'public', 1, 2";

struct Prompt {
    runner: Runner,
    interrupt: Interrupt,
    timing: bool,
}

type Lines = Editor<Typing, FileHistory>;

/// Asks for statements until there are no more.
pub(super) fn run(session: &Session, output: Output, rows_max: Option<usize>) -> Result<()> {
    let session = session.with_rows_max(Some(rows_max.unwrap_or(ROWS_MAX)));
    let interrupt = Interrupt::listen()?;
    let mut prompt = Prompt { runner: Runner::new(session, output)?, interrupt, timing: false };
    let mut history = history::file(|name| std::env::var_os(name));
    let mut lines = lines(history.as_deref())?;
    println!("\\? shows what can be typed; statements end with `;`.");
    loop {
        lines.set_helper(Some(Typing::new(prompt.names(), prompt.interrupt.clone())));
        match lines.readline("forebay> ") {
            Ok(text) => {
                if lines.add_history_entry(text.as_str())? {
                    history = history.filter(|file| kept(&mut lines, file));
                }
                if prompt.take(&text) == Then::Leave {
                    break;
                }
            }
            Err(ReadlineError::Interrupted) => {} // the line is cleared
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(error).context("cannot read a line"),
        }
    }
    Ok(())
}

fn lines(history: Option<&Path>) -> Result<Lines> {
    let config = Config::builder()
        .completion_type(CompletionType::List)
        .max_history_size(HISTORY_LINES_MAX)?
        .history_ignore_space(true)
        .build();
    let mut lines = Lines::with_config(config).context("cannot read lines")?;
    if let Some(file) = history {
        let _first_time = lines.load_history(file); // there may be none yet
    }
    Ok(lines)
}

/// Whether what was typed last is in the file now: before it is answered, for the answer may be the program's end. Where it is
/// not this is told.
fn kept(lines: &mut Lines, file: &Path) -> bool {
    let kept = file.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(ReadlineError::from);
    let kept = kept.and_then(|()| lines.append_history(file));
    if let Err(error) = &kept {
        eprintln!("the history is not kept in {}: {error}", file.display());
    }
    kept.is_ok()
}

/// What comes after a line.
#[derive(Debug, PartialEq, Eq)]
enum Then {
    Ask,
    Leave,
}

impl Prompt {
    /// Does what was typed: a command, or statements.
    fn take(&mut self, text: &str) -> Then {
        if !text.trim_start().starts_with('\\') {
            let _ended_early = statements::all(text).iter().try_for_each(|statement| self.ask(statement));
            return Then::Ask;
        }
        match command::read(text) {
            Ok(Command::Quit) => return Then::Leave,
            Ok(command) => self.obey(command),
            Err(instead) => eprintln!("{instead}"),
        }
        Then::Ask
    }

    /// The names of the store as it is now; none when it cannot tell.
    fn names(&self) -> Names {
        let session = &self.runner.session;
        let names = |tables| Names::of(tables, session.functions());
        self.runner.wait(session.tables()).map(names).unwrap_or_default()
    }

    /// Runs a statement; what goes wrong is told, and the next one comes. Ctrl-C breaks off all statements of a line.
    fn ask(&self, statement: &str) -> ControlFlow<()> {
        let start = Instant::now();
        match self.runner.wait(self.interrupt.or(self.runner.answer(statement))) {
            None => {
                eprintln!("ended by Ctrl-C");
                return ControlFlow::Break(());
            }
            Some(Err(error)) => eprintln!("error: {error:#}"),
            Some(Ok(written)) => {
                self.runner.tell(written);
                if self.timing {
                    println!("{:.1} ms", start.elapsed().as_secs_f64() * 1e3);
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Tables => drop(self.ask(TABLES)),
            Command::Describe(table) => drop(self.ask(&format!("DESCRIBE {table}"))),
            Command::Timing => {
                self.timing = !self.timing;
                println!("timing is {}", if self.timing { "on" } else { "off" });
            }
            Command::Format(format) => match self.runner.output.set_format(format) {
                Ok(()) => println!("answers are written as {format}"),
                Err(error) => eprintln!("{error}"),
            },
            Command::Rows(rows) => {
                self.runner.session = self.runner.session.with_rows_max(rows);
                match rows {
                    Some(rows) => println!("at most {rows} rows of an answer are shown"),
                    None => println!("all rows are shown"),
                }
            }
            Command::Help => print!("{}", help::text()),
            Command::Quit => {}
        }
    }
}
