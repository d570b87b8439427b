//! Matrix products over the `gemm` crate, one thread each.

use super::buffer::CpuBuffer;
use super::simd::LANES;
use crate::device::{Linear, Matrix, MatrixMut, RowRule};
use crate::error::Error;

/// Rows of one product under [`RowRule::Alone`]; see `CpuDevice::ROW_TILE`.
pub(super) const ROW_TILE: usize = 8;

/// A version's weight matrices, transposed to `[inputs, outputs]` with the outputs padded to whole lane groups.
///
/// In this form the multiplication reads weights as they lie. From `[outputs, inputs]` it would repack them at each
/// call: half of the time for 8 rows (61 instead of 165 GFLOP/s at 256 x 128 on one Zen 5 core).
#[derive(Debug)]
pub struct CpuPrepared {
    values: CpuBuffer,
    linears: Vec<Linear>,
}

impl CpuPrepared {
    /// # Errors
    /// [`Error::HostMemory`] if the system has no memory for it.
    pub(super) fn new(parameters: &[f32], linears: &[Linear]) -> Result<Self, Error> {
        let padded = |linear: &Linear| linear.inputs * linear.outputs.next_multiple_of(LANES);
        let mut values = CpuBuffer::try_zeros(linears.iter().map(padded).sum())?;
        let mut placed = Vec::with_capacity(linears.len());
        let mut offset = 0;
        for linear in linears {
            let source = &parameters[linear.offset..][..linear.outputs * linear.inputs];
            transpose(source, linear, &mut values[offset..offset + padded(linear)]);
            placed.push(Linear { offset, ..*linear });
            offset += padded(linear);
        }
        Ok(Self { values, linears: placed })
    }

    /// `output = input . W^T`.
    pub(super) fn linear(
        &self,
        index: usize,
        input: Matrix<'_, CpuBuffer>,
        output: MatrixMut<'_, CpuBuffer>,
        rule: RowRule,
    ) {
        let Linear { offset, outputs, inputs } = self.linears[index];
        assert_eq!((input.columns, output.columns), (inputs, outputs), "shapes of a linear map");
        let padded = outputs.next_multiple_of(LANES);
        // A whole number of lane groups spares the tail; where the output has room the padding's zeros go there.
        let columns = if output.row_stride >= padded { padded } else { outputs };
        let weights = Matrix::strided(&self.values, offset, inputs, columns, padded);
        let tile = if rule == RowRule::Alone { ROW_TILE } else { input.rows.max(1) };
        for first in (0..input.rows).step_by(tile) {
            let rows = Matrix { offset: input.offset + first * input.row_stride, rows: tile, ..input };
            let into = MatrixMut {
                buffer: &mut *output.buffer,
                offset: output.offset + first * output.row_stride,
                rows: tile,
                columns,
                row_stride: output.row_stride,
            };
            multiply(1.0, rows, weights, 0.0, into);
        }
    }
}

fn transpose(source: &[f32], linear: &Linear, target: &mut [f32]) {
    let padded = linear.outputs.next_multiple_of(LANES);
    for first in (0..linear.outputs).step_by(LANES) {
        for input in 0..linear.inputs {
            let row = &mut target[input * padded + first..][..LANES];
            for (lane, value) in row.iter_mut().enumerate().take(linear.outputs - first) {
                *value = source[(first + lane) * linear.inputs + input];
            }
        }
    }
}

/// `output = alpha . left . right + beta . output` on the calling thread.
pub(super) fn multiply(
    alpha: f32,
    left: Matrix<'_, CpuBuffer>,
    right: Matrix<'_, CpuBuffer>,
    beta: f32,
    output: MatrixMut<'_, CpuBuffer>,
) {
    assert_eq!(left.columns, right.rows, "inner size of a product");
    assert_eq!((output.rows, output.columns), (left.rows, right.columns), "shape of a product");
    if output.rows == 0 || output.columns == 0 {
        return;
    }
    let values = |matrix: &Matrix<'_, CpuBuffer>| matrix.offset + last(matrix);
    assert!(left.columns == 0 || values(&left) < left.buffer.len(), "left of a product lies in its buffer");
    assert!(
        left.columns == 0 || values(&right) < right.buffer.len(),
        "right of a product lies in its buffer"
    );
    let end = output.offset + (output.rows - 1) * output.row_stride + output.columns;
    assert!(end <= output.buffer.len(), "output of a product lies in its buffer");
    assert!(output.columns <= output.row_stride || output.rows == 1, "rows of an output do not overlap");
    run(alpha, &left, &right, beta, output);
}

/// Offset of a matrix's last value from its first.
fn last(matrix: &Matrix<'_, CpuBuffer>) -> usize {
    (matrix.rows.max(1) - 1) * matrix.row_stride + (matrix.columns.max(1) - 1) * matrix.column_stride
}

#[allow(unsafe_code, reason = "the gemm crate takes pointers and strides")]
fn run(
    alpha: f32,
    left: &Matrix<'_, CpuBuffer>,
    right: &Matrix<'_, CpuBuffer>,
    beta: f32,
    output: MatrixMut<'_, CpuBuffer>,
) {
    let (rows, columns, row_stride) = (output.rows, output.columns, output.row_stride);
    let target = output.buffer[output.offset..].as_mut_ptr();
    // SAFETY: gemm reads `left[i, l]` and `right[l, j]` and reads or writes `output[i, j]` for i below `rows`, j below
    // `columns`, l below `left.columns`, each at offset + row * row stride + column * column stride. `multiply`, the one
    // caller, has checked that the largest of these offsets lies inside each buffer; strides are not negative, so the
    // smallest is the checked `offset` itself. The output is borrowed mutably, so it overlaps neither operand, and
    // distinct (i, j) are distinct values since a row is no longer than the row stride. `Parallelism::None`
    // keeps the pointers on this thread.
    unsafe {
        gemm::gemm(
            rows,
            columns,
            left.columns,
            target,
            1,
            row_stride as isize,
            beta != 0.0,
            left.buffer[left.offset..].as_ptr(),
            left.column_stride as isize,
            left.row_stride as isize,
            right.buffer[right.offset..].as_ptr(),
            right.column_stride as isize,
            right.row_stride as isize,
            beta,
            alpha,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}
