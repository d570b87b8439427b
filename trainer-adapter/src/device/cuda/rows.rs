//! Kernels that work row by row.
#![allow(
    unsafe_code,
    reason = "launches, each with the arguments of its kernel over views that were checked"
)]

use super::CudaDevice;
use super::kernel::{Argument, Kernel, WARP};
use super::view::{View, count};
use crate::device::Direction;

/// The rows that a scatter adds to, each with its sources in their order.
#[derive(Debug, Default, PartialEq, Eq)]
struct Scatter {
    /// The distinct rows, ascending.
    targets: Vec<u32>,
    /// Where each one's sources begin, and the end of the last.
    starts: Vec<u32>,
    sources: Vec<u32>,
}

impl Scatter {
    fn new(rows: &[u32]) -> Self {
        let mut sources: Vec<u32> = (0..).take(rows.len()).collect();
        sources.sort_by_key(|&source| rows[source as usize]); // stable
        let mut this = Self { sources, ..Self::default() };
        for (place, &source) in (0..).zip(&this.sources) {
            let row = rows[source as usize];
            if this.targets.last() != Some(&row) {
                this.targets.push(row);
                this.starts.push(place);
            }
        }
        this.starts.extend(u32::try_from(rows.len()));
        this
    }
}

fn check_rows(rows: &[u32], limit: usize) {
    assert!(rows.iter().all(|&row| (row as usize) < limit), "a row lies in its matrix of {limit}");
}

impl CudaDevice {
    pub(super) fn add_row_on(&self, vector: View, matrix: View) {
        assert!(matrix.columns <= vector.columns, "a row as long as those of the matrix");
        let arguments = [matrix.place(), matrix.stride(), matrix.columns(), vector.place()];
        // SAFETY: as said above.
        unsafe { self.queue.launch(Kernel::AddRow, [matrix.rows, 1, 1], &arguments) };
    }

    pub(super) fn sum_rows_on(&self, matrix: View, vector: View) {
        assert!(matrix.columns <= vector.columns, "a row as long as those of the matrix");
        let arguments =
            [matrix.place(), matrix.stride(), count(matrix.rows), matrix.columns(), vector.place()];
        // SAFETY: as said above.
        unsafe { self.queue.launch(Kernel::SumRows, [matrix.columns.div_ceil(WARP), 1, 1], &arguments) };
    }

    pub(super) fn add_on(&self, source: View, target: View) {
        assert_eq!((source.rows, source.columns), (target.rows, target.columns), "shapes of a sum");
        let arguments = [source.place(), source.stride(), target.place(), target.stride(), source.columns()];
        // SAFETY: as said above.
        unsafe { self.queue.launch(Kernel::AddMatrix, [source.rows, 1, 1], &arguments) };
    }

    pub(super) fn gather_on(&self, source: View, rows: &[u32], output: View) {
        check_rows(rows, source.rows);
        assert!(rows.len() <= output.rows && output.columns <= source.columns, "room for what is gathered");
        let table = self.queue.table(rows);
        let places = [source.place(), source.stride(), Argument::Address(table.address())];
        let arguments = [&places[..], &[output.place(), output.stride(), output.columns()]].concat();
        // SAFETY: as said above; the rows lie in the source.
        unsafe { self.queue.launch(Kernel::Gather, [rows.len(), 1, 1], &arguments) };
    }

    pub(super) fn scatter_add_on(&self, source: View, rows: &[u32], target: View) {
        check_rows(rows, target.rows);
        assert!(rows.len() <= source.rows && source.columns <= target.columns, "room for what is scattered");
        let Scatter { targets, starts, sources } = Scatter::new(rows);
        let blocks = targets.len();
        let tables = [targets, starts, sources].map(|table| self.queue.table(&table));
        let [targets, starts, sources] = tables.each_ref().map(|table| Argument::Address(table.address()));
        let places = [source.place(), source.stride(), targets, starts, sources];
        let arguments = [&places[..], &[target.place(), target.stride(), source.columns()]].concat();
        // SAFETY: as said above; the rows lie in the target, and no two blocks have the same.
        unsafe { self.queue.launch(Kernel::ScatterAdd, [blocks, 1, 1], &arguments) };
    }

    pub(super) fn rotary_on(&self, matrix: View, positions: &[u32], table: View, direction: Direction) {
        check_rows(positions, table.rows);
        let half = table.columns / 2;
        assert!(positions.len() <= matrix.rows && half > 0, "a position a row");
        assert!(matrix.columns.is_multiple_of(2 * half), "whole heads");
        let sign = if direction == Direction::Forward { 1.0 } else { -1.0 };
        let positions_table = self.queue.table(positions);
        let positions_table_place = Argument::Address(positions_table.address());
        let turned = [matrix.place(), matrix.stride(), matrix.columns(), positions_table_place];
        let angles = [table.place(), table.stride(), count(half), Argument::Single(sign)];
        let arguments = [turned, angles].concat();
        // SAFETY: as said above; the positions lie in the table.
        unsafe { self.queue.launch(Kernel::Rotary, [positions.len(), 1, 1], &arguments) };
    }

    pub(super) fn swiglu_on(&self, gate_up: View, output: View) {
        let half = gate_up.columns / 2;
        assert!(gate_up.rows <= output.rows && half <= output.columns, "room for gated values");
        let arguments = [gate_up.place(), gate_up.stride(), output.place(), output.stride(), count(half)];
        // SAFETY: as said above.
        unsafe { self.queue.launch(Kernel::Swiglu, [gate_up.rows, 1, 1], &arguments) };
    }

    pub(super) fn swiglu_backward_on(&self, gate_up: View, outer: View, gradient: View) {
        let half = gate_up.columns / 2;
        assert!(gate_up.rows <= outer.rows && half <= outer.columns, "a gradient of every gated value");
        assert!(
            gate_up.rows <= gradient.rows && gate_up.columns <= gradient.columns,
            "room for the gradient"
        );
        let inputs = [gate_up.place(), gate_up.stride(), outer.place(), outer.stride()];
        let arguments = [&inputs[..], &[gradient.place(), gradient.stride(), count(half)]].concat();
        // SAFETY: as said above.
        unsafe { self.queue.launch(Kernel::SwigluBackward, [gate_up.rows, 1, 1], &arguments) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_of_a_row_keep_their_order() {
        let scatter = Scatter::new(&[7, 2, 7, 0, 2, 7]);
        let expected =
            Scatter { targets: vec![0, 2, 7], starts: vec![0, 1, 3, 6], sources: vec![3, 1, 4, 0, 2, 5] };
        assert_eq!(scatter, expected);
        assert_eq!(Scatter::new(&[]).targets.len(), 0);
    }
}
