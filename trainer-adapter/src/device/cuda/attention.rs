//! Attention of training: which rows a block of the kernels owns.
#![allow(
    unsafe_code,
    reason = "launches, each with the arguments of its kernel over views that were checked"
)]

use super::kernel::{Argument, Kernel, THREADS};
use super::view::{View, count};
use super::{CudaBuffer, CudaDevice};
use crate::device::{AttentionMemory, Family, SharedAttention};

/// Rows of a tile: `OWN` of the source.
const OWN: usize = 16;

/// `QueryTile` of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, bytemuck::NoUninit)]
#[repr(C)]
struct QueryTile {
    first: u32,
    rows: u32,
    segment: u32,
    context: u32,
    context_rows: u32,
}

/// `KeyTile` of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, bytemuck::NoUninit)]
#[repr(C)]
struct KeyTile {
    first: u32,
    rows: u32,
    end: u32,
}

/// Rows that are seen in order: a prompt, or a branch behind its prompt. Counted in the batch.
struct Segment {
    first: usize,
    rows: usize,
    context: usize,
    context_rows: usize,
    /// The end of the rows that see it.
    end: usize,
}

impl Segment {
    fn of(family: &Family) -> impl Iterator<Item = Segment> {
        let Family { first: context, prompt, .. } = *family;
        let whole =
            Segment { first: context, rows: prompt, context, context_rows: 0, end: context + family.rows() };
        let branches = family.branches.iter().map(move |branch| Segment {
            first: context + branch.first,
            rows: branch.rows,
            context,
            context_rows: prompt,
            end: context + branch.first + branch.rows,
        });
        std::iter::once(whole).chain(branches)
    }

    fn tiles(&self) -> impl Iterator<Item = (QueryTile, KeyTile)> {
        let narrow = |value: usize| u32::try_from(value).expect("a batch has fewer than 2^31 rows");
        let Segment { first: segment, context, context_rows, end, .. } = *self;
        (0..self.rows).step_by(OWN).map(move |start| {
            let (first, rows) = (narrow(segment + start), narrow(OWN.min(self.rows - start)));
            let [segment, context, context_rows] = [segment, context, context_rows].map(narrow);
            (
                QueryTile { first, rows, segment, context, context_rows },
                KeyTile { first, rows, end: narrow(end) },
            )
        })
    }
}

/// One behind the last row of the batch.
fn rows_of(shape: &SharedAttention) -> usize {
    shape.families.iter().map(|family| family.first + family.rows()).max().unwrap_or(0)
}

/// One number a row and head for the backward pass, and one more in it.
pub(super) fn memory_of(shape: &SharedAttention) -> AttentionMemory {
    let numbers = shape.heads.queries * rows_of(shape);
    AttentionMemory { kept: numbers, scratch: numbers }
}

/// The tiles of a batch, in the order of their rows.
fn tiles(shape: &SharedAttention) -> (Vec<QueryTile>, Vec<KeyTile>) {
    let segments = shape.families.iter().flat_map(Segment::of);
    segments.flat_map(|segment| segment.tiles().collect::<Vec<_>>()).unzip()
}

fn shape_arguments(shape: &SharedAttention, qkv: View) -> [Argument; 6] {
    let heads = shape.heads;
    let sizes = [count(heads.queries), count(heads.keys), count(heads.dimension)];
    [qkv.place(), qkv.stride(), sizes[0], sizes[1], sizes[2], Argument::Single(heads.scale())]
}

fn check(shape: &SharedAttention, matrix: View, columns: usize) {
    assert!(rows_of(shape) <= matrix.rows, "families lie in the batch");
    assert!(i32::try_from(matrix.rows).is_ok(), "a batch has fewer than 2^31 rows");
    assert!(columns <= matrix.columns, "heads lie in a row");
}

fn numbers_of(buffer: &CudaBuffer, shape: &SharedAttention) -> Argument {
    assert!(memory_of(shape).kept <= buffer.length, "a number for every row and head");
    Argument::Address(buffer.memory.address())
}

impl CudaDevice {
    pub(super) fn attention_on(&self, shape: &SharedAttention, qkv: View, kept: &CudaBuffer, output: View) {
        let heads = shape.heads;
        check(shape, qkv, heads.columns());
        check(shape, output, heads.query_columns());
        let (queries, _) = tiles(shape);
        let table = self.queue.table(&queries);
        let outputs = [output.place(), output.stride(), numbers_of(kept, shape), stride_of(shape)];
        let place = [Argument::Address(table.address())];
        let arguments = [&place[..], &shape_arguments(shape, qkv), &outputs].concat();
        let grid = [queries.len(), heads.queries, heads.dimension.div_ceil(THREADS as usize)];
        // SAFETY: as said above; tiles lie in the batch.
        unsafe { self.queue.launch(Kernel::AttentionForward, grid, &arguments) };
    }

    pub(super) fn attention_backward_on(
        &self,
        shape: &SharedAttention,
        qkv: View,
        [kept, deltas]: [&CudaBuffer; 2],
        [output, outer]: [View; 2],
        gradient: View,
    ) {
        let heads = shape.heads;
        [qkv, gradient].into_iter().for_each(|matrix| check(shape, matrix, heads.columns()));
        [output, outer].into_iter().for_each(|matrix| check(shape, matrix, heads.query_columns()));
        let (kept, deltas) = (numbers_of(kept, shape), numbers_of(deltas, shape));
        let places = [output.place(), output.stride(), outer.place(), outer.stride()];
        let arguments = [&places[..], &[count(heads.dimension), deltas, stride_of(shape)]].concat();
        // SAFETY: as said above.
        unsafe { self.queue.launch(Kernel::AttentionDeltas, [rows_of(shape), heads.queries, 1], &arguments) };

        let (queries, keys) = tiles(shape);
        let numbers = [outer.place(), outer.stride(), kept, deltas, stride_of(shape)];
        let rest =
            [&shape_arguments(shape, qkv)[..], &numbers, &[gradient.place(), gradient.stride()]].concat();
        let widths = heads.dimension.div_ceil(THREADS as usize);
        let launch = |kernel, table: u64, tiles: usize, owners: usize| {
            let arguments = [&[Argument::Address(table)], &rest[..]].concat();
            // SAFETY: as said above; tiles lie in the batch, and no two blocks have the same part of the gradient.
            unsafe { self.queue.launch(kernel, [tiles, owners, widths], &arguments) };
        };
        let (query_table, key_table) = (self.queue.table(&queries), self.queue.table(&keys));
        launch(Kernel::AttentionBackwardQueries, query_table.address(), queries.len(), heads.queries);
        launch(Kernel::AttentionBackwardKeys, key_table.address(), keys.len(), heads.keys);
    }
}

/// From one head's numbers to the next.
fn stride_of(shape: &SharedAttention) -> Argument {
    Argument::Length(rows_of(shape) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{AttentionHeads, Branch, cuda::KERNEL_SOURCE};

    #[test]
    fn tiles_cover_every_row_once_and_end_with_their_segment() {
        assert!(KERNEL_SOURCE.contains(&format!("#define OWN {OWN}\n")));
        let branches = vec![
            Branch { first: 20, rows: 17 },
            Branch { first: 37, rows: 0 },
            Branch { first: 37, rows: 3 },
        ];
        let families = vec![
            Family { first: 0, prompt: 20, branches },
            Family { first: 40, prompt: 1, branches: Vec::new() },
        ];
        let heads = AttentionHeads { queries: 4, keys: 2, dimension: 8 };
        let shape = SharedAttention { heads, families };
        let (queries, keys) = tiles(&shape);
        let query = |first, rows, segment, context, context_rows| QueryTile {
            first,
            rows,
            segment,
            context,
            context_rows,
        };
        let expected = [
            query(0, 16, 0, 0, 0),
            query(16, 4, 0, 0, 0),
            query(20, 16, 20, 0, 20),
            query(36, 1, 20, 0, 20),
            query(37, 3, 37, 0, 20),
            query(40, 1, 40, 40, 0),
        ];
        assert_eq!(queries, expected);
        let ends: Vec<u32> = keys.iter().map(|tile| tile.end).collect();
        assert_eq!(ends, [40, 40, 37, 37, 40, 41]);
        assert_eq!(memory_of(&shape), AttentionMemory { kept: 4 * 41, scratch: 4 * 41 });
    }
}
