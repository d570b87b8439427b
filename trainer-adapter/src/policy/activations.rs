//! What the forward pass leaves for the backward pass, in buffers that are kept from unit to unit.

use super::config::{ModelType, PolicyConfig};
use crate::device::{Device, SharedAttention};

/// The rows that the model works on, and which of them are read out.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Batch {
    /// Token of each row.
    pub(crate) tokens: Vec<u32>,
    /// Position of each row in its sequence.
    pub(crate) positions: Vec<u32>,
    /// Which rows see which.
    pub(crate) attention: SharedAttention,
    /// Rows whose logits are wanted; a row may be read out several times.
    pub(crate) readouts: Vec<u32>,
    /// The token that each readout is to predict.
    pub(crate) targets: Vec<u32>,
}

/// Row stride of the logits: the vocabulary in whole lane groups of 16, which the CPU multiplies fastest into.
pub(crate) fn logit_stride(config: &PolicyConfig) -> usize {
    config.vocab_size.next_multiple_of(16)
}

/// One layer's part. Letters: T rows, H hidden size, I intermediate size.
pub(super) struct LayerActivations<D: Device> {
    /// `[T, H]`: the residual stream as it enters.
    pub(super) input: D::Buffer,
    /// `[T]` and `[T, H]`: the first norm.
    pub(super) input_scales: D::Buffer,
    pub(super) input_normed: D::Buffer,
    /// `[T, A.D + 2 K.D]` and `[T, A + K]`: queries, keys and values before the norms of heads, where there are any.
    pub(super) projected: D::Buffer,
    pub(super) head_scales: D::Buffer,
    /// `[T, A.D + 2 K.D]`: queries and keys after rotation, values.
    pub(super) qkv: D::Buffer,
    /// What the device keeps of attention.
    pub(super) attention: D::Buffer,
    /// `[T, A.D]`.
    pub(super) attended: D::Buffer,
    /// `[T, H]`: the residual stream between attention and MLP.
    pub(super) middle: D::Buffer,
    /// `[T]` and `[T, H]`: the second norm.
    pub(super) middle_scales: D::Buffer,
    pub(super) middle_normed: D::Buffer,
    /// `[T, 2 I]`.
    pub(super) gate_up: D::Buffer,
    /// `[T, I]`.
    pub(super) inner: D::Buffer,
}

/// Buffers of one unit's forward and backward pass. One thread uses them at a time; they grow and are never shrunk.
pub(crate) struct Activations<D: Device> {
    pub(super) layers: Vec<LayerActivations<D>>,
    /// `[T, H]`: the residual stream as it leaves the last layer.
    pub(super) hidden: D::Buffer,
    /// `[N, H]`, `[N]`, `[N, H]`: readouts, the final norm.
    pub(super) picked: D::Buffer,
    pub(super) picked_scales: D::Buffer,
    pub(super) picked_normed: D::Buffer,
    /// `[N, V]`, rows of `logit_stride`: logits, then their gradient.
    pub(super) logits: D::Buffer,
    /// `[N, 3]`.
    pub(super) statistics: D::Buffer,
    /// Gradients: `[T, H]` of the residual stream, `[T, H]` of a norm's output, `[T, widest]` twice.
    pub(super) stream: D::Buffer,
    pub(super) normed: D::Buffer,
    pub(super) wide: D::Buffer,
    pub(super) narrow: D::Buffer,
    pub(super) scratch: D::Buffer,
}

impl<D: Device> Activations<D> {
    /// No room yet.
    pub(crate) fn new(device: &D, config: &PolicyConfig) -> Self {
        let empty = || device.allocate(0);
        let layer = |_| LayerActivations {
            input: empty(),
            input_scales: empty(),
            input_normed: empty(),
            projected: empty(),
            head_scales: empty(),
            qkv: empty(),
            attention: empty(),
            attended: empty(),
            middle: empty(),
            middle_scales: empty(),
            middle_normed: empty(),
            gate_up: empty(),
            inner: empty(),
        };
        Self {
            layers: (0..config.num_hidden_layers).map(layer).collect(),
            hidden: empty(),
            picked: empty(),
            picked_scales: empty(),
            picked_normed: empty(),
            logits: empty(),
            statistics: empty(),
            stream: empty(),
            normed: empty(),
            wide: empty(),
            narrow: empty(),
            scratch: empty(),
        }
    }

    /// Makes room for a batch.
    pub(crate) fn reserve(&mut self, device: &D, config: &PolicyConfig, batch: &Batch) {
        let (rows, readouts) = (batch.tokens.len(), batch.readouts.len());
        let heads = batch.attention.heads;
        let memory = device.attention_memory(&batch.attention);
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        let room = |buffer: &mut D::Buffer, length: usize| {
            if device.length(buffer) < length {
                *buffer = device.allocate(length.next_power_of_two());
            }
        };
        for layer in &mut self.layers {
            for buffer in
                [&mut layer.input, &mut layer.input_normed, &mut layer.middle, &mut layer.middle_normed]
            {
                room(buffer, rows * hidden);
            }
            room(&mut layer.input_scales, rows);
            room(&mut layer.middle_scales, rows);
            if config.model_type == ModelType::Qwen3 {
                room(&mut layer.projected, rows * heads.columns());
                room(&mut layer.head_scales, rows * (heads.queries + heads.keys));
            }
            room(&mut layer.qkv, rows * heads.columns());
            room(&mut layer.attention, memory.kept);
            room(&mut layer.attended, rows * heads.query_columns());
            room(&mut layer.gate_up, rows * 2 * inner);
            room(&mut layer.inner, rows * inner);
        }
        for buffer in [&mut self.picked, &mut self.picked_normed] {
            room(buffer, readouts * hidden);
        }
        room(&mut self.picked_scales, readouts);
        room(&mut self.logits, readouts * logit_stride(config));
        room(&mut self.statistics, readouts * 3);
        for buffer in [&mut self.hidden, &mut self.stream] {
            room(buffer, rows * hidden);
        }
        room(&mut self.normed, rows.max(readouts) * hidden);
        room(&mut self.wide, rows * heads.columns().max(2 * inner));
        room(&mut self.narrow, (rows * heads.query_columns().max(inner)).max(readouts * hidden));
        room(&mut self.scratch, memory.scratch);
    }
}
