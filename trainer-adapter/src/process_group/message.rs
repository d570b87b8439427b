//! What coordinator and rank say to each other: frames ([`crate::frame`]) of `FBPG`, one answer to each command.
//!
//! | kind | command | answer (kind + 16) |
//! | --- | --- | --- |
//! | 0 | | hello: protocol, rank, process; unasked, first |
//! | 1 | load: key, version, parts | loaded: policy version, what is in the cache, times |
//! | 2 | accumulate: a micro-batch | accumulated: rows, tokens, times |
//! | 3 | apply: the learning rate, if it is another than the trainer's | applied: the step's report |
//! | 4 | stage: whether the trainer too, name of the cache's part | staged: policy version, what is in the cache, parts |
//! | 5 | end | none: the process ends |
//! | 6 | add: members of groups, which are begun where they are not open | added: rows, tokens, times |
//! | 7 | close: position of an open group, advantages of who has come | closed |
//! | 8 | forget: position of an open group, or the whole cache | forgotten |
//! | | anything | 31 refused: the reason, and whether the cache was lost |

use std::io::{Read, Result, Write};

use super::batch::MicroBatch;
use super::cached::Cached;
use super::trajectory::{BatchTrajectory, number};
use super::wire::{Decoder, Encoder};
use crate::frame::{invalid, read_frame, write_frame};
use crate::states::Staged;
use crate::trainer::StepReport;

const PROTOCOL: [u8; 4] = *b"FBPG";

/// What hello says; a rank of another version is refused.
pub(super) const PROTOCOL_VERSION: u64 = 4;

/// The longest message. A micro-batch is tokens and a few numbers each; gradients and weights never go this way.
pub(super) const MESSAGE_BYTES_MAX: u64 = 1 << 30;

/// What the coordinator asks for.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Command {
    /// Open the device and get the state.
    Load {
        key: String,
        /// 0: there is none, begin anew.
        version: u64,
        /// Names of the parts whose cached gradients this rank takes.
        caches: Vec<String>,
    },
    /// Train on a micro-batch.
    Accumulate(MicroBatch),
    /// Make the update, together with all ranks, at this learning rate or at that of the trainer.
    Apply { learning_rate: Option<f64> },
    /// Stage what has changed.
    Stage { trainer: bool, cache: String },
    /// End the process.
    End,
    /// Train members of groups, all or none.
    Add(Vec<BatchTrajectory>),
    /// Close a group: who has not come is excluded.
    Close { position: usize, advantages: Vec<f64> },
    /// Forget an open group, or everything in the cache.
    Forget { position: Option<usize> },
}

/// What a rank says.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Answer {
    Hello { protocol: u64, rank: usize, pid: u32 },
    Loaded { policy_version: u64, cached: Cached, times: LoadTimes },
    Accumulated { rows: u64, tokens: u64, compute_us: u64 },
    Applied { policy_version: u64, weights_sha256: String, report: StepReport },
    Staged { policy_version: u64, cached: Cached, trainer: Option<Staged>, cache: Option<Staged> },
    Added { rows: u64, tokens: u64, compute_us: u64 },
    Closed,
    Forgotten,
    Refused { reason: String, is_cache_lost: bool },
}

/// How long a rank took to be as it was, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LoadTimes {
    /// Opening the device.
    pub context_us: u64,
    /// Finding the state and registering its memory: of objects in shared memory, mapping it.
    pub get_us: u64,
    /// Copying it to the device and into a trainer, checks included.
    pub copy_us: u64,
}

impl Command {
    pub(super) fn write(&self, link: &mut (impl Write + ?Sized)) -> Result<()> {
        let mut to = Encoder::default();
        let kind = match self {
            Self::Load { key, version, caches } => {
                to.text(key);
                to.word(*version);
                to.list(caches, |to, cache| to.text(cache));
                1
            }
            Self::Accumulate(batch) => {
                batch.put(&mut to);
                2
            }
            Self::Apply { learning_rate } => {
                to.optional(*learning_rate, |to, rate| to.word(rate.to_bits()));
                3
            }
            Self::Stage { trainer, cache } => {
                to.word(u64::from(*trainer));
                to.text(cache);
                4
            }
            Self::End => 5,
            Self::Add(trajectories) => {
                to.list(trajectories, |to, trajectory| trajectory.put(to));
                6
            }
            Self::Close { position, advantages } => {
                to.count(*position);
                to.list(advantages, |to, advantage| to.word(advantage.to_bits()));
                7
            }
            Self::Forget { position } => {
                to.optional(*position, Encoder::count);
                8
            }
        };
        write_frame(&mut &mut *link, PROTOCOL, kind, &[&to.0])
    }

    pub(super) fn read(link: &mut (impl Read + ?Sized)) -> Result<Self> {
        let (kind, body) = read_frame(&mut &mut *link, PROTOCOL, MESSAGE_BYTES_MAX)?;
        let mut from = Decoder(&body);
        let command = match kind {
            1 => Self::Load { key: from.text()?, version: from.word()?, caches: from.list(Decoder::text)? },
            2 => Self::Accumulate(MicroBatch::get(&mut from)?),
            3 => Self::Apply { learning_rate: from.optional(|from| from.word().map(f64::from_bits))? },
            4 => Self::Stage { trainer: from.word()? != 0, cache: from.text()? },
            5 => Self::End,
            6 => Self::Add(from.list(BatchTrajectory::get)?),
            7 => Self::Close { position: from.count()?, advantages: from.list(number)? },
            8 => Self::Forget { position: from.optional(Decoder::count)? },
            _ => return Err(invalid(&format!("{kind} is no command"))),
        };
        from.end()?;
        Ok(command)
    }
}

impl Answer {
    pub(super) fn write(&self, link: &mut (impl Write + ?Sized)) -> Result<()> {
        let mut to = Encoder::default();
        let kind = self.put(&mut to);
        write_frame(&mut &mut *link, PROTOCOL, kind, &[&to.0])
    }

    fn put(&self, to: &mut Encoder) -> u8 {
        match self {
            Self::Hello { protocol, rank, pid } => {
                to.word(*protocol);
                to.count(*rank);
                to.word(u64::from(*pid));
                16
            }
            Self::Loaded { policy_version, cached, times } => {
                to.word(*policy_version);
                cached.put(to);
                to.words(&[times.context_us, times.get_us, times.copy_us]);
                17
            }
            Self::Accumulated { rows, tokens, compute_us } => {
                to.words(&[*rows, *tokens, *compute_us]);
                18
            }
            Self::Applied { policy_version, weights_sha256, report } => {
                to.word(*policy_version);
                to.text(weights_sha256);
                put_report(to, report);
                19
            }
            Self::Staged { policy_version, cached, trainer, cache } => {
                to.word(*policy_version);
                cached.put(to);
                for part in [trainer, cache] {
                    to.optional(part.as_ref(), |to, part| to.text(&part.0));
                }
                20
            }
            Self::Added { rows, tokens, compute_us } => {
                to.words(&[*rows, *tokens, *compute_us]);
                22
            }
            Self::Closed => 23,
            Self::Forgotten => 24,
            Self::Refused { reason, is_cache_lost } => {
                to.text(reason);
                to.word(u64::from(*is_cache_lost));
                31
            }
        }
    }

    pub(super) fn read(link: &mut (impl Read + ?Sized)) -> Result<Self> {
        let (kind, body) = read_frame(&mut &mut *link, PROTOCOL, MESSAGE_BYTES_MAX)?;
        let mut from = Decoder(&body);
        let answer = Self::get(kind, &mut from)?;
        from.end()?;
        Ok(answer)
    }

    fn get(kind: u8, from: &mut Decoder<'_>) -> Result<Self> {
        let staged = |from: &mut Decoder<'_>| from.optional(|from| from.text().map(Staged));
        Ok(match kind {
            16 => Self::Hello {
                protocol: from.word()?,
                rank: from.count()?,
                pid: from.word()?.try_into().map_err(|_| invalid("a process number is too large"))?,
            },
            17 => Self::Loaded {
                policy_version: from.word()?,
                cached: Cached::get(from)?,
                times: LoadTimes { context_us: from.word()?, get_us: from.word()?, copy_us: from.word()? },
            },
            18 => Self::Accumulated { rows: from.word()?, tokens: from.word()?, compute_us: from.word()? },
            19 => Self::Applied {
                policy_version: from.word()?,
                weights_sha256: from.text()?,
                report: get_report(from)?,
            },
            20 => Self::Staged {
                policy_version: from.word()?,
                cached: Cached::get(from)?,
                trainer: staged(from)?,
                cache: staged(from)?,
            },
            22 => Self::Added { rows: from.word()?, tokens: from.word()?, compute_us: from.word()? },
            23 => Self::Closed,
            24 => Self::Forgotten,
            31 => Self::Refused { reason: from.text()?, is_cache_lost: from.word()? != 0 },
            _ => return Err(invalid(&format!("{kind} is no answer"))),
        })
    }
}

fn put_report(to: &mut Encoder, report: &StepReport) {
    let StepReport { gradient_norm, clipped, units, rows, tokens, denominator, version } = *report;
    let words =
        [gradient_norm.to_bits(), u64::from(clipped), units, rows, tokens, denominator.to_bits(), version];
    to.words(&words);
}

fn get_report(from: &mut Decoder<'_>) -> Result<StepReport> {
    Ok(StepReport {
        gradient_norm: f64::from_bits(from.word()?),
        clipped: from.word()? != 0,
        units: from.word()?,
        rows: from.word()?,
        tokens: from.word()?,
        denominator: f64::from_bits(from.word()?),
        version: from.word()?,
    })
}

#[cfg(test)]
mod tests;
