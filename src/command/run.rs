//! `forebay run`

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use clap::Args;
use forebay::config::Config;
use forebay::run::{RunOptions, run as run_job};

/// Run a training job from its configuration file
///
/// Rollouts stream into a store, micro-batches leave it while the rest of the batch is still being generated, and every
/// step updates every policy. A run that was cut off, at any moment, goes on with --resume and ends with the same
/// weights.
#[derive(Debug, Args)]
pub(super) struct RunArguments {
    /// The configuration, for instance examples/reasoning.toml
    config: PathBuf,
    /// Where the store lies [default: runs/NAME-SEED, with a number behind it if that is taken]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Overrides the configuration's seed
    #[arg(long)]
    seed: Option<u64>,
    /// Stops after this many steps in all; the schedule stays that of the configuration
    #[arg(long)]
    steps: Option<u64>,
    /// Threads that sample; changes how long the run takes, not what it computes
    #[arg(long)]
    workers: Option<usize>,
    /// Waits for an agent's full batch before it is trained on, instead of training on micro-batches as they become ready
    #[arg(long)]
    barrier: bool,
    /// Goes on with the run in --dir where it was cut off
    #[arg(long)]
    resume: bool,
    /// Serves SQL (POST /sql), /metrics and /health over HTTP at this loopback address while the run goes on
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<std::net::SocketAddr>,
    /// Serves Arrow Flight SQL too, at this loopback address, for ADBC and JDBC drivers; needs --listen
    #[arg(long, value_name = "ADDRESS:PORT", requires = "listen")]
    flight: Option<std::net::SocketAddr>,
    #[command(flatten)]
    tokenizers: super::tokenizers::TokenizerArguments,
    #[command(flatten)]
    token: super::token::TokenArguments,
    /// Prints one JSON object as the last line of standard output
    #[arg(long)]
    json: bool,
    /// Prints no bars, no tables and no report
    #[arg(long)]
    quiet: bool,
    /// Steps between two tables
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    table_every_steps: u64,
}

pub(super) fn run(arguments: &RunArguments) -> Result<()> {
    let mut config = Config::load(&arguments.config)?;
    let mut file = config.file.clone();
    file.seed = arguments.seed.unwrap_or(file.seed);
    file.rollout.workers = arguments.workers.unwrap_or(file.rollout.workers);
    config = Config::resolve(file, &arguments.config)?;
    config.steps = arguments.steps.unwrap_or(config.steps);
    let dir = match &arguments.dir {
        Some(dir) => dir.clone(),
        None => default_dir(&arguments.config, config.file.seed, arguments.resume),
    };
    let visible = !arguments.quiet;
    if visible && std::io::stderr().is_terminal() {
        eprintln!("{} steps of {} in {}", config.steps, arguments.config.display(), dir.display());
    }
    let tokenizers: Vec<_> = arguments.tokenizers.named().collect();
    ensure!(
        tokenizers.is_empty() || arguments.listen.is_some(),
        "--tokenizer is for those who ask at --listen, and that is not given"
    );
    ensure!(
        !arguments.token.is_file() || arguments.listen.is_some(),
        "--token-file is for those who ask at --listen, and that is not given"
    );
    let options = RunOptions {
        dir,
        resume: arguments.resume,
        barrier: arguments.barrier,
        visible,
        table_every_steps: arguments.table_every_steps,
        listen: arguments.listen,
        flight: arguments.flight,
        tokenizers,
        token: arguments.token.read()?,
    };
    let summary = run_job(&config, &options)?;
    let mut stdout = std::io::stdout().lock();
    if visible {
        writeln!(stdout, "{}", summary.to_text())?;
    }
    if arguments.json {
        writeln!(stdout, "{}", summary.to_json())?;
    }
    Ok(())
}

/// `runs/NAME-SEED`, or the first free `runs/NAME-SEED-N`; to resume, the newest that is there.
fn default_dir(config: &Path, seed: u64, resume: bool) -> PathBuf {
    let name = config.file_stem().map_or("run".into(), |stem| stem.to_string_lossy().into_owned());
    let candidate = |number: u32| match number {
        1 => PathBuf::from(format!("runs/{name}-{seed}")),
        _ => PathBuf::from(format!("runs/{name}-{seed}-{number}")),
    };
    let free = (1..).find(|number| !candidate(*number).exists()).unwrap_or(1);
    candidate(if resume { free.saturating_sub(1).max(1) } else { free })
}
