//! Who fills or holds an object: this process, or another one whose end decides when its memory may be used again.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Another process of this machine, known by a descriptor and so never mistaken for a later one of the same number.
#[derive(Clone)]
pub struct ProcessHandle {
    pid: i32,
    descriptor: Arc<OwnedFd>,
}

impl ProcessHandle {
    /// The process that has this number now.
    ///
    /// # Errors
    /// When there is none, or it may not be looked at.
    pub fn of(pid: u32) -> io::Result<Self> {
        let pid = i32::try_from(pid).map_err(io::Error::other)?;
        let process = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(ProcessHandle { pid, descriptor: Arc::new(pidfd_open(process, PidfdFlags::empty())?) })
    }

    /// The process of a descriptor that somebody else has opened (`pidfd_open`, `SO_PEERPIDFD`); `pid` is for people.
    pub fn from_descriptor(pid: u32, descriptor: OwnedFd) -> Self {
        ProcessHandle { pid: i32::try_from(pid).unwrap_or(0), descriptor: Arc::new(descriptor) }
    }

    /// Whether it has ended: its memory is unmapped then, and nothing of it can be written any more. A process that nobody
    /// can ask for counts as one that lives.
    pub fn has_ended(&self) -> bool {
        let mut watched = [PollFd::new(&*self.descriptor, PollFlags::IN)];
        matches!(poll(&mut watched, Some(&rustix::event::Timespec::default())), Ok(ready) if ready > 0)
    }
}

impl fmt::Debug for ProcessHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.pid)
    }
}

/// Who fills or holds an object.
#[derive(Clone, Debug, Default)]
pub enum Owner {
    /// This process: what it lets go of may be used again at once.
    #[default]
    Here,
    /// Another process that has the memory mapped: what it was given is in quarantine until it says that it has let go,
    /// or has ended.
    Process(ProcessHandle),
}

impl Owner {
    /// Whether memory that it had may be used again without its word.
    pub(crate) fn may_be_trusted_gone(&self) -> bool {
        match self {
            Owner::Here => true,
            Owner::Process(process) => process.has_ended(),
        }
    }

    pub(crate) fn is_here(&self) -> bool {
        matches!(self, Owner::Here)
    }
}
