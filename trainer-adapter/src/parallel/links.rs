//! The ranks and their links.

use std::io::{Read, Write};

use super::frame::Frame;
use crate::device::Device;
use crate::error::Error;
use crate::trainer::{CachePayload, Trainer};

/// One rank's links to the others, over which a step's units are shared.
///
/// Links form a star: rank 0 has one to every other rank, the others have one to rank 0.
///
/// ```
/// use std::os::unix::net::UnixStream;
/// use forebay_trainer_adapter::{CpuDevice, Policy, PolicyConfig, RankLinks, Sequence, Trainer, TrainerOptions, Unit};
///
/// // Two ranks with a unit each; the other one on a thread here, usually a process.
/// let (near, far) = UnixStream::pair()?;
/// let train = |position: usize, mut group: RankLinks<UnixStream>| {
///     let device = CpuDevice::inline();
///     let policy = Policy::initialise(&device, &PolicyConfig::small(300), 7)?;
///     let mut trainer = Trainer::new(&device, policy, TrainerOptions::default())?;
///     let rows = [Sequence { prompt: &[1, 2], response: &[3 + position as u32], advantage: 1.0 }];
///     trainer.accumulate(&Unit { position, policy: "policy", version: 0, rows: &rows })?;
///     group.exchange(&mut trainer)?;
///     trainer.apply()?;
///     Ok::<_, forebay_trainer_adapter::Error>(trainer.weights_sha256())
/// };
/// let other = std::thread::spawn(move || train(1, RankLinks::member(1, far)));
/// let here = train(0, RankLinks::first(vec![near]))?;
/// assert_eq!(here, other.join().expect("no panic")?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RankLinks<L> {
    rank: usize,
    /// The rank at the other end, and the link.
    links: Vec<(usize, L)>,
}

/// What an exchange did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExchangeReport {
    /// Units of all ranks.
    pub units: usize,
    /// Bytes that this rank has read and written.
    pub bytes: u64,
    /// Ranks that could not be told of the joined cache any more: the step is complete, they are gone. Rank 0 only.
    pub lost: Vec<usize>,
}

impl<L: Read + Write> RankLinks<L> {
    /// Rank 0, with a link to each of the ranks 1, 2, ... A group of one has no links.
    pub fn first(links: Vec<L>) -> Self {
        Self { rank: 0, links: (1..).zip(links).collect() }
    }

    /// Any other rank, with its link to rank 0.
    pub fn member(rank: usize, first: L) -> Self {
        Self { rank, links: vec![(0, first)] }
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Leaves a lost rank out from here on; to be called on rank 0. Gives its link, if it had one.
    pub fn remove(&mut self, rank: usize) -> Option<L> {
        let at = self.links.iter().position(|&(other, _)| other == rank)?;
        Some(self.links.remove(at).1)
    }

    /// Gives every rank the units of all. All ranks call it, once each has accumulated its units; a rank without any calls
    /// it too.
    ///
    /// # Errors
    /// [`Error::RankFailed`] if a rank is lost, damaged, has open groups, or does not belong to the step, or its device has failed; rank 0
    /// gets [`Error::OpenGroups`], [`Error::PositionTaken`] and [`Error::Foreign`] as they are. Every cache is then as before.
    /// [`Error::Device`] if the device of this rank has failed: its trainer is lost, and the others are told so or have what they need.
    pub fn exchange<D: Device>(&mut self, trainer: &mut Trainer<D>) -> Result<ExchangeReport, Error> {
        if self.rank == 0 { self.join(trainer) } else { self.send(trainer) }
    }

    /// The part of rank 0.
    fn join<D: Device>(&mut self, trainer: &mut Trainer<D>) -> Result<ExchangeReport, Error> {
        let mut report = ExchangeReport::default();
        let mut failure = None;
        let mut payloads = Vec::new();
        // Every link is read, whatever came before: a rank that is still writing has to reach the end of its frame.
        for (rank, link) in &mut self.links {
            match read_cache(*rank, link) {
                Ok((payload, bytes)) => {
                    report.bytes += bytes;
                    payloads.push((*rank, payload));
                }
                Err(error) => failure = failure.or(Some((*rank, error))),
            }
        }
        let bytes = match failure.map_or_else(|| joined(trainer, &payloads), Err) {
            Ok(bytes) => bytes,
            Err((rank, error)) => {
                self.tell(&frame_of(rank, &error));
                return Err(error);
            }
        };
        report.bytes += bytes.len() as u64 * self.links.len() as u64;
        report.lost = self.tell(&Frame::Joined(bytes));
        report.units = trainer.cache().positions.len();
        Ok(report)
    }

    /// Has the exchange fail at every other rank, for rank 0 cannot take part.
    pub(crate) fn refuse(&mut self, reason: &str) {
        for (_, link) in &mut self.links {
            let _ = Frame::read(link); // a rank that is still writing has to reach the end of its frame
        }
        self.tell(&Frame::Failed { rank: 0, reason: reason.to_owned() });
    }

    /// Writes a frame to all links and gives the ranks that it did not reach.
    fn tell(&mut self, frame: &Frame) -> Vec<usize> {
        let lost = self.links.iter_mut().filter_map(|(rank, link)| frame.write(link).err().map(|_| *rank));
        lost.collect()
    }

    /// The part of every other rank.
    fn send<D: Device>(&mut self, trainer: &mut Trainer<D>) -> Result<ExchangeReport, Error> {
        let lost = |error: std::io::Error| Error::RankFailed { rank: 0, reason: error.to_string() };
        let rank = self.rank;
        let Some((_, link)) = self.links.first_mut() else {
            return Err(Error::RankFailed { rank, reason: "has no link to rank 0".into() });
        };
        let own = match exported(trainer) {
            Ok(own) => own,
            Err(error) => {
                // Rank 0 waits for a frame, and tells everybody of this one; if it is gone, nobody waits.
                let _ = frame_of(rank, &error).write(link).and_then(|()| Frame::read(link));
                return Err(error);
            }
        };
        let written = own.len();
        Frame::Cache(own).write(link).map_err(lost)?;
        match Frame::read(link).map_err(lost)? {
            Frame::Joined(bytes) => {
                trainer.replace_cache(&CachePayload::from_bytes(&bytes)?)?;
                let units = trainer.cache().positions.len();
                Ok(ExchangeReport { units, bytes: (written + bytes.len()) as u64, lost: Vec::new() })
            }
            Frame::Failed { rank, reason } => Err(Error::RankFailed { rank: rank as usize, reason }),
            Frame::Cache(_) => {
                Err(Error::RankFailed { rank: 0, reason: "sent a cache instead of the joined one".into() })
            }
        }
    }
}

/// What a trainer has accumulated, unless its device has failed: what is read there then is no cache, and nothing shows that.
fn exported<D: Device>(trainer: &Trainer<D>) -> Result<Vec<u8>, Error> {
    let bytes = trainer.export_cache().to_bytes();
    trainer.check_device().map(|()| bytes)
}

/// Joins the caches of the other ranks with that of rank 0; what goes back to them. Where that fails, whose failure it is.
fn joined<D: Device>(
    trainer: &mut Trainer<D>,
    payloads: &[(usize, CachePayload)],
) -> Result<Vec<u8>, (usize, Error)> {
    let own = |error| (0, error);
    trainer.check_closed().map_err(own)?;
    trainer.merge_caches(payloads).map_err(|(rank, error)| (rank.unwrap_or(0), error))?;
    exported(trainer).map_err(own)
}

/// What the others are told of a failure.
fn frame_of(rank: usize, error: &Error) -> Frame {
    Frame::Failed { rank: rank as u64, reason: error.to_string() }
}

fn read_cache(rank: usize, link: &mut impl Read) -> Result<(CachePayload, u64), Error> {
    let failed = |reason: String| Error::RankFailed { rank, reason };
    match Frame::read(link).map_err(|error| failed(error.to_string()))? {
        Frame::Cache(bytes) => {
            let payload = CachePayload::from_bytes(&bytes).map_err(|error| failed(error.to_string()))?;
            Ok((payload, bytes.len() as u64))
        }
        Frame::Failed { reason, .. } => Err(failed(reason)),
        other => Err(failed(format!("sent {other:?} instead of its cache"))),
    }
}
