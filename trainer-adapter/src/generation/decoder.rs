//! Decoding over a key-value cache.
//!
//! A prompt has a slot in each layer's cache, shared by all requests with that prompt; a response has a slot of its own.
//! Every product runs under [`RowRule::Alone`], so a row's bits depend on its own sequence only.

use std::collections::HashMap;

use super::request::{GenerateOptions, GenerateRequest, Generation};
use super::sampler::sample;
use crate::device::{AttentionHeads, CacheRow, Device, Direction, Matrix, MatrixMut, RowRule};
use crate::error::Error;
use crate::policy::{LinearIndex, Policy, PolicyConfig, Shape, logit_stride};

/// Rows that run through the model together at most; a limit on memory, not on the batch.
const ROWS_MAX: usize = 64;

/// Positions of a slot are a multiple of this.
const SLOT_STEP: usize = 16;

/// Samples from policies, keeping its buffers from call to call. One thread uses it at a time.
pub struct Generator<D: Device> {
    device: D,
    /// Keys and values of each layer; see [`Device::cache_store`].
    caches: Vec<D::Buffer>,
    stream: D::Buffer,
    normed: D::Buffer,
    wide: D::Buffer,
    narrow: D::Buffer,
    scales: D::Buffer,
    logits: D::Buffer,
    scratch: Vec<f32>,
}

/// Where a sequence piece lies in each layer's cache.
#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    offset: usize,
    capacity: usize,
}

/// Hands out slots one behind the other.
struct Slots {
    heads: AttentionHeads,
    end: usize,
}

impl Slots {
    fn take(&mut self, positions: usize) -> Slot {
        let capacity = positions.next_multiple_of(SLOT_STEP);
        let slot = Slot { offset: self.end, capacity };
        self.end += 2 * self.heads.key_columns() * capacity;
        slot
    }
}

/// Rows for the model: a token, its position, its places in the cache.
#[derive(Default)]
struct Rows {
    tokens: Vec<u32>,
    positions: Vec<u32>,
    places: Vec<CacheRow>,
}

impl Rows {
    fn push(&mut self, token: u32, position: usize, place: CacheRow) {
        self.tokens.push(token);
        self.positions.push(position as u32);
        self.places.push(place);
    }
}

/// A request on its way.
struct Decoding<'a> {
    request: &'a GenerateRequest<'a>,
    prompt: usize,
    own: Slot,
    result: Generation,
}

impl<D: Device> Generator<D> {
    /// A generator with no buffers yet.
    pub fn new(device: &D) -> Self {
        let empty = || device.allocate(0);
        Self {
            caches: Vec::new(),
            stream: empty(),
            normed: empty(),
            wide: empty(),
            narrow: empty(),
            scales: empty(),
            logits: empty(),
            scratch: Vec::new(),
            device: device.clone(),
        }
    }

    /// Generates a response for each request, in their order.
    ///
    /// # Errors
    /// [`Error::EmptyPrompt`], [`Error::Token`], [`Error::TooLong`] name the first request that cannot be generated;
    /// [`Error::Config`] names an option.
    pub fn generate(
        &mut self,
        policy: &Policy<D>,
        requests: &[GenerateRequest<'_>],
        options: &GenerateOptions,
    ) -> Result<Vec<Generation>, Error> {
        let config = policy.config();
        options.check(config, requests)?;
        if options.max_new_tokens == 0 {
            return Ok(vec![Generation::default(); requests.len()]);
        }
        let mut slots = Slots { heads: config.heads(), end: 0 };
        let mut prompts: Vec<(&[u32], Slot)> = Vec::new();
        let mut by_prompt: HashMap<&[u32], usize> = HashMap::new();
        let mut decodings: Vec<Decoding<'_>> = Vec::with_capacity(requests.len());
        for request in requests {
            let prompt = *by_prompt.entry(request.prompt).or_insert_with(|| {
                prompts.push((request.prompt, slots.take(request.prompt.len())));
                prompts.len() - 1
            });
            let own = slots.take(options.max_new_tokens);
            decodings.push(Decoding { request, prompt, own, result: Generation::default() });
        }
        self.reserve(config, slots.end);
        let first = self.prefill(policy, &prompts);
        let vocabulary = config.vocab_size;
        for decoding in &mut decodings {
            let logits = &first[decoding.prompt * vocabulary..][..vocabulary];
            decoding.extend(logits, options, &mut self.scratch);
        }
        self.decode(policy, &prompts, &mut decodings, options);
        Ok(decodings.into_iter().map(|decoding| decoding.result).collect())
    }

    /// Samples until every response has ended.
    fn decode(
        &mut self,
        policy: &Policy<D>,
        prompts: &[(&[u32], Slot)],
        decodings: &mut [Decoding<'_>],
        options: &GenerateOptions,
    ) {
        let vocabulary = policy.config().vocab_size;
        let mut open: Vec<&mut Decoding<'_>> = decodings.iter_mut().collect();
        loop {
            open.retain(|decoding| {
                !decoding.result.finished && decoding.result.tokens.len() < options.max_new_tokens
            });
            if open.is_empty() {
                return;
            }
            for part in open.chunks_mut(ROWS_MAX) {
                let mut rows = Rows::default();
                for decoding in part.iter() {
                    decoding.push_row(prompts, &mut rows);
                }
                self.run(policy, &rows);
                let readouts: Vec<u32> = (0..part.len() as u32).collect();
                let logits = self.logits(policy, &readouts);
                for (decoding, logits) in part.iter_mut().zip(logits.chunks_exact(vocabulary)) {
                    decoding.extend(logits, options, &mut self.scratch);
                }
            }
        }
    }

    /// Runs the prompts through the model and returns the logits after each, `[prompts, V]`.
    fn prefill(&mut self, policy: &Policy<D>, prompts: &[(&[u32], Slot)]) -> Vec<f32> {
        let mut logits = Vec::with_capacity(prompts.len() * policy.config().vocab_size);
        let (mut rows, mut ends) = (Rows::default(), Vec::new());
        for &(prompt, slot) in prompts {
            for (position, &token) in prompt.iter().enumerate() {
                let place = CacheRow {
                    prompt_slot: 0,
                    prompt_capacity: 0,
                    prompt_length: 0,
                    own_slot: slot.offset,
                    own_capacity: slot.capacity,
                    own_index: position,
                };
                rows.push(token, position, place);
                if position + 1 == prompt.len() {
                    ends.push(rows.tokens.len() as u32 - 1);
                }
                if rows.tokens.len() == ROWS_MAX {
                    self.run(policy, &std::mem::take(&mut rows));
                    logits.extend(self.logits(policy, &std::mem::take(&mut ends)));
                }
            }
        }
        self.run(policy, &rows);
        logits.extend(self.logits(policy, &ends));
        logits
    }

    fn reserve(&mut self, config: &PolicyConfig, cache: usize) {
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
            room(buffer, cache);
        }
        for buffer in [&mut self.stream, &mut self.normed] {
            room(buffer, rows * config.hidden_size);
        }
        room(&mut self.wide, rows * heads.columns().max(2 * config.intermediate_size));
        room(
            &mut self.narrow,
            rows * heads.query_columns().max(config.intermediate_size).max(config.hidden_size),
        );
        room(&mut self.scales, rows);
        room(&mut self.logits, rows * logit_stride(config));
    }

    /// Runs rows through all layers; their residual streams are left in `stream`.
    fn run(&mut self, policy: &Policy<D>, rows: &Rows) {
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
        let Self { device, caches, stream, normed, wide, narrow, scales, .. } = self;
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
        let bias = policy.vector(layout.layers[layer].qkv_bias);
        device.add_row(bias, MatrixMut::new(wide, 0, count, columns));
        let turned = MatrixMut::strided(wide, 0, count, query_columns + heads.key_columns(), columns);
        device.rotary(turned, &rows.positions, policy.rotary(), Direction::Forward);
        let qkv = Matrix::new(&*wide, 0, count, columns);
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
    fn logits(&mut self, policy: &Policy<D>, readouts: &[u32]) -> Vec<f32> {
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

impl Decoding<'_> {
    /// Samples the next token.
    fn extend(&mut self, logits: &[f32], options: &GenerateOptions, scratch: &mut Vec<f32>) {
        let uniform = self.request.key.uniform(self.result.tokens.len() as u32);
        let draw = sample(logits, options.temperature, uniform, scratch);
        self.result.tokens.push(draw.token);
        self.result.log_probs.push(draw.log_prob);
        self.result.finished = options.stop_token == Some(draw.token);
    }

    /// The row of the token that was sampled last.
    fn push_row(&self, prompts: &[(&[u32], Slot)], rows: &mut Rows) {
        let Some(&token) = self.result.tokens.last() else { return };
        let (prompt, slot) = prompts[self.prompt];
        let own_index = self.result.tokens.len() - 1;
        let place = CacheRow {
            prompt_slot: slot.offset,
            prompt_capacity: slot.capacity,
            prompt_length: prompt.len(),
            own_slot: self.own.offset,
            own_capacity: self.own.capacity,
            own_index,
        };
        rows.push(token, prompt.len() + own_index, place);
    }
}
