//! Moves what is left in thin extents, so that their space can be used again.
//!
//! An extent is thin when less than a quarter of what was written to it is live. Its live values are found by looking through the tables, a
//! shared chunk at a time, and copied, all with no lock held; then one record swaps the views, each only if its cell still
//! holds the value that was copied. A crash before the record leaves copies that nothing names; after it, the old values
//! are dead.
//! The old extent is recycled like any other: when no crash leads back to before the record and nobody reads the old values.

use std::collections::{HashMap, HashSet};

use super::layout::TRAILER_BYTES;
use super::liveness::Place;
use super::view::View;
use super::writer::Lifetime;
use crate::error::Result;
use crate::log::record::{Event, MoveRecord, StoredValue};
use crate::schema::StorageClass;
use crate::shared::Shared;
use crate::state::State;
use crate::table::CHUNK_ROWS;

/// An extent is evacuated when less than one part in so many of what was written to it is live.
const THIN_PARTS: u64 = 4;
/// The most values that one record moves.
const MOVES_MAX: usize = 4096;
/// The most bytes that are copied for one record.
const MOVED_BYTES_MAX: usize = 16 << 20;

/// A value that lives in a thin extent, and the cell that stands for it.
struct Found {
    record: MoveRecord,
    class: StorageClass,
}

impl Shared {
    /// Evacuates thin extents. Gives how many values were moved; those of a cell that changed meanwhile are not counted.
    pub(crate) fn evacuate(&self) -> Result<usize> {
        self.evacuate_below(THIN_PARTS)
    }

    /// The same for sealed extents of which less than one part in `parts` is live.
    pub(crate) fn evacuate_below(&self, parts: u64) -> Result<usize> {
        let thin = self.thin(parts);
        if thin.is_empty() {
            return Ok(0);
        }
        let mut moved = 0;
        let tables = self.state.lock().tables.len();
        for table in 0..tables {
            let chunks: Vec<u32> = self.state.lock().tables[table].chunks_where(|_| true).collect();
            for chunk in chunks {
                let found = self.find(table, chunk, &thin);
                let mut rest = found.as_slice();
                while !rest.is_empty() {
                    let (part, after) = rest.split_at(part_of(rest));
                    moved += self.move_values(part)?;
                    rest = after;
                }
            }
        }
        Ok(moved)
    }

    /// Sealed extents of which less than one part in `parts` is live, of what was written.
    fn thin(&self, parts: u64) -> HashSet<Place> {
        let all = self.extents.all();
        let state = self.state.lock();
        let thin = all.iter().filter(|extent| extent.is_sealed()).filter_map(|extent| {
            let place = (extent.number(), extent.generation());
            let life = state.liveness.of(place).filter(|life| life.values > 0)?;
            let taken = life.bytes + life.values * TRAILER_BYTES as u64;
            (taken * parts < extent.filled()).then_some(place)
        });
        thin.collect()
    }

    /// What lives in thin extents of a chunk of rows.
    fn find(&self, table: usize, number: u32, thin: &HashSet<Place>) -> Vec<Found> {
        let (chunk, schema, fragments) = {
            let state = self.state.lock();
            let of = &state.tables[table];
            (of.chunks[number as usize].clone(), of.schema.clone(), of.fragments_of_chunk(number))
        };
        let (first, mut found) = (number * CHUNK_ROWS as u32, Vec::new());
        let mut look = |row: u32, column: usize, fragment: u32, view: View| {
            let class = schema.data_columns()[column].data_type.storage_class();
            if !view.is_inline(class) && thin.contains(&view.place()) {
                let (table, column) = (table as u32, column as u16);
                let record = MoveRecord { table, row, column, fragment, from: view.0, to: view.0 };
                found.push(Found { record, class });
            }
        };
        let inline = StorageClass::Inline;
        let columns = schema.data_columns().iter().enumerate();
        for (column, of) in columns.filter(|(_, column)| column.data_type.storage_class() != inline) {
            for at in (0..chunk.len()).filter(|at| !chunk.is_removed(*at)) {
                if let Some(StoredValue::View(view)) = chunk.cell(column, of.data_type.width_bytes(), at) {
                    look(first + at as u32, column, 0, View(view));
                }
            }
        }
        for ((row, column), views) in fragments {
            views.iter().zip(1..).for_each(|(view, fragment)| look(row, column.into(), fragment, *view));
        }
        found
    }

    /// Copies values and swaps their views in one record.
    fn move_values(&self, found: &[Found]) -> Result<usize> {
        let mut writer = self.values.writer(self);
        let mut places: HashMap<View, View> = HashMap::new();
        let mut moves = Vec::with_capacity(found.len());
        for Found { record, class } in found {
            let from = View(record.from);
            let to = match places.get(&from) {
                Some(to) => *to,
                None => {
                    // A value that was let go since it was found may be gone with its extent.
                    let Ok((extent, offset)) = self.extents.locate(from) else { continue };
                    let bytes = extent.stable(offset, from.length()).unwrap_or_default();
                    let owner = extent.sound_trailer(from)?.owner; // what has changed is not copied on
                    let to = writer.write(&[bytes], *class, Lifetime::Moved, owner)?;
                    places.insert(from, to);
                    to
                }
            };
            moves.push(MoveRecord { to: to.0, ..record.clone() });
        }
        writer.flush()?;
        let moved = self.submit_if(|state| {
            moves.retain(|record| state.view_at(record) == Some(View(record.from)));
            let count = moves.len();
            let event = (count > 0).then_some(Event::Moved { moves });
            Ok((event, count))
        })?;
        drop(writer);
        Ok(moved)
    }
}

/// How many of these values one record moves: at least one.
fn part_of(found: &[Found]) -> usize {
    let mut bytes = 0;
    let fits = found.iter().take(MOVES_MAX).take_while(|found| {
        bytes += View(found.record.from).length();
        bytes <= MOVED_BYTES_MAX
    });
    fits.count().max(1)
}

impl State {
    /// The view at the place that a record names.
    fn view_at(&self, record: &MoveRecord) -> Option<View> {
        let state = self.tables.get(record.table as usize)?;
        if record.row >= state.row_count() || usize::from(record.column) >= state.schema.data_columns().len()
        {
            return None;
        }
        match record.fragment.checked_sub(1) {
            Some(index) => state.fragments(record.row, record.column).get(index as usize).copied(),
            None => match state.cell(record.column as usize, record.row)? {
                StoredValue::View(view) => Some(View(view)),
                _ => None,
            },
        }
    }

    /// Swaps views for those of copies.
    ///
    /// # Errors
    /// When a place does not hold the view that the record names: it cannot follow on this state.
    pub(crate) fn moved(&mut self, moves: Vec<MoveRecord>) -> std::result::Result<(), String> {
        for record in moves {
            let (from, to) = (View(record.from), View(record.to));
            if self.view_at(&record) != Some(from) || from.length() != to.length() {
                return Err(format!(
                    "{from:?} is moved, but is not in cell {} of row {}",
                    record.column, record.row
                ));
            }
            if let Some(hash) = self.liveness.content_of(from) {
                self.liveness.share(to, hash);
            }
            let table = &mut self.tables[record.table as usize];
            table.replace_view(record.row, record.column, record.fragment, to)?;
            self.liveness.add(to, self.commits);
            self.liveness.remove(from, self.commits)?;
        }
        Ok(())
    }
}
