//! The one who gets: finds who has a key, and copies a version from that device to its own.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::announcement::{Announcement, this_node};
use super::catalog::Ask;
use super::domain::{Asked, Domain, Held, Link};
use super::error::PublicationError;
use super::form::{Form, TargetPart, targets_of};
use super::step::{Step, StepObserver};
use super::writing::finish;
use crate::device::{DeviceRange, Share};

/// Which version of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// The newest that can be had.
    Latest,
    /// This one.
    Exact(u64),
    /// The newest, once it is this one or a later one; how long to wait for that.
    AtLeast(u64, Duration),
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted<'a> {
    /// The key.
    pub key: &'a str,
    /// The version.
    pub which: Which,
    /// Fingerprint of the layout that the version has to have. Default any.
    pub layout: Option<u64>,
}

impl<'a> Wanted<'a> {
    /// A version of a key, of any layout.
    pub fn new(key: &'a str, which: Which) -> Self {
        Self { key, which, layout: None }
    }

    /// The newest of a key.
    pub fn latest(key: &'a str) -> Self {
        Self::new(key, Which::Latest)
    }

    /// The same of a layout with that fingerprint, and of no other.
    #[must_use]
    pub fn layout(self, layout: u64) -> Self {
        Self { layout: Some(layout), ..self }
    }
}

/// How a reader behaves: plain data.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ReaderOptions {
    /// How long a publisher may take for an answer. Default 20 s.
    pub within: Duration,
    /// Is told of steps.
    pub observer: StepObserver,
}

impl Default for ReaderOptions {
    fn default() -> Self {
        Self { within: Duration::from_secs(20), observer: StepObserver::default() }
    }
}

impl ReaderOptions {
    /// How long a publisher may take for an answer.
    #[must_use]
    pub fn within(self, within: Duration) -> Self {
        Self { within, ..self }
    }

    /// Who is told of steps.
    #[must_use]
    pub fn observer(self, observer: StepObserver) -> Self {
        Self { observer, ..self }
    }
}

/// Where a version came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The node.
    pub node: String,
    /// The publisher's process.
    pub pid: u32,
    /// Its device: a GPU's UUID.
    pub device: String,
}

/// What was got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    /// The key.
    pub key: String,
    /// The version.
    pub version: u64,
    /// Fingerprint of its layout.
    pub layout: u64,
    /// Fingerprint of its values, which was compared; none where the publisher takes none.
    pub fingerprint: Option<u64>,
    /// Whether it was read where its publisher works with it.
    pub is_in_place: bool,
    /// Where it came from.
    pub source: Source,
}

/// A version in buffers of its own.
#[derive(Debug)]
pub struct Got<B> {
    /// Which it is.
    pub stamp: Stamp,
    /// Its memory classes, in the publisher's order.
    pub parts: Vec<(String, B)>,
}

/// What was done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ReaderCounts {
    /// Versions that were got.
    pub got: u64,
    /// Domains that were made: one a publisher, as long as it lives.
    pub domains_made: u64,
    /// Memories that were mapped: each slot once.
    pub memories_mapped: u64,
    /// Copies that were not taken for a version: it had ended, or its fingerprint was another.
    pub refused: u64,
}

#[derive(Debug, Default)]
struct Counters {
    got: AtomicU64,
    domains_made: AtomicU64,
    memories_mapped: AtomicU64,
    refused: AtomicU64,
}

/// By the publisher's socket, which no other ever has.
type Domains<D> = HashMap<String, Arc<Mutex<Option<Arc<Domain<D>>>>>>;

/// Gets versions that publishers of this node have on their devices onto its own. Any thread may call, any number at a time.
///
/// It keeps a domain with each publisher, and with it the memory that it has mapped, until the publisher is found to be gone or
/// the reader is dropped.
#[derive(Debug)]
pub struct Reader<D: Share> {
    device: D,
    folder: PathBuf,
    options: ReaderOptions,
    node: String,
    domains: Mutex<Domains<D>>,
    counters: Counters,
}

impl<D: Share> Reader<D> {
    /// A reader whose publishers are found in `folder`.
    ///
    /// # Errors
    /// [`PublicationError::Io`] if the system does not say which node this is.
    pub fn open(
        device: D,
        folder: impl Into<PathBuf>,
        options: ReaderOptions,
    ) -> Result<Self, PublicationError> {
        let (folder, node) = (folder.into(), this_node()?);
        let (domains, counters) = Default::default();
        Ok(Self { device, folder, options, node, domains, counters })
    }

    /// What was done so far.
    pub fn counts(&self) -> ReaderCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters { got, domains_made, memories_mapped, refused } = &self.counters;
        let [got, domains_made] = [got, domains_made].map(read);
        let [memories_mapped, refused] = [memories_mapped, refused].map(read);
        ReaderCounts { got, domains_made, memories_mapped, refused }
    }

    /// Who publishes a key, as it was announced; whether it still lives is seen by who gets.
    ///
    /// # Errors
    /// [`PublicationError::Key`], [`PublicationError::NotPublished`], [`PublicationError::Io`].
    pub fn source(&self, key: &str) -> Result<Source, PublicationError> {
        let Announcement { node, pid, device, .. } = self.announcement(key)?;
        Ok(Source { node, pid, device })
    }

    /// Gets a version into buffers of its own. Nobody sees any of it before all of it is there.
    ///
    /// # Errors
    /// What stands in the way, by its name in [`PublicationError`]; see [`PublicationError::may_be_elsewhere`].
    pub fn get(&self, wanted: &Wanted<'_>) -> Result<Got<D::Buffer>, PublicationError> {
        let held = self.hold(wanted)?;
        let allocate = |class: &super::form::ClassForm| {
            let values = usize::try_from(class.values).unwrap_or(usize::MAX);
            (class.name.clone(), self.device.allocate(values))
        };
        let mut parts: Vec<(String, D::Buffer)> = held.grant.form.classes.iter().map(allocate).collect();
        self.device.check()?;
        let targets = parts.iter_mut().map(|(class, buffer)| TargetPart { class, buffer, offset: 0 });
        let stamp = self.take(wanted.key, held, &mut targets.collect::<Vec<_>>())?;
        Ok(Got { stamp, parts })
    }

    /// Gets a version into the parts, one for each memory class, before all arithmetic that the device is given afterwards.
    ///
    /// # Errors
    /// As [`get`](Self::get), and [`PublicationError::Part`] when the parts are not those of the version. When the publisher is
    /// gone in the middle (`wrote`), the version has ended or is damaged, or a copy failed, what the parts hold is undefined; after
    /// all other errors it is what it was.
    pub fn get_into(
        &self,
        wanted: &Wanted<'_>,
        parts: &mut [TargetPart<'_, D>],
    ) -> Result<Stamp, PublicationError> {
        let held = self.hold(wanted)?;
        self.take(wanted.key, held, parts)
    }

    fn announcement(&self, key: &str) -> Result<Announcement, PublicationError> {
        let found = Announcement::find(&self.folder, key)?;
        let nobody = || PublicationError::NotPublished { key: key.to_owned(), folder: self.folder.clone() };
        found.ok_or_else(nobody)
    }

    /// The publisher of a key, if it is of this node and on a device that this one reaches.
    fn publisher(&self, key: &str) -> Result<Announcement, PublicationError> {
        let found = self.announcement(key)?;
        if found.node != self.node {
            let (node, own) = (found.node, self.node.clone());
            return Err(PublicationError::OtherNode { key: key.to_owned(), node, own });
        }
        self.check_device(key, &found.device)?;
        Ok(found)
    }

    fn check_device(&self, key: &str, device: &str) -> Result<(), PublicationError> {
        if self.device.reaches(device) {
            return Ok(());
        }
        let (device, own) = (device.to_owned(), self.device.identity());
        Err(PublicationError::OtherDevice { key: key.to_owned(), device, own })
    }

    fn link(&self, key: &str, announcement: &Announcement) -> Result<Link, PublicationError> {
        let own = self.device.identity();
        let link = Link::open(&self.folder, key, announcement, (&own, self.options.within))?;
        self.check_device(key, &link.device)?;
        Ok(link)
    }

    /// The domain with whoever publishes a key: the one that there is, or a new one.
    fn domain(&self, key: &str) -> Result<Arc<Domain<D>>, PublicationError> {
        let announcement = self.publisher(key)?;
        let mut domains = self.domains.lock().unwrap_or_else(PoisonError::into_inner);
        let place = Arc::clone(domains.entry(announcement.socket.clone()).or_default());
        drop(domains);
        let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(domain) = place.as_ref().filter(|domain| !domain.is_over()) {
            return Ok(Arc::clone(domain));
        }
        *place = None;
        let domain = Arc::new(Domain::new(self.link(key, &announcement)?));
        *place = Some(Arc::clone(&domain));
        drop(place);
        self.counters.domains_made.fetch_add(1, Ordering::Relaxed);
        self.forget_gone();
        self.options.observer.reached(Step::Connected);
        Ok(domain)
    }

    /// Lets go of domains with publishers that are gone, and of the memory of theirs that is mapped here. Done by itself whenever
    /// a new domain is made.
    pub fn forget_gone(&self) {
        let mut domains = self.domains.lock().unwrap_or_else(PoisonError::into_inner);
        domains.retain(|_, place| match place.try_lock() {
            Ok(place) => place.as_ref().is_some_and(|domain| !domain.is_over()),
            Err(_) => true, // somebody is connecting
        });
    }

    /// Holds a version, once it is there.
    fn hold(&self, wanted: &Wanted<'_>) -> Result<Held<D>, PublicationError> {
        let began = Instant::now();
        loop {
            let newest = match self.ask(wanted)? {
                Ok(held) => return Ok(held),
                Err(newest) => newest,
            };
            let Which::AtLeast(least, wait) = wanted.which else { return Err(missing(wanted, newest)) };
            let left = wait.saturating_sub(began.elapsed());
            // Over a connection of its own, for the domain may be needed meanwhile.
            let waits = || self.link(wanted.key, &self.publisher(wanted.key)?)?.wait(least, left);
            if left.is_zero() || !waits()? {
                return Err(missing(wanted, newest));
            }
        }
    }

    /// Asks once. The newest version that is there when there is none that fits.
    fn ask(&self, wanted: &Wanted<'_>) -> Result<Result<Held<D>, Option<u64>>, PublicationError> {
        let domain = self.domain(wanted.key)?;
        let ask = match wanted.which {
            Which::Latest => Ask::Latest,
            Which::Exact(version) => Ask::Exact(version),
            Which::AtLeast(version, _) => Ask::AtLeast(version),
        };
        match domain.get(&self.device, wanted.key, (ask, wanted.layout))? {
            Asked::Held(held) => {
                self.counters.memories_mapped.fetch_add(held.mapped, Ordering::Relaxed);
                self.options.observer.reached(Step::Granted);
                Ok(Ok(held))
            }
            Asked::Missing(newest) => Ok(Err(newest)),
            Asked::OtherLayout { version, layout } => Err(PublicationError::OtherLayout {
                key: wanted.key.to_owned(),
                version,
                found: layout,
                wanted: wanted.layout.unwrap_or_default(),
            }),
        }
    }

    /// Copies what is held, ends the hold, and looks whether what arrived is the version.
    fn take(
        &self,
        key: &str,
        held: Held<D>,
        targets: &mut [TargetPart<'_, D>],
    ) -> Result<Stamp, PublicationError> {
        let of = targets_of(&self.device, &held.grant.form, targets)?;
        let copied = self.copy(&held, targets, &of);
        let (grant, pid, device) = (held.grant.clone(), held.pid, held.device.clone());
        let still = held.end().map_err(|error| match error {
            PublicationError::PublisherGone { key, pid, .. } => {
                PublicationError::PublisherGone { key, pid, wrote: true }
            }
            other => other,
        });
        copied?;
        let refused = || self.counters.refused.fetch_add(1, Ordering::Relaxed);
        if still? != Some(grant.version) {
            refused();
            return Err(PublicationError::Ended { key: key.to_owned(), version: grant.version });
        }
        self.options.observer.reached(Step::Released);
        if let Some(published) = grant.fingerprint {
            let found = self.fingerprint(&grant.form, targets, &of)?;
            if found != published {
                refused();
                let (key, version) = (key.to_owned(), grant.version);
                return Err(PublicationError::Damaged { key, version, found, published });
            }
        }
        self.counters.got.fetch_add(1, Ordering::Relaxed);
        Ok(Stamp {
            key: key.to_owned(),
            version: grant.version,
            layout: grant.form.layout,
            fingerprint: grant.fingerprint,
            is_in_place: grant.is_in_place,
            source: Source { node: self.node.clone(), pid, device },
        })
    }

    fn copy(
        &self,
        held: &Held<D>,
        targets: &mut [TargetPart<'_, D>],
        of: &[usize],
    ) -> Result<(), PublicationError> {
        let (device, classes) = (&self.device, held.grant.form.classes.iter().zip(&held.grant.places));
        let stream = device.stream();
        device.stream_after(&stream, &device.computed());
        let mut events = Vec::with_capacity(targets.len());
        for (((class, place), memory), at) in classes.zip(&held.memories).zip(of) {
            let target = &mut targets[*at];
            // Both lie in memory that was checked to be so long.
            let (source_offset, length) = (place.offset as usize, class.values as usize);
            let range = DeviceRange { source_offset, target_offset: target.offset, length };
            events.push(device.copy_imported_async(&stream, memory, target.buffer, range));
        }
        self.options.observer.reached(Step::Copying);
        finish(device, &events)?;
        self.options.observer.reached(Step::Copied);
        Ok(())
    }

    /// What arrived adds up to.
    fn fingerprint(
        &self,
        form: &Form,
        targets: &[TargetPart<'_, D>],
        of: &[usize],
    ) -> Result<u64, PublicationError> {
        let firsts = form.places().map(|(firsts, _)| firsts).unwrap_or_default();
        let sum = |total: u64, ((class, first), at): ((&super::form::ClassForm, u64), &usize)| {
            let TargetPart { buffer, offset, .. } = &targets[*at];
            let values = *offset..*offset + class.values as usize;
            Ok(total.wrapping_add(self.device.fingerprint(buffer, values, first)?))
        };
        form.classes.iter().zip(firsts).zip(of).try_fold(0, sum)
    }
}

fn missing(wanted: &Wanted<'_>, newest: Option<u64>) -> PublicationError {
    let text = match wanted.which {
        Which::Latest => "at all".to_owned(),
        Which::Exact(version) => version.to_string(),
        Which::AtLeast(version, wait) => format!("{version} or later within {wait:?}"),
    };
    PublicationError::NoVersion { key: wanted.key.to_owned(), wanted: text, newest }
}
