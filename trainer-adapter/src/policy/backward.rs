//! The backward pass: the gradient of a weighted sum of log-probabilities and entropies.
//!
//! Written by hand, one step of the forward pass at a time and in reverse. `stream` is the gradient of the residual
//! stream: it flows past each block unchanged, and the block's norm adds its part.

use super::activations::{Activations, Batch, LayerActivations, logit_stride};
use super::layout::{LayerLayout, Vector};
use super::{Policy, Shape};
use crate::device::{Device, Direction, Linear, Matrix, MatrixMut};
use crate::gradient::Slopes;

/// The working buffers of the backward pass, borrowed apart from what the forward pass kept.
struct Working<'a, D: Device> {
    stream: &'a mut D::Buffer,
    normed: &'a mut D::Buffer,
    wide: &'a mut D::Buffer,
    narrow: &'a mut D::Buffer,
    scratch: &'a mut D::Buffer,
}

impl<D: Device> Policy<D> {
    /// Writes the gradient of `sum_i slopes.log_probs[i] . log p_i + slopes.entropies[i] . H_i` over the readouts of the
    /// last [`Self::forward`] with the same `batch` and `kept`. Every value of `gradient` is overwritten.
    pub(crate) fn backward(
        &self,
        device: &D,
        batch: &Batch,
        slopes: &Slopes,
        kept: &mut Activations<D>,
        gradient: &mut D::Buffer,
    ) {
        self.read_out_backward(device, batch, slopes, kept, gradient);
        let Activations { layers, stream, normed, wide, narrow, scratch, .. } = kept;
        let mut working = Working { stream, normed, wide, narrow, scratch };
        for (index, layer) in layers.iter().enumerate().rev() {
            self.mlp_backward(device, index, batch, layer, &mut working, gradient);
            self.attention_backward(device, index, batch, layer, &mut working, gradient);
        }
        let Shape { config, layout, .. } = &*self.shape;
        let stream = Matrix::new(&*working.stream, 0, batch.tokens.len(), config.hidden_size);
        device.scatter_add(stream, &batch.tokens, layout.embedding.of_mut(gradient));
    }

    fn read_out_backward(
        &self,
        device: &D,
        batch: &Batch,
        slopes: &Slopes,
        kept: &mut Activations<D>,
        gradient: &mut D::Buffer,
    ) {
        let Shape { config, layout, .. } = &*self.shape;
        let (rows, readouts, hidden) = (batch.tokens.len(), batch.readouts.len(), config.hidden_size);
        let stride = logit_stride(config);
        let statistics = Matrix::new(&kept.statistics, 0, readouts, 3);
        let logits = MatrixMut::strided(&mut kept.logits, 0, readouts, config.vocab_size, stride);
        device.token_gradient(logits, &batch.targets, statistics, &slopes.log_probs, &slopes.entropies);
        let outer = Matrix::strided(&kept.logits, 0, readouts, config.vocab_size, stride);
        let normed = Matrix::new(&kept.picked_normed, 0, readouts, hidden);
        let into = MatrixMut::new(&mut kept.normed, 0, readouts, hidden);
        self.linear_backward(device, layout.embedding, normed, outer, into, gradient);
        device.clear(&mut kept.narrow, 0, readouts * hidden);
        device.rms_norm_backward(
            Matrix::new(&kept.picked, 0, readouts, hidden),
            self.vector(layout.final_norm),
            &kept.picked_scales,
            Matrix::new(&kept.normed, 0, readouts, hidden),
            MatrixMut::new(&mut kept.narrow, 0, readouts, hidden),
            vector_mut(layout.final_norm, gradient),
        );
        device.clear(&mut kept.stream, 0, rows * hidden);
        let picked = Matrix::new(&kept.narrow, 0, readouts, hidden);
        device.scatter_add(picked, &batch.readouts, MatrixMut::new(&mut kept.stream, 0, rows, hidden));
    }

    fn mlp_backward(
        &self,
        device: &D,
        index: usize,
        batch: &Batch,
        kept: &LayerActivations<D>,
        working: &mut Working<'_, D>,
        gradient: &mut D::Buffer,
    ) {
        let Shape { config, layout, .. } = &*self.shape;
        let (rows, hidden, inner) = (batch.tokens.len(), config.hidden_size, config.intermediate_size);
        let LayerLayout { mlp_norm, gate_up, down, .. } = layout.layers[index];
        let stream = Matrix::new(&*working.stream, 0, rows, hidden);
        let activated = Matrix::new(&kept.inner, 0, rows, inner);
        let into = MatrixMut::new(&mut *working.narrow, 0, rows, inner);
        self.linear_backward(device, down, activated, stream, into, gradient);
        let outer = Matrix::new(&*working.narrow, 0, rows, inner);
        let into = MatrixMut::new(&mut *working.wide, 0, rows, 2 * inner);
        device.swiglu_backward(Matrix::new(&kept.gate_up, 0, rows, 2 * inner), outer, into);
        let outer = Matrix::new(&*working.wide, 0, rows, 2 * inner);
        let normed = Matrix::new(&kept.middle_normed, 0, rows, hidden);
        let into = MatrixMut::new(&mut *working.normed, 0, rows, hidden);
        self.linear_backward(device, gate_up, normed, outer, into, gradient);
        device.rms_norm_backward(
            Matrix::new(&kept.middle, 0, rows, hidden),
            self.vector(mlp_norm),
            &kept.middle_scales,
            Matrix::new(&*working.normed, 0, rows, hidden),
            MatrixMut::new(&mut *working.stream, 0, rows, hidden),
            vector_mut(mlp_norm, gradient),
        );
    }

    fn attention_backward(
        &self,
        device: &D,
        index: usize,
        batch: &Batch,
        kept: &LayerActivations<D>,
        working: &mut Working<'_, D>,
        gradient: &mut D::Buffer,
    ) {
        let Shape { config, layout, .. } = &*self.shape;
        let (rows, hidden, heads) = (batch.tokens.len(), config.hidden_size, config.heads());
        let LayerLayout { input_norm, qkv, qkv_bias, head_norms, output, .. } = layout.layers[index];
        let (columns, query_columns) = (heads.columns(), heads.query_columns());
        let stream = Matrix::new(&*working.stream, 0, rows, hidden);
        let attended = Matrix::new(&kept.attended, 0, rows, query_columns);
        let into = MatrixMut::new(&mut *working.narrow, 0, rows, query_columns);
        self.linear_backward(device, output, attended, stream, into, gradient);
        let outer = Matrix::new(&*working.narrow, 0, rows, query_columns);
        let projected = Matrix::new(&kept.qkv, 0, rows, columns);
        let into = MatrixMut::new(&mut *working.wide, 0, rows, columns);
        let (shape, saved, scratch) = (&batch.attention, &kept.attention, &mut *working.scratch);
        device.attention_backward(shape, projected, saved, attended, outer, scratch, into);
        let turned = query_columns + heads.key_columns();
        let turned = MatrixMut::strided(&mut *working.wide, 0, rows, turned, columns);
        device.rotary(turned, &batch.positions, self.rotary(), Direction::Backward);
        if let Some(norms) = head_norms {
            let projected = Matrix::new(&kept.projected, 0, rows, columns);
            let into = MatrixMut::new(&mut *working.wide, 0, rows, columns);
            let of_norms = MatrixMut::new(&mut *gradient, norms.offset, 2, heads.dimension);
            let (norms, scales) = (self.head_norms(norms), &kept.head_scales);
            device.head_norm_backward(heads, projected, norms, scales, into, of_norms);
        }
        let outer = Matrix::new(&*working.wide, 0, rows, columns);
        if let Some(bias) = qkv_bias {
            device.sum_rows(outer, vector_mut(bias, gradient));
        }
        let normed = Matrix::new(&kept.input_normed, 0, rows, hidden);
        let into = MatrixMut::new(&mut *working.normed, 0, rows, hidden);
        self.linear_backward(device, qkv, normed, outer, into, gradient);
        device.rms_norm_backward(
            Matrix::new(&kept.input, 0, rows, hidden),
            self.vector(input_norm),
            &kept.input_scales,
            Matrix::new(&*working.normed, 0, rows, hidden),
            MatrixMut::new(&mut *working.stream, 0, rows, hidden),
            vector_mut(input_norm, gradient),
        );
    }

    /// Of `y = x . W^T`: `dW = dy^T . x` and `dx = dy . W`.
    fn linear_backward(
        &self,
        device: &D,
        linear: Linear,
        input: Matrix<'_, D::Buffer>,
        output_gradient: Matrix<'_, D::Buffer>,
        input_gradient: MatrixMut<'_, D::Buffer>,
        gradient: &mut D::Buffer,
    ) {
        device.multiply(1.0, output_gradient.transposed(), input, 0.0, linear.of_mut(gradient));
        device.multiply(1.0, output_gradient, linear.of(&self.parameters), 0.0, input_gradient);
    }
}

fn vector_mut<B>(vector: Vector, gradient: &mut B) -> MatrixMut<'_, B> {
    MatrixMut::new(gradient, vector.offset, 1, vector.length)
}
