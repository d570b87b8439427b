//! Kernels that work row by row or value by value: sums, gathers, rotary positions, SwiGLU.

use super::buffer::{Rows, RowsMut};
use super::simd::{LANES, exp, vectorised};
use crate::device::Direction;

vectorised! {
    pub(super) fn add_row<'a>(vector: &'a [f32], matrix: RowsMut<'a>) {
        for row in 0..matrix.rows {
            for (value, &addend) in matrix.row(row).iter_mut().zip(vector) {
                *value += addend;
            }
        }
    }
}

vectorised! {
    pub(super) fn sum_rows<'a>(matrix: Rows<'a>, vector: &'a mut [f32]) {
        vector.fill(0.0);
        for row in 0..matrix.rows {
            for (sum, &value) in vector.iter_mut().zip(matrix.row(row)) {
                *sum += value;
            }
        }
    }
}

vectorised! {
    pub(super) fn add<'a>(source: Rows<'a>, target: RowsMut<'a>) {
        for row in 0..source.rows {
            for (value, &addend) in target.row(row).iter_mut().zip(source.row(row)) {
                *value += addend;
            }
        }
    }
}

pub(super) fn gather(source: Rows<'_>, rows: &[u32], mut output: RowsMut<'_>) {
    for (index, &row) in rows.iter().enumerate() {
        output.row(index).copy_from_slice(source.row(row as usize));
    }
}

vectorised! {
    pub(super) fn scatter_add<'a>(source: Rows<'a>, rows: &'a [u32], target: RowsMut<'a>) {
        for (index, &row) in rows.iter().enumerate() {
            for (value, &addend) in target.row(row as usize).iter_mut().zip(source.row(index)) {
                *value += addend;
            }
        }
    }
}

vectorised! {
    pub(super) fn rotary<'a>(matrix: RowsMut<'a>, positions: &'a [u32], table: Rows<'a>, direction: Direction) {
        let half = table.columns / 2;
        let sign = if direction == Direction::Forward { 1.0 } else { -1.0 };
        for (row, &position) in positions.iter().enumerate() {
            let (cosines, sines) = table.row(position as usize).split_at(half);
            for head in matrix.row(row).chunks_exact_mut(2 * half) {
                let (first, second) = head.split_at_mut(half);
                let pairs = first.iter_mut().zip(second);
                for ((first, second), (&cosine, &sine)) in pairs.zip(cosines.iter().zip(sines)) {
                    let (x, y, sine) = (*first, *second, sign * sine);
                    *first = x * cosine - y * sine;
                    *second = y * cosine + x * sine;
                }
            }
        }
    }
}

vectorised! {
    pub(super) fn swiglu<'a>(gate_up: Rows<'a>, output: RowsMut<'a>) {
        for row in 0..gate_up.rows {
            let (gates, ups) = gate_up.row(row).split_at(gate_up.columns / 2);
            for ((value, &gate), &up) in output.row(row).iter_mut().zip(gates).zip(ups) {
                *value = gate / (1.0 + exp(-gate)) * up;
            }
        }
    }
}

vectorised! {
    // With s = sigmoid(g): d(g s u)/du = g s and d(g s u)/dg = u s (1 + g (1 - s)).
    pub(super) fn swiglu_backward<'a>(gate_up: Rows<'a>, output_gradient: Rows<'a>, gradient: RowsMut<'a>) {
        let half = gate_up.columns / 2;
        for row in 0..gate_up.rows {
            let (gates, ups) = gate_up.row(row).split_at(half);
            let (gate_gradient, up_gradient) = gradient.row(row).split_at_mut(half);
            let inputs = output_gradient.row(row).iter().zip(gates.iter().zip(ups));
            let outputs = gate_gradient.iter_mut().zip(up_gradient);
            for ((&outer, (&gate, &up)), (gate_gradient, up_gradient)) in inputs.zip(outputs) {
                let sigmoid = 1.0 / (1.0 + exp(-gate));
                *up_gradient = outer * gate * sigmoid;
                *gate_gradient = outer * up * sigmoid * (1.0 + gate * (1.0 - sigmoid));
            }
        }
    }
}

vectorised! {
    pub(super) fn accumulate<'a>(source: &'a [f32], target: &'a mut [f32]) {
        for (value, &addend) in target.iter_mut().zip(source) {
            *value += addend;
        }
    }
}

vectorised! {
    pub(super) fn sum_of_squares<'a>(values: &'a [f32]) -> f64 {
        let mut lanes = [0.0_f64; LANES];
        let (groups, rest) = values.as_chunks::<LANES>();
        for group in groups {
            for lane in 0..LANES {
                lanes[lane] += f64::from(group[lane]) * f64::from(group[lane]);
            }
        }
        for (lane, &value) in rest.iter().enumerate() {
            lanes[lane] += f64::from(value) * f64::from(value);
        }
        lanes.into_iter().sum()
    }
}
