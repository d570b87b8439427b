//! Views of flat buffers as matrices.

/// A row-major matrix inside a buffer, to be read.
#[derive(Debug)]
pub struct Matrix<'a, B> {
    /// The buffer.
    pub buffer: &'a B,
    /// Where the first value lies.
    pub offset: usize,
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub columns: usize,
    /// Values from one row to the next.
    pub row_stride: usize,
    /// Values from one column to the next: 1 unless transposed.
    pub column_stride: usize,
}

impl<B> Clone for Matrix<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for Matrix<'_, B> {}

impl<'a, B> Matrix<'a, B> {
    /// `rows` rows without gaps, from `offset` on.
    pub fn new(buffer: &'a B, offset: usize, rows: usize, columns: usize) -> Self {
        Self { buffer, offset, rows, columns, row_stride: columns, column_stride: 1 }
    }

    /// The same with `stride` values from one row to the next.
    pub fn strided(buffer: &'a B, offset: usize, rows: usize, columns: usize, stride: usize) -> Self {
        Self { buffer, offset, rows, columns, row_stride: stride, column_stride: 1 }
    }

    /// Rows become columns; no value moves.
    #[must_use]
    pub fn transposed(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }
}

/// A row-major matrix inside a buffer, to be written.
#[derive(Debug)]
pub struct MatrixMut<'a, B> {
    /// The buffer.
    pub buffer: &'a mut B,
    /// Where the first value lies.
    pub offset: usize,
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub columns: usize,
    /// Values from one row to the next.
    pub row_stride: usize,
}

impl<'a, B> MatrixMut<'a, B> {
    /// `rows` rows without gaps, from `offset` on.
    pub fn new(buffer: &'a mut B, offset: usize, rows: usize, columns: usize) -> Self {
        Self { buffer, offset, rows, columns, row_stride: columns }
    }

    /// The same with `stride` values from one row to the next.
    pub fn strided(buffer: &'a mut B, offset: usize, rows: usize, columns: usize, stride: usize) -> Self {
        Self { buffer, offset, rows, columns, row_stride: stride }
    }
}

/// Where a weight matrix `[outputs, inputs]` lies among the parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Linear {
    /// Where its first value lies.
    pub offset: usize,
    /// Number of outputs (rows).
    pub outputs: usize,
    /// Number of inputs (columns).
    pub inputs: usize,
}

impl Linear {
    /// The matrix as a view of `parameters` (or of their gradient).
    pub fn of<B>(self, parameters: &B) -> Matrix<'_, B> {
        Matrix::new(parameters, self.offset, self.outputs, self.inputs)
    }

    /// The matrix as a view to be written.
    pub fn of_mut<B>(self, parameters: &mut B) -> MatrixMut<'_, B> {
        MatrixMut::new(parameters, self.offset, self.outputs, self.inputs)
    }
}
