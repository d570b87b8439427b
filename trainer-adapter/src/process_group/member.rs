//! One rank as the coordinator sees it: its process, its link, and what it took of the state.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::cached::Cached;
use super::launcher::{Launched, Launcher, RankExit, RankPlace};
use super::message::{Answer, Command, LoadTimes, PROTOCOL_VERSION};
use super::timed::TimedLink;

/// The longest name that [`socket`] gives.
pub(super) const SOCKET_BYTES_MAX: usize = "400000-ffffffff.socket".len();

/// How long a rank may take to take the word that it is to end: one whose link is full does not listen.
const HEARS_WITHIN: Duration = Duration::from_secs(1);

/// A rank whose process was started.
pub(super) struct Member {
    pub(super) rank: usize,
    launched: Launched,
    /// Parts of the state with cached gradients that it took.
    pub(super) caches: Vec<String>,
    /// What is in those.
    pub(super) kept: Cached,
    /// Positions of the groups that are open in it.
    pub(super) open: BTreeSet<usize>,
    /// Whether its cache has changed since.
    pub(super) is_changed: bool,
    pub(super) load_times: LoadTimes,
    /// Where it was told to listen for the others.
    socket: Option<PathBuf>,
    exit: Option<RankExit>,
}

/// Why a rank is lost.
pub(super) struct Fault {
    pub(super) rank: usize,
    pub(super) reason: String,
}

impl Member {
    pub(super) fn spawn(launcher: &dyn Launcher, place: &RankPlace) -> io::Result<Self> {
        let launched = launcher.spawn(place)?;
        let (caches, kept, open, load_times) = Default::default();
        let (rank, is_changed, exit) = (place.rank, false, None);
        let socket = place.listens().then(|| place.socket.clone());
        Ok(Self { rank, launched, caches, kept, open, is_changed, load_times, socket, exit })
    }

    pub(super) fn pid(&self) -> u32 {
        self.launched.process.pid()
    }

    pub(super) fn fault(&self, reason: impl ToString) -> Fault {
        Fault { rank: self.rank, reason: reason.to_string() }
    }

    /// Waits for the rank's first word.
    pub(super) fn greet(&mut self, limit: Duration) -> Result<(), Fault> {
        let answer = Answer::read(&mut TimedLink::new(self.launched.link.as_mut(), limit));
        match answer.map_err(|error| self.broken(&error))? {
            Answer::Hello { protocol, rank, .. } if protocol == PROTOCOL_VERSION && rank == self.rank => {
                Ok(())
            }
            Answer::Hello { protocol, rank, .. } => Err(self.fault(format!(
                "it says that it is rank {rank} with protocol {protocol}; {PROTOCOL_VERSION} is spoken here"
            ))),
            other => Err(self.fault(format!("it began with {other:?}"))),
        }
    }

    /// Sends a command and waits for its answer; both together take no longer than the limit.
    pub(super) fn ask(&mut self, command: &Command, limit: Duration) -> Result<Answer, Fault> {
        let mut link = TimedLink::new(self.launched.link.as_mut(), limit);
        let answer = command.write(&mut link).and_then(|()| Answer::read(&mut link));
        answer.map_err(|error| self.broken(&error))
    }

    fn broken(&self, error: &io::Error) -> Fault {
        let reason = match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
                "its link ended".to_owned()
            }
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "it did not answer in time".to_owned(),
            _ => error.to_string(),
        };
        self.fault(reason)
    }

    /// Tells the rank to end; a rank that is gone need not be told.
    pub(super) fn tell_end(&mut self) {
        let _ = Command::End.write(&mut TimedLink::new(self.launched.link.as_mut(), HEARS_WITHIN));
    }

    /// Waits for the end of the process, and brings it about after the limit.
    pub(super) fn end(&mut self, limit: Duration) -> RankExit {
        if let Some(exit) = self.exit {
            return exit;
        }
        let (rank, pid, process) = (self.rank, self.pid(), &mut self.launched.process);
        let mut ended = process.wait(limit).ok().flatten();
        while ended.is_none() {
            let _ = process.kill();
            // A process that was killed ends as soon as the kernel is done with it.
            ended = process.wait(Duration::from_secs(1)).unwrap_or(Some((None, None)));
        }
        let (code, signal) = ended.unwrap_or((None, None));
        let exit = RankExit { rank, pid, code, signal };
        self.exit = Some(exit);
        // A rank that was killed could not remove its socket. The path is one that was given out, whatever the rank has made of it.
        if let Some(socket) = self.socket.take() {
            let _ = std::fs::remove_file(socket);
        }
        exit
    }

    pub(super) fn kill(&mut self) -> RankExit {
        self.end(Duration::ZERO)
    }
}

/// Where rank `rank` of a group is.
pub(super) fn place(
    agent: &str,
    (rank, world): (usize, usize),
    placement: &crate::scheduler::Placement,
    socket: &Path,
) -> RankPlace {
    let (agent, node, socket) = (agent.to_owned(), placement.node.clone(), socket.to_owned());
    RankPlace { agent, rank, world, node, device: placement.devices[rank].clone(), socket }
}

/// A path in the folder that no other start of this machine is given.
pub(super) fn socket(folder: &Path) -> PathBuf {
    static STARTS: AtomicU32 = AtomicU32::new(0);
    let start = STARTS.fetch_add(1, Ordering::Relaxed);
    folder.join(format!("{:x}-{start:x}.socket", std::process::id()))
}

/// Calls each member on a thread of its own and gives the results in the order of the ranks.
pub(super) fn side_by_side<T: Send>(
    members: &mut [Member],
    call: impl Fn(usize, &mut Member) -> T + Sync,
) -> Vec<T> {
    if let [member] = members {
        return vec![call(0, member)];
    }
    let call = &call;
    std::thread::scope(|scope| {
        let threads: Vec<_> = members
            .iter_mut()
            .enumerate()
            .map(|(index, member)| scope.spawn(move || call(index, member)))
            .collect();
        let joined = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        joined.collect()
    })
}

#[cfg(test)]
mod tests;
