//! Views of buffers as kernels take them: an address, a stride, and sizes that were checked.

use super::CudaBuffer;
use super::kernel::Argument;
use crate::device::copies::lies_in;
use crate::device::{Matrix, MatrixMut};

/// A matrix whose every value lies in live memory of the device.
#[derive(Debug, Clone, Copy)]
pub(super) struct View {
    pub(super) address: u64,
    pub(super) stride: usize,
    pub(super) rows: usize,
    pub(super) columns: usize,
}

impl View {
    fn new(buffer: &CudaBuffer, offset: usize, rows: usize, columns: usize, stride: usize) -> Self {
        let is_empty = rows == 0 || columns == 0;
        let length = if is_empty {
            Some(0)
        } else {
            (rows - 1).checked_mul(stride).and_then(|at| at.checked_add(columns))
        };
        let lies = length.is_some_and(|length| lies_in(offset, length, buffer.length));
        assert!(
            lies,
            "a matrix of {rows} by {columns} from {offset} on lies in a buffer of {}",
            buffer.length
        );
        Self {
            address: buffer.memory.address() + size_of::<f32>() as u64 * offset as u64,
            stride,
            rows,
            columns,
        }
    }

    /// What a kernel is to write, row by row.
    pub(super) fn out(matrix: &MatrixMut<'_, CudaBuffer>) -> Self {
        assert!(matrix.columns <= matrix.row_stride || matrix.rows <= 1, "rows of an output do not overlap");
        Self::new(matrix.buffer, matrix.offset, matrix.rows, matrix.columns, matrix.row_stride)
    }

    /// What is read as it is stored, and whether `matrix` is its transpose.
    pub(super) fn stored(matrix: Matrix<'_, CudaBuffer>) -> (Self, bool) {
        let transposed = matrix.column_stride != 1;
        let lies = if transposed { matrix.transposed() } else { matrix };
        assert_eq!(lies.column_stride, 1, "a matrix has its rows or its columns without gaps");
        (Self::new(lies.buffer, lies.offset, lies.rows, lies.columns, lies.row_stride), transposed)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows == 0 || self.columns == 0
    }

    pub(super) fn place(&self) -> Argument {
        Argument::Address(self.address)
    }

    pub(super) fn stride(&self) -> Argument {
        Argument::Length(self.stride as u64)
    }

    pub(super) fn columns(&self) -> Argument {
        count(self.columns)
    }
}

impl From<Matrix<'_, CudaBuffer>> for View {
    fn from(matrix: Matrix<'_, CudaBuffer>) -> Self {
        let (view, transposed) = Self::stored(matrix);
        assert!(!transposed, "kernels read rows");
        view
    }
}

/// A size as a kernel takes it. No size of a policy is as long: `PolicyConfig` ends at 2^24.
pub(super) fn count(value: usize) -> Argument {
    Argument::Count(u32::try_from(value).expect("a size is below 2^32"))
}
