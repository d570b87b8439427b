//! What a person sees while a run goes on: three bars in a terminal, nothing elsewhere.

use std::io::Write;
use std::time::Duration;

use forebay_rollout_adapter::environment::Observer;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The bars of a run. Hidden, they cost nothing.
pub(super) struct Progress {
    bars: MultiProgress,
    rollout: ProgressBar,
    training: ProgressBar,
    version: ProgressBar,
}

impl Progress {
    /// Bars for steps of `rows` rows in all, of which `done` of `steps` are committed.
    pub(super) fn new(visible: bool, rows: u64, done: u64, steps: u64) -> Self {
        let target = if visible { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bars = MultiProgress::with_draw_target(target);
        let add = |name, length| bars.add(ProgressBar::new(length).with_style(style()).with_prefix(name));
        let (rollout, training, version) =
            (add("rollout", rows), add("training", rows), add("version", steps));
        version.set_position(done);
        version.enable_steady_tick(Duration::from_millis(250));
        Progress { bars, rollout, training, version }
    }

    /// A step begins: its bars start over.
    pub(super) fn begin_step(&self) {
        self.rollout.set_position(0);
        self.training.set_position(0);
    }

    /// The gradient of that many rows is in a cache.
    pub(super) fn trained(&self, rows: usize) {
        self.training.inc(rows as u64);
    }

    /// That many rows have their reward.
    pub(super) fn rewarded(&self, rows: usize) {
        self.rollout.inc(rows as u64);
    }

    /// A step is committed.
    pub(super) fn committed(&self, step: u64, message: String) {
        self.version.set_position(step);
        self.version.set_message(message);
    }

    /// Prints lines above the bars.
    pub(super) fn print(&self, text: &str) -> std::io::Result<()> {
        self.bars.suspend(|| writeln!(std::io::stdout(), "{text}"))
    }

    /// Takes the bars away.
    pub(super) fn finish(&self) {
        self.rollout.finish_and_clear();
        self.training.finish_and_clear();
        self.version.finish_and_clear();
    }
}

/// A bar for work that is counted in `what`.
pub(super) fn single_bar(visible: bool, what: &'static str, length: u64) -> ProgressBar {
    let target = if visible { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    ProgressBar::with_draw_target(Some(length), target).with_style(style()).with_prefix(what)
}

fn style() -> ProgressStyle {
    let template = "{prefix:>9} {bar:32.cyan/blue} {pos:>5}/{len:<5} {msg}";
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

impl Observer for Progress {
    fn rewarded(&self, _agent: &str, rows: usize, _reward_sum: f64) {
        Progress::rewarded(self, rows);
    }
}
