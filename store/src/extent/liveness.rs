//! What is live in each generation of each extent: a part of the state.
//!
//! Counted from the records alone: a cell that is written or moved here adds, one that is moved away, a fragment whose
//! cell is closed and a row that is removed take off. Values that no record names (of a batch that was given up) are not
//! counted, so they are dead from the start. Equal values of a shared column count once ([`Contents`]).
//!
//! An entry whose last value died stays until its generation is recycled, for it says until when somebody may have seen
//! it alive. Whether it stays is no part of the state: replay and a checkpoint may differ in it.

use std::collections::HashMap;

use super::view::View;
use crate::checkpoint::{ContentImage, LifeImage, LivenessImage};
use crate::heap::HeapBytes;
use crate::maps::FastMap;

/// A generation of an extent: number and generation.
pub(crate) type Place = (u32, u32);

/// What is live, by generation.
#[derive(Debug, Default)]
pub(crate) struct Liveness {
    lives: FastMap<Place, Life>,
    contents: Contents,
    greatest: u32,
}

/// What is live in one generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Life {
    /// Bytes of live values, without trailers and padding.
    pub(crate) bytes: u64,
    pub(crate) values: u64,
    /// The record that first named a value in it.
    pub(crate) first_named: u64,
    /// The record that last took a value off.
    pub(crate) last_left: u64,
}

/// Values of shared columns: one place for equal bytes, and how many cells stand for it.
#[derive(Debug, Default)]
struct Contents {
    by_hash: HashMap<u128, View>,
    by_view: FastMap<View, (u128, u64)>,
}

impl Liveness {
    /// Bytes of memory.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.lives.heap_bytes() + self.contents.by_hash.heap_bytes() + self.contents.by_view.heap_bytes()
    }

    /// A cell or fragment came to stand for a value. `commit` is the record's number.
    pub(crate) fn add(&mut self, view: View, commit: u64) {
        if let Some((_, cells)) = self.contents.by_view.get_mut(&view) {
            *cells += 1;
            if *cells > 1 {
                return;
            }
        }
        self.greatest = self.greatest.max(view.extent());
        let fresh = Life { first_named: commit, ..Life::default() };
        let life = self.lives.entry(view.place()).or_insert(fresh);
        life.bytes += view.length() as u64;
        life.values += 1;
    }

    /// A cell or fragment stands for a value no more.
    ///
    /// # Errors
    /// When none did: the record cannot follow on the state.
    pub(crate) fn remove(&mut self, view: View, commit: u64) -> Result<(), String> {
        if let Some((hash, cells)) = self.contents.by_view.get_mut(&view) {
            *cells =
                cells.checked_sub(1).ok_or_else(|| format!("{view:?} is let go more often than named"))?;
            if *cells > 0 {
                return Ok(());
            }
            if self.contents.by_hash.get(hash) == Some(&view) {
                self.contents.by_hash.remove(hash);
            }
            self.contents.by_view.remove(&view);
        }
        self.let_go(view, (view.length() as u64, 1), commit)
    }

    /// As [`remove`](Self::remove), for many of one column; equal ones may be `shared`. A generation is looked up once for values of it that
    /// follow on each other.
    ///
    /// # Errors
    /// As for one; nothing follows on the state then.
    pub(crate) fn remove_all(
        &mut self,
        mut views: impl Iterator<Item = View>,
        shared: bool,
        commit: u64,
    ) -> Result<(), String> {
        if shared && !self.contents.by_view.is_empty() {
            return views.try_for_each(|view| self.remove(view, commit));
        }
        let Some(mut first) = views.next() else { return Ok(()) };
        let mut together = (first.length() as u64, 1);
        for view in views {
            if view.place() == first.place() {
                together = (together.0 + view.length() as u64, together.1 + 1);
            } else {
                self.let_go(first, together, commit)?;
                (first, together) = (view, (view.length() as u64, 1));
            }
        }
        self.let_go(first, together, commit)
    }

    /// Takes bytes and values off the generation of a view.
    fn let_go(&mut self, view: View, (bytes, values): (u64, u64), commit: u64) -> Result<(), String> {
        let gone = || format!("{view:?} is let go, but nothing is live there");
        let life = self.lives.get_mut(&view.place()).ok_or_else(gone)?;
        life.bytes = life.bytes.checked_sub(bytes).ok_or_else(gone)?;
        life.values = life.values.checked_sub(values).ok_or_else(gone)?;
        life.last_left = commit;
        Ok(())
    }

    /// Declares that cells written from here on may share the value at `view`.
    pub(crate) fn share(&mut self, view: View, hash: u128) {
        self.contents.by_view.entry(view).or_insert((hash, 0));
        self.contents.by_hash.insert(hash, view);
    }

    /// Where a value of that content lies, if one is shared.
    pub(crate) fn shared(&self, hash: u128) -> Option<View> {
        self.contents.by_hash.get(&hash).copied()
    }

    /// The content of a shared value.
    pub(crate) fn content_of(&self, view: View) -> Option<u128> {
        self.contents.by_view.get(&view).map(|(hash, _)| *hash)
    }

    /// What is live in a generation; `None` when nothing ever was, or its entry was taken.
    pub(crate) fn of(&self, place: Place) -> Option<Life> {
        self.lives.get(&place).copied()
    }

    /// Forgets a generation that is recycled.
    pub(crate) fn forget(&mut self, place: Place) {
        if self.lives.get(&place).is_some_and(|life| life.values == 0) {
            self.lives.remove(&place);
        }
    }

    /// Every generation that something lives in.
    pub(crate) fn live(&self) -> impl Iterator<Item = (Place, Life)> {
        self.lives.iter().filter(|(_, life)| life.values > 0).map(|(place, life)| (*place, *life))
    }

    /// What a checkpoint keeps of it, in one order whatever led here.
    pub(crate) fn image(&self) -> LivenessImage {
        let life = |((extent, generation), life): (Place, Life)| LifeImage {
            extent,
            generation,
            bytes: life.bytes,
            values: life.values,
            first_named: life.first_named,
            last_left: life.last_left,
        };
        let mut lives: Vec<LifeImage> = self.live().map(life).collect();
        lives.sort_unstable_by_key(|life| (life.extent, life.generation));
        let content = |(view, (hash, cells)): (&View, &(u128, u64))| {
            let current = self.contents.by_hash.get(hash) == Some(view);
            ContentImage { view: view.0, hash: *hash, cells: *cells, current }
        };
        let mut contents: Vec<ContentImage> = self.contents.by_view.iter().map(content).collect();
        contents.sort_unstable_by_key(|content| (content.hash, content.view));
        LivenessImage { lives, contents, greatest: self.greatest }
    }

    /// What a checkpoint kept.
    pub(crate) fn restore(image: &LivenessImage) -> Self {
        let life = |life: &LifeImage| {
            let LifeImage { bytes, values, first_named, last_left, .. } = *life;
            ((life.extent, life.generation), Life { bytes, values, first_named, last_left })
        };
        let contents = image.contents.iter();
        let current = contents.clone().filter(|content| content.current);
        Liveness {
            lives: image.lives.iter().map(life).collect(),
            contents: Contents {
                by_hash: current.map(|content| (content.hash, View(content.view))).collect(),
                by_view: contents.map(|c| (View(c.view), (c.hash, c.cells))).collect(),
            },
            greatest: image.greatest,
        }
    }

    /// The greatest extent number that was ever named.
    pub(crate) fn greatest(&self) -> u32 {
        self.greatest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_value_lives_until_its_last_cell_is_gone() {
        let mut liveness = Liveness::default();
        let view = View::located(100, 1, 2, 64);
        liveness.share(view, 77);
        liveness.add(view, 5);
        liveness.add(view, 6);
        assert_eq!(liveness.shared(77), Some(view));
        assert_eq!(liveness.of((1, 2)), Some(Life { bytes: 100, values: 1, first_named: 5, last_left: 0 }));
        liveness.remove(view, 7).unwrap();
        assert_eq!(liveness.live().count(), 1);
        liveness.remove(view, 8).unwrap();
        assert_eq!((liveness.live().count(), liveness.shared(77)), (0, None));
        assert!(liveness.remove(view, 9).is_err());
    }
}
