//! A rank's side: a process that does what its coordinator says, and ends when it is told to or the coordinator is gone.
//!
//! Two threads: the one that serves, and one that waits for the other end of the link to close and ends the process, also in the
//! middle of a long computation. Nothing of a rank outlives its link, so there is nothing to tidy up: what it has staged is
//! committed by the coordinator or by nobody.

pub(super) mod loaded;
mod peers;

use std::error::Error as StdError;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use rustix::event::PollFlags;

use loaded::Loaded;
use peers::Peers;

use super::batch::MicroBatch;
use super::boundary::{Boundary, Observer};
use super::launcher::RankPlace;
use super::local::{becomes, this_process};
use super::message::{Answer, Command, LoadTimes, PROTOCOL_VERSION};
use super::trajectory::BatchTrajectory;
use crate::device::Device;
use crate::error::Error;
use crate::parallel::RankLinks;
use crate::states::States;
use crate::trainer::Trainer;

/// The exit code of a rank whose coordinator is gone.
pub const ORPHAN_EXIT_CODE: i32 = 86;

/// Whatever a program's own parts fail with.
pub type RecipeError = Box<dyn StdError + Send + Sync>;

/// How a rank makes its trainer: what a program brings.
pub trait Recipe {
    /// What it trains on.
    type Device: Device;

    /// Opens the device that the rank was placed on.
    ///
    /// # Errors
    /// Any; the group is then not started.
    fn open_device(&mut self, place: &RankPlace) -> Result<Self::Device, RecipeError>;

    /// A trainer that has never trained, for an agent that has no state. Called on every rank, and again where a start failed: it has
    /// to give the same weights each time, as a seed does.
    ///
    /// # Errors
    /// Any; the group is then not started.
    fn create(&mut self, device: &Self::Device) -> Result<Trainer<Self::Device>, RecipeError>;

    /// A trainer of what [`Trainer::state`] gave, as a stream from wherever the state is kept: [`Trainer::restore_from`] reads it
    /// straight into the device's memory.
    ///
    /// # Errors
    /// Any; the group is then not started.
    fn restore(
        &mut self,
        device: &Self::Device,
        state: &mut dyn Read,
    ) -> Result<Trainer<Self::Device>, RecipeError>;
}

/// Serves as a rank if a [`super::LocalLauncher`] has started this process as one: true then, once the coordinator has told it to
/// end. To be called before anything else that the program does.
///
/// # Errors
/// If the link fails, or what came over it is not the protocol.
pub fn serve_local_rank<R: Recipe>(
    states: &dyn States,
    recipe: &mut R,
    observer: &Observer,
) -> std::io::Result<bool> {
    let Some((place, link)) = this_process()? else { return Ok(false) };
    serve_rank(&place, link, states, recipe, observer)?;
    Ok(true)
}

/// Serves as the rank at `place` over a link from wherever a launcher brought it, until the coordinator says that it is over.
///
/// The process ends with [`ORPHAN_EXIT_CODE`] as soon as the other end of the link is closed.
///
/// # Errors
/// If the link fails, what came over it is not the protocol, the device has failed, the links of the other ranks cannot be taken, or an update
/// failed after the ranks had exchanged their units: what this rank has is worth nothing then, and the group goes on from its state without it.
pub fn serve_rank<R: Recipe, L: Read + Write + AsFd>(
    place: &RankPlace,
    link: L,
    states: &dyn States,
    recipe: &mut R,
    observer: &Observer,
) -> std::io::Result<()> {
    end_with(&link)?;
    let peers = Peers::new(place)?;
    observer.reached(Boundary::Greeting);
    let mut link = link;
    let pid = std::process::id();
    Answer::Hello { protocol: PROTOCOL_VERSION, rank: place.rank, pid }.write(&mut link)?;
    let mut server = Server { place, states, recipe, observer, key: String::new(), loaded: None, peers };
    loop {
        let answer = match Command::read(&mut link)? {
            Command::End => return Ok(()),
            command => server.answer(command)?,
        };
        server.check_device()?;
        answer.write(&mut link)?;
    }
}

/// Ends this process when the other end of the link is closed.
fn end_with(link: &impl AsFd) -> std::io::Result<()> {
    let watched = link.as_fd().try_clone_to_owned()?;
    let wait = move || {
        // Where the system refuses to wait, nobody would see the coordinator go.
        let _ = becomes(&watched, PollFlags::RDHUP, None);
        std::process::exit(ORPHAN_EXIT_CODE);
    };
    std::thread::Builder::new().name("coordinator-watch".into()).spawn(wait)?;
    Ok(())
}

struct Server<'a, R: Recipe> {
    place: &'a RankPlace,
    states: &'a dyn States,
    recipe: &'a mut R,
    observer: &'a Observer,
    key: String,
    loaded: Option<Loaded<R::Device>>,
    peers: Peers,
}

impl<R: Recipe> Server<'_, R> {
    /// What cannot be done is said, and leaves the rank as it was; else it is an error, and the rank ends.
    fn answer(&mut self, command: Command) -> std::io::Result<Answer> {
        let done = match command {
            Command::Load { key, version, caches } => self.load(key, version, &caches),
            Command::Accumulate(batch) => self.accumulate(&batch),
            Command::Apply { learning_rate } => return self.apply(learning_rate),
            Command::Stage { trainer, cache } => self.stage(trainer, &cache),
            Command::Add(trajectories) => self.add(&trajectories),
            Command::Close { position, advantages } => self.close(position, &advantages),
            Command::Forget { position } => self.forget(position),
            Command::End => Err("the end has no answer".into()),
        };
        Ok(done.unwrap_or_else(|error| refused(error.as_ref(), false)))
    }

    fn load(&mut self, key: String, version: u64, caches: &[String]) -> Result<Answer, RecipeError> {
        let start = Instant::now();
        let device = self.recipe.open_device(self.place)?;
        let context_us = microseconds(start);
        self.observer.reached(Boundary::DeviceOpened);
        let start = Instant::now();
        let parts = loaded::open(self.states, &key, version, caches)?;
        let get_us = microseconds(start);
        self.observer.reached(Boundary::Got);
        let start = Instant::now();
        let loaded = Loaded::new(self.recipe, &device, parts)?;
        let copy_us = microseconds(start);
        self.peers.connect()?;
        self.observer.reached(Boundary::Restored);
        let (policy_version, cached) = (loaded.trainer.version(), loaded.cached());
        (self.key, self.loaded) = (key, Some(loaded));
        Ok(Answer::Loaded { policy_version, cached, times: LoadTimes { context_us, get_us, copy_us } })
    }

    /// Ends the rank when its device has failed: what it would say of its trainer from here on is worth nothing.
    fn check_device(&self) -> std::io::Result<()> {
        let checked = self.loaded.as_ref().map_or(Ok(()), |loaded| loaded.trainer.check_device());
        checked.map_err(std::io::Error::other)
    }

    fn accumulate(&mut self, batch: &MicroBatch) -> Result<Answer, RecipeError> {
        self.observer.reached(Boundary::BatchReceived);
        let start = Instant::now();
        let (rows, tokens) = ready(&mut self.loaded)?.accumulate(batch)?;
        self.observer.reached(Boundary::BatchAccumulated);
        Ok(Answer::Accumulated { rows, tokens, compute_us: microseconds(start) })
    }

    fn add(&mut self, trajectories: &[BatchTrajectory]) -> Result<Answer, RecipeError> {
        self.observer.reached(Boundary::BatchReceived);
        let start = Instant::now();
        let (rows, tokens) = ready(&mut self.loaded)?.add(trajectories)?;
        self.observer.reached(Boundary::BatchAccumulated);
        Ok(Answer::Added { rows, tokens, compute_us: microseconds(start) })
    }

    fn close(&mut self, position: usize, advantages: &[f64]) -> Result<Answer, RecipeError> {
        self.observer.reached(Boundary::CloseReceived);
        ready(&mut self.loaded)?.close(position, advantages)?;
        self.observer.reached(Boundary::GroupClosed);
        Ok(Answer::Closed)
    }

    fn forget(&mut self, position: Option<usize>) -> Result<Answer, RecipeError> {
        ready(&mut self.loaded)?.forget(position)?;
        Ok(Answer::Forgotten)
    }

    fn apply(&mut self, learning_rate: Option<f64>) -> std::io::Result<Answer> {
        let observer = self.observer;
        observer.reached(Boundary::ApplyReceived);
        let links = match self.peers.links() {
            Err(missing) if missing.kind() == ErrorKind::NotConnected => return Ok(refused(&missing, false)),
            links => links?,
        };
        let loaded = match exchange(&mut self.loaded, links, learning_rate) {
            Ok(loaded) => loaded,
            Err(error) => return Ok(refused(error.as_ref(), false)),
        };
        observer.reached(Boundary::Exchanged);
        let report = match loaded.trainer.apply() {
            Ok(report) => report,
            Err(error @ Error::EmptyCache) => return Ok(refused(&error, false)),
            // The gradient was no number, and the trainer has forgotten it: nobody may believe that it is there.
            Err(error @ Error::NotFinite { .. }) => {
                loaded.forget_claims();
                return Ok(refused(&error, true));
            }
            // The cache has the units of all ranks by now, and the claims are this rank's own: no group could resume with that.
            Err(error) => return Err(std::io::Error::other(error)),
        };
        loaded.forget_claims();
        observer.reached(Boundary::UpdateMade);
        let weights_sha256 = loaded.trainer.weights_sha256();
        Ok(Answer::Applied { policy_version: report.version, weights_sha256, report })
    }

    fn stage(&mut self, trainer: bool, cache: &str) -> Result<Answer, RecipeError> {
        self.observer.reached(Boundary::Staging);
        let loaded = ready(&mut self.loaded)?;
        let policy_version = loaded.trainer.version();
        let trainer = trainer.then(|| loaded.stage_trainer(self.states, &self.key)).transpose()?;
        // Without a name the cache is as it was got, and the version that it was got from has it.
        let cache = match cache {
            "" => Ok(None),
            part => loaded.stage_cache(self.states, &self.key, part),
        };
        let cache = cache.inspect_err(|_refused| {
            // Nobody is told of it, so nobody else could let go of it.
            trainer.iter().for_each(|part| self.states.discard(&self.key, part));
        })?;
        self.observer.reached(Boundary::PartsStaged);
        Ok(Answer::Staged { policy_version, cached: loaded.cached(), trainer, cache })
    }
}

/// The trainer, once a state was loaded.
fn ready<D: Device>(loaded: &mut Option<Loaded<D>>) -> Result<&mut Loaded<D>, RecipeError> {
    loaded.as_mut().ok_or_else(|| "no state was loaded".into())
}

/// Gives every rank the units of all; where that fails, each has its own as before.
fn exchange<'a, D: Device>(
    loaded: &'a mut Option<Loaded<D>>,
    links: &mut RankLinks<UnixStream>,
    learning_rate: Option<f64>,
) -> Result<&'a mut Loaded<D>, RecipeError> {
    let loaded = ready(loaded)?;
    learning_rate.map_or(Ok(()), |rate| loaded.trainer.set_learning_rate(rate))?;
    links.exchange(&mut loaded.trainer)?;
    Ok(loaded)
}

fn refused(error: &(dyn StdError + Send + Sync + 'static), is_cache_lost: bool) -> Answer {
    let mut reason = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        reason.push_str(": ");
        reason.push_str(&inner.to_string());
        cause = inner.source();
    }
    Answer::Refused { reason, is_cache_lost }
}

fn microseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}
