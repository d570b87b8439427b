//! A consumer in a checkpoint: what does not follow from the rows and their words.

use rkyv::{Archive, Deserialize, Serialize};

use super::group::{Group, GroupKey, GroupName};
use super::queue::Entry;
use super::state::ConsumerState;
use crate::table::{CHUNK_ROWS, Identity, Progress, TableState};
use crate::texts::TextId;

/// The stored form of a consumer's state.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub(crate) struct ConsumerStateImage {
    next_ticket: u64,
    queued: Vec<QueuedGroup>,
}

/// A group on the ready queue. Rows that are there alone carry their ticket in their word.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
struct QueuedGroup {
    ticket: u64,
    table: u32,
    version: u64,
    input: u32,
    turn: Option<u32>,
}

impl ConsumerState {
    /// The state, as far as the rows' words do not say it.
    pub(crate) fn image(&self) -> ConsumerStateImage {
        let queued = self.groups.iter().filter_map(|(key, group)| {
            let GroupKey { table, version, name } = *key;
            let GroupName { input, turn } = name;
            Some(QueuedGroup { ticket: group.ticket?, table, version, input: input.0, turn })
        });
        let mut queued: Vec<QueuedGroup> = queued.collect();
        queued.sort_by_key(|group| group.ticket);
        ConsumerStateImage { next_ticket: self.next_ticket, queued }
    }

    /// Makes the state of an image and of the rows' words. `current` gives the version of each table's policy: groups of
    /// versions before it are over.
    ///
    /// # Errors
    /// The reason why image and words contradict each other.
    pub(crate) fn restore(
        &mut self,
        image: ConsumerStateImage,
        tables: &[TableState],
        current: impl Fn(u32) -> u64,
    ) -> Result<(), String> {
        self.next_ticket = image.next_ticket;
        for consumed in self.tables.clone() {
            let table = &tables[consumed.table as usize];
            let floor = current(consumed.table);
            for (number, chunk) in table.chunks.iter().enumerate() {
                let first = number * CHUNK_ROWS;
                let rows = first as u32..(first + chunk.len()) as u32;
                if self.group.is_none() || chunk.summary.version_max >= floor {
                    rows.for_each(|row| self.restore_row(table, consumed.slot, row, floor));
                }
            }
        }
        let keys: Vec<GroupKey> = self.groups.keys().copied().collect();
        keys.iter().for_each(|key| self.forget_if_over(key));
        for queued in image.queued.into_iter().filter(|queued| queued.version >= current(queued.table)) {
            let name = GroupName { input: TextId(queued.input), turn: queued.turn };
            let key = GroupKey { table: queued.table, version: queued.version, name };
            let group = self.groups.get_mut(&key).filter(|group| group.is_complete());
            let group =
                group.ok_or_else(|| format!("consumer {} queues a group that is not ready", self.name))?;
            group.ticket = Some(queued.ticket);
            let rows = group.ready.len() as u32;
            let queue = self.queues.entry((key.table, key.version)).or_default();
            queue.insert(queued.ticket, Entry::Group(key), rows);
        }
        Ok(())
    }

    fn restore_row(&mut self, table: &TableState, slot: usize, row: u32, floor: u64) {
        let word = table.word(slot, row);
        if table.is_removed(row) || (word.progress == Progress::Waiting) {
            return;
        }
        let Some(key) = self.key_of(table, row) else {
            if word.progress == Progress::Ready {
                let version = table.meta(row).policy_version;
                let queue = self.queues.entry((table.id, version)).or_default();
                queue.insert(word.ticket_or_claim, Entry::Row(row), 1);
            }
            return;
        };
        if key.version < floor || !self.takes(table, row) {
            return;
        }
        let excluded = table.status(row).is_excluded();
        let latest = || table.find(Identity::of(&table.meta(row))) == Some(row);
        let count: fn(&mut Group, u32) = match word.progress {
            Progress::Ready => |group, row| group.ready.push(row),
            Progress::Leased | Progress::Accumulated => |group, _| group.held += 1,
            Progress::Done => |group, _| group.done += 1,
            Progress::Out if excluded && latest() => |group, _| group.out += 1,
            Progress::Out | Progress::Waiting => return,
        };
        count(self.group_mut(&key), row);
    }
}
