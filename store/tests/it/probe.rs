//! A disk that writes down what is asked of it, and fails or stops where a test wants it to.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use forebay_store::*;

/// Sees every changing operation before it is done: its name and the path. An error is given instead of doing it.
pub(crate) type Hook = Box<dyn Fn(&'static str, &Path) -> io::Result<()> + Send + Sync>;

/// A simulated disk behind a hook.
#[derive(Clone)]
pub(crate) struct Probe {
    disk: SimulatedDisk,
    hook: Arc<Mutex<Arc<Hook>>>,
    seen: Arc<Mutex<Vec<(&'static str, PathBuf)>>>,
}

struct ProbeFile {
    file: Box<dyn DiskFile>,
    path: PathBuf,
    probe: Probe,
}

impl Probe {
    pub(crate) fn new(disk: &SimulatedDisk) -> Self {
        let hook: Hook = Box::new(|_, _| Ok(()));
        Probe { disk: disk.clone(), hook: Arc::new(Mutex::new(Arc::new(hook))), seen: Arc::default() }
    }

    /// Calls `hook` from now on.
    pub(crate) fn hook(&self, hook: impl Fn(&'static str, &Path) -> io::Result<()> + Send + Sync + 'static) {
        *self.hook.lock().unwrap() = Arc::new(Box::new(hook));
    }

    /// Fails one kind of operation, on files of one extension, from now on.
    pub(crate) fn fail(&self, verb: &'static str, extension: &'static str, with: io::ErrorKind) {
        self.hook(move |asked, path| {
            let hit = asked == verb && path.extension().is_some_and(|found| found == extension);
            if hit { Err(with.into()) } else { Ok(()) }
        });
    }

    /// What was asked for since the last call of this, as `verb name`.
    pub(crate) fn take(&self) -> Vec<String> {
        let seen = std::mem::take(&mut *self.seen.lock().unwrap());
        let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        seen.into_iter().map(|(verb, path)| format!("{verb} {}", name(&path))).collect()
    }

    fn ask(&self, verb: &'static str, path: &Path) -> io::Result<()> {
        self.seen.lock().unwrap().push((verb, path.to_owned()));
        let hook = self.hook.lock().unwrap().clone();
        hook(verb, path)
    }

    fn watch(&self, file: Box<dyn DiskFile>, path: &Path) -> Box<dyn DiskFile> {
        Box::new(ProbeFile { file, path: path.to_owned(), probe: self.clone() })
    }
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Probe")
    }
}

impl fmt::Debug for ProbeFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProbeFile({})", self.path.display())
    }
}

impl DiskFile for ProbeFile {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        self.probe.ask("append", &self.path)?;
        self.file.append(bytes)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.probe.ask("write", &self.path)?;
        self.file.write_at(offset, bytes)
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_at(buffer, offset)
    }
    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }
    fn allocate(&self, length: u64) -> io::Result<()> {
        self.probe.ask("allocate", &self.path)?;
        self.file.allocate(length)
    }
    fn set_length(&self, length: u64) -> io::Result<()> {
        self.file.set_length(length)
    }
    fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        self.probe.ask("punch", &self.path)?;
        self.file.punch(offset, length)
    }
    fn sync(&self) -> io::Result<()> {
        self.probe.ask("sync", &self.path)?;
        self.file.sync()
    }
    /// Not written down: it changes nothing.
    fn begin_sync(&self, offset: u64, length: u64) -> io::Result<()> {
        let hook = self.probe.hook.lock().unwrap().clone();
        hook("begin sync", &self.path)?;
        self.file.begin_sync(offset, length)
    }
    fn map(&self, length: usize) -> io::Result<Arc<Mapping>> {
        self.file.map(length)
    }
}

impl Disk for Probe {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.ask("create", path)?;
        Ok(self.watch(self.disk.create(path)?, path))
    }
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(self.watch(self.disk.open(path)?, path))
    }
    fn open_writable(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(self.watch(self.disk.open_writable(path)?, path))
    }
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.disk.create_directory(path)
    }
    /// Not written down: it changes nothing. The hook is called with what was there already known.
    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let listed = self.disk.list(path);
        let hook = self.hook.lock().unwrap().clone();
        hook("listed", path)?;
        listed
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.disk.exists(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.ask("rename", to)?;
        self.disk.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.ask("remove", path)?;
        self.disk.remove(path)
    }
    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.ask("sync", path)?;
        self.disk.sync_directory(path)
    }
    fn boot(&self) -> u128 {
        self.disk.boot()
    }
    fn lock(&self, path: &Path, kind: LockKind, note: &str) -> io::Result<Option<Box<dyn HeldLock>>> {
        self.disk.lock(path, kind, note)
    }
}
