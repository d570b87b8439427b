//! Attention of training: families of sequences over one shared prompt, as products per family and head.
//!
//! The weights of a family's head are a matrix `[rows, columns]`, column = position of the key. Two products fill it:
//! all rows against the prompt's keys, and each branch against its own.

use super::buffer::CpuBuffer;
use super::product::multiply;
use super::simd::{exp_in_place, max_of, sum_of, vectorised};
use crate::device::{AttentionHeads, Family, Matrix, MatrixMut, SharedAttention};

/// Where one head's queries, keys and values lie in the rows of a family.
#[derive(Clone, Copy)]
struct Head<'a> {
    heads: AttentionHeads,
    family: &'a Family,
    query: usize,
}

impl<'a> Head<'a> {
    fn all(shape: &'a SharedAttention) -> impl Iterator<Item = (usize, Head<'a>)> {
        let mut offset = 0;
        let heads = shape.heads;
        let each = move |family| (0..heads.queries).map(move |query| Head { heads, family, query });
        shape.families.iter().flat_map(each).map(move |head| {
            let start = offset;
            offset += head.family.rows() * head.family.columns();
            (start, head)
        })
    }

    fn query_column(&self) -> usize {
        self.query * self.heads.dimension
    }

    fn key_column(&self) -> usize {
        self.heads.query_columns() + self.heads.key_head(self.query) * self.heads.dimension
    }

    fn value_column(&self) -> usize {
        self.key_column() + self.heads.key_columns()
    }

    /// The key head's first query head stores its gradient, the others add theirs.
    fn beta(&self) -> f32 {
        let first = self.query.is_multiple_of(self.heads.queries / self.heads.keys);
        if first { 0.0 } else { 1.0 }
    }

    /// The blocks of the weight matrix: (first row, rows, first key row, keys, first column).
    ///
    /// The prompt's block comes first: it covers all rows, so it may store where the branches then add.
    fn blocks(&self) -> impl Iterator<Item = Block> + use<'a> {
        let Family { prompt, ref branches, .. } = *self.family;
        let whole = Block { row: 0, rows: self.family.rows(), key: 0, keys: prompt, column: 0 };
        let own = branches.iter().filter(|branch| branch.rows > 0).map(move |branch| Block {
            row: branch.first,
            rows: branch.rows,
            key: branch.first,
            keys: branch.rows,
            column: prompt,
        });
        std::iter::once(whole).chain(own)
    }

    /// Rows `row..row + rows` of the head's columns from `column` on.
    fn part<'b>(
        &self,
        matrix: &Matrix<'b, CpuBuffer>,
        column: usize,
        row: usize,
        rows: usize,
    ) -> Matrix<'b, CpuBuffer> {
        let offset = matrix.offset + (self.family.first + row) * matrix.row_stride + column;
        Matrix::strided(matrix.buffer, offset, rows, self.heads.dimension, matrix.row_stride)
    }

    fn part_mut<'b>(
        &self,
        matrix: &'b mut MatrixMut<'_, CpuBuffer>,
        column: usize,
        row: usize,
        rows: usize,
    ) -> MatrixMut<'b, CpuBuffer> {
        let offset = matrix.offset + (self.family.first + row) * matrix.row_stride + column;
        MatrixMut::strided(matrix.buffer, offset, rows, self.heads.dimension, matrix.row_stride)
    }
}

/// A block of the weight matrix: some rows against some keys.
#[derive(Clone, Copy)]
struct Block {
    row: usize,
    rows: usize,
    key: usize,
    keys: usize,
    column: usize,
}

impl Block {
    fn of<'b>(&self, weights: &'b CpuBuffer, start: usize, stride: usize) -> Matrix<'b, CpuBuffer> {
        Matrix::strided(weights, start + self.row * stride + self.column, self.rows, self.keys, stride)
    }

    fn of_mut<'b>(
        &self,
        weights: &'b mut CpuBuffer,
        start: usize,
        stride: usize,
    ) -> MatrixMut<'b, CpuBuffer> {
        MatrixMut::strided(weights, start + self.row * stride + self.column, self.rows, self.keys, stride)
    }
}

pub(super) fn forward(
    shape: &SharedAttention,
    qkv: Matrix<'_, CpuBuffer>,
    weights: &mut CpuBuffer,
    mut output: MatrixMut<'_, CpuBuffer>,
) {
    for (start, head) in Head::all(shape) {
        let columns = head.family.columns();
        for block in head.blocks() {
            let queries = head.part(&qkv, head.query_column(), block.row, block.rows);
            let keys = head.part(&qkv, head.key_column(), block.key, block.keys).transposed();
            multiply(head.heads.scale(), queries, keys, 0.0, block.of_mut(weights, start, columns));
        }
        let length = head.family.rows() * columns;
        softmax(&mut weights[start..start + length], &visible(head.family), columns);
        for block in head.blocks() {
            let values = head.part(&qkv, head.value_column(), block.key, block.keys);
            let beta = if block.column == 0 { 0.0 } else { 1.0 };
            let into = head.part_mut(&mut output, head.query_column(), block.row, block.rows);
            multiply(1.0, block.of(weights, start, columns), values, beta, into);
        }
    }
}

pub(super) fn backward(
    shape: &SharedAttention,
    qkv: Matrix<'_, CpuBuffer>,
    weights: &CpuBuffer,
    output_gradient: Matrix<'_, CpuBuffer>,
    scratch: &mut CpuBuffer,
    mut gradient: MatrixMut<'_, CpuBuffer>,
) {
    for (start, head) in Head::all(shape) {
        let columns = head.family.columns();
        for block in head.blocks() {
            let outer = head.part(&output_gradient, head.query_column(), block.row, block.rows);
            let values = head.part(&qkv, head.value_column(), block.key, block.keys);
            multiply(1.0, outer, values.transposed(), 0.0, block.of_mut(scratch, 0, columns));
            let into = head.part_mut(&mut gradient, head.value_column(), block.key, block.keys);
            multiply(1.0, block.of(weights, start, columns).transposed(), outer, head.beta(), into);
        }
        let length = head.family.rows() * columns;
        softmax_backward(
            &weights[start..start + length],
            &mut scratch[..length],
            &visible(head.family),
            columns,
        );
        for block in head.blocks() {
            let scores = block.of(scratch, 0, columns);
            let keys = head.part(&qkv, head.key_column(), block.key, block.keys);
            let beta = if block.column == 0 { 0.0 } else { 1.0 };
            let into = head.part_mut(&mut gradient, head.query_column(), block.row, block.rows);
            multiply(head.heads.scale(), scores, keys, beta, into);
            let queries = head.part(&qkv, head.query_column(), block.row, block.rows);
            let into = head.part_mut(&mut gradient, head.key_column(), block.key, block.keys);
            multiply(head.heads.scale(), scores.transposed(), queries, head.beta(), into);
        }
    }
}

/// How many keys each row of the family sees, by row.
fn visible(family: &Family) -> Vec<usize> {
    let prompt = 1..=family.prompt;
    let branches = family.branches.iter().flat_map(|branch| family.prompt + 1..=family.prompt + branch.rows);
    prompt.chain(branches).collect()
}

vectorised! {
    fn softmax<'a>(weights: &'a mut [f32], visible: &'a [usize], columns: usize) {
        for (row, &visible) in weights.chunks_exact_mut(columns).zip(visible) {
            let (seen, hidden) = row.split_at_mut(visible);
            let max = max_of(seen);
            let inverse = 1.0 / exp_in_place(seen, max);
            for weight in seen.iter_mut() {
                *weight *= inverse;
            }
            hidden.fill(0.0);
        }
    }
}

vectorised! {
    // dS = P (dP - sum(P dP)), in place of dP.
    fn softmax_backward<'a>(weights: &'a [f32], gradient: &'a mut [f32], visible: &'a [usize], columns: usize) {
        let rows = gradient.chunks_exact_mut(columns).zip(weights.chunks_exact(columns));
        for ((row, weights), &visible) in rows.zip(visible) {
            let (seen, hidden) = row.split_at_mut(visible);
            let p = &weights[..visible];
            let sum = sum_of(p, seen, |p, d| p * d);
            for (d, &p) in seen.iter_mut().zip(p) {
                *d = p * (*d - sum);
            }
            hidden.fill(0.0);
        }
    }
}
