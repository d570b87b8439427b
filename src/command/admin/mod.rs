//! `forebay admin`: what an operator asks of a store, mostly of one that a server has.

mod budgets;
mod compact;
mod evict;
mod overview;
mod peek;
mod retention;
mod size;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

use super::{backup, verify};

/// Look after a store: how it is, what it may take, what goes
///
/// With --connect of a store that a server has (the token needs the scope `admin`), with --dir of one that nobody serves.
#[derive(Debug, Args)]
pub(super) struct AdminArguments {
    #[command(subcommand)]
    command: AdminCommand,
}

#[derive(Debug, Subcommand)]
enum AdminCommand {
    /// Show settings, counters, and how much is ready for each consumer
    Overview(overview::OverviewArguments),
    /// Look at a few rows of a table, whoever holds them
    Peek(peek::PeekArguments),
    /// Leave rows out for good, with a reason that people will see
    Evict(evict::EvictArguments),
    /// Show or change how much memory and disk the store may take
    Budgets(budgets::BudgetsArguments),
    /// Show or change which rows go by themselves
    Retention(retention::RetentionArguments),
    /// Make the store as small as it can be now
    Compact(compact::CompactArguments),
    /// Copy the store as it is at this moment: as `forebay backup`
    Backup(backup::BackupArguments),
    /// Check every byte that the store stands on: as `forebay verify`
    Verify(verify::VerifyArguments),
}

pub(super) fn run(arguments: &AdminArguments) -> Result<ExitCode> {
    let worked = |()| ExitCode::SUCCESS;
    match &arguments.command {
        AdminCommand::Overview(arguments) => overview::run(arguments).map(worked),
        AdminCommand::Peek(arguments) => peek::run(arguments).map(worked),
        AdminCommand::Evict(arguments) => evict::run(arguments).map(worked),
        AdminCommand::Budgets(arguments) => budgets::run(arguments).map(worked),
        AdminCommand::Retention(arguments) => retention::run(arguments).map(worked),
        AdminCommand::Compact(arguments) => compact::run(arguments).map(worked),
        AdminCommand::Backup(arguments) => backup::run(arguments).map(worked),
        AdminCommand::Verify(arguments) => verify::run(arguments),
    }
}
