//! A bar on standard error, for whoever waits at a terminal for longer than a moment.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// What is over sooner shows no bar.
const BAR_AFTER: Duration = Duration::from_secs(2);
/// How often a sign of life moves.
const TICK: Duration = Duration::from_millis(200);

/// A bar for each thing that is done.
pub(super) struct Bar {
    began: Instant,
    bar: Option<(&'static str, ProgressBar)>,
    visible: bool,
}

impl Bar {
    pub(super) fn new() -> Self {
        Bar { began: Instant::now(), bar: None, visible: std::io::stderr().is_terminal() }
    }

    /// So many bytes of a thing are done.
    pub(super) fn show(&mut self, what: &'static str, done_bytes: u64, total_bytes: u64) {
        if !self.visible || self.began.elapsed() < BAR_AFTER {
            return;
        }
        if self.bar.as_ref().is_none_or(|(shown, _)| *shown != what) {
            self.end();
            let style = ProgressStyle::with_template("{prefix:10} {wide_bar} {bytes}/{total_bytes} {eta}");
            let bar = ProgressBar::new(total_bytes).with_prefix(what);
            let bar = style.map(|style| bar.clone().with_style(style)).unwrap_or(bar);
            self.bar = Some((what, bar));
        }
        if let Some((_, bar)) = &self.bar {
            bar.set_length(total_bytes);
            bar.set_position(done_bytes);
        }
    }

    /// A sign of life for a thing of which nobody knows how far it is.
    pub(super) fn wait_for(&mut self, what: &'static str) {
        if self.visible {
            let style = ProgressStyle::with_template("{prefix:10} {spinner} {elapsed}");
            let bar = ProgressBar::new_spinner().with_prefix(what);
            let bar = style.map(|style| bar.clone().with_style(style)).unwrap_or(bar);
            bar.enable_steady_tick(TICK);
            self.bar = Some((what, bar));
        }
    }

    pub(super) fn end(&mut self) {
        if let Some((_, bar)) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.end(); // before the error that ended it is told
    }
}
