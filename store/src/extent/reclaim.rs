//! From sealed to free: which generations are over, and what is done when there is no room.
//!
//! A generation is over when the state names nothing in it, no pin covers the records between which it was alive, nobody
//! holds it, and no crash can lead back to a promised state that names it ([`Stable`]). All of it is looked at with the
//! state locked, so no record can come in between; a batch that is not committed holds the extents that it wrote to.
//! What is done with the file (a new header, or its removal) comes after, with nothing locked.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use super::file::Extent;
use super::liveness::{Life, Place};
use super::source::{Room, Wish};
use crate::aside::Aside;
use crate::clock::Timestamp;
use crate::error::{Cause, Error, Result};
use crate::local;
use crate::log::{self, Proof};
use crate::shared::Shared;
use crate::state::State;
use crate::sync::atomic::Ordering;

/// How often who waits for room looks again by himself: a reader that drops its last buffer tells nobody.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Who holds back the space of values that are no longer part of any table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PinInfo {
    /// Who: the name given with [`Store::snapshot_for`](crate::Store::snapshot_for), or what kind of holder it is.
    pub owner: String,
    /// Since when, for one that was taken to last.
    pub since: Option<Timestamp>,
    /// How many records the holder has seen.
    pub commit: u64,
    /// Bytes of extents that nothing but readers like this one hold back.
    pub bytes: u64,
    /// Bytes of memory that nothing but snapshots like this one keep: pages that have changed since.
    pub memory_bytes: u64,
    /// Held for longer than [`Options::snapshot_age_max`](crate::Options::snapshot_age_max): it gives no values any more, and holds
    /// back no space, but pages in memory, until it is dropped.
    pub overdue: bool,
}

/// How far the log is safe.
///
/// Either the record that emptied a generation is proven to be on stable storage: durable alone would not do, for whoever
/// puts back what records carry must know how far nothing is missing. Or no sync has begun that is to make the record stable
/// that first named a value in it, nor so any after that. Then a crash of the process leads to the end of the log, where
/// the generation is empty: the log is handed to the kernel before the file is used again. And one of the machine leads at
/// worst to what the last sync made stable, for recovery ends the log where everything that the state names is there; more was promised
/// to nobody.
struct Stable<'a> {
    log: &'a log::Writer,
}

impl Stable<'_> {
    fn covers(&self, life: &Life) -> bool {
        self.is_proven(life) || self.log.is_beyond_syncs(life.first_named)
    }

    fn is_proven(&self, life: &Life) -> bool {
        life.last_left < self.log.proven_through()
    }
}

/// Why a sealed extent in which nothing lives cannot be used again yet.
struct Dead {
    life: Life,
    bytes: u64,
    held: bool,
}

impl Shared {
    /// Frees every extent that is over. Gives how many there were.
    pub(crate) fn reclaim(&self) -> Result<usize> {
        let dead = self.dead_and_stable();
        if dead.iter().any(|(_, life)| !self.stable().is_proven(life)) {
            self.flush_all()?; // before it is asked who reads, and before anything is used again
        }
        let over = self.take_over(&dead);
        let count = over.len();
        over.into_iter().try_for_each(|extent| self.values.give_free(extent))?;
        if count > 0 {
            self.freed_at.store(self.options.clock.now().0, Ordering::Relaxed);
            self.space_freed.notify(usize::MAX);
        }
        Ok(count)
    }

    /// Sealed extents in which nothing lives, and whose end no crash can take back.
    fn dead_and_stable(&self) -> Vec<(Place, Life)> {
        let sealed = self.sealed_places();
        if sealed.is_empty() {
            return Vec::new();
        }
        let state = self.state.lock();
        let stable = self.stable();
        let lives = sealed.into_iter().map(|place| (place, self.life_of(&state, place)));
        lives.filter(|(_, life)| life.values == 0 && stable.covers(life)).collect()
    }

    /// Bytes of space that wait for nothing but the proof that they are nobody's since before a record.
    pub(super) fn unproven_bytes(&self, before: u64) -> u64 {
        let all = self.extents.all();
        let sealed = all.iter().filter(|extent| extent.is_sealed());
        let sealed: Vec<(Place, u64)> = sealed.map(|extent| (extent.place(), extent.reserved())).collect();
        drop(all); // whoever asks who holds an extent is not to find this look at it
        let state = self.state.lock();
        let stable = self.stable();
        let unproven = sealed.into_iter().filter(|(place, _)| {
            let life = self.life_of(&state, *place);
            life.values == 0 && life.last_left < before && !stable.covers(&life)
        });
        unproven.map(|(_, bytes)| bytes).sum()
    }

    /// Sealed extents that only wait for the proof that records below `before` bring, of what is not on stable storage yet.
    /// A sync that is to end with that proof need not bring their values to the disk: where it has ended nothing names
    /// them, and before it has, recovery ends the log where what it names is there, as after any sync that did not end.
    /// Who holds one back, here or in another process, may hold it for long, and its file would stay open as long: it is synced with
    /// the rest.
    pub(crate) fn over_before(&self, before: u64) -> Vec<Place> {
        let all = self.extents.all();
        let unheld = |extent: &&Arc<Extent>| Arc::strong_count(extent) <= 2; // one is the registry's, one ours
        let waiting = |extent: &&Arc<Extent>| extent.is_sealed() && extent.file().is_unsynced();
        let waiting: Vec<Place> = all.iter().filter(waiting).filter(unheld).map(|e| e.place()).collect();
        if waiting.is_empty() {
            return waiting;
        }
        let over: Vec<(Place, Life)> = {
            let state = self.state.lock();
            let pins = self.extents.pins().held();
            let lives = waiting.into_iter().map(|place| (place, self.life_of(&state, place)));
            let is_pinned = |life: &Life| pins.iter().any(|pin| pin.covers(life.first_named, life.last_left));
            let is_over = |life: &Life| life.values == 0 && life.last_left < before;
            lives.filter(|(_, life)| is_over(life) && !is_pinned(life)).collect()
        };
        if over.is_empty() {
            return Vec::new();
        }
        let readers = self.directory.readers_hold();
        let is_read = |life: &Life| readers.is_some_and(|seen| life.last_left >= seen);
        let held = |(place, life): &(Place, Life)| is_read(life) || local::is_lent(&self.directory, place.0);
        over.into_iter().filter(|over| !held(over)).map(|(place, _)| place).collect()
    }

    /// Brings that proof.
    ///
    /// # Errors
    /// `capacity` where a full disk has no room for it, and the store goes on; `closed` for any other failure.
    pub(crate) fn prove_unproven(&self) -> Result<()> {
        self.sync_all()?;
        self.log.prove_durable().map_err(|error| self.close_after(&error))?.needed()
    }

    /// The same of what is on stable storage already, where nobody has to be waited for and there is room. Whether more is proven
    /// than was.
    pub(crate) fn prove_if_idle(&self) -> Result<bool> {
        let proof = self.log.prove_durable_if_idle().map_err(|error| self.close_after(&error))?;
        if let Proof::NoRoom(error) = &proof {
            tracing::debug!(%error, "what the log is durable through is not proven");
        }
        Ok(matches!(proof, Proof::Brought))
    }

    /// Takes out those that nobody may read.
    fn take_over(&self, dead: &[(Place, Life)]) -> Vec<Extent> {
        if dead.is_empty() {
            return Vec::new();
        }
        // Looked at with nothing locked, and after the extents: a process that begins to read from here on finds the
        // records that emptied them.
        let readers = self.directory.readers_hold();
        let read = |life: &Life| readers.is_some_and(|seen| life.last_left >= seen);
        let filled = |(number, _): Place| !local::may_give_away(&self.directory, number);
        let dead: Vec<_> = dead.iter().filter(|(place, life)| !read(life) && !filled(*place)).collect();
        let mut state = self.state.lock();
        let pins = self.extents.pins().held();
        let mut over = Vec::new();
        for (place, life) in dead {
            let pinned = pins.iter().any(|pin| pin.covers(life.first_named, life.last_left));
            if pinned || self.life_of(&state, *place) != *life {
                continue;
            }
            if let Some(extent) = self.extents.take_unheld(*place) {
                state.liveness.forget(*place);
                over.push(extent);
            }
        }
        over
    }

    /// What lives in a generation. Of one that the state knows nothing of, whatever emptied it was there when the store
    /// was opened: it came no later than the record of the opening, the last of those.
    fn life_of(&self, state: &State, place: Place) -> Life {
        let before = Life { last_left: self.opened_commits.saturating_sub(1), ..Life::default() };
        state.liveness.of(place).unwrap_or(before)
    }

    fn stable(&self) -> Stable<'_> {
        Stable { log: &self.log }
    }

    fn sealed_places(&self) -> Vec<Place> {
        let all = self.extents.all();
        all.iter().filter(|extent| extent.is_sealed()).map(|extent| extent.place()).collect()
    }

    /// Who holds back space, the greatest first.
    pub(crate) fn pins(&self) -> Vec<PinInfo> {
        let readers = self.directory.readers_hold();
        let all = self.extents.all();
        let (dead, pins, stable, memory) = {
            let state = self.state.lock();
            let dead = all.iter().filter(|extent| extent.is_sealed()).filter_map(|extent| {
                let life = self.life_of(&state, extent.place());
                // One count is the registry's, one ours.
                let held = Arc::strong_count(extent) > 2;
                (life.values == 0).then(|| Dead { life, bytes: extent.reserved(), held })
            });
            (
                dead.collect::<Vec<_>>(),
                self.extents.pins().held(),
                self.stable(),
                self.memory.holdings.bytes(&state),
            )
        };
        drop(all);
        let now = self.options.clock.now();
        let age_max = self.options.snapshot_age_max;
        let sum = |covered: &dyn Fn(&Dead) -> bool| {
            dead.iter().filter(|dead| covered(dead)).map(|dead| dead.bytes).sum::<u64>()
        };
        let mut shown: Vec<PinInfo> = pins
            .iter()
            .map(|pin| PinInfo {
                owner: pin.owner.to_string(),
                since: pin.since,
                commit: pin.commit,
                bytes: sum(&|dead| pin.covers(dead.life.first_named, dead.life.last_left)),
                memory_bytes: memory
                    .by_pin
                    .iter()
                    .find(|(id, _)| *id == pin.id)
                    .map_or(0, |(_, bytes)| *bytes),
                overdue: age_max.is_some_and(|age_max| pin.overdue(now, age_max).is_some()),
            })
            .collect();
        let unowned = [
            (
                "readers in other processes",
                sum(&|dead| readers.is_some_and(|seen| dead.life.last_left >= seen)),
            ),
            ("values in use", sum(&|dead| dead.held)),
            ("log not on stable storage", sum(&|dead| !stable.covers(&dead.life))),
        ];
        for (owner, bytes) in unowned.into_iter().filter(|(_, bytes)| *bytes > 0) {
            let owner = owner.to_owned();
            shown.push(PinInfo { owner, since: None, commit: 0, bytes, memory_bytes: 0, overdue: false });
        }
        shown.sort_by_key(|pin| std::cmp::Reverse(pin.bytes));
        shown
    }

    /// Bytes that the store's files take: extents, free ones too, the log, and the pages of the last checkpoint.
    pub(crate) fn disk_bytes(&self) -> Result<u64> {
        let disk = &self.directory.disk;
        let path = self.directory.log();
        let io = |e| Cause::io("measure", &path, e);
        let mut bytes = self.extents.totals().1 + self.values.free_bytes() + self.checkpointer.bytes();
        for segment in disk.list(&path).map_err(io)? {
            match disk.open(&segment).and_then(|file| file.length()) {
                Ok(length) => bytes += length,
                Err(error) if error.kind() == ErrorKind::NotFound => {} // a checkpoint has removed it since
                Err(error) => return Err(io(error).into()),
            }
        }
        Ok(bytes)
    }

    /// Whether there is room for a file of so many bytes, after free ones made way for it.
    fn has_room(&self, needed: u64, limit: u64) -> Result<bool> {
        let over = || Ok::<_, Error>((self.disk_bytes()? + needed).saturating_sub(limit));
        let excess = over()?;
        if excess > 0 {
            self.values.drop_free(excess)?;
        }
        Ok(excess == 0 || over()? == 0)
    }

    fn no_room(&self, needed: u64, limit: u64) -> Result<Error> {
        let largest = self.pins().into_iter().find(|pin| pin.bytes > 0);
        let pin = largest.map_or("nothing is held back by readers".to_owned(), |pin| {
            let since = pin.since.map(|since| format!(" since {since}")).unwrap_or_default();
            format!("the largest pin is {:?}{since}, which holds back {} bytes", pin.owner, pin.bytes)
        });
        let used = self.disk_bytes()?;
        Ok(Cause::NoSpace { needed, used, limit, pin }.into())
    }
}

impl Room for Shared {
    fn reclaim(&self) {
        if let Err(error) = Shared::reclaim(self) {
            tracing::warn!(%error, "a free extent could not be removed");
        }
    }

    fn reserve(&self, wish: Wish, aside: Aside) -> Result<u64> {
        match self.limits.disk_bytes_max() {
            None => Ok(wish.wished),
            Some(_) => aside.run(|| self.wait_for_room(wish)),
        }
    }
}

impl Shared {
    /// The budget may become another while somebody waits.
    fn wait_for_room(&self, Wish { wished, least }: Wish) -> Result<u64> {
        let clock = &self.options.clock;
        let until = clock.now().after(self.options.capacity_wait);
        loop {
            let freed = self.space_freed.listen();
            let Some(limit) = self.limits.disk_bytes_max() else { return Ok(wished) };
            if self.has_room(wished, limit)? || self.values.free_bytes() >= wished {
                return Ok(wished);
            }
            let now = clock.now();
            let waits_in_vain = now >= until || self.unproven_bytes(u64::MAX) == 0;
            if least < wished && waits_in_vain && self.has_room(least, limit)? {
                return Ok(least); // rather a small file than a wait
            }
            if now >= until {
                return Err(self.no_room(least, limit)?);
            }
            self.check_writable("write to it")?;
            if self.unproven_bytes(u64::MAX) > 0 {
                let proven = self.log.proven_through();
                self.prove_unproven()?;
                Room::reclaim(self);
                if self.log.proven_through() > proven {
                    continue;
                }
            }
            clock.wait(freed, Some(until.min(now.after(LOOK_AGAIN))));
            self.let_overdue_pins_go();
            Room::reclaim(self);
        }
    }
}
