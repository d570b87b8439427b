//! The subcommands of `forebay`. Each is thin: it turns arguments into a call of the library and prints what comes back.
//!
//! Exit codes: 0 when it worked; 1 when `verify` found faults; 2 when it did not work, with the reason and the way out on
//! standard error.

mod admin;
mod archive;
mod backup;
mod bar;
mod connected;
mod grants;
mod limits;
mod objects;
mod repair;
mod run;
mod serve;
mod settings;
mod sql;
mod token;
mod tokenizers;
mod verify;
mod warm_up;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

/// An experience store for reinforcement learning of language-model agents.
#[derive(Debug, Parser)]
#[command(name = "forebay", version, about, propagate_version = true, max_term_width = 110)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a training job: agents act, their samples stream through a store, their policies learn
    Run(run::RunArguments),
    /// Ask a store, with SQL
    Sql(sql::SqlArguments),
    /// Serve a store over HTTP and Arrow Flight SQL for reading, and over gRPC for everything
    Serve(Box<serve::ServeArguments>),
    /// Check every byte that a store stands on
    Verify(verify::VerifyArguments),
    /// Make a sound copy of a damaged store, and say what had to be given up
    Repair(repair::RepairArguments),
    /// Copy a store as it is at this moment, also while a process writes it
    Backup(backup::BackupArguments),
    /// Look after a store: how it is, what it may take, what goes
    Admin(admin::AdminArguments),
    /// Move versions that are over out of a store, into an archive of Parquet files
    Archive(archive::ArchiveArguments),
    /// Make the supervised warm-up weights that a run begins with
    WarmUp(warm_up::WarmUpArguments),
}

/// Parses the arguments and runs the command.
pub(crate) fn main() -> ExitCode {
    let filter = EnvFilter::try_from_env("FOREBAY_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
    let worked = |()| ExitCode::SUCCESS;
    match forebay::run::serve_rank() {
        Ok(false) => {}
        Ok(true) => return ExitCode::SUCCESS,
        Err(error) => return refused(&error),
    }
    let words = match settings::gather(std::env::args_os().collect(), std::env::vars_os()) {
        Ok(words) => words,
        Err(error) => return refused(&error),
    };
    let done = match Arguments::parse_from(words).command {
        Command::Run(arguments) => run::run(&arguments).map(worked),
        Command::Sql(arguments) => sql::run(&arguments).map(worked),
        Command::Serve(arguments) => serve::run(&arguments).map(worked),
        Command::Verify(arguments) => verify::run(&arguments),
        Command::Repair(arguments) => repair::run(&arguments).map(worked),
        Command::Backup(arguments) => backup::run(&arguments).map(worked),
        Command::Admin(arguments) => admin::run(&arguments),
        Command::Archive(arguments) => archive::run(&arguments).map(worked),
        Command::WarmUp(arguments) => warm_up::run(&arguments).map(worked),
    };
    match done {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => refused(&error),
    }
}

fn refused(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {}", in_one_text(error));
    ExitCode::from(2)
}

/// The error and its causes, each once.
fn in_one_text(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if !text.ends_with(&cause) {
            text.push_str(if text.is_empty() { "" } else { ": " });
            text.push_str(&cause);
        }
    }
    text
}

/// Whoever read our output has seen enough (`forebay sql … | head`). What lies deeper, below an error of another kind, is somebody
/// else's pipe: a connection to a server, a rank.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let own = error.downcast_ref::<std::io::Error>(); // through what was said of it, and through nothing else
    own.is_some_and(|own| own.kind() == std::io::ErrorKind::BrokenPipe)
}
