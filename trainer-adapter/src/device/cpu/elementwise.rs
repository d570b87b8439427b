//! Kernels that work row by row or value by value: sums, gathers, rotary positions, SwiGLU.

use super::buffer::{Rows, RowsMut};
use super::simd::{LANES, exp, vectorised};
use crate::device::Direction;

vectorised! {
    pub(super) fn add_row(vector: &[f32], matrix: &mut RowsMut<'_>) {
        for row in 0..matrix.rows {
            for (value, &addend) in matrix.row(row).iter_mut().zip(vector) {
                *value += addend;
            }
        }
    }
}

vectorised! {
    pub(super) fn sum_rows(matrix: Rows<'_>, vector: &mut [f32]) {
        vector.fill(0.0);
        for row in 0..matrix.rows {
            for (sum, &value) in vector.iter_mut().zip(matrix.row(row)) {
                *sum += value;
            }
        }
    }
}

vectorised! {
    pub(super) fn add(source: Rows<'_>, target: &mut RowsMut<'_>) {
        for row in 0..source.rows {
            for (value, &addend) in target.row(row).iter_mut().zip(source.row(row)) {
                *value += addend;
            }
        }
    }
}

pub(super) fn gather(source: Rows<'_>, rows: &[u32], output: &mut RowsMut<'_>) {
    for (index, &row) in rows.iter().enumerate() {
        output.row(index).copy_from_slice(source.row(row as usize));
    }
}

vectorised! {
    pub(super) fn scatter_add(source: Rows<'_>, rows: &[u32], target: &mut RowsMut<'_>) {
        for (index, &row) in rows.iter().enumerate() {
            for (value, &addend) in target.row(row as usize).iter_mut().zip(source.row(index)) {
                *value += addend;
            }
        }
    }
}

vectorised! {
    pub(super) fn rotary(matrix: &mut RowsMut<'_>, positions: &[u32], table: Rows<'_>, direction: Direction) {
        let half = table.columns / 2;
        let sign = if direction == Direction::Forward { 1.0 } else { -1.0 };
        for (row, &position) in positions.iter().enumerate() {
            let (cosines, sines) = table.row(position as usize).split_at(half);
            for head in matrix.row(row).chunks_exact_mut(2 * half) {
                let (first, second) = head.split_at_mut(half);
                for index in 0..half {
                    let (x, y) = (first[index], second[index]);
                    let (cosine, sine) = (cosines[index], sign * sines[index]);
                    first[index] = x * cosine - y * sine;
                    second[index] = y * cosine + x * sine;
                }
            }
        }
    }
}

vectorised! {
    pub(super) fn swiglu(gate_up: Rows<'_>, output: &mut RowsMut<'_>) {
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
    pub(super) fn swiglu_backward(gate_up: Rows<'_>, output_gradient: Rows<'_>, gradient: &mut RowsMut<'_>) {
        let half = gate_up.columns / 2;
        for row in 0..gate_up.rows {
            let (gates, ups) = gate_up.row(row).split_at(half);
            let (gate_gradient, up_gradient) = gradient.row(row).split_at_mut(half);
            let outer = &output_gradient.row(row)[..half];
            for index in 0..half {
                let gate = gates[index];
                let sigmoid = 1.0 / (1.0 + exp(-gate));
                up_gradient[index] = outer[index] * gate * sigmoid;
                gate_gradient[index] = outer[index] * ups[index] * sigmoid * (1.0 + gate * (1.0 - sigmoid));
            }
        }
    }
}

vectorised! {
    pub(super) fn accumulate(source: &[f32], target: &mut [f32]) {
        for (value, &addend) in target.iter_mut().zip(source) {
            *value += addend;
        }
    }
}

vectorised! {
    pub(super) fn sum_of_squares(values: &[f32]) -> f64 {
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
