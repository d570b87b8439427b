//! The seam between a group and whatever starts its processes.
//!
//! [`super::LocalLauncher`] starts children on this machine. A launcher that places ranks on other machines (Ray's actors, say)
//! starts the same program there with a [`RankPlace`], and brings the bytes of a [`Link`] over a connection of its own; nothing
//! else of a group knows where its ranks are.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use crate::scheduler::DeviceId;

/// Which rank of which agent a process is, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankPlace {
    /// The agent.
    pub agent: String,
    /// The rank, from 0.
    pub rank: usize,
    /// Ranks of the group.
    pub world: usize,
    /// The node.
    pub node: String,
    /// The device that is this rank's alone within the group.
    pub device: DeviceId,
    /// Where rank 0 listens for the others, on its node. The coordinator has given this path out and removes it again, and no other.
    pub socket: PathBuf,
}

impl RankPlace {
    /// Whether this rank listens for others.
    pub(super) fn listens(&self) -> bool {
        self.rank == 0 && self.world > 1
    }
}

/// Bytes in order between coordinator and rank; it ends when either process does.
pub trait Link: Read + Write + Send {
    /// How long a read or a write may take from here on; no limit: for ever.
    ///
    /// # Errors
    /// What the system says.
    fn set_time_limit(&self, limit: Option<Duration>) -> io::Result<()>;
}

impl Link for UnixStream {
    fn set_time_limit(&self, limit: Option<Duration>) -> io::Result<()> {
        self.set_read_timeout(limit)?;
        self.set_write_timeout(limit)
    }
}

impl Link for TcpStream {
    fn set_time_limit(&self, limit: Option<Duration>) -> io::Result<()> {
        self.set_read_timeout(limit)?;
        self.set_write_timeout(limit)
    }
}

/// How a rank's process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankExit {
    /// The rank.
    pub rank: usize,
    /// Its process.
    pub pid: u32,
    /// What it returned, if it returned.
    pub code: Option<i32>,
    /// What killed it, if something did.
    pub signal: Option<i32>,
}

impl fmt::Display for RankExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, pid, code, signal } = self;
        write!(f, "process {pid} of rank {rank} ")?;
        match (code, signal) {
            (Some(code), _) => write!(f, "ended with code {code}"),
            (None, Some(signal)) => write!(f, "was ended by signal {signal}"),
            (None, None) => write!(f, "ended"),
        }
    }
}

/// A rank's process.
pub trait RankProcess: Send {
    /// Its number.
    fn pid(&self) -> u32;

    /// Waits until it has ended, and its memory is given back; nothing if it has not in this time.
    ///
    /// # Errors
    /// What the system says.
    fn wait(&mut self, limit: Duration) -> io::Result<Option<(Option<i32>, Option<i32>)>>;

    /// Ends it at once. One that has ended is no error.
    ///
    /// # Errors
    /// What the system says.
    fn kill(&mut self) -> io::Result<()>;
}

/// A process and the link to it.
pub struct Launched {
    /// The process.
    pub process: Box<dyn RankProcess>,
    /// The link.
    pub link: Box<dyn Link>,
}

/// Starts the process of a rank. When whoever holds the link's other end dies, the process has to end too.
pub trait Launcher: Send + Sync {
    /// Starts one. It need not have said anything yet.
    ///
    /// # Errors
    /// What the system says.
    fn spawn(&self, place: &RankPlace) -> io::Result<Launched>;

    /// A folder of the node for [`RankPlace::socket`]; short, since a socket's path has 107 bytes and its name up to 23 of them.
    fn folder(&self, node: &str) -> PathBuf;
}

impl<L: Launcher + ?Sized> Launcher for std::sync::Arc<L> {
    fn spawn(&self, place: &RankPlace) -> io::Result<Launched> {
        (**self).spawn(place)
    }

    fn folder(&self, node: &str) -> PathBuf {
        (**self).folder(node)
    }
}
