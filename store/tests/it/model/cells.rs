//! Calls about rows and their cells.

use forebay_store::*;

use super::op::Op;
use super::row::{COLUMNS, Content, Hold, ModelRow, joined, origin, part, value};
use super::{Run, life};

impl Run {
    pub(super) fn latest(&self, index: usize) -> bool {
        let row = &self.life.rows[index];
        let same = |other: &ModelRow| {
            (other.version, other.input, other.trajectory) == (row.version, row.input, row.trajectory)
        };
        self.life.rows.iter().rposition(same) == Some(index)
    }

    /// The oldest version that is fresh.
    pub(super) fn oldest_fresh(&self) -> u64 {
        self.life.version.saturating_sub(self.setup.window.unwrap_or(0))
    }

    /// The version by which a row is fresh or not.
    pub(super) fn counts_as(&self, row: &ModelRow) -> u64 {
        if self.setup.window.is_some() { row.oldest } else { row.version }
    }

    pub(super) fn can_leave(&self, index: usize) -> bool {
        matches!(self.life.rows[index].train, Hold::Free)
    }

    pub(super) fn push(
        &mut self,
        row: Row,
        version: u64,
        (input, trajectory, attempt): (u32, u32, u32),
        (eval, peer): (bool, bool),
    ) -> usize {
        let cells = [Content::Empty, Content::Empty, Content::Empty];
        let (train, task) = (Hold::Free, Hold::Free);
        self.life.rows.push(ModelRow {
            row,
            version,
            input,
            trajectory,
            attempt,
            eval,
            peer,
            oldest: version,
            newest: version,
            cells,
            excluded: None,
            deleted: false,
            step: None,
            train,
            task,
        });
        let index = self.life.rows.len() - 1;
        if peer && !eval && self.setup.window.is_none() {
            self.life.rows[index].exclude("external"); // only who has a window takes them
        }
        index
    }

    pub(super) fn insert(&mut self, op: &Op) {
        let Op::Insert { of: (input, trajectory), ahead, eval, peer, out, ready, level } = *op else {
            return;
        };
        // Where retention retires versions, nobody's row may come to them; an own one is stale before.
        let ahead = if peer && self.setup.window.is_none() { ahead.max(0) } else { ahead };
        let version = self.life.version.saturating_add_signed(ahead);
        let known =
            self.life.rows.iter().any(|r| (r.version, r.input, r.trajectory) == (version, input, trajectory));
        let sample = SampleId::new(&format!("in{input}"), 0, trajectory).unwrap();
        let purpose = if eval { Purpose::Eval } else { Purpose::Train };
        let mut new = NewRow::of(version, sample).purpose(purpose);
        if peer {
            new = new.external(&origin(version));
        }
        if out {
            new = new.excluded("parent");
        }
        let columns: &[usize] = if ready { &[0, 1, 2] } else { &[] };
        let cells = columns.iter().map(|&column| (COLUMNS[column], value(column, 1).0));
        let mut batch = self.store().batch();
        batch.durability(level);
        batch.insert(self.table(), new, cells).unwrap();
        let inserted = batch.commit().map(|rows| rows[0]);
        assert_eq!(inserted.is_ok(), !known && (peer || version >= self.oldest_fresh()));
        let Ok(row) = inserted else { return };
        let index = self.push(row, version, (input, trajectory, 0), (eval, peer));
        columns.iter().for_each(|&c| self.life.rows[index].cells[c] = Content::Final(value(c, 1).1));
        if out {
            self.life.rows[index].exclude("parent");
        }
    }

    pub(super) fn again(&mut self, row: usize, out: bool) {
        let Some(index) = self.at(row) else { return };
        let old = self.life.rows[index].clone();
        let same =
            |r: &ModelRow| (r.version, r.input, r.trajectory) == (old.version, old.input, old.trajectory);
        let index = self.life.rows.iter().rposition(same).unwrap();
        let gone = self.life.rows[index].deleted; // with the latest attempt goes the identity
        let fresh = old.peer || old.version >= self.oldest_fresh();
        let allowed = fresh && self.can_leave(index) && !gone;
        let sample = SampleId::new(&format!("in{}", old.input), 0, old.trajectory).unwrap();
        let purpose = if old.eval { Purpose::Eval } else { Purpose::Train };
        let mut new = NewRow::of(old.version, sample).purpose(purpose).next_attempt();
        if old.peer {
            new = new.external(&origin(old.version));
        }
        if out {
            new = new.excluded("parent");
        }
        let inserted = self.table().insert_row(new, []);
        assert_eq!(inserted.is_ok(), allowed);
        let Ok(row) = inserted else { return };
        let attempt = self.life.rows[index].attempt + 1;
        self.life.rows[index].exclude("superseded");
        let index = self.push(row, old.version, (old.input, old.trajectory, attempt), (old.eval, old.peer));
        if out {
            self.life.rows[index].exclude("parent");
        }
    }

    /// Whether a cell takes a value, and whether that changes it.
    pub(super) fn takes(&self, index: usize, column: usize, shown: &str) -> (bool, bool) {
        match &self.life.rows[index].cells[column] {
            _ if self.life.rows[index].deleted => (false, false),
            Content::Partial(_) => (false, false),
            Content::Final(old) => (old == shown, false),
            Content::Empty => (self.life.rows[index].excluded.is_none(), true),
        }
    }

    pub(super) fn write(&mut self, row: usize, column: usize, variant: u8, level: Durability) {
        let Some(index) = self.at(row) else { return };
        let (value, shown) = value(column, variant);
        let (allowed, changes) = self.takes(index, column, &shown);
        let mut batch = self.store().batch();
        batch.durability(level);
        batch.write(self.table(), self.life.rows[index].row, [(COLUMNS[column], value)]).unwrap();
        assert_eq!(batch.commit().is_ok(), allowed);
        if allowed && changes {
            self.life.rows[index].cells[column] = Content::Final(shown);
        }
    }

    pub(super) fn append(&mut self, row: usize, column: usize) {
        let Some(index) = self.at(row) else { return };
        let parts = part(column, row);
        let value = if column == 0 { joined(0, &parts).into() } else { Value::from(&parts) };
        let result = self.table().append(self.life.rows[index].row, COLUMNS[column], value);
        let row = &mut self.life.rows[index];
        let allowed =
            row.excluded.is_none() && !row.deleted && !matches!(row.cells[column], Content::Final(_));
        assert_eq!(result.is_ok(), allowed);
        if allowed {
            match &mut row.cells[column] {
                Content::Partial(old) => old.extend(parts),
                other => *other = Content::Partial(parts),
            }
        }
    }

    pub(super) fn finalize(&mut self, row: usize, column: usize) {
        let Some(index) = self.at(row) else { return };
        let result = self.table().finalize(self.life.rows[index].row, COLUMNS[column]);
        let row = &mut self.life.rows[index];
        let shown = match &row.cells[column] {
            Content::Partial(parts) if row.excluded.is_none() && !row.deleted => Some(joined(column, parts)),
            _ => None,
        };
        assert_eq!(result.is_ok(), shown.is_some());
        if let Some(shown) = shown {
            row.cells[column] = Content::Final(shown);
        }
    }

    /// The response goes on under the next version, and what was made before may be masked.
    pub(super) fn resume(&mut self, row: usize, mask: bool) {
        let Some(index) = self.at(row) else { return };
        let (handle, version) = (self.life.rows[index].row, self.life.rows[index].newest + 1);
        let start = (version - self.life.rows[index].version) as u32 * 10;
        let allowed = self.life.rows[index].excluded.is_none() && !self.life.rows[index].deleted;
        assert_eq!(self.table().span(handle, start, version).is_ok(), allowed);
        if !allowed {
            return;
        }
        self.life.rows[index].newest = version;
        if mask {
            self.table().trainable_from(handle, start).unwrap();
            self.life.rows[index].oldest = version;
        }
    }

    pub(super) fn exclude(&mut self, row: usize, word: bool) {
        let Some(index) = self.at(row) else { return };
        let reason = if word { "superseded" } else { "lost" };
        let allowed = self.can_leave(index) && !self.life.rows[index].deleted;
        assert_eq!(self.table().exclude(self.life.rows[index].row, reason).is_ok(), allowed);
        if allowed {
            self.life.rows[index].exclude(reason);
        }
    }

    pub(super) fn delete(&mut self, from: usize, count: usize) {
        let named: Vec<usize> = (from..from + count).filter(|at| *at < self.life.rows.len()).collect();
        let rows = named.iter().map(|&at| &self.life.rows[at]);
        let refused = rows
            .clone()
            .any(|row| !row.deleted && (row.is_held() || self.life.needs(row, self.setup.window)));
        let result = self.table().delete(&Delete::rows(rows.map(|row| row.row)));
        assert_eq!(result.is_err(), refused, "{result:?}");
        if !refused {
            named.into_iter().for_each(|at| life::delete(&mut self.life.rows[at]));
        }
    }
}
