//! How far the log can be followed: whether what its records name is there, by reading the files.
//!
//! A value that is not there ends the log only where a state would stand on it. Its place may have been used again once
//! nothing lived there (see the [extents](crate::extent)), and the record that named it first may still be in doubt. So the log is
//! good up to the last record after which nothing lives in a place that misses something, whatever was missed on the way.
//! Nothing is written here: what lies behind that record must not be put back.

use std::collections::{HashMap, HashSet};
use std::io;

use crate::directory::Directory;
use crate::error::Cause;
use crate::extent::{self, Place, StoredValues, View};
use crate::log::Refusal;
use crate::log::record::{ObjectRecord, Record};
use crate::object::{self, ObjectRef};
use crate::schema::check_name;
use crate::state::State;

/// Where the log has to end although more could be read.
#[derive(Debug)]
pub(super) struct End {
    /// The first record that goes.
    pub(super) next_sequence: u64,
    pub(super) reason: String,
}

/// What the records up to the end come to, beside the state.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// What may have to be written again, where what memory holds of it is in doubt.
    pub(super) values: Vec<View>,
    pub(super) objects: Vec<ObjectRef>,
    /// The last generation of each extent that they name: nothing lives in an earlier one.
    pub(super) generations: HashMap<u32, u32>,
}

impl Kept {
    /// Whether a value lies in an earlier generation than the last that the log names. It is dead then, and its file may hold
    /// anything, or be gone.
    pub(super) fn is_over(&self, view: View) -> bool {
        self.generations.get(&view.extent()).is_some_and(|last| view.generation() < *last)
    }
}

/// Looks at records one by one, in their order.
#[derive(Debug)]
pub(super) struct Check<'a> {
    directory: &'a Directory,
    values: StoredValues<'a>,
    /// Values that nobody proved to be on stable storage, with their records, where they are wanted.
    kept: Option<Vec<(u64, View)>>,
    /// Generations of each extent, with the first record that names them.
    generations: HashMap<u32, Vec<(u64, u32)>>,
    /// Objects that were read already: a version is named once for each policy that stands on it.
    objects: HashMap<ObjectRef, bool>,
    /// Places that the state names and that miss something.
    missing: HashSet<Place>,
    /// With nothing missing the log could end before this record.
    through: u64,
    /// What was missing first from there on.
    reason: Option<String>,
}

impl<'a> Check<'a> {
    /// `in_doubt`: a sync failed, so what is kept is to be written again.
    pub(super) fn new(directory: &'a Directory, in_doubt: bool) -> Self {
        Check {
            directory,
            values: StoredValues::new(directory),
            kept: in_doubt.then(Vec::new),
            generations: HashMap::new(),
            objects: HashMap::new(),
            missing: HashSet::new(),
            through: 0,
            reason: None,
        }
    }

    /// Looks at one record, which is about to be applied. `doubted`: it lies above what was known to be durable.
    pub(super) fn record(
        &mut self,
        state: &State,
        (sequence, record): (u64, &Record),
        doubted: bool,
    ) -> Result<(), Refusal> {
        state.values_named(&record.event).for_each(|view| self.name(sequence, view));
        let mut views = state.values_named(&record.event);
        if !record.carried.is_empty() {
            self.carried(sequence, views, &record.carried)?;
        } else if doubted {
            views.try_for_each(|view| self.value(sequence, view))?;
        }
        if doubted {
            record.event.objects().try_for_each(|named| self.object(named))?;
        }
        Ok(())
    }

    /// Takes note of the state after it was applied.
    pub(super) fn applied(&mut self, state: &State, sequence: u64) {
        if !self.missing.is_empty() {
            self.missing.retain(|place| state.liveness.of(*place).is_some_and(|life| life.values > 0));
        }
        if self.missing.is_empty() {
            (self.through, self.reason) = (sequence + 1, None);
        }
    }

    /// Where the log has to end for what is missing, and what is kept of it then.
    pub(super) fn end(self) -> (Option<End>, Kept) {
        let end = self.reason.map(|reason| End { next_sequence: self.through, reason });
        let stays = |sequence: u64| end.as_ref().is_none_or(|end| sequence < end.next_sequence);
        let values = self.kept.unwrap_or_default().into_iter();
        let last = |(extent, generations): (&u32, &Vec<(u64, u32)>)| {
            let last = generations.iter().rev().find(|(sequence, _)| stays(*sequence))?;
            Some((*extent, last.1))
        };
        let kept = Kept {
            generations: self.generations.iter().filter_map(last).collect(),
            values: values.filter(|(sequence, _)| stays(*sequence)).map(|(_, view)| view).collect(),
            objects: self.objects.into_iter().filter_map(|(o, is_there)| is_there.then_some(o)).collect(),
        };
        (end, kept)
    }

    fn name(&mut self, sequence: u64, view: View) {
        let generations = self.generations.entry(view.extent()).or_default();
        if generations.last().is_none_or(|(_, last)| *last < view.generation()) {
            generations.push((sequence, view.generation()));
        }
    }

    fn value(&mut self, sequence: u64, view: View) -> Result<(), Refusal> {
        if self.missing.contains(&view.place()) {
            return Ok(());
        }
        match self.values.check(view).map_err(|e| self.unread(view, e))? {
            Ok(()) => self.keep(sequence, view),
            Err(reason) => self.misses(view, reason),
        }
        Ok(())
    }

    /// Nobody could look: the store cannot be opened then, and nothing is lost.
    fn unread(&self, view: View, error: io::Error) -> Refusal {
        Refusal::Failed(Cause::io("read", self.directory.extent_path(view.extent()), error).into())
    }

    fn keep(&mut self, sequence: u64, view: View) {
        self.kept.iter_mut().for_each(|kept| kept.push((sequence, view)));
    }

    fn misses(&mut self, view: View, reason: String) {
        self.missing.insert(view.place());
        self.reason.get_or_insert(reason);
    }

    /// A value that a record carries is there, or can be put back, unless its place was used again.
    fn carried(
        &mut self,
        sequence: u64,
        views: impl Iterator<Item = View>,
        mut carried: &[u8],
    ) -> Result<(), Refusal> {
        for view in views {
            split_carried(view, &mut carried)?;
            match self.values.used_again(view).map_err(|e| self.unread(view, e))? {
                Some(reason) => self.misses(view, reason),
                None => {
                    self.values.will_hold(view);
                    self.keep(sequence, view);
                }
            }
        }
        if carried.is_empty() {
            return Ok(());
        }
        Err(Refusal::Impossible("it carries more than it names".to_owned()))
    }

    fn object(&mut self, named: &ObjectRecord) -> Result<(), Refusal> {
        let object = ObjectRef::from_record(named.clone());
        let is_there = match self.objects.get(&object) {
            Some(is_there) => *is_there,
            None => self.is_there(&object)?,
        };
        self.objects.insert(object, is_there);
        if is_there {
            return Ok(());
        }
        let reason = format!(
            "version {} of object {:?}, which it names, is not there whole",
            named.version, named.key
        );
        self.reason.get_or_insert_with(|| reason.clone());
        Err(Refusal::Incomplete(reason))
    }

    fn is_there(&self, object: &ObjectRef) -> Result<bool, Refusal> {
        if check_name("object", &object.key).is_err() {
            return Ok(false); // a path would lead elsewhere
        }
        let found = object::found(self.directory, object).map(|found| found == *object);
        let path = || object::path_of(self.directory, object);
        let unread = |e| Refusal::Failed(Cause::io("read", path(), e).into());
        found.or_else(|error| extent::absence(error).map(|_| false)).map_err(unread)
    }
}

/// The bytes that a record carries for a value, which go first.
pub(crate) fn split_carried<'b>(view: View, carried: &mut &'b [u8]) -> Result<&'b [u8], Refusal> {
    let bytes = carried.split_off(..extent::stored_bytes(view));
    bytes.ok_or_else(|| Refusal::Impossible("it carries less than it names".to_owned()))
}
