//! A model of one group of a task: it keeps plain rows and counts them each time.

use forebay_store::*;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Stands {
    Waiting,
    Ready,
    Taken,
    Done,
    /// Left out, as a member of the group.
    Out,
    /// Never a member, or its next attempt has its place.
    Aside,
}

#[derive(Clone, Debug)]
pub(super) struct ModelRow {
    pub(super) row: Row,
    pub(super) trajectory: u32,
    pub(super) turn: u32,
    pub(super) stands: Stands,
    pub(super) excluded: bool,
    pub(super) latest: bool,
    pub(super) written: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    pub(super) rows: Vec<ModelRow>,
    pub(super) size: u32,
    pub(super) closed: bool,
    pub(super) short: bool,
    pub(super) failed: bool,
    pub(super) ended: Vec<u32>,
    pub(super) started: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Declared {
    pub(super) rule: GroupRule,
    pub(super) end: Option<TrajectoryEnd>,
}

impl Model {
    pub(super) fn of_trajectory(&self, number: u32) -> impl Iterator<Item = &ModelRow> {
        self.rows.iter().filter(move |row| row.trajectory == number && row.stands != Stands::Aside)
    }

    /// Members, how many of them are waited for, and how many are out.
    pub(super) fn counts(&self, of: Declared) -> (u32, u32, u32) {
        let count = |stands| self.rows.iter().filter(|row| row.stands == stands).count() as u32;
        if of.end.is_none() {
            let members = self.rows.iter().filter(|row| row.stands != Stands::Aside).count() as u32;
            return (members, count(Stands::Waiting), count(Stands::Out));
        }
        let waits = |number: &&u32| {
            !self.ended.contains(number)
                || self.of_trajectory(**number).any(|row| row.stands == Stands::Waiting)
        };
        let is_out = |number: &&u32| {
            !waits(number)
                && self.of_trajectory(**number).count() > 0
                && self.of_trajectory(**number).all(|row| row.stands == Stands::Out)
        };
        let waiting = self.started.iter().filter(waits).count();
        (self.started.len() as u32, waiting as u32, self.started.iter().filter(is_out).count() as u32)
    }

    pub(super) fn fails(&self, of: Declared) -> bool {
        let (.., out) = self.counts(of);
        self.short
            || match of.rule {
                GroupRule::NextAttempt => false,
                GroupRule::Exclude => out > 0,
                GroupRule::Shrink { least } => out > 0 && self.size - out < least.min(self.size),
            }
    }

    /// Lets the rule act: rows that nobody holds go when the group fails.
    pub(super) fn settle(&mut self, of: Declared) {
        let open = |row: &ModelRow| matches!(row.stands, Stands::Waiting | Stands::Ready);
        let waits = of.end.is_some() && self.counts(of).1 > 0;
        if !self.failed && self.fails(of) && (waits || self.rows.iter().any(open)) {
            self.failed = true;
        }
        if self.failed {
            self.rows.iter_mut().filter(|row| open(row)).for_each(|row| row.stands = Stands::Out);
        }
    }

    pub(super) fn ready(&self, of: Declared) -> Vec<usize> {
        let (members, waiting, out) = self.counts(of);
        let waits = of.rule == GroupRule::NextAttempt && out > 0 && !self.closed;
        if self.failed || members < self.size || waiting > 0 || waits {
            return Vec::new();
        }
        (0..self.rows.len()).filter(|&at| self.rows[at].stands == Stands::Ready).collect()
    }

    pub(super) fn has_place(&self, of: Declared, trajectory: u32) -> bool {
        let (members, ..) = self.counts(of);
        match of.end {
            _ if self.failed => false,
            Some(_) if self.started.contains(&trajectory) => !self.ended.contains(&trajectory),
            _ => members < self.size,
        }
    }

    pub(super) fn enter(&mut self, of: Declared, new: ModelRow) {
        let number = new.trajectory;
        self.rows.push(new);
        if of.end.is_some() && !self.started.contains(&number) {
            self.started.push(number);
        }
        if let Some(TrajectoryEnd::Rows(rows)) = of.end
            && self.of_trajectory(number).count() as u32 >= rows
            && !self.ended.contains(&number)
        {
            self.ended.push(number);
        }
    }

    pub(super) fn insert(&mut self, of: Declared, new: ModelRow, replaces: Option<usize>) {
        let was_member = replaces.is_some_and(|old| self.rows[old].stands != Stands::Aside && !self.failed);
        if let Some(old) = replaces {
            (self.rows[old].stands, self.rows[old].latest) = (Stands::Aside, false);
        }
        if was_member || self.has_place(of, new.trajectory) {
            self.enter(of, new);
            self.settle(of);
            let last = self.rows.len() - 1;
            self.turn_ready(last, of);
        } else {
            self.rows.push(ModelRow { stands: Stands::Aside, ..new });
        }
    }

    pub(super) fn turn_ready(&mut self, at: usize, of: Declared) {
        let row = &mut self.rows[at];
        if row.written && row.stands == Stands::Waiting {
            row.stands = Stands::Ready;
            self.settle(of);
        }
    }

    pub(super) fn exclude(&mut self, at: usize, of: Declared) {
        let row = &mut self.rows[at];
        if !row.excluded {
            row.excluded = true;
            if row.stands != Stands::Aside {
                row.stands = Stands::Out;
            }
            self.settle(of);
        }
    }

    pub(super) fn close(&mut self, of: Declared) {
        if self.closed {
            return;
        }
        let late = self.rows.iter_mut().filter(|row| row.stands == Stands::Waiting);
        late.for_each(|row| row.stands = Stands::Out);
        self.ended.clone_from(&self.started);
        let (members, _, out) = self.counts(of);
        self.short = match of.rule {
            GroupRule::NextAttempt => false,
            GroupRule::Exclude => out > 0 || members < self.size,
            GroupRule::Shrink { least } => members - out < least.min(self.size),
        };
        (self.closed, self.size) = (true, members);
        self.settle(of);
    }

    /// A claim of these rows has ended.
    pub(super) fn end(&mut self, rows: Vec<usize>, finish: bool, of: Declared) {
        for at in rows.into_iter().filter(|&at| self.rows[at].stands == Stands::Taken).collect::<Vec<_>>() {
            self.rows[at].stands = match (finish, self.failed) {
                (true, _) => Stands::Done,
                (false, true) => Stands::Out,
                (false, false) => Stands::Ready,
            };
            self.settle(of);
        }
    }
}
