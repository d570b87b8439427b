//! Ranks as children of this process.
//!
//! A child's link is a pair of sockets, its end the standard input: nothing has to be found or accepted, and the kernel closes
//! it with either process. A child whose coordinator is gone ends at once ([`super::rank`]). Its end is seen by a handle of the
//! process (pidfd) and not by its number, which may come again.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::launcher::{Launched, Launcher, RankPlace, RankProcess};
use super::member::SOCKET_BYTES_MAX;
use crate::scheduler::DeviceId;

/// A socket's path has 107 bytes.
const FOLDER_BYTES_MAX: usize = 107 - 1 - SOCKET_BYTES_MAX;

const AGENT: &str = "FOREBAY_RANK_AGENT";
const RANK: &str = "FOREBAY_RANK";
const WORLD: &str = "FOREBAY_RANK_WORLD";
const NODE: &str = "FOREBAY_RANK_NODE";
const DEVICE: &str = "FOREBAY_RANK_DEVICE";
const SOCKET: &str = "FOREBAY_RANK_SOCKET";

/// Starts ranks as children of this process, all from one program.
#[derive(Debug)]
pub struct LocalLauncher {
    program: PathBuf,
    arguments: Vec<OsString>,
    variables: Vec<(OsString, OsString)>,
    device_variable: Option<OsString>,
    folder: PathBuf,
}

impl LocalLauncher {
    /// Ranks run `program`, which calls [`super::serve_local_rank`] when it is one. `folder` is made where it is missing, readable
    /// by this user only, and is this launcher's own: sockets that an earlier one left in it are deleted.
    ///
    /// # Errors
    /// If the folder cannot be made, or its path is too long for the sockets in it.
    pub fn new(program: impl Into<PathBuf>, folder: impl Into<PathBuf>) -> io::Result<Self> {
        let (program, folder) = (program.into(), folder.into());
        if folder.as_os_str().len() > FOLDER_BYTES_MAX {
            let reason = format!(
                "{} has more than {FOLDER_BYTES_MAX} bytes, too many for sockets in it",
                folder.display()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "socket") {
                fs::remove_file(path)?;
            }
        }
        let (arguments, variables, device_variable) = Default::default();
        Ok(Self { program, arguments, variables, device_variable, folder })
    }

    /// The same with arguments for the program.
    #[must_use]
    pub fn arguments(mut self, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.arguments = arguments.into_iter().map(Into::into).collect();
        self
    }

    /// The same with one more variable in the environment of every rank.
    #[must_use]
    pub fn variable(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    /// The same with a variable that makes a rank see its own device only, by name: `CUDA_VISIBLE_DEVICES` where devices are
    /// named by their UUIDs. Default none.
    #[must_use]
    pub fn device_variable(mut self, name: impl Into<OsString>) -> Self {
        self.device_variable = Some(name.into());
        self
    }
}

impl Launcher for LocalLauncher {
    fn spawn(&self, place: &RankPlace) -> io::Result<Launched> {
        let (link, theirs) = UnixStream::pair()?;
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).envs(self.variables.iter().map(|(name, value)| (name, value)));
        if let Some(variable) = &self.device_variable {
            command.env(variable, &place.device.0);
        }
        let RankPlace { agent, rank, world, node, device, socket } = place;
        command.env(AGENT, agent).env(RANK, rank.to_string()).env(WORLD, world.to_string());
        command.env(NODE, node).env(DEVICE, &device.0).env(SOCKET, socket);
        let child = command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).spawn()?;
        Ok(Launched { process: Box::new(LocalProcess::new(child)?), link: Box::new(link) })
    }

    fn folder(&self, _node: &str) -> PathBuf {
        self.folder.clone()
    }
}

/// A child. Dropping it ends it.
struct LocalProcess {
    child: Child,
    handle: OwnedFd,
}

impl LocalProcess {
    fn new(mut child: Child) -> io::Result<Self> {
        let handle = Pid::from_raw(child.id().cast_signed())
            .ok_or(io::ErrorKind::InvalidData.into())
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).map_err(io::Error::from));
        match handle {
            Ok(handle) => Ok(Self { child, handle }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }
}

impl RankProcess for LocalProcess {
    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn wait(&mut self, limit: Duration) -> io::Result<Option<(Option<i32>, Option<i32>)>> {
        if !becomes(self.handle.as_fd(), PollFlags::IN, Some(limit))? {
            return Ok(None);
        }
        let status = self.child.wait()?;
        Ok(Some((status.code(), status.signal())))
    }

    fn kill(&mut self) -> io::Result<()> {
        self.child.kill()
    }
}

impl Drop for LocalProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for something to happen to a file; false if it has not in this time.
pub(super) fn becomes(file: impl AsFd, what: PollFlags, limit: Option<Duration>) -> io::Result<bool> {
    let end = limit.and_then(|limit| Instant::now().checked_add(limit)); // one beyond all times is none
    loop {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        let left = left.map(Timespec::try_from).transpose().map_err(|_| io::ErrorKind::InvalidInput)?;
        match poll(&mut [PollFd::new(&file, what)], left.as_ref()) {
            Ok(count) => return Ok(count > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Where [`LocalLauncher`] has placed this process, and its link; nothing if this process is no rank.
pub(super) fn this_process() -> io::Result<Option<(RankPlace, UnixStream)>> {
    let Some(agent) = std::env::var_os(AGENT) else { return Ok(None) };
    let invalid = |name: &str| {
        io::Error::new(io::ErrorKind::InvalidData, format!("{name} is not what a launcher sets"))
    };
    let text = |name: &str| std::env::var(name).map_err(|_| invalid(name));
    let number = |name: &str| text(name).and_then(|value| value.parse().map_err(|_| invalid(name)));
    let place = RankPlace {
        agent: agent.into_string().map_err(|_| invalid(AGENT))?,
        rank: number(RANK)?,
        world: number(WORLD)?,
        node: text(NODE)?,
        device: DeviceId(text(DEVICE)?),
        socket: text(SOCKET)?.into(),
    };
    let link = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    Ok(Some((place, link)))
}
