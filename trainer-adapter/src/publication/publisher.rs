//! The one who publishes: what it is made of, and how it begins and ends.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use super::announcement::{Announced, Announcement, Door, own_numbers, this_node};
use super::catalog::{Catalog, PublisherCounts};
use super::error::PublicationError;
use super::form::check_key;
use super::service::Service;
use super::step::StepObserver;
use super::writing::KeyWriter;
use crate::device::Share;

/// How a publisher behaves: plain data.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PublisherOptions {
    /// How long a publish waits for readers of the slot that it needs, and the end of a barrier for those under way. Default 20 s.
    pub patience: Duration,
    /// Whether each version has a fingerprint, which readers compare with what arrived. It costs one reading of the values on either
    /// device. Default true.
    pub fingerprint: bool,
    /// Is told of steps.
    pub observer: StepObserver,
}

impl Default for PublisherOptions {
    fn default() -> Self {
        Self { patience: Duration::from_secs(20), fingerprint: true, observer: StepObserver::default() }
    }
}

impl PublisherOptions {
    /// How long to wait for readers.
    #[must_use]
    pub fn patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Whether versions have fingerprints.
    #[must_use]
    pub fn fingerprint(self, fingerprint: bool) -> Self {
        Self { fingerprint, ..self }
    }

    /// Who is told of steps.
    #[must_use]
    pub fn observer(self, observer: StepObserver) -> Self {
        Self { observer, ..self }
    }
}

/// What the publisher and its thread share.
#[derive(Debug)]
pub(super) struct Board {
    state: Mutex<State>,
    /// A hold has ended.
    released: Condvar,
    /// Something can be had that was not, or the publisher ends.
    wake: OwnedFd,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) catalog: Catalog,
    /// Descriptors of the memories that versions lie in, and how many values they have.
    pub(super) memories: HashMap<u64, (Arc<OwnedFd>, u64)>,
    pub(super) is_over: bool,
    /// Why its thread has ended before it.
    failure: Option<(io::ErrorKind, String)>,
}

impl State {
    /// Lets go of descriptors of memories in which nothing lies any more.
    pub(super) fn forget_memories(&mut self) {
        let live = self.catalog.memories();
        self.memories.retain(|memory, _| live.contains(memory));
    }
}

impl Board {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a hold has ended, at most so long.
    pub(super) fn wait_for_release<'a>(
        &self,
        state: MutexGuard<'a, State>,
        limit: Duration,
    ) -> MutexGuard<'a, State> {
        self.released.wait_timeout(state, limit).unwrap_or_else(PoisonError::into_inner).0
    }

    pub(super) fn tell_released(&self) {
        self.released.notify_all();
    }

    /// The thread ends: nobody is let in any more.
    pub(super) fn fail(&self, error: &io::Error) {
        self.state().failure = Some((error.kind(), error.to_string()));
    }

    /// Refuses to publish where nobody could get it.
    pub(super) fn check(&self) -> Result<(), PublicationError> {
        let Some((kind, text)) = self.state().failure.clone() else { return Ok(()) };
        Err(PublicationError::io("serve readers any more; open another publisher")(io::Error::new(
            kind, text,
        )))
    }

    /// Has the thread look again.
    pub(super) fn wake(&self) {
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes()); // full: it will look anyway
    }

    pub(super) fn bell(&self) -> &OwnedFd {
        &self.wake
    }
}

/// Publishes versions of the memory of one device to readers of this node. Any thread may call.
///
/// ```
/// use forebay_trainer_adapter::device::{Device, StandInDevice, StandInOptions};
/// use forebay_trainer_adapter::publication::{PublishedPart, Publisher, PublisherOptions, Reader, ReaderOptions, Wanted};
/// # let folder = tempfile::tempdir()?;
/// let device = StandInDevice::new(StandInOptions::default());
/// let publisher = Publisher::open(device.clone(), folder.path(), PublisherOptions::default())?;
/// let mut weights = device.allocate(100);
/// device.upload(&[1.5; 100], &mut weights, 0);
/// let parts = [PublishedPart { class: "weights", buffer: &weights, offset: 0, values: 100 }];
/// publisher.publish("solver", 7, 0, &parts)?;
/// device.clear(&mut weights, 0, 100); // the next step may begin
///
/// // In another process of the node:
/// let own = StandInDevice::new(StandInOptions::default());
/// let reader = Reader::open(own.clone(), folder.path(), ReaderOptions::default())?;
/// let got = reader.get(&Wanted::latest("solver"))?;
/// let mut values = [0.0; 100];
/// own.download(&got.parts[0].1, 0, &mut values);
/// assert_eq!((got.stamp.version, values), (7, [1.5; 100]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Publisher<D: Share> {
    pub(super) device: D,
    pub(super) options: PublisherOptions,
    pub(super) board: Arc<Board>,
    folder: PathBuf,
    announcement: Announcement,
    keys: Mutex<HashMap<String, Arc<Mutex<KeyWriter<D>>>>>,
    /// After the keys, so that nobody is told of a socket that is gone.
    thread: Option<JoinHandle<()>>,
}

impl<D: Share> Publisher<D> {
    /// Begins to publish what lies on `device`, to readers who look into `folder`. It is made, for this user alone, if it is not
    /// there; its path is short, as paths of sockets have to be.
    ///
    /// # Errors
    /// [`PublicationError::Io`].
    pub fn open(
        device: D,
        folder: impl Into<PathBuf>,
        options: PublisherOptions,
    ) -> Result<Self, PublicationError> {
        let (folder, node) = (folder.into(), this_node()?);
        let door = Door::open(&folder, &node)?;
        let io = |what: &str| PublicationError::io(what.to_owned());
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let wake = wake.map_err(|error| io("make a bell")(error.into()))?;
        let board = Arc::new(Board { state: Mutex::default(), released: Condvar::new(), wake });
        let announcement = Announcement {
            node,
            numbers: own_numbers()?,
            pid: std::process::id(),
            device: device.identity(),
            socket: door.name.clone(),
        };
        let service = Service::new(Arc::clone(&board), door, device.identity());
        let named = std::thread::Builder::new().name("forebay-publisher".to_owned());
        let thread = Some(named.spawn(move || service.run()).map_err(io("start a thread"))?);
        let keys = Mutex::default();
        Ok(Self { device, options, board, folder, announcement, keys, thread })
    }

    /// What was done so far, and what there is now.
    pub fn counts(&self) -> PublisherCounts {
        self.board.state().catalog.counts()
    }

    /// Publishes a key no more: nobody gets a version of it any more, its slots are free, and others may publish it. Whether a version
    /// of it could be had. Readers under way are not waited for; what they have is whole, and they are told that it has
    /// [ended](PublicationError::Ended).
    ///
    /// # Errors
    /// [`PublicationError::Taken`] while a version of it is in place: end that first.
    pub fn withdraw(&self, key: &str) -> Result<bool, PublicationError> {
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(found) = keys.get(key).cloned() else { return Ok(false) };
        drop(keys); // those of other keys go on
        let mut writer = found.lock().unwrap_or_else(PoisonError::into_inner); // whoever publishes it now comes to his end
        if writer.is_withdrawn() {
            return Ok(false); // by another thread
        }
        let mut state = self.board.state();
        if state.catalog.has_barrier(key) {
            let by = "this process in place; end that barrier".to_owned();
            return Err(PublicationError::Taken { key: key.to_owned(), by });
        }
        let was_there = state.catalog.forget(key);
        state.forget_memories();
        drop(state);
        writer.withdraw();
        drop(writer);
        self.remove(key, &found);
        Ok(was_there)
    }

    /// The key has that writer no more; another one stays.
    fn remove(&self, key: &str, writer: &Arc<Mutex<KeyWriter<D>>>) {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if keys.get(key).is_some_and(|found| Arc::ptr_eq(found, writer)) {
            keys.remove(key);
        }
    }

    /// Has `work` done with the key by the one thread that publishes it.
    pub(super) fn with_key<T>(
        &self,
        key: &str,
        work: impl FnOnce(&mut KeyWriter<D>) -> Result<T, PublicationError>,
    ) -> Result<T, PublicationError> {
        self.board.check()?;
        loop {
            let found = self.key(key)?;
            let mut writer = found.lock().unwrap_or_else(PoisonError::into_inner);
            if !writer.is_withdrawn() {
                return work(&mut writer);
            }
            drop(writer);
            self.remove(key, &found); // who withdrew it may not have come so far
        }
    }

    /// The key, whoever publishes it next; it is announced with the first call.
    fn key(&self, key: &str) -> Result<Arc<Mutex<KeyWriter<D>>>, PublicationError> {
        check_key(key)?;
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = keys.get(key) {
            return Ok(Arc::clone(found));
        }
        let announced = Announced::take(&self.folder, key, &self.announcement)?;
        let writer = Arc::new(Mutex::new(KeyWriter::new(announced)));
        keys.insert(key.to_owned(), Arc::clone(&writer));
        Ok(writer)
    }
}

impl<D: Share> Drop for Publisher<D> {
    /// Readers who are under way are told by the end of their connection.
    fn drop(&mut self) {
        self.keys.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
        self.board.state().is_over = true;
        self.board.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // it has said what was wrong, if anything was
        }
    }
}
