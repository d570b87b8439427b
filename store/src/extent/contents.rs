//! Values of shared columns: equal ones are stored once.
//!
//! A value is looked up by the 128-bit hash of its bytes when it is added to a batch, and again when the batch is
//! committed; what is found is compared byte by byte, outside the state's lock. A value that is new is stored, and the
//! batch's record declares it, so that later ones find it. Two batches that bring the same new value at the same instant
//! both keep theirs: one of them is declared, the other lives as any value does.

use std::collections::{BTreeMap, HashMap, HashSet};

use xxhash_rust::xxh3::xxh3_128_with_seed;

use super::compared::Compared;
use super::layout::ValueOwner;
use super::source::ValueWriter;
use super::view::{INLINE_BYTES_MAX, View};
use super::writer::Lifetime;
use crate::error::Result;
use crate::log::record::{Operation, StoredValue};
use crate::schema::StorageClass;
use crate::shared::Shared;
use crate::state::State;

/// Values of shared columns that a batch brings, by the hash of their content; and what was found of values that it writes
/// again.
#[derive(Debug, Default)]
pub(crate) struct NewContents(BTreeMap<u128, (View, StorageClass)>, Compared);

impl NewContents {
    pub(crate) fn compared(&self) -> &Compared {
        &self.1
    }

    /// The place of an equal value that is committed or came earlier in the batch; else stores this one.
    pub(crate) fn store(
        &mut self,
        shared: &Shared,
        writer: &mut ValueWriter<'_>,
        bytes: &[u8],
        class: StorageClass,
        owner: ValueOwner,
    ) -> Result<View> {
        if bytes.len() <= INLINE_BYTES_MAX {
            return writer.write(&[bytes], class, Lifetime::Shared, owner);
        }
        let hash = xxh3_128_with_seed(bytes, class as u64);
        if let Some((view, _)) = self.0.get(&hash) {
            writer.flush()?;
            if *shared.extents.resolve(*view, class)? == *bytes {
                return Ok(*view);
            }
        }
        if let Some(view) = committed(shared, writer, hash, class, bytes)? {
            return Ok(view);
        }
        let view = writer.write(&[bytes], class, Lifetime::Shared, owner)?;
        self.0.entry(hash).or_insert((view, class));
        Ok(view)
    }

    /// Which of the batch's values others have committed meanwhile, and where. Values must have been flushed.
    pub(crate) fn resolve(
        &mut self,
        shared: &Shared,
        writer: &mut ValueWriter<'_>,
    ) -> Result<HashMap<View, View>> {
        let mut stands = HashMap::new();
        for (&hash, &(view, class)) in &self.0 {
            let bytes = shared.extents.resolve(view, class)?;
            if let Some(there) = committed(shared, writer, hash, class, &bytes)? {
                stands.insert(view, there);
            }
        }
        Ok(stands)
    }

    /// Puts a declaration of each new value that the operations write before them.
    pub(crate) fn declare(&self, state: &State, operations: &mut Vec<Operation>) {
        if self.0.is_empty() {
            return;
        }
        let written: HashSet<[u8; 16]> = operations.iter().flat_map(views).collect();
        let declared = |(hash, (view, _)): (&u128, &(View, StorageClass))| {
            let new = written.contains(&view.0) && state.liveness.shared(*hash).is_none();
            new.then_some(Operation::Share { view: view.0, hash: *hash })
        };
        let mut declarations: Vec<Operation> = self.0.iter().filter_map(declared).collect();
        declarations.append(operations);
        *operations = declarations;
    }
}

/// The place of a committed value with these bytes; the batch holds its extent from then on.
fn committed(
    shared: &Shared,
    writer: &mut ValueWriter<'_>,
    hash: u128,
    class: StorageClass,
    bytes: &[u8],
) -> Result<Option<View>> {
    let found = {
        let state = shared.state.lock();
        match state.liveness.shared(hash) {
            Some(view) => Some((view, shared.extents.resolve(view, class)?)),
            None => None,
        }
    };
    let Some((view, there)) = found.filter(|(_, there)| **there == *bytes) else { return Ok(None) };
    there.extent().into_iter().for_each(|extent| writer.hold(extent.clone()));
    Ok(Some(view))
}

fn views(operation: &Operation) -> Vec<[u8; 16]> {
    let cells = match operation {
        Operation::Insert(insert) => &insert.cells,
        Operation::Write { cells, .. } => cells,
        _ => return Vec::new(),
    };
    let view = |value| if let StoredValue::View(view) = value { Some(view) } else { None };
    cells.iter().filter_map(|cell| view(cell.value)).collect()
}
