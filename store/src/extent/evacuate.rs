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
use super::source::ValueWriter;
use super::view::View;
use super::writer::Lifetime;
use crate::error::{Error, Result};
use crate::log::record::{Event, MoveRecord, StoredValue};
use crate::schema::{DataColumn, StorageClass};
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
    /// Other cells may stand for the same value.
    is_shared: bool,
}

impl Shared {
    /// Evacuates thin extents.
    pub(crate) fn evacuate(&self) -> Result<Evacuated> {
        self.evacuate_below(THIN_PARTS)
    }

    /// The same for sealed extents of which less than one part in `parts` is live.
    pub(crate) fn evacuate_below(&self, parts: u64) -> Result<Evacuated> {
        let mut pass = Pass::new(self);
        let thin = self.thin(parts);
        if thin.is_empty() {
            return Ok(pass.evacuated);
        }
        let tables = self.state.lock().tables.len();
        for table in 0..tables {
            let chunks: Vec<u32> = self.state.lock().tables[table].chunks_where(|_| true).collect();
            for chunk in chunks {
                let found = self.find(table, chunk, &thin);
                let mut rest = found.as_slice();
                while !rest.is_empty() {
                    let (part, after) = rest.split_at(part_of(rest));
                    pass.move_values(part)?;
                    rest = after;
                }
            }
        }
        Ok(pass.evacuated)
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
            let DataColumn { shared: is_shared, ref data_type, .. } = schema.data_columns()[column];
            let class = data_type.storage_class();
            if !view.is_inline(class) && thin.contains(&view.place()) {
                let (table, column) = (table as u32, column as u16);
                let record = MoveRecord { table, row, column, fragment, from: view.0, to: view.0 };
                found.push(Found { record, class, is_shared });
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
}

/// What became of thin extents.
#[derive(Debug, Default)]
pub(crate) struct Evacuated {
    /// How many values were moved; those of a cell that changed meanwhile are not counted.
    pub(crate) moved: usize,
    /// The first value that was damaged. Such a value stays where it is, and its extent with it; the others move all the same.
    pub(crate) damaged: Option<Error>,
}

impl Evacuated {
    /// How many values were moved.
    ///
    /// # Errors
    /// `corrupt` when a value was passed over.
    pub(crate) fn whole(self) -> Result<usize> {
        self.damaged.map_or(Ok(self.moved), Err)
    }
}

/// One pass over all tables.
struct Pass<'a> {
    shared: &'a Shared,
    /// Holds what it has written until the pass is over, so that `places` stay what they are.
    writer: ValueWriter<'a>,
    /// Where values of shared columns lie now: many cells stand for one of them, and go on to.
    places: HashMap<View, View>,
    evacuated: Evacuated,
}

impl<'a> Pass<'a> {
    fn new(shared: &'a Shared) -> Self {
        let writer = shared.values.writer(shared);
        Pass { shared, writer, places: HashMap::new(), evacuated: Evacuated::default() }
    }

    /// Copies values and swaps their views in one record.
    fn move_values(&mut self, found: &[Found]) -> Result<()> {
        let mut moves = Vec::with_capacity(found.len());
        for found in found {
            if let Some(to) = self.copied(found)? {
                moves.push(MoveRecord { to: to.0, ..found.record.clone() });
            }
        }
        self.writer.flush()?;
        self.evacuated.moved += self.shared.submit_if(|state| {
            moves.retain(|record| state.view_at(record) == Some(View(record.from)));
            let count = moves.len();
            let event = (count > 0).then_some(Event::Moved { moves });
            Ok((event, count))
        })?;
        Ok(())
    }

    /// The place of a value's copy; none for one that is damaged, or was let go since it was found and may be gone with its extent.
    fn copied(&mut self, found: &Found) -> Result<Option<View>> {
        let from = View(found.record.from);
        if let Some(to) = self.places.get(&from) {
            return Ok(Some(*to));
        }
        let Ok((extent, offset)) = self.shared.extents.locate(from) else { return Ok(None) };
        let bytes = extent.stable(offset, from.length()).unwrap_or_default();
        let owner = match extent.sound_trailer(from) {
            Ok(trailer) => trailer.owner,
            Err(error) => {
                tracing::error!(%error, "a damaged value stays where it is");
                self.evacuated.damaged.get_or_insert(error);
                return Ok(None);
            }
        };
        let to = self.writer.write(&[bytes], found.class, Lifetime::Moved, owner)?;
        if found.is_shared {
            self.places.insert(from, to);
        }
        Ok(Some(to))
    }
}

/// How many of these values one record moves: at least one. What several cells stand for is copied once.
fn part_of(found: &[Found]) -> usize {
    let (mut bytes, mut counted) = (0, HashSet::new());
    let fits = found.iter().take(MOVES_MAX).take_while(|found| {
        let view = View(found.record.from);
        bytes += if counted.insert(view) { view.length() } else { 0 };
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
