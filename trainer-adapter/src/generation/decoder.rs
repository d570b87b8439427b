//! The model over rows that extend sequences in a key-value cache.
//!
//! Every product runs under [`RowRule::Alone`] and attention is by row, so a row's bits depend on its own sequence only.

use super::slot::Slots;
use crate::device::{CacheRow, Device, Direction, Matrix, MatrixMut, RowRule};
use crate::error::Error;
use crate::policy::{LinearIndex, ModelType, Policy, PolicyConfig, Shape, logit_stride};

/// Rows that run through the model together at most; a limit on memory, not on the batch.
pub(super) const ROWS_MAX: usize = 64;

/// Rows for the model: a token, its position, its places in the cache.
#[derive(Default)]
pub(super) struct Rows {
    tokens: Vec<u32>,
    positions: Vec<u32>,
    places: Vec<CacheRow>,
}

impl Rows {
    pub(super) fn push(&mut self, token: u32, position: usize, place: CacheRow) {
        self.tokens.push(token);
        self.positions.push(position as u32);
        self.places.push(place);
    }

    pub(super) fn count(&self) -> usize {
        self.tokens.len()
    }
}

/// The model's buffers. H hidden size, V vocabulary, all for [`ROWS_MAX`] rows.
pub(super) struct Decoder<D: Device> {
    device: D,
    /// Keys and values of each layer; see [`Device::cache_store`].
    caches: Vec<D::Buffer>,
    /// `[rows, H]`: the residual stream.
    stream: D::Buffer,
    /// `[rows, H]`: what a norm or a block's last product gives.
    normed: D::Buffer,
    /// `[rows, widest]`: queries, keys and values; gates and ups.
    wide: D::Buffer,
    /// `[rows, A.D + 2 K.D]` and `[rows, A + K]`: after the norms of heads, where there are any.
    headed: D::Buffer,
    head_scales: D::Buffer,
    /// `[rows, narrower]`: what attention or SwiGLU gives.
    narrow: D::Buffer,
    scales: D::Buffer,
    /// `[rows, V]`.
    logits: D::Buffer,
}

impl<D: Device> Decoder<D> {
    pub(super) fn new(device: &D) -> Self {
        let empty = || device.allocate(0);
        Self {
            caches: Vec::new(),
            stream: empty(),
            normed: empty(),
            wide: empty(),
            headed: empty(),
            head_scales: empty(),
            narrow: empty(),
            scales: empty(),
            logits: empty(),
            device: device.clone(),
        }
    }

    /// Whether what came out so far is what it should be.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.device.check()
    }

    /// Makes room for the rows and for the slots that were taken.
    pub(super) fn reserve(&mut self, config: &PolicyConfig, slots: &Slots) {
        let device = &self.device;
        let room = |buffer: &mut D::Buffer, length: usize| {
            if device.length(buffer) < length {
                *buffer = device.allocate(length.next_power_of_two());
            }
        };
        let rows = ROWS_MAX.next_multiple_of(D::ROW_TILE);
        let heads = config.heads();
        self.caches.resize_with(config.num_hidden_layers, || device.allocate(0));
        for buffer in &mut self.caches {
            room(buffer, slots.length());
        }
        for buffer in [&mut self.stream, &mut self.normed] {
            room(buffer, rows * config.hidden_size);
        }
        room(&mut self.wide, rows * heads.columns().max(2 * config.intermediate_size));
        if config.model_type == ModelType::Qwen3 {
            room(&mut self.headed, rows * heads.columns());
            room(&mut self.head_scales, rows * (heads.queries + heads.keys));
        }
        room(
            &mut self.narrow,
            rows * heads.query_columns().max(config.intermediate_size).max(config.hidden_size),
        );
        room(&mut self.scales, rows);
        room(&mut self.logits, rows * logit_stride(config));
    }

    /// Runs rows through all layers; their residual streams are left in `stream`.
    pub(super) fn run(&mut self, policy: &Policy<D>, rows: &Rows) {
        let count = rows.tokens.len();
        if count == 0 {
            return;
        }
        let Shape { config, layout, .. } = &*policy.shape;
        let embedding = layout.embedding.of(&policy.parameters);
        let stream = MatrixMut::new(&mut self.stream, 0, count, config.hidden_size);
        self.device.gather(embedding, &rows.tokens, stream);
        for layer in 0..config.num_hidden_layers {
            self.attend(policy, layer, rows);
            self.transform(policy, layer, count);
        }
    }

    /// The attention block of a layer.
    fn attend(&mut self, policy: &Policy<D>, layer: usize, rows: &Rows) {
        let Self { device, caches, stream, normed, wide, headed, head_scales, narrow, scales, .. } = self;
        let Shape { config, layout, .. } = &*policy.shape;
        let (count, hidden, heads) = (rows.tokens.len(), config.hidden_size, config.heads());
        let (columns, query_columns) = (heads.columns(), heads.query_columns());
        let linear = |which: LinearIndex, input: Matrix<'_, D::Buffer>, output: MatrixMut<'_, D::Buffer>| {
            device.linear(&policy.prepared, which.into(), input, output, RowRule::Alone);
        };
        let weight = policy.vector(layout.layers[layer].input_norm);
        let into = MatrixMut::new(normed, 0, count, hidden);
        device.rms_norm(Matrix::new(stream, 0, count, hidden), weight, config.rms_norm_eps, into, scales);
        let input = Matrix::new(&*normed, 0, count, hidden);
        linear(LinearIndex::Qkv(layer), input, MatrixMut::new(wide, 0, count, columns));
        let mut qkv = wide;
        if let Some(norms) = layout.layers[layer].head_norms {
            let (norms, epsilon) = (policy.head_norms(norms), config.rms_norm_eps);
            let (projected, into) =
                (Matrix::new(&*qkv, 0, count, columns), MatrixMut::new(headed, 0, count, columns));
            device.head_norm(heads, projected, norms, epsilon, into, head_scales);
            qkv = headed;
        } else if let Some(bias) = layout.layers[layer].qkv_bias {
            device.add_row(policy.vector(bias), MatrixMut::new(qkv, 0, count, columns));
        }
        let turned = MatrixMut::strided(qkv, 0, count, query_columns + heads.key_columns(), columns);
        device.rotary(turned, &rows.positions, policy.rotary(), Direction::Forward);
        let qkv = Matrix::new(&*qkv, 0, count, columns);
        device.cache_store(heads, &rows.places, qkv, &mut caches[layer]);
        let into = MatrixMut::new(narrow, 0, count, query_columns);
        device.cache_attention(heads, &rows.places, qkv, &caches[layer], into);
        let attended = Matrix::new(&*narrow, 0, count, query_columns);
        linear(LinearIndex::Output(layer), attended, MatrixMut::new(normed, 0, count, hidden));
        device.add(Matrix::new(&*normed, 0, count, hidden), MatrixMut::new(stream, 0, count, hidden));
    }

    /// The MLP block of a layer.
    fn transform(&mut self, policy: &Policy<D>, layer: usize, count: usize) {
        let Self { device, stream, normed, wide, narrow, scales, .. } = self;
        let Shape { config, layout, .. } = &*policy.shape;
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        let linear = |which: LinearIndex, input: Matrix<'_, D::Buffer>, output: MatrixMut<'_, D::Buffer>| {
            device.linear(&policy.prepared, which.into(), input, output, RowRule::Alone);
        };
        let weight = policy.vector(layout.layers[layer].mlp_norm);
        let into = MatrixMut::new(normed, 0, count, hidden);
        device.rms_norm(Matrix::new(stream, 0, count, hidden), weight, config.rms_norm_eps, into, scales);
        let input = Matrix::new(&*normed, 0, count, hidden);
        linear(LinearIndex::GateUp(layer), input, MatrixMut::new(wide, 0, count, 2 * inner));
        device.swiglu(Matrix::new(&*wide, 0, count, 2 * inner), MatrixMut::new(narrow, 0, count, inner));
        let activated = Matrix::new(&*narrow, 0, count, inner);
        linear(LinearIndex::Down(layer), activated, MatrixMut::new(normed, 0, count, hidden));
        device.add(Matrix::new(&*normed, 0, count, hidden), MatrixMut::new(stream, 0, count, hidden));
    }

    /// Logits of some rows of the last [`Self::run`], `[readouts, V]`.
    pub(super) fn logits(&mut self, policy: &Policy<D>, readouts: &[u32]) -> Vec<f32> {
        let Self { device, stream, normed, narrow, scales, logits, .. } = self;
        let Shape { config, layout, .. } = &*policy.shape;
        let (count, hidden, stride) = (readouts.len(), config.hidden_size, logit_stride(config));
        device.gather(
            Matrix::new(stream, 0, ROWS_MAX, hidden),
            readouts,
            MatrixMut::new(narrow, 0, count, hidden),
        );
        let weight = policy.vector(layout.final_norm);
        let picked = Matrix::new(&*narrow, 0, count, hidden);
        let into = MatrixMut::new(normed, 0, count, hidden);
        device.rms_norm(picked, weight, config.rms_norm_eps, into, scales);
        let into = MatrixMut::strided(logits, 0, count, config.vocab_size, stride);
        let input = Matrix::new(&*normed, 0, count, hidden);
        device.linear(&policy.prepared, LinearIndex::Embedding.into(), input, into, RowRule::Alone);
        let mut values = vec![0.0; count * config.vocab_size];
        for (row, values) in values.chunks_exact_mut(config.vocab_size).enumerate() {
            device.download(logits, row * stride, values);
        }
        values
    }
}
