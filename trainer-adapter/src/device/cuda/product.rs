//! Products, by cuBLAS, with factors as they are or rounded to bfloat16.
#![allow(unsafe_code, reason = "launches and products over views that were checked")]

use super::blas::{Operand, Product};
use super::kernel::{Argument, Kernel};
use super::memory::Allocation;
use super::view::View;
use super::{CudaBuffer, CudaDevice, ProductType};
use crate::device::{Linear, Matrix, RowRule};

/// Rows of one product under [`RowRule::Alone`]: always the same shape, so that cuBLAS does the same with each row.
pub(super) const ROW_TILE: usize = 16;

/// A version's weight matrices, one behind the other, as the type of the device's products.
#[derive(Debug)]
pub struct CudaPrepared {
    memory: Allocation,
    linears: Vec<Linear>,
    products: ProductType,
}

fn value_bytes(products: ProductType) -> usize {
    match products {
        ProductType::Float32 => 4,
        ProductType::Bfloat16 => 2,
    }
}

impl CudaDevice {
    pub(super) fn prepare_on(&self, parameters: &CudaBuffer, linears: &[Linear]) -> CudaPrepared {
        let bytes = value_bytes(self.products);
        let values = |linear: &Linear| linear.outputs * linear.inputs;
        let memory = self.queue.allocate(bytes * linears.iter().map(values).sum::<usize>());
        let mut placed = Vec::with_capacity(linears.len());
        let mut offset = 0;
        for linear in linears {
            let (source, target) =
                (View::from(linear.of(parameters)), memory.address() + (bytes * offset) as u64);
            match self.products {
                // SAFETY: as said above; the target has room for every matrix.
                ProductType::Float32 => drop(self.queue.attempt(|| unsafe {
                    self.queue.stream.on_device(source.address, target, bytes * values(linear))
                })),
                ProductType::Bfloat16 => self.round(source, target),
            }
            placed.push(Linear { offset, ..*linear });
            offset += values(linear);
        }
        CudaPrepared { memory, linears: placed, products: self.products }
    }

    /// The matrix in bfloat16, without gaps between rows.
    fn round(&self, matrix: View, target: u64) {
        let arguments = [matrix.place(), matrix.stride(), matrix.columns(), Argument::Address(target)];
        // SAFETY: as said above; the callers' targets have room for the matrix.
        unsafe { self.queue.launch(Kernel::ToBfloat16, [matrix.rows, 1, 1], &arguments) };
    }

    /// A matrix as an operand; the memory of its rounded form, which is to live until the product was given.
    fn operand(&self, matrix: Matrix<'_, CudaBuffer>) -> (Operand, Option<Allocation>) {
        let (lies, transposed) = View::stored(matrix);
        let View { address, stride, rows, columns } = lies;
        if self.products == ProductType::Float32 {
            let stride = stride.max(columns).max(1);
            return (Operand { address, stride, transposed, is_bfloat16: false }, None);
        }
        let memory = self.queue.allocate(value_bytes(self.products) * rows * columns);
        if !lies.is_empty() {
            self.round(lies, memory.address());
        }
        let address = memory.address();
        (Operand { address, stride: columns.max(1), transposed, is_bfloat16: true }, Some(memory))
    }

    pub(super) fn multiply_on(
        &self,
        alpha: f32,
        left: Matrix<'_, CudaBuffer>,
        right: Matrix<'_, CudaBuffer>,
        beta: f32,
        output: View,
    ) {
        assert_eq!(left.columns, right.rows, "inner size of a product");
        assert_eq!((output.rows, output.columns), (left.rows, right.columns), "shape of a product");
        let inner = left.columns;
        let ((left, _left), (right, _right)) = (self.operand(left), self.operand(right));
        let View { address, stride, rows, columns } = output;
        let output_stride = stride.max(columns);
        let product =
            Product { alpha, left, right, beta, output: address, output_stride, rows, inner, columns };
        // SAFETY: as said above.
        unsafe { self.queue.multiply(&product) };
    }

    pub(super) fn linear_on(
        &self,
        prepared: &CudaPrepared,
        index: usize,
        input: Matrix<'_, CudaBuffer>,
        output: View,
        rule: RowRule,
    ) {
        let Linear { offset, outputs, inputs } = prepared.linears[index];
        assert_eq!((input.columns, output.columns), (inputs, outputs), "shapes of a linear map");
        assert_eq!(input.rows, output.rows, "a row out for each row in");
        assert_eq!(prepared.products, self.products, "weights that this device has prepared");
        let value = value_bytes(self.products);
        let weights = Operand {
            address: prepared.memory.address() + (value * offset) as u64,
            stride: inputs,
            transposed: true,
            is_bfloat16: self.products == ProductType::Bfloat16,
        };
        let (source, _memory) = self.operand(input);
        let tile = if rule == RowRule::Alone { ROW_TILE } else { input.rows.max(1) };
        for first in (0..input.rows).step_by(tile) {
            let left = Operand { address: source.address + (value * first * source.stride) as u64, ..source };
            let into = output.address + (size_of::<f32>() * first * output.stride) as u64;
            self.product_of_rows(left, weights, into, [tile, inputs, outputs], output.stride);
        }
    }

    fn product_of_rows(
        &self,
        left: Operand,
        right: Operand,
        output: u64,
        [rows, inner, columns]: [usize; 3],
        output_stride: usize,
    ) {
        let output_stride = output_stride.max(columns);
        let product =
            Product { alpha: 1.0, left, right, beta: 0.0, output, output_stride, rows, inner, columns };
        // SAFETY: as said above; under `RowRule::Alone` the views were widened to whole tiles.
        unsafe { self.queue.multiply(&product) };
    }
}

/// The matrix with its rows rounded up to what a product under `rule` works on.
pub(super) fn rows_of(rows: usize, rule: RowRule) -> usize {
    if rule == RowRule::Alone { rows.next_multiple_of(ROW_TILE) } else { rows }
}
