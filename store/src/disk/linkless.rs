//! The machine's file system, with one directory beneath which no path goes through a link.
//!
//! A copy may be made where others can put links, and a check of a path says nothing of what stands there a moment later. So the
//! directory is opened once, and every path in it is walked from there, part by part, by descriptors that follow no link
//! (`O_NOFOLLOW`): whatever becomes of the names meanwhile, nothing outside of the directory is touched. All other paths are
//! [`LocalDisk`]'s.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::{self, Seek};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::local::LocalFile;
use super::past_cache::PastCache;
use super::{Disk, DiskFile, HeldLock, LocalDisk, LockKind};

/// A link stands where none may.
#[derive(Debug)]
pub(crate) struct LinkInTheWay(pub(crate) PathBuf);

impl fmt::Display for LinkInTheWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is a link", self.0.display())
    }
}

impl std::error::Error for LinkInTheWay {}

/// The link that stood in the way, if that is what went wrong.
pub(crate) fn link_in_the_way(error: &io::Error) -> Option<&Path> {
    let link = error.get_ref()?.downcast_ref::<LinkInTheWay>()?;
    Some(&link.0)
}

/// The machine's file system, with that directory.
#[derive(Debug)]
pub(super) struct Linkless {
    path: PathBuf,
    root: OwnedFd,
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Opens something in an open directory, of that path, but no link.
fn open_in(directory: &OwnedFd, path: &Path, name: &OsStr, flags: OFlags) -> io::Result<OwnedFd> {
    let opened = rustix::fs::openat(
        directory,
        name,
        flags | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::from_raw_mode(0o666),
    );
    opened.map_err(|error| match error {
        Errno::LOOP | Errno::NOTDIR if is_link(directory, name) => {
            io::Error::other(LinkInTheWay(path.join(name)))
        }
        error => error.into(),
    })
}

fn is_link(directory: &OwnedFd, name: &OsStr) -> bool {
    let found = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
    found.is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Symlink)
}

/// What becomes of a directory that is not there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    Refused,
    Made,
    /// And the names of all that are walked through are brought to stable storage.
    MadeDurably,
}

/// The directory of that name.
fn enter(directory: &OwnedFd, path: &Path, name: &OsStr, missing: Missing) -> io::Result<OwnedFd> {
    if missing != Missing::Refused {
        match rustix::fs::mkdirat(directory, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let entered = open_in(directory, path, name, DIRECTORY)?;
    if missing == Missing::MadeDurably {
        rustix::fs::fsync(directory)?;
    }
    Ok(entered)
}

/// Walks from an open directory, of path `from`, to what is `inside` it.
fn walk(root: &OwnedFd, from: &Path, inside: &Path, missing: Missing) -> io::Result<OwnedFd> {
    let (mut directory, mut path) = (root.try_clone()?, from.to_owned());
    for part in inside.components() {
        let Component::Normal(name) = part else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a path that leads out of its directory",
            ));
        };
        directory = enter(&directory, &path, name, missing)?;
        path.push(name);
    }
    Ok(directory)
}

impl Linkless {
    /// With the directory at `path`, made if there is none, its name on stable storage; it is reached without a link from `from` on,
    /// which is there or is `path`.
    pub(super) fn open(from: &Path, path: &Path) -> io::Result<Self> {
        let outside =
            || io::Error::new(io::ErrorKind::InvalidInput, "a directory that is not beneath the other");
        let inside = path.strip_prefix(from).map_err(|_| outside())?;
        if inside.as_os_str().is_empty() {
            (&LocalDisk as &dyn Disk).create_directory_durably(path)?;
        }
        let start = OwnedFd::from(File::open(from)?);
        Ok(Linkless { path: path.to_owned(), root: walk(&start, from, inside, Missing::MadeDurably)? })
    }

    /// Where something lies in the directory; none elsewhere.
    fn inside<'p>(&self, path: &'p Path) -> Option<&'p Path> {
        path.strip_prefix(&self.path).ok()
    }

    fn directory(&self, inside: &Path) -> io::Result<OwnedFd> {
        walk(&self.root, &self.path, inside, Missing::Refused)
    }

    /// The directory in which something lies, and how it is called there.
    fn parent<'p>(&self, inside: &'p Path) -> io::Result<(OwnedFd, PathBuf, &'p OsStr)> {
        let (Some(parent), Some(name)) = (inside.parent(), inside.file_name()) else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a path that names nothing in its directory",
            ));
        };
        Ok((self.directory(parent)?, self.path.join(parent), name))
    }

    fn file(&self, inside: &Path, flags: OFlags) -> io::Result<File> {
        let (directory, path, name) = self.parent(inside)?;
        open_in(&directory, &path, name, flags).map(File::from)
    }
}

impl Disk for Linkless {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let Some(inside) = self.inside(path) else { return LocalDisk.create(path) };
        let file = self.file(inside, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)?;
        Ok(Box::new(LocalFile::of(file, true)))
    }

    fn create_past_cache(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let Some(inside) = self.inside(path) else { return LocalDisk.create_past_cache(path) };
        let file = self.file(inside, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)?;
        Ok(PastCache::of(LocalFile::of(file, true), true))
    }

    fn open_past_cache(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let Some(inside) = self.inside(path) else { return LocalDisk.open_past_cache(path) };
        Ok(PastCache::of(LocalFile::of(self.file(inside, OFlags::RDONLY)?, false), false))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let Some(inside) = self.inside(path) else { return LocalDisk.open(path) };
        Ok(Box::new(LocalFile::of(self.file(inside, OFlags::RDONLY)?, false)))
    }

    fn open_writable(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let Some(inside) = self.inside(path) else { return LocalDisk.open_writable(path) };
        let mut file = self.file(inside, OFlags::RDWR)?;
        file.seek(io::SeekFrom::End(0))?;
        Ok(Box::new(LocalFile::of(file, true)))
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        let Some(inside) = self.inside(path) else { return LocalDisk.create_directory(path) };
        walk(&self.root, &self.path, inside, Missing::Made).map(drop)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let Some(inside) = self.inside(path) else { return LocalDisk.list(path) };
        let mut paths = Vec::new();
        for entry in rustix::fs::Dir::read_from(self.directory(inside)?)? {
            let name = OsString::from_vec(entry?.file_name().to_bytes().to_vec());
            if name != "." && name != ".." {
                paths.push(path.join(name));
            }
        }
        paths.sort();
        Ok(paths)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let Some(inside) = self.inside(path) else { return LocalDisk.exists(path) };
        if inside.as_os_str().is_empty() {
            return Ok(true);
        }
        let found = self.parent(inside).and_then(|(directory, _, name)| {
            Ok(rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)?)
        });
        match found {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            found => found.map(|_| true),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        match (self.inside(from), self.inside(to)) {
            (Some(from), Some(to)) => {
                let ((old, _, from), (new, _, to)) = (self.parent(from)?, self.parent(to)?);
                Ok(rustix::fs::renameat(&old, from, &new, to)?)
            }
            (None, None) => LocalDisk.rename(from, to),
            _ => Err(io::ErrorKind::CrossesDevices.into()),
        }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let Some(inside) = self.inside(path) else { return LocalDisk.remove(path) };
        let (directory, _, name) = self.parent(inside)?;
        Ok(rustix::fs::unlinkat(&directory, name, AtFlags::empty())?)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let Some(inside) = self.inside(path) else { return LocalDisk.sync_directory(path) };
        Ok(rustix::fs::fsync(self.directory(inside)?)?)
    }

    fn boot(&self) -> u128 {
        LocalDisk.boot()
    }

    fn lock(&self, path: &Path, kind: LockKind, note: &str) -> io::Result<Option<Box<dyn HeldLock>>> {
        match self.inside(path) {
            None => LocalDisk.lock(path, kind, note),
            Some(_) => Err(io::ErrorKind::Unsupported.into()), // nobody opens a store here
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with a directory, and links out of that.
    fn world() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let (inside, outside) = (folder.path().join("inside"), folder.path().join("outside"));
        for path in [inside.join("real"), outside.clone()] {
            std::fs::create_dir_all(path).unwrap();
        }
        std::fs::write(outside.join("file"), "theirs").unwrap();
        std::os::unix::fs::symlink(&outside, inside.join("link")).unwrap();
        std::os::unix::fs::symlink(outside.join("file"), inside.join("file")).unwrap();
        (folder, inside, outside)
    }

    #[test]
    fn what_lies_in_the_directory_is_as_on_the_machines_disk() {
        let (folder, inside, _) = world();
        let disk: &dyn Disk = &Linkless::open(folder.path(), &inside.join("new/one")).unwrap();
        let at = |name: &str| inside.join("new/one").join(name);
        disk.create_directory(&at("a/b")).unwrap();
        disk.create(&at("a/b/c")).unwrap().append(b"one").unwrap();
        assert_eq!(disk.create(&at("a/b/c")).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        disk.open_writable(&at("a/b/c")).unwrap().append(b"+two").unwrap();
        assert_eq!(disk.read(&at("a/b/c")).unwrap(), b"one+two");
        disk.write_durably(&at("d"), &[b"three"]).unwrap();
        assert_eq!(disk.list(&at("")).unwrap(), [at("a"), at("d")]);
        disk.rename(&at("d"), &at("a/d")).unwrap();
        let exists = |name| disk.exists(&at(name)).unwrap();
        assert!(exists("a/d") && !exists("d") && exists(""));
        disk.remove(&at("a/d")).unwrap();
        assert_eq!(disk.open(&at("a/d")).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(std::fs::read(at("a/b/c")).unwrap(), b"one+two", "others see it");
        assert_eq!(disk.read(&folder.path().join("outside/file")).unwrap(), b"theirs", "elsewhere too");
    }

    #[test]
    fn no_call_goes_through_a_link_and_each_names_it() {
        let (folder, inside, outside) = world();
        let disk: &dyn Disk = &Linkless::open(&inside, &inside).unwrap();
        let (link, file) = (inside.join("link"), inside.join("file"));
        let of = |error: io::Error| link_in_the_way(&error).map(Path::to_owned);
        assert_eq!(of(Linkless::open(&inside, &link.join("x")).unwrap_err()), Some(link.clone()));
        assert_eq!(of(disk.create(&link.join("x")).unwrap_err()), Some(link.clone()));
        assert_eq!(of(disk.create_directory(&link.join("x")).unwrap_err()), Some(link.clone()));
        assert_eq!(of(disk.create_directory(&link).unwrap_err()), Some(link.clone()));
        assert_eq!(of(disk.list(&link).unwrap_err()), Some(link.clone()));
        assert_eq!(of(disk.remove(&link.join("file")).unwrap_err()), Some(link.clone()));
        assert_eq!(of(disk.sync_directory(&link).unwrap_err()), Some(link.clone()));
        assert_eq!(of(disk.rename(&link.join("file"), &inside.join("x")).unwrap_err()), Some(link));
        assert_eq!(of(disk.open(&file).unwrap_err()), Some(file.clone()));
        assert_eq!(of(disk.open_writable(&file).unwrap_err()), Some(file.clone()));
        for path in [inside.join("real/../../outside/x"), inside.join("../outside/x")] {
            assert!(disk.create(&path).is_err());
        }
        disk.remove(&file).unwrap(); // the link itself
        assert_eq!(std::fs::read(outside.join("file")).unwrap(), b"theirs");
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1, "nothing was made there");
        drop(folder);
    }

    #[test]
    fn a_directory_that_is_moved_away_under_it_is_the_one_that_was_opened() {
        let (_folder, inside, outside) = world();
        let (was, is) = (inside.join("real"), inside.join("moved"));
        let disk: &dyn Disk = &Linkless::open(&inside, &was).unwrap();
        std::fs::rename(&was, &is).unwrap();
        std::os::unix::fs::symlink(&outside, &was).unwrap();
        disk.create(&was.join("x")).unwrap();
        assert!(is.join("x").exists() && !outside.join("x").exists());
    }
}
