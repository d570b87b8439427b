//! A flat run of f32 in host memory, aligned to cache lines.

use std::ops::{Deref, DerefMut};

use super::shared::SharedMemory;
use super::simd::LANES;
use crate::device::{Matrix, MatrixMut};
use crate::error::Error;

const ALIGNMENT: usize = 64;

/// A flat run of f32 whose first value lies on a cache line, so that vector loads do not straddle two.
#[derive(Debug)]
pub struct CpuBuffer(Backing);

#[derive(Debug)]
enum Backing {
    /// The allocation is a lane group longer than asked for and is never moved or grown; `start` is where the aligned part
    /// begins.
    Own { values: Vec<f32>, start: usize, length: usize },
    /// Pages that other processes may read.
    Shared(SharedMemory),
}

impl CpuBuffer {
    /// `length` zeros.
    ///
    /// # Panics
    /// If the system has no memory for them; [`Self::try_zeros`] says so instead.
    pub fn zeros(length: usize) -> Self {
        Self::try_zeros(length).unwrap_or_else(|error| panic!("{error}"))
    }

    /// `length` zeros.
    ///
    /// # Errors
    /// [`Error::HostMemory`] if the system has no memory for them.
    pub fn try_zeros(length: usize) -> Result<Self, Error> {
        let room = length.saturating_add(LANES);
        // Finds lengths that no memory has room for, and is let go of: the zeros below are pages that nobody has touched yet, where those of
        // a vector that is filled up would all be written here. The compiler may not leave out what nobody uses.
        let mut probe: Vec<f32> = Vec::new();
        let reserved = probe.try_reserve_exact(room);
        reserved.map_err(|refused| Error::HostMemory { values: length, reason: refused.to_string() })?;
        drop(std::hint::black_box(probe));
        let values = vec![0.0; room];
        let start = values.as_ptr().align_offset(ALIGNMENT).min(LANES);
        Ok(Self(Backing::Own { values, start, length }))
    }

    /// `length` zeros that other processes may be shown.
    pub(crate) fn shared(length: usize) -> std::io::Result<Self> {
        Ok(Self(Backing::Shared(SharedMemory::new(length)?)))
    }

    /// What other processes are shown; none of memory that is this process's own.
    pub(crate) fn shown(&self) -> Option<&SharedMemory> {
        match &self.0 {
            Backing::Own { .. } => None,
            Backing::Shared(memory) => Some(memory),
        }
    }
}

impl Deref for CpuBuffer {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match &self.0 {
            Backing::Own { values, start, length } => &values[*start..*start + *length],
            Backing::Shared(memory) => memory.values(),
        }
    }
}

impl DerefMut for CpuBuffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        match &mut self.0 {
            Backing::Own { values, start, length } => &mut values[*start..*start + *length],
            Backing::Shared(memory) => memory.values_mut(),
        }
    }
}

/// Rows in host memory: what kernels read.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub(super) values: &'a [f32],
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) stride: usize,
}

impl<'a> Rows<'a> {
    #[inline(always)]
    pub(super) fn row(&self, row: usize) -> &'a [f32] {
        &self.values[row * self.stride..][..self.columns]
    }
}

impl<'a> From<Matrix<'a, CpuBuffer>> for Rows<'a> {
    fn from(matrix: Matrix<'a, CpuBuffer>) -> Self {
        assert_eq!(matrix.column_stride, 1, "kernels read rows");
        let Matrix { rows, columns, row_stride: stride, .. } = matrix;
        Self { values: &matrix.buffer[matrix.offset..], rows, columns, stride }
    }
}

/// Rows in host memory: what kernels write.
pub(super) struct RowsMut<'a> {
    pub(super) values: &'a mut [f32],
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) stride: usize,
}

impl RowsMut<'_> {
    #[inline(always)]
    pub(super) fn row(&mut self, row: usize) -> &mut [f32] {
        &mut self.values[row * self.stride..][..self.columns]
    }
}

impl<'a> From<MatrixMut<'a, CpuBuffer>> for RowsMut<'a> {
    fn from(matrix: MatrixMut<'a, CpuBuffer>) -> Self {
        let MatrixMut { rows, columns, row_stride: stride, .. } = matrix;
        Self { values: &mut matrix.buffer[matrix.offset..], rows, columns, stride }
    }
}
