//! Opening: from files to a state, and the judgement on what a crash left behind.
//!
//! The same run of the machine: the kernel has all that it was given. Nothing may be missing but the end of an append that
//! was never acknowledged; anything else is `corrupt`.
//!
//! Another run (or nobody knows which): only what was synced is sure to be there. The log says how far that is. Below,
//! any damage is `corrupt`, wherever in the log the proof stands. Above, the log is followed while records are whole and the
//! objects that they name are there, and up to the last record after which every value that the state names is there
//! ([`check`]); the log is cut behind it, for good, and the loss is reported. The log is read twice for that: nothing is
//! written before it is known where it ends. Then values that records carry are put back where they are missing,
//! everything is synced, and where the log is cut a proof of that takes the place of what goes ([`mend`]). Only then is
//! anything else written, so a crash in the middle of this leads whoever opens next to the same judgement.
//!
//! The same run, but a sync has failed since: the kernel may have taken for written what the disk does not hold, and may
//! drop it any time. A file in the directory says so ([`Directory::doubt`]). Then it is as after another run, and besides
//! what memory holds is let go of before anything is read, and what is kept is written again before it is synced.

mod check;
mod lost;
mod mend;
mod report;

use std::collections::BTreeSet;
use std::path::PathBuf;

pub(crate) use check::split_carried;
pub use report::RecoveryReport;

use self::check::{Check, End, Kept};
use self::mend::Mend;
use crate::checkpoint::{self, Manifest};
use crate::directory::Directory;
use crate::error::{Cause, Result};
use crate::log::{self, Damage, LogEnd, Refusal, SegmentFile};
use crate::options::Options;
use crate::reader::Reading;
use crate::state::State;
use crate::unsynced::{files_of, sync_all};

/// A state, and how the log goes on from it.
#[derive(Debug)]
pub(crate) struct Replayed {
    pub(crate) state: State,
    pub(crate) end: LogEnd,
    pub(crate) report: RecoveryReport,
    /// For a store that is open for reading only: how it follows its writer.
    pub(crate) reading: Option<Reading>,
}

/// Makes the state from the last checkpoint and the log behind it.
///
/// # Errors
/// `corrupt`, with file and offset, for what is damaged although it cannot be; `state` when the store is opened for reading
/// only and would have to be mended first.
pub(crate) fn replay(
    directory: &Directory,
    options: &Options,
    manifest: Option<Manifest>,
) -> Result<Replayed> {
    let from = manifest.as_ref().map_or(0, |manifest| manifest.next_sequence);
    let restore = || match manifest.clone() {
        Some(manifest) => checkpoint::restore(directory, manifest, options.claims_kept),
        None => Ok(State::new(options.claims_kept)),
    };
    if !options.read_only {
        return recover(directory, options, from, &restore);
    }
    let mut report = RecoveryReport::default();
    if !is_of_this_run(directory, &log::segments(directory)?) {
        report = recover(directory, options, from, &restore)?.report;
    }
    let mut state = restore()?;
    let reading = Reading::begin(directory, &mut state, from)?;
    let end = reading.end();
    report.records = end.records;
    Ok(Replayed { state, end, report, reading: Some(reading) })
}

/// The state of the last checkpoint, or that of a new store.
type Restore<'a> = &'a dyn Fn() -> Result<State>;

fn recover(directory: &Directory, options: &Options, from: u64, restore: Restore<'_>) -> Result<Replayed> {
    let in_doubt = directory.is_in_doubt();
    if in_doubt {
        drop_cached(directory)?;
    }
    let segments = log::segments(directory)?;
    let checked = !is_of_this_run(directory, &segments);
    let durable = if checked { log::survey(directory, &segments)?.max(from) } else { 0 };
    let (cut_at, kept) = match checked {
        true => look(directory, &segments, (from, durable), restore()?, in_doubt)?,
        false => (None, Kept::default()),
    };
    let mut state = restore()?;
    let mut mend = Mend::new(directory, !options.read_only, kept);
    let end = log::read(directory, &segments, from, |sequence, record| {
        if let Some(end) = cut_at.as_ref().filter(|end| sequence >= end.next_sequence) {
            return Err(Refusal::Incomplete(end.reason.clone()));
        }
        if checked {
            mend.record(&state, &record)?;
        }
        state.apply(record).map(drop).map_err(Refusal::Impossible)
    })?;
    let mut report = RecoveryReport {
        records: end.records,
        torn_bytes: end.torn_bytes,
        checked,
        durable_through: durable,
        values_put_back: mend.put_back(),
        ..RecoveryReport::default()
    };
    let unfinished = if checked { mend.unfinished(&state)? } else { Vec::new() };
    let end = judge(directory, options, &segments, end, &unfinished, &mut report, &mut mend);
    let end = end.inspect_err(|error| {
        if !options.read_only && matches!(error.cause(), Cause::Io { .. } | Cause::DiskFull { .. }) {
            directory.doubt(error);
        }
    })?;
    if !options.read_only {
        log::remove_superfluous(directory, &segments, from, checked)?;
    }
    Ok(Replayed { state, end, report, reading: None })
}

/// Follows the log without touching anything: where it has to end for what its records name, if it does.
fn look(
    directory: &Directory,
    segments: &[SegmentFile],
    (from, durable): (u64, u64),
    mut state: State,
    in_doubt: bool,
) -> Result<(Option<End>, Kept)> {
    let mut check = Check::new(directory, in_doubt);
    log::read(directory, segments, from, |sequence, record| {
        check.record(&state, (sequence, &record), sequence >= durable)?;
        state.apply(record).map(drop).map_err(Refusal::Impossible)?;
        check.applied(&state, sequence);
        Ok(())
    })?;
    Ok(check.end())
}

/// Lets go of what memory holds of the files that a failed sync may have been about. Whatever cannot be let go of is
/// written again.
fn drop_cached(directory: &Directory) -> Result<()> {
    for path in files_of(directory)? {
        let dropped = directory.disk.open(&path).and_then(|file| file.drop_cached());
        if let Err(error) = dropped {
            tracing::debug!(path = %path.display(), %error, "what memory holds of it stays");
        }
    }
    Ok(())
}

/// Whether the kernel still has everything that the log's last writer gave it, and no sync has failed since. A log without
/// a single sound header does not say who wrote it, and one without segments may have lost them.
pub(crate) fn is_of_this_run(directory: &Directory, segments: &[SegmentFile]) -> bool {
    let boot = directory.disk.boot();
    !directory.is_in_doubt() && log::last_boot(segments).is_some_and(|last| last == boot && boot != 0)
}

/// Decides what the end of the log means, and mends what may be mended.
fn judge(
    directory: &Directory,
    options: &Options,
    segments: &[SegmentFile],
    mut end: LogEnd,
    unfinished: &[PathBuf],
    report: &mut RecoveryReport,
    mend: &mut Mend<'_>,
) -> Result<LogEnd> {
    if !report.checked {
        return end.damage.take().map_or(Ok(end), |damage| Err(damage.error()));
    }
    let durable = report.durable_through;
    let damage = end.damage.take().or(end.torn.take());
    if end.next_sequence < durable {
        return Err(damage.unwrap_or_else(|| ends_early(directory, segments, &end, durable)).error());
    }
    if options.read_only {
        return match damage.is_some() || report.values_put_back > 0 || !unfinished.is_empty() {
            true => Err(Cause::NeedsRecovery { path: directory.path.clone() }.into()),
            false => Ok(end),
        };
    }
    mend.write_again(segments)?;
    if let Some(damage) = damage {
        cut(directory, &mut end, damage, report)?;
    }
    for path in unfinished {
        directory.disk.remove(path).map_err(|e| Cause::io("remove", path, e))?;
    }
    sync_files(directory)?;
    if directory.is_in_doubt() {
        directory.end_doubt()?;
    }
    end.durable_through = end.next_sequence;
    Ok(end)
}

/// Lets the log end where it can no longer be followed.
fn cut(directory: &Directory, end: &mut LogEnd, damage: Damage, report: &mut RecoveryReport) -> Result<()> {
    (report.records_lost, report.rows_lost) = lost::count(directory, end.next_sequence)?;
    tracing::warn!(
        records = report.records_lost, rows = report.rows_lost, file = %damage.path.display(),
        offset = damage.offset, reason = damage.reason, "what was not synced was lost when the machine went down"
    );
    report.cut_at = Some((damage.path, damage.offset, damage.reason));
    let (number, offset) = end.sound;
    sync_files(directory)?; // the cut proves what lies before it
    log::cut(directory, number, offset, end.next_sequence)?;
    end.last_segment = if number == 0 { 0 } else { number + 1 };
    Ok(())
}

fn sync_files(directory: &Directory) -> Result<()> {
    let files: BTreeSet<_> = files_of(directory)?.into_iter().collect();
    sync_all(&*directory.disk, &files)
}

fn ends_early(directory: &Directory, segments: &[SegmentFile], end: &LogEnd, durable: u64) -> Damage {
    let path = segments.last().map_or_else(|| directory.log(), |last| last.path.clone());
    let reason = format!("the log ends with record {}, it was durable up to {durable}", end.next_sequence);
    Damage { path, offset: end.sound.1, reason }
}
