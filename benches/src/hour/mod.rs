//! An hour of writing and retiring at full speed: does the store stay as large as it is?
//!
//! What a run does in a month happens in an hour: writers fill version after version, a task scores every sample, a
//! trainer takes half of them in steps and names an object at each commit, retention retires what is old, and three threads
//! do the store's duties as `forebay run` has them. All data of the run go through a span of a fixed size, so whatever
//! grows is the engine's.
//!
//! - `work`: the threads.
//! - `sample`: what is looked at every few seconds, and written as CSV.
//! - `slope`: the line through it, and how sure it is.
//! - `plot`: the picture.
//!
//! # Invariants
//! - The bench itself keeps nothing that grows but one sample every few seconds, room for which is there from the start.
//! - No sample is named twice: the number of the pass over the inputs stands where a turn would.
//! - It ends in an error when the store's counts are not those of what was acknowledged.

mod histogram;
mod plot;
mod sample;
mod slope;
mod work;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use forebay_store::Durability;
use indicatif::{ProgressBar, ProgressStyle};

use crate::Outcome;
use crate::row::{Goal, Row};
use crate::workload::{Scale, Workload};
use sample::{Sample, Sampler};
use slope::Fit;
use work::Work;

/// The part of the run that counts as warming up: caches, tables and free extents find their size.
const WARM_UP_SHARE: f64 = 0.2;

/// When a run ends.
#[derive(Clone, Copy, Debug)]
pub enum End {
    /// After this time.
    After(Duration),
    /// With the first look at it after so many steps.
    Steps(u64),
}

/// How an hour is run.
#[derive(Clone, Debug)]
pub struct Hour {
    /// When it ends.
    pub end: End,
    /// How often it is looked at.
    pub interval: Duration,
    /// About how many bytes of samples are live at once.
    pub live_bytes: usize,
    /// Threads that write.
    pub writers: usize,
    /// Where every look goes as a line, as it is taken.
    pub csv: Option<PathBuf>,
    /// Where the picture goes at the end.
    pub plot: Option<PathBuf>,
}

impl Default for Hour {
    fn default() -> Self {
        Hour {
            end: End::After(Duration::from_secs(3600)),
            interval: Duration::from_secs(2),
            live_bytes: 1 << 30,
            writers: 2,
            csv: None,
            plot: None,
        }
    }
}

impl Hour {
    /// A tiny one that ends after a few steps: shows that it runs, and says nothing of slopes.
    pub fn quick() -> Self {
        Hour {
            end: End::Steps(6),
            interval: Duration::from_millis(20),
            live_bytes: 4 << 20,
            writers: 2,
            csv: None,
            plot: None,
        }
    }

    /// Runs it, and gives its rows.
    ///
    /// # Errors
    /// The first failure of the store or of the machine.
    pub fn run(&self) -> Outcome<Vec<Row>> {
        let scale = if matches!(self.end, End::Steps(_)) { Scale::QUICK } else { Scale::FULL };
        let workload = Workload::new(scale);
        let directory = tempfile::tempdir()?;
        let work = Work::open(directory.path(), &workload, self.live_bytes)?;
        let mut samples = Vec::with_capacity(self.samples_expected());
        let outcome = std::thread::scope(|scope| {
            let threads = work.start(scope, self.writers);
            let watched = self.watch(&work, directory.path(), &mut samples);
            work.stop();
            for thread in threads {
                thread.join().map_err(|_| "a thread panicked")??;
            }
            watched
        });
        outcome?;
        work.check()?;
        if let Some(path) = &self.plot {
            plot::draw(path, &samples, self.warm_up(&samples))?;
        }
        Ok(self.rows(&samples, &work))
    }

    fn samples_expected(&self) -> usize {
        match self.end {
            End::After(time) => (time.as_secs_f64() / self.interval.as_secs_f64()) as usize + 2,
            End::Steps(_) => 1024,
        }
    }

    /// Looks at the run until it is over.
    fn watch(&self, work: &Work<'_>, directory: &Path, samples: &mut Vec<Sample>) -> Outcome<()> {
        let mut csv = self.csv.as_ref().map(File::create).transpose()?.map(BufWriter::new);
        if let Some(csv) = &mut csv {
            writeln!(csv, "{}", Sample::head())?;
        }
        let bar = self.bar();
        let (start, mut sampler) = (Instant::now(), Sampler::new(directory));
        for look in 0.. {
            let due = start + self.interval * look;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let sample = sampler.look(work, start.elapsed())?;
            if let Some(csv) = &mut csv {
                writeln!(csv, "{}", sample.line())?;
                csv.flush()?;
            }
            self.show(&bar, &sample, look);
            samples.push(sample);
            if work.is_stopped() || self.is_over(samples, start.elapsed()) {
                break;
            }
        }
        bar.finish_and_clear();
        Ok(())
    }

    fn is_over(&self, samples: &[Sample], elapsed: Duration) -> bool {
        match self.end {
            End::After(time) => elapsed >= time,
            // However fast the steps were, there is a line to be drawn.
            End::Steps(steps) => {
                let done = samples.last().is_some_and(|sample| sample.steps >= steps as f64);
                done && self.warm(samples).count() >= slope::POINTS_MIN
            }
        }
    }

    fn bar(&self) -> ProgressBar {
        let length = match self.end {
            End::After(time) => time.as_secs(),
            End::Steps(steps) => steps,
        };
        let style = ProgressStyle::with_template("{bar:32.cyan/blue} {pos:>5}/{len:<5} {msg}");
        ProgressBar::new(length).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
    }

    /// Moves the bar on; where there is no terminal, a line now and then.
    fn show(&self, bar: &ProgressBar, sample: &Sample, look: u32) {
        let (position, every) = match self.end {
            End::After(_) => (sample.seconds, (self.samples_expected() / 60).max(1)),
            End::Steps(_) => (sample.steps, usize::MAX),
        };
        bar.set_position(position as u64);
        bar.set_message(sample.words());
        let told = (look as usize).is_multiple_of(every) && bar.is_hidden();
        if told && matches!(self.end, End::After(_)) {
            eprintln!("{:6.0} s: {}", sample.seconds, sample.words());
        }
    }

    /// Until when the run warms up, in seconds.
    fn warm_up(&self, samples: &[Sample]) -> f64 {
        samples.last().map_or(0.0, |last| last.seconds * WARM_UP_SHARE)
    }

    /// The looks after it.
    fn warm<'s>(&self, samples: &'s [Sample]) -> impl Iterator<Item = &'s Sample> {
        let warm_up = self.warm_up(samples);
        samples.iter().filter(move |sample| sample.seconds >= warm_up)
    }

    fn rows(&self, samples: &[Sample], work: &Work<'_>) -> Vec<Row> {
        let warm: Vec<&Sample> = self.warm(samples).collect();
        let mut rows = Vec::new();
        let what = format!("writing and retiring for {}", self.length(samples));
        for (name, of) in Sample::MEASURES {
            let points: Vec<(f64, f64)> =
                warm.iter().map(|sample| (sample.seconds / 3600.0, of(sample) / 1e6)).collect();
            rows.extend(Fit::of(&points).into_iter().flat_map(|fit| slope_rows(&what, name, &fit)));
        }
        rows.extend(speed_row(&what, &warm));
        let (mean, stall) = work.batch_times();
        let measure = format!("{what}: a batch, p99.9");
        rows.push(row(measure, (stall, mean), "us", "the mean batch", Goal::None));
        rows
    }

    fn length(&self, samples: &[Sample]) -> String {
        match self.end {
            End::After(time) if time.as_secs().is_multiple_of(60) => {
                format!("{} minutes", time.as_secs() / 60)
            }
            End::After(time) => format!("{} s", time.as_secs()),
            End::Steps(steps) => format!("{steps} steps, {} looks", samples.len()),
        }
    }
}

/// A measure's slope beside its noise, and its mean beside the most that it was.
fn slope_rows(what: &str, name: &str, fit: &Fit) -> [Row; 2] {
    let noise = "what noise alone may make of it: twice the standard error";
    let slope = (fit.slope, 2.0 * fit.slope_error);
    [
        row(format!("{what}: {name}, slope"), slope, "MB/h", noise, Goal::RatioAtMost(1.0)),
        row(format!("{what}: {name}"), (fit.mean, fit.most), "MB", "the most that it was", Goal::None),
    ]
}

/// Samples a second over all, beside those of the first tenth: whether the store slows down.
fn speed_row(what: &str, samples: &[&Sample]) -> Option<Row> {
    let speed = |part: &[&Sample]| {
        let (first, last) = (part.first()?, part.last()?);
        Some((last.samples - first.samples) / (last.seconds - first.seconds).max(1e-9))
    };
    let first = speed(&samples[..(samples.len() / 10).max(2).min(samples.len())])?;
    let pair = (speed(samples)?, first);
    Some(row(format!("{what}: samples"), pair, "samples/s", "the first tenth of the same run", Goal::None))
}

fn row(
    measure: String,
    (value, limit): (f64, f64),
    unit: &'static str,
    kind: &'static str,
    goal: Goal,
) -> Row {
    Row { measure, level: Durability::Logged, value, unit, limit, limit_kind: kind, goal, digest: 0 }
}
