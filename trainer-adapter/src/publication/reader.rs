//! The one who gets: finds who has a key, and copies a version from that device to its own.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::announcement::{Announcement, own_numbers, this_node};
use super::domain::{Asked, Domain, Held, Link};
use super::error::PublicationError;
use super::form::{ClassForm, TargetPart};
use super::step::Step;
use super::wanted::{Got, ReaderCounts, ReaderOptions, Source, Stamp, Wanted, Which};
use crate::device::Share;
use crate::error::Error;

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) got: AtomicU64,
    domains_made: AtomicU64,
    memories_mapped: AtomicU64,
    pub(super) refused: AtomicU64,
}

/// By the publisher's socket, which no other ever has.
type Domains<D> = HashMap<String, Arc<Mutex<Option<Arc<Domain<D>>>>>>;

/// Gets versions that publishers of this node have on their devices onto its own. Any thread may call, any number at a time.
///
/// It keeps a domain with each publisher, and with it the memory that it has mapped, until the publisher is found to be gone or
/// the reader is dropped. A publisher lets 128 connections of one process in (a domain for each of its readers, one for each wait),
/// and one reader hold 1024 versions at a time; more are [`PublicationError::Protocol`].
#[derive(Debug)]
pub struct Reader<D: Share> {
    pub(super) device: D,
    folder: PathBuf,
    pub(super) options: ReaderOptions,
    pub(super) node: String,
    domains: Mutex<Domains<D>>,
    /// Of copies that are over, for those that come.
    streams: Mutex<Vec<D::Stream>>,
    pub(super) counters: Counters,
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
        let (domains, streams, counters) = Default::default();
        Ok(Self { device, folder, options, node, domains, streams, counters })
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

    /// Gets a version into buffers of its own, which can be shared. Nobody sees any of it before all of it is there. When the
    /// device has no room for them, that is [`PublicationError::Device`] with [`crate::Error::Share`], and the device goes on.
    ///
    /// # Errors
    /// What stands in the way, by its name in [`PublicationError`]; see [`PublicationError::may_be_elsewhere`].
    pub fn get(&self, wanted: &Wanted<'_>) -> Result<Got<D::Buffer>, PublicationError> {
        let held = self.hold(wanted).inspect_err(|error| self.after(error))?;
        // How many values is the publisher's word: that there is no room for them is no failure of the device.
        let allocate = |class: &ClassForm| -> Result<(String, D::Buffer), PublicationError> {
            let values = usize::try_from(class.values).unwrap_or(usize::MAX);
            Ok((class.name.clone(), self.device.allocate_shared(values)?))
        };
        let parts: Result<Vec<_>, _> = held.grant.form.classes.iter().map(allocate).collect();
        let mut parts = parts?;
        let targets = parts.iter_mut().map(|(class, buffer)| TargetPart { class, buffer, offset: 0 });
        let stamp = self.take(wanted.key, held, &mut targets.collect::<Vec<_>>())?;
        Ok(Got { stamp, parts })
    }

    /// Gets a version into the parts, one for each memory class, before all arithmetic that the device is given afterwards.
    ///
    /// # Errors
    /// As [`get`](Self::get), and [`PublicationError::Part`] when the parts are not those of the version. When the publisher is
    /// gone in the middle (`wrote`), the version has ended, is damaged or unconfirmed, or a copy failed, what the parts hold is
    /// undefined; after all other errors it is what it was.
    pub fn get_into(
        &self,
        wanted: &Wanted<'_>,
        parts: &mut [TargetPart<'_, D>],
    ) -> Result<Stamp, PublicationError> {
        let held = self.hold(wanted).inspect_err(|error| self.after(error))?;
        self.take(wanted.key, held, parts)
    }

    /// A stream for the copies of one get.
    pub(super) fn stream(&self) -> Result<D::Stream, Error> {
        let kept = self.streams.lock().unwrap_or_else(PoisonError::into_inner).pop();
        kept.map_or_else(|| self.device.stream(), Ok)
    }

    /// Keeps a stream whose copies are over.
    pub(super) fn keep_stream(&self, stream: D::Stream) {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
    }

    /// Memory of a publisher that is gone, or with whom nothing more can be said, is let go of at once; so is what he holds for us.
    pub(super) fn after(&self, error: &PublicationError) {
        use PublicationError as E;
        let is_of_the_link =
            matches!(error, E::PublisherGone { .. } | E::Silent { .. } | E::Protocol { .. } | E::Io { .. });
        if is_of_the_link || matches!(error, E::Device(_)) {
            self.forget_gone();
        }
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
        let own = own_numbers()?;
        if found.numbers != own {
            let (key, numbers) = (key.to_owned(), found.numbers);
            return Err(PublicationError::OtherNumbers { key, numbers, own });
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
        let is_gone = |_: &String, place: &mut Arc<Mutex<Option<Arc<Domain<D>>>>>| match place.try_lock() {
            Ok(place) => place.as_ref().is_none_or(|domain| domain.is_over()),
            Err(_) => false, // somebody is connecting
        };
        let gone: Vec<_> = domains.extract_if(is_gone).collect();
        drop(domains); // others go on while memory is unmapped
        drop(gone);
    }

    /// Holds a version, once it is there.
    fn hold(&self, wanted: &Wanted<'_>) -> Result<Held<D>, PublicationError> {
        let began = Instant::now();
        loop {
            let newest = match self.ask(wanted)? {
                Ok(held) => return Ok(held),
                Err(newest) => newest,
            };
            let Which::AtLeast(least, wait) = wanted.which else { return Err(wanted.missing(newest)) };
            let left = wait.saturating_sub(began.elapsed());
            // Over a connection of its own, for the domain may be needed meanwhile.
            let waits = || self.link(wanted.key, &self.publisher(wanted.key)?)?.wait(least, left);
            if left.is_zero() || !waits()? {
                return Err(wanted.missing(newest));
            }
        }
    }

    /// Asks once. The newest version that is there when there is none that fits.
    fn ask(&self, wanted: &Wanted<'_>) -> Result<Result<Held<D>, Option<u64>>, PublicationError> {
        let domain = self.domain(wanted.key)?;
        match domain.get(&self.device, wanted.key, (wanted.ask(), wanted.layout))? {
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
}
