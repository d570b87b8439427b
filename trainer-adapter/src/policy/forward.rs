//! The forward pass over a batch of rows, keeping what the backward pass needs.

use super::activations::{Activations, Batch, LayerActivations, logit_stride};
use super::layout::{LayerLayout, LinearIndex};
use super::{Policy, Shape};
use crate::device::{Device, Direction, Matrix, MatrixMut, RowRule};

/// What a readout says about its target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TokenStatistics {
    /// Log-probability of the target, in nats.
    pub(crate) log_prob: f32,
    /// Entropy of the distribution, in nats.
    pub(crate) entropy: f32,
}

impl<D: Device> Policy<D> {
    /// Runs the model and returns the statistics of each readout.
    pub(crate) fn forward(
        &self,
        device: &D,
        batch: &Batch,
        kept: &mut Activations<D>,
    ) -> Vec<TokenStatistics> {
        kept.reserve(device, self.config(), batch);
        let Shape { config, layout, .. } = &*self.shape;
        let (rows, hidden) = (batch.tokens.len(), config.hidden_size);
        let embedding = layout.embedding.of(&self.parameters);
        let Activations { layers, hidden: last, .. } = kept;
        device.gather(embedding, &batch.tokens, MatrixMut::new(&mut layers[0].input, 0, rows, hidden));
        for index in 0..layers.len() {
            let (this, next) = layers.split_at_mut(index + 1);
            let output = next.first_mut().map_or(&mut *last, |layer| &mut layer.input);
            self.layer_forward(device, index, batch, &mut this[index], output);
        }
        self.read_out(device, batch, kept)
    }

    fn layer_forward(
        &self,
        device: &D,
        index: usize,
        batch: &Batch,
        kept: &mut LayerActivations<D>,
        output: &mut D::Buffer,
    ) {
        let Shape { config, layout, .. } = &*self.shape;
        let (rows, hidden, inner) = (batch.tokens.len(), config.hidden_size, config.intermediate_size);
        let LayerLayout { input_norm, qkv_bias, head_norms, mlp_norm, .. } = layout.layers[index];
        let heads = config.heads();
        let linear = |which: LinearIndex, input: Matrix<'_, D::Buffer>, output: MatrixMut<'_, D::Buffer>| {
            device.linear(&self.prepared, which.into(), input, output, RowRule::Together);
        };
        let input = Matrix::new(&kept.input, 0, rows, hidden);

        let normed = MatrixMut::new(&mut kept.input_normed, 0, rows, hidden);
        device.rms_norm(input, self.vector(input_norm), config.rms_norm_eps, normed, &mut kept.input_scales);
        let normed = Matrix::new(&kept.input_normed, 0, rows, hidden);
        let projected = if head_norms.is_some() { &mut kept.projected } else { &mut kept.qkv };
        linear(LinearIndex::Qkv(index), normed, MatrixMut::new(projected, 0, rows, heads.columns()));
        let qkv = MatrixMut::new(&mut kept.qkv, 0, rows, heads.columns());
        if let Some(norms) = head_norms {
            let projected = Matrix::new(&kept.projected, 0, rows, heads.columns());
            let (norms, epsilon) = (self.head_norms(norms), config.rms_norm_eps);
            device.head_norm(heads, projected, norms, epsilon, qkv, &mut kept.head_scales);
        } else if let Some(bias) = qkv_bias {
            device.add_row(self.vector(bias), qkv);
        }
        let turned = heads.query_columns() + heads.key_columns();
        let turned = MatrixMut::strided(&mut kept.qkv, 0, rows, turned, heads.columns());
        device.rotary(turned, &batch.positions, self.rotary(), Direction::Forward);
        let attended = MatrixMut::new(&mut kept.attended, 0, rows, heads.query_columns());
        let qkv = Matrix::new(&kept.qkv, 0, rows, heads.columns());
        device.attention(&batch.attention, qkv, &mut kept.attention, attended);
        let attended = Matrix::new(&kept.attended, 0, rows, heads.query_columns());
        linear(LinearIndex::Output(index), attended, MatrixMut::new(&mut kept.middle, 0, rows, hidden));
        device.add(input, MatrixMut::new(&mut kept.middle, 0, rows, hidden));

        let middle = Matrix::new(&kept.middle, 0, rows, hidden);
        let normed = MatrixMut::new(&mut kept.middle_normed, 0, rows, hidden);
        device.rms_norm(middle, self.vector(mlp_norm), config.rms_norm_eps, normed, &mut kept.middle_scales);
        let normed = Matrix::new(&kept.middle_normed, 0, rows, hidden);
        linear(LinearIndex::GateUp(index), normed, MatrixMut::new(&mut kept.gate_up, 0, rows, 2 * inner));
        let gate_up = Matrix::new(&kept.gate_up, 0, rows, 2 * inner);
        device.swiglu(gate_up, MatrixMut::new(&mut kept.inner, 0, rows, inner));
        let inner = Matrix::new(&kept.inner, 0, rows, inner);
        linear(LinearIndex::Down(index), inner, MatrixMut::new(output, 0, rows, hidden));
        device.add(middle, MatrixMut::new(output, 0, rows, hidden));
    }

    fn read_out(&self, device: &D, batch: &Batch, kept: &mut Activations<D>) -> Vec<TokenStatistics> {
        let Shape { config, layout, .. } = &*self.shape;
        let (rows, readouts, hidden) = (batch.tokens.len(), batch.readouts.len(), config.hidden_size);
        let stride = logit_stride(config);
        let source = Matrix::new(&kept.hidden, 0, rows, hidden);
        device.gather(source, &batch.readouts, MatrixMut::new(&mut kept.picked, 0, readouts, hidden));
        let picked = Matrix::new(&kept.picked, 0, readouts, hidden);
        let normed = MatrixMut::new(&mut kept.picked_normed, 0, readouts, hidden);
        let weight = self.vector(layout.final_norm);
        device.rms_norm(picked, weight, config.rms_norm_eps, normed, &mut kept.picked_scales);
        let normed = Matrix::new(&kept.picked_normed, 0, readouts, hidden);
        let logits = MatrixMut::strided(&mut kept.logits, 0, readouts, config.vocab_size, stride);
        device.linear(&self.prepared, LinearIndex::Embedding.into(), normed, logits, RowRule::Together);
        let logits = Matrix::strided(&kept.logits, 0, readouts, config.vocab_size, stride);
        device.token_statistics(logits, &batch.targets, MatrixMut::new(&mut kept.statistics, 0, readouts, 3));
        let mut values = vec![0.0; readouts * 3];
        device.download(&kept.statistics, 0, &mut values);
        values.chunks_exact(3).map(|row| TokenStatistics { log_prob: row[0], entropy: row[1] }).collect()
    }
}
