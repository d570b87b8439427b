//! `forebay warm-up`

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use forebay::config::Config;
use forebay::run::warm_up;

/// Make the supervised warm-up weights that a run begins with
///
/// Trains every agent's policy for a while on the right answers to the warm-up problems, and writes its weights as
/// bfloat16 safetensors where the configuration expects them.
#[derive(Debug, Args)]
pub(super) struct WarmUpArguments {
    /// The configuration, for instance examples/reasoning.toml
    config: PathBuf,
    /// Directory to write to, instead of where the configuration expects the weights
    #[arg(long)]
    out: Option<PathBuf>,
    /// Prints no bars
    #[arg(long)]
    quiet: bool,
}

pub(super) fn run(arguments: &WarmUpArguments) -> Result<()> {
    let config = Config::load(&arguments.config)?;
    for path in warm_up(&config, arguments.out.as_deref(), !arguments.quiet)? {
        writeln!(std::io::stdout(), "{}", path.display())?;
    }
    Ok(())
}
