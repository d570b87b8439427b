//! How readers find a publisher: a file a key, in a folder of the node.
//!
//! ```text
//! solver.publication     locked by the publisher for as long as it has the key
//!     forebay publication 1
//!     node 6f0b0d5e-...
//!     numbers 4026531836
//!     pid 4711
//!     device GPU-...
//!     socket 9e0c1f22-5b1f0a9c37de4410.socket
//!     end
//! ```
//! The lock ends with the process, so the file of one that was killed is taken over by the next who publishes the key. A reader
//! does not ask for the lock: whoever listens at the socket lives. A publisher that ends well leaves an empty file.

use std::collections::hash_map::RandomState;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::error::PublicationError;
use super::form::check_key;
use super::packet::{connect_to, listen_at};

const HEAD: &str = "forebay publication 1";
/// No announcement is as long.
const BYTES_MAX: u64 = 4096;

/// This node: the same for all of its processes, also for those of other containers, and another after a reboot. Processes meet only
/// if they are in one PID namespace besides.
///
/// # Errors
/// As the system has them.
pub fn this_node() -> Result<String, PublicationError> {
    let path = "/proc/sys/kernel/random/boot_id";
    let text = fs::read_to_string(path).map_err(PublicationError::io(format!("read {path}")))?;
    Ok(text.trim().to_owned())
}

/// The PID namespace of this process: only those of the same one know each other by handles of processes.
pub(super) fn own_numbers() -> Result<u64, PublicationError> {
    let path = "/proc/self/ns/pid";
    Ok(fs::metadata(path).map_err(PublicationError::io(format!("look at {path}")))?.ino())
}

/// Where a key is published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Announcement {
    pub(super) node: String,
    /// The PID namespace.
    pub(super) numbers: u64,
    pub(super) pid: u32,
    pub(super) device: String,
    /// A name in the same folder.
    pub(super) socket: String,
}

impl Announcement {
    fn text(&self) -> String {
        let Self { node, numbers, pid, device, socket } = self;
        format!("{HEAD}\nnode {node}\nnumbers {numbers}\npid {pid}\ndevice {device}\nsocket {socket}\nend\n")
    }

    /// Of a file that may be half written.
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let mut line = |name: &str| lines.next()?.strip_prefix(name).map(str::to_owned);
        line(HEAD).filter(String::is_empty)?;
        let (node, numbers) = (line("node ")?, line("numbers ")?.parse().ok()?);
        let pid = line("pid ")?.parse().ok()?;
        let (device, socket) = (line("device ")?, line("socket ")?);
        line("end").filter(String::is_empty)?;
        let is_name = !socket.is_empty() && !socket.contains('/') && !socket.starts_with('.');
        is_name.then_some(Self { node, numbers, pid, device, socket })
    }

    fn by(&self) -> String {
        let Self { node, pid, device, .. } = self;
        format!("process {pid} on {device}, node {node}")
    }

    /// Where a key is published, if anybody has said so.
    pub(super) fn find(folder: &Path, key: &str) -> Result<Option<Self>, PublicationError> {
        check_key(key)?;
        let path = path_of(folder, key);
        let read = |file: &File| -> io::Result<String> {
            let mut bytes = vec![0; BYTES_MAX as usize];
            let length = file.read_at(&mut bytes, 0)?;
            Ok(String::from_utf8_lossy(&bytes[..length]).into_owned())
        };
        match File::open(&path).and_then(|file| read(&file)) {
            Ok(text) => Ok(Self::parse(&text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(PublicationError::io(format!("read {}", path.display()))(error)),
        }
    }
}

fn path_of(folder: &Path, key: &str) -> PathBuf {
    folder.join(format!("{key}.publication"))
}

/// A key that this process publishes, until it is dropped.
#[derive(Debug)]
pub(super) struct Announced(File);

impl Announced {
    /// Takes a key.
    pub(super) fn take(
        folder: &Path,
        key: &str,
        announcement: &Announcement,
    ) -> Result<Self, PublicationError> {
        let path = path_of(folder, key);
        let io = |what: &str| PublicationError::io(format!("{what} {}", path.display()));
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = file.map_err(io("open"))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let other = Announcement::find(folder, key)?;
                let by = other.map_or_else(|| "another process".to_owned(), |other| other.by());
                return Err(PublicationError::Taken { key: key.to_owned(), by });
            }
            Err(TryLockError::Error(error)) => return Err(io("lock")(error)),
        }
        let text = announcement.text();
        // Cut first: what is left of an earlier text behind a shorter one would not be read as one.
        let written = file.set_len(0).and_then(|()| file.write_all_at(text.as_bytes(), 0));
        written.map_err(io("write"))?;
        Ok(Self(file))
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        let _ = self.0.set_len(0); // readers who come too late find nobody at the socket
    }
}

/// A socket in the folder that readers connect to; gone when it is dropped.
#[derive(Debug)]
pub(super) struct Door {
    pub(super) listener: OwnedFd,
    pub(super) name: String,
    path: PathBuf,
}

impl Door {
    /// Opens one. It has its name once it listens, so whoever finds it and is refused knows that its process is gone.
    pub(super) fn open(folder: &Path, node: &str) -> Result<Self, PublicationError> {
        let io = |what: &str| PublicationError::io(format!("{what} {}", folder.display()));
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(io("make"))?;
        remove_dead(folder, node);
        let number = RandomState::new().build_hasher().finish();
        let name = format!("{}-{number:016x}.socket", short(node));
        let (path, unnamed) = (folder.join(&name), folder.join(format!(".{name}")));
        let listener = listen_at(&unnamed).map_err(io("listen in"))?;
        let named = fs::rename(&unnamed, &path);
        named.inspect_err(|_| _ = fs::remove_file(&unnamed)).map_err(io("listen in"))?;
        Ok(Self { listener, name, path })
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path); // a socket that nobody listens at
    }
}

/// The first part of a node's name: sockets of others, where a folder is shared, are none of our business.
fn short(node: &str) -> &str {
    node.split('-').next().unwrap_or_default()
}

/// Removes sockets of this node that nobody listens at: their processes were killed.
fn remove_dead(folder: &Path, node: &str) {
    let ours = format!("{}-", short(node));
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_ours = name.to_str().is_some_and(|name| name.starts_with(&ours) && name.ends_with(".socket"));
        let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        if is_ours && connect_to(&entry.path()).is_err_and(refused) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;

    fn announcement() -> Announcement {
        let (node, device, socket) = ("a-b".into(), "stand-in:0".into(), "a-1.socket".into());
        Announcement { node, numbers: 7, pid: 12, device, socket }
    }

    #[test]
    fn a_key_has_one_publisher_and_a_text_that_is_whole_or_none() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Announcement::find(folder.path(), "solver").unwrap(), None);
        let taken = Announced::take(folder.path(), "solver", &announcement()).unwrap();
        assert_eq!(Announcement::find(folder.path(), "solver").unwrap(), Some(announcement()));
        let error = Announced::take(folder.path(), "solver", &announcement()).unwrap_err();
        assert!(error.to_string().contains("published by process 12 on stand-in:0"), "{error}");
        drop(taken);
        assert_eq!(Announcement::find(folder.path(), "solver").unwrap(), None);
        drop(Announced::take(folder.path(), "solver", &announcement()).unwrap());
        let text = announcement().text();
        (0..text.len() - 1).for_each(|end| assert_eq!(Announcement::parse(&text[..end]), None, "{end}"));
        assert_eq!(Announcement::parse(&text.replace("a-1.socket", "../a.socket")), None);
    }

    #[test]
    fn sockets_of_processes_that_are_gone_are_removed_and_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let door = Door::open(folder.path(), "a-b").unwrap();
        let dead = |name: &str| drop(listen_at(&folder.path().join(name)).unwrap());
        dead("a-0000.socket");
        dead("c-0000.socket"); // another node's
        let second = Door::open(folder.path(), "a-b").unwrap();
        let mut left: Vec<_> = fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        let mut expected = vec![door.name.clone(), second.name.clone(), "c-0000.socket".to_owned()];
        expected.sort();
        assert_eq!(left, expected);
    }
}
