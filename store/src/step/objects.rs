//! Which objects the steps need: a rewind takes every policy back to the objects that it stood on, so these are kept.
//!
//! Of each policy the newest moments are kept, as many as [`Options::object_versions_kept`](crate::Options) says. A
//! rewind goes no further back than to the oldest step at which every policy stood on a moment that is kept.

use std::collections::HashSet;

use crate::error::Result;
use crate::log::record::UpdateRecord;
use crate::object::{self, ObjectRef};
use crate::shared::Shared;
use crate::state::State;
use crate::step::retiring::{Over, Retirement};
use crate::step::{StepProgress, StepState};
use crate::store::Store;

/// Where a policy stood after a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment<'a> {
    /// 0 before any step.
    pub(crate) step: u64,
    pub(crate) version: u64,
    pub(crate) objects: &'a [ObjectRef],
}

impl State {
    /// Where a policy stood, newest first: after each step that stands, and before all of them.
    pub(crate) fn moments(&self, policy: usize) -> impl Iterator<Item = Moment<'_>> {
        let stands = |(_, step): &(&u64, &StepState)| step.progress == StepProgress::Committed;
        let moved = self.steps.iter().rev().filter(stands).filter_map(move |(number, step)| {
            let update = step.updates.iter().find(|update| update.policy == policy)?;
            Some(Moment { step: *number, version: update.version, objects: &update.objects })
        });
        let first = &self.policies[policy].first;
        moved.chain([Moment { step: 0, version: first.version, objects: &first.objects }])
    }

    /// The oldest step that a rewind can go back to when `kept` moments of every policy are kept. It never goes back
    /// itself: what was needed for an older one may be gone.
    pub(crate) fn oldest_rewind(&self, kept: usize) -> u64 {
        let oldest = |policy| self.moments(policy).take(kept).last().map_or(0, |moment| moment.step);
        (0..self.policies.len()).map(oldest).max().unwrap_or(0).max(self.rewind_floor)
    }

    /// The same once `step` has moved these policies.
    pub(super) fn oldest_rewind_after(&self, step: u64, moved: &[UpdateRecord], kept: usize) -> u64 {
        let oldest = |policy: usize| {
            let is_moved = moved.iter().any(|update| update.policy as usize == policy);
            let before = kept - usize::from(is_moved);
            let last = self.moments(policy).take(before).last();
            last.map_or(step, |moment| moment.step)
        };
        (0..self.policies.len()).map(oldest).max().unwrap_or(0).max(self.rewind_floor)
    }

    /// The objects that a rewind may need, the current ones among them.
    fn objects_needed(&self, kept: usize) -> HashSet<(&str, u64)> {
        let policies = 0..self.policies.len();
        let moments = policies.flat_map(|policy| self.moments(policy).take(kept));
        moments.flat_map(|moment| moment.objects).map(|object| (&*object.key, object.version)).collect()
    }

    /// Every object that a step that stands, or a policy's declaration, names.
    pub(crate) fn objects_named(&self) -> impl Iterator<Item = &ObjectRef> {
        (0..self.policies.len()).flat_map(|policy| self.moments(policy)).flat_map(|moment| moment.objects)
    }

    /// Whether a policy stands on an object now.
    pub(crate) fn stands_on(&self, object: &ObjectRef) -> bool {
        self.policies.iter().any(|policy| policy.objects.contains(object))
    }

    /// The object of that key and version which a step that stands, or a policy's declaration, names.
    pub(crate) fn committed_object(&self, key: &str, version: u64) -> Option<&ObjectRef> {
        let moments = (0..self.policies.len()).flat_map(|policy| self.moments(policy));
        moments.flat_map(|moment| moment.objects).find(|o| o.key == key && o.version == version)
    }

    /// Whether a step that was committed names that version, also one that was undone since.
    pub(crate) fn was_named(&self, key: &str, version: u64) -> bool {
        let updates = self.steps.values().flat_map(|step| &step.updates);
        let mut objects = updates.flat_map(|update| &update.objects);
        objects.any(|o| o.key == key && o.version == version) || self.committed_object(key, version).is_some()
    }
}

impl Store {
    /// Lets the versions of these objects that no rewind can need go, once the commit that was just made is proven durable.
    pub(super) fn retire_objects(&self, newest: &[ObjectRef]) {
        let retirements: Vec<Retirement> = {
            let state = self.0.state.lock();
            let needed = state.objects_needed(self.0.options.object_versions_kept);
            let of_key =
                |key: &str| needed.iter().filter(|(k, _)| *k == key).map(|(_, version)| *version).collect();
            let retirement = |object: &ObjectRef| Retirement {
                commits: state.commits,
                key: object.key.clone(),
                over: Over::Below { below: object.version, needed: of_key(&object.key) },
            };
            newest.iter().map(retirement).collect()
        };
        self.0.retiring.add(retirements);
        self.0.retire_due();
    }
}

impl Shared {
    /// Removes the objects whose commits are proven to be durable by now, and known to every reader. Proven, for whoever
    /// recovers looks for the objects of every commit above what he knows to be durable.
    pub(crate) fn retire_due(&self) {
        let objects = self.objects_if_open();
        let path = |key: &str, version| object::path_in(&self.directory.objects(), key, version);
        // Versions that were set are looked after by the object layer.
        let is_set = |key: &str, version| match &objects {
            Some(core) => core.has(key, version),
            None => object::is_ours(&*self.directory.disk, &path(key, version)),
        };
        for Retirement { key, over, .. } in self.retiring.take_due(&self.directory, self.log.proven_through())
        {
            match over {
                Over::Below { below, needed } => {
                    let mut over = object::versions_in(&self.directory, &key);
                    over.retain(|version| {
                        *version < below && !needed.contains(version) && !is_set(&key, *version)
                    });
                    self.retire_below(&key, &over);
                }
                Over::Version(version) => self.retire_version(&key, version),
            }
        }
    }

    /// Removes versions of a key that a commit made needless, but for those that somebody has come to stand on since. What that
    /// commit knew may have been undone: nothing goes but what lies below a version that stands now. Names are taken away
    /// under the state's lock, where whoever names a version looks for its file.
    fn retire_below(&self, key: &str, over: &[u64]) {
        let disk = &*self.directory.disk;
        let state = self.state.lock();
        let needed = state.objects_needed(self.options.object_versions_kept);
        let newest = state.objects_named().filter(|o| o.key == key).map(|o| o.version).max();
        let goes = |version: &&u64| {
            newest.is_some_and(|newest| **version < newest) && !needed.contains(&(key, **version))
        };
        let path = |version: &u64| object::path_in(&self.directory.objects(), key, *version);
        over.iter().filter(goes).for_each(|version| _ = object::set_aside(disk, &path(version)));
        drop(state);
        for aside in object::left_aside(&self.directory, key) {
            if object::remove_aside(disk, &aside) {
                object::remove_needless_mark(disk, &aside);
            }
        }
    }

    /// Removes a version that was set and that the object layer has let go, unless a step has come to name it again.
    fn retire_version(&self, key: &str, version: u64) {
        let Some(core) = self.objects_if_open() else { return };
        let state = self.state.lock();
        if state.committed_object(key, version).is_some() {
            return;
        }
        let path = object::path_in(&self.directory.objects(), key, version);
        let aside = object::set_aside(&*self.directory.disk, &path);
        drop(state);
        core.remove_files(aside.map(|path| (key.to_owned(), version, path)));
    }

    /// To be called before a version's file is replaced. Where a step named it that was undone, brings the proof of that first:
    /// whoever recovers looks for the objects of every commit above what he knows to be durable, and would cut the log where
    /// that step stands. Gives whether one did.
    pub(crate) fn settle_undone(&self, key: &str, version: u64) -> Result<bool> {
        let was_named = self.state.lock().was_named(key, version);
        if was_named {
            self.prove_unproven()?;
        }
        Ok(was_named)
    }

    /// As [`retire_due`](Self::retire_due), bringing the proof about where only that is missing.
    pub(crate) fn prove_and_retire(&self) -> Result<()> {
        if self.retiring.waits_for_proof(self.log.durable_through(), self.log.proven_through()) {
            self.prove_if_idle()?;
        }
        self.retire_due();
        Ok(())
    }
}
