//! A process ends, and the next one opens what is left.

use forebay_store::{Durability, Store};

use super::life::Life;
use super::op::End;
use super::row::{ModelRow, SHOWN};
use super::{Run, options};
use crate::support::*;

impl Run {
    pub(super) fn end(&mut self, how: End, level: Durability) {
        match how {
            End::Closed => {}
            End::Killed => self.world.disk.kill(),
            End::PowerFailed => self.world.disk.cut_power(),
        }
        // Where the process is dead nothing of what these say by being dropped reaches the disk.
        self.claims.clear();
        (self.step, self.table, self.store) = (None, None, None);
        if how != End::Closed {
            self.world.disk.restart();
        }
        self.level = level;
        let store = Store::open(ROOT, options(&self.world, self.setup, level)).unwrap();
        self.life = self.found(how, &store);
        let stats = store.stats();
        self.table = Some(store.table("t").unwrap());
        self.store = Some(store);
        let survived = stats.commits;
        self.history.begin_again(how, survived, &self.life);
        self.history.synced_through(stats.durable_commits);
    }

    /// The content that the next process has found: that of a prefix of the calls, once every claim has ended.
    fn found(&self, how: End, store: &Store) -> Life {
        let survived = store.stats().commits - 1; // the last one says that the store was opened
        let possible = self.history.survived(how, survived).iter().map(|(_, life)| {
            let mut life = life.clone();
            life.rows.iter_mut().for_each(ModelRow::let_go);
            life
        });
        let shown = |life: &Life| {
            let mut rows: Vec<&ModelRow> = life.rows.iter().filter(|row| !row.deleted).collect();
            rows.sort_by_key(|row| (row.identity(), row.attempt));
            rows.into_iter().map(|row| row.show(life.version)).collect::<Vec<_>>()
        };
        let found = pick(store, "t", &SHOWN);
        let version = store.policy("t").unwrap().version;
        let mut possible: Vec<Life> = possible.collect();
        let at = possible.iter().position(|life| life.version == version && shown(life) == found);
        let at = at.unwrap_or_else(|| {
            let expected: Vec<_> = possible.iter().map(shown).collect();
            panic!("{how:?}: {survived} records are left and show\n{found:?}\nand not one of\n{expected:?}")
        });
        possible.swap_remove(at)
    }
}
