//! Who fills or holds an object: this process, or another one whose end decides when its memory may be used again.
//!
//! A descriptor ends with the store's process, and the other one may live on. So what it was given is written down with what tells
//! it from every other process of the boot ([`ProcessRecord`]): its number, when it was started, and the namespace in which the
//! number counts. Whoever opens the store next asks the kernel for that process again.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};

/// Another process of this machine, known by a descriptor and so never mistaken for a later one of the same number.
#[derive(Clone)]
pub struct ProcessHandle {
    pid: i32,
    /// `None` for one that nobody can ask for any more.
    descriptor: Option<Arc<OwnedFd>>,
}

/// A process as the host tier's journal has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessRecord {
    /// 0 where nobody could tell.
    pid: i32,
    /// In ticks of the kernel's since the machine started.
    started: u64,
    /// The inode of the namespace of process numbers.
    namespace: u64,
}

impl ProcessHandle {
    /// The process that has this number now.
    ///
    /// # Errors
    /// When there is none, or it may not be looked at.
    pub fn of(pid: u32) -> io::Result<Self> {
        let pid = i32::try_from(pid).map_err(io::Error::other)?;
        let process = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
        let descriptor = pidfd_open(process, PidfdFlags::empty())?;
        Ok(ProcessHandle { pid, descriptor: Some(Arc::new(descriptor)) })
    }

    /// The process of a descriptor that somebody else has opened (`pidfd_open`, `SO_PEERPIDFD`); `pid` is for people.
    pub fn from_descriptor(pid: u32, descriptor: OwnedFd) -> Self {
        ProcessHandle { pid: i32::try_from(pid).unwrap_or(0), descriptor: Some(Arc::new(descriptor)) }
    }

    /// Whether it has ended: its memory is unmapped then, and nothing of it can be written any more. A process that nobody
    /// can ask for counts as one that lives.
    pub fn has_ended(&self) -> bool {
        let Some(descriptor) = &self.descriptor else { return false };
        let mut watched = [PollFd::new(&**descriptor, PollFlags::IN)];
        matches!(poll(&mut watched, Some(&rustix::event::Timespec::default())), Ok(ready) if ready > 0)
    }

    /// What tells it from every other process of this boot.
    pub(crate) fn record(&self) -> ProcessRecord {
        let known = self.number().and_then(|pid| Some((pid, started(pid)?)));
        // It lives after it was looked at, so what was seen was not a later process of the same number.
        let (pid, started) = known.filter(|_| !self.has_ended()).unwrap_or_default();
        ProcessRecord { pid, started, namespace: namespace().unwrap_or_default() }
    }

    /// Its number in this process's namespace, as the kernel has it.
    fn number(&self) -> Option<i32> {
        let path = format!("/proc/self/fdinfo/{}", self.descriptor.as_ref()?.as_raw_fd());
        let text = fs::read_to_string(path).ok()?;
        let number = text.lines().find_map(|line| line.strip_prefix("Pid:"))?.trim().parse().ok()?;
        (number > 0).then_some(number)
    }
}

impl ProcessRecord {
    /// Whether it is that process for sure.
    pub(crate) fn is_surely(&self, other: &ProcessRecord) -> bool {
        self.pid > 0 && self == other
    }

    /// The process that an earlier process of this boot has written down; `None` when it has ended. One that cannot be asked
    /// for counts as one that lives, as long as the folder does.
    pub(crate) fn reopen(&self) -> Option<ProcessHandle> {
        let unknown = ProcessHandle { pid: self.pid, descriptor: None };
        if namespace() != Some(self.namespace) {
            return Some(unknown);
        }
        let Some(process) = Pid::from_raw(self.pid) else { return Some(unknown) };
        let handle = match pidfd_open(process, PidfdFlags::empty()) {
            Ok(descriptor) => ProcessHandle { pid: self.pid, descriptor: Some(Arc::new(descriptor)) },
            Err(rustix::io::Errno::SRCH) => return None,
            Err(_) => return Some(unknown),
        };
        let is_another = started(self.pid).is_some_and(|started| started != self.started);
        (!is_another && !handle.has_ended()).then_some(handle)
    }
}

/// When a process was started: the 22nd field of its `stat`, behind the name, which may hold anything.
fn started(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

fn namespace() -> Option<u64> {
    fs::metadata("/proc/self/ns/pid").ok().map(|found| found.ino())
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
    /// or has ended; also when the store is opened anew meanwhile, where it has a host folder.
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

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_is_known_again_as_long_as_it_lives_and_taken_for_no_other() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let record = ProcessHandle::of(child.id()).unwrap().record();
        assert_eq!(record.pid as u32, child.id());
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<ProcessRecord>(&text).unwrap(), record);
        let again = record.reopen().unwrap();
        assert!(!again.has_ended());
        let later = ProcessRecord { started: record.started + 1, ..record.clone() };
        assert!(later.reopen().is_none(), "another process has its number");
        let strangers = [
            ProcessRecord { namespace: record.namespace + 1, ..record.clone() },
            ProcessRecord { pid: 0, ..record.clone() },
        ];
        for stranger in strangers {
            assert!(!stranger.reopen().unwrap().has_ended(), "nobody can tell: {stranger:?}");
        }
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(again.has_ended() && record.reopen().is_none());
        assert_eq!(again.record().pid, 0);
    }
}
