//! Requests in, responses out.
//!
//! A prompt has a slot in the cache, shared by all requests with that prompt; a response has a slot of its own. First the
//! distinct prompts run, then all open responses one token at a time.

use std::collections::HashMap;

use super::decoder::{Decoder, ROWS_MAX, Rows};
use super::request::{GenerateOptions, GenerateRequest, Generation};
use super::sampler::sample;
use super::slot::{Slot, Slots};
use crate::device::Device;
use crate::error::Error;
use crate::policy::Policy;

/// Samples from policies, keeping its buffers from call to call. One thread uses it at a time.
pub struct Generator<D: Device> {
    decoder: Decoder<D>,
    scratch: Vec<f32>,
}

/// A prompt that some requests share.
#[derive(Clone, Copy)]
struct Prompt<'a> {
    tokens: &'a [u32],
    slot: Slot,
}

/// A request on its way.
struct Decoding<'a> {
    request: &'a GenerateRequest<'a>,
    /// Which request of the call.
    index: usize,
    /// Which of the distinct prompts.
    prompt: usize,
    slot: Slot,
    result: Generation,
}

impl<D: Device> Generator<D> {
    /// A generator with no buffers yet.
    pub fn new(device: &D) -> Self {
        Self { decoder: Decoder::new(device), scratch: Vec::new() }
    }

    /// Generates a response for each request, in their order.
    ///
    /// # Errors
    /// [`Error::EmptyPrompt`], [`Error::Token`], [`Error::TooLong`] name the first request that cannot be generated;
    /// [`Error::Config`] names an option; [`Error::Device`] if the device has failed.
    pub fn generate(
        &mut self,
        policy: &Policy<D>,
        requests: &[GenerateRequest<'_>],
        options: &GenerateOptions,
    ) -> Result<Vec<Generation>, Error> {
        self.generate_watched(policy, requests, options, &mut |_, _| ())
    }

    /// The same; `watch` is shown each request's logits before each token.
    pub(super) fn generate_watched(
        &mut self,
        policy: &Policy<D>,
        requests: &[GenerateRequest<'_>],
        options: &GenerateOptions,
        watch: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<Vec<Generation>, Error> {
        let config = policy.config();
        options.check(config, requests)?;
        if options.max_new_tokens == 0 {
            return Ok(vec![Generation::default(); requests.len()]);
        }
        let mut slots = Slots::new(config.heads());
        let (prompts, mut decodings) = place(requests, options.max_new_tokens, &mut slots);
        self.decoder.reserve(config, &slots);
        let first = self.prefill(policy, &prompts);
        for decoding in &mut decodings {
            let logits = &first[decoding.prompt * config.vocab_size..][..config.vocab_size];
            watch(decoding.index, logits);
            decoding.extend(logits, options, &mut self.scratch);
        }
        self.decode(policy, &prompts, &mut decodings, options, watch);
        self.decoder.check()?;
        Ok(decodings.into_iter().map(|decoding| decoding.result).collect())
    }

    /// Runs the prompts through the model and returns the logits after each, `[prompts, V]`.
    fn prefill(&mut self, policy: &Policy<D>, prompts: &[Prompt<'_>]) -> Vec<f32> {
        let mut logits = Vec::with_capacity(prompts.len() * policy.config().vocab_size);
        let (mut rows, mut ends) = (Rows::default(), Vec::new());
        let mut flush = |rows: &mut Rows, ends: &mut Vec<u32>| {
            self.decoder.run(policy, &std::mem::take(rows));
            logits.extend(self.decoder.logits(policy, &std::mem::take(ends)));
        };
        for prompt in prompts {
            for (position, &token) in prompt.tokens.iter().enumerate() {
                rows.push(token, position, prompt.slot.prompt_row(position));
                if position + 1 == prompt.tokens.len() {
                    ends.push(rows.count() as u32 - 1);
                }
                if rows.count() == ROWS_MAX {
                    flush(&mut rows, &mut ends);
                }
            }
        }
        flush(&mut rows, &mut ends);
        logits
    }

    /// Samples until every response has ended.
    fn decode(
        &mut self,
        policy: &Policy<D>,
        prompts: &[Prompt<'_>],
        decodings: &mut [Decoding<'_>],
        options: &GenerateOptions,
        watch: &mut dyn FnMut(usize, &[f32]),
    ) {
        let vocabulary = policy.config().vocab_size;
        let mut open: Vec<&mut Decoding<'_>> = decodings.iter_mut().collect();
        loop {
            open.retain(|decoding| decoding.is_open(options));
            if open.is_empty() {
                return;
            }
            for part in open.chunks_mut(ROWS_MAX) {
                let mut rows = Rows::default();
                part.iter().for_each(|decoding| decoding.push_row(prompts, &mut rows));
                self.decoder.run(policy, &rows);
                let readouts: Vec<u32> = (0..part.len() as u32).collect();
                let logits = self.decoder.logits(policy, &readouts);
                for (decoding, logits) in part.iter_mut().zip(logits.chunks_exact(vocabulary)) {
                    watch(decoding.index, logits);
                    decoding.extend(logits, options, &mut self.scratch);
                }
            }
        }
    }
}

/// Gives each distinct prompt and each response its slot.
fn place<'a>(
    requests: &'a [GenerateRequest<'a>],
    max_new_tokens: usize,
    slots: &mut Slots,
) -> (Vec<Prompt<'a>>, Vec<Decoding<'a>>) {
    let mut prompts = Vec::new();
    let mut by_tokens: HashMap<&[u32], usize> = HashMap::new();
    let mut decodings = Vec::with_capacity(requests.len());
    for (index, request) in requests.iter().enumerate() {
        let prompt = *by_tokens.entry(request.prompt).or_insert_with(|| {
            prompts.push(Prompt { tokens: request.prompt, slot: slots.take(request.prompt.len()) });
            prompts.len() - 1
        });
        let slot = slots.take(max_new_tokens);
        decodings.push(Decoding { request, index, prompt, slot, result: Generation::default() });
    }
    (prompts, decodings)
}

impl Decoding<'_> {
    fn is_open(&self, options: &GenerateOptions) -> bool {
        !self.result.finished && self.result.tokens.len() < options.max_new_tokens
    }

    /// Samples the next token.
    fn extend(&mut self, logits: &[f32], options: &GenerateOptions, scratch: &mut Vec<f32>) {
        let uniform = self.request.key.uniform(self.result.tokens.len() as u32);
        let draw = sample(logits, options.temperature, uniform, scratch);
        self.result.tokens.push(draw.token);
        self.result.log_probs.push(draw.log_prob);
        self.result.finished = options.stop_token == Some(draw.token);
    }

    /// The row of the token that was sampled last.
    fn push_row(&self, prompts: &[Prompt<'_>], rows: &mut Rows) {
        let Some(&token) = self.result.tokens.last() else { return };
        let prompt = prompts[self.prompt];
        let (index, length) = (self.result.tokens.len() - 1, prompt.tokens.len());
        rows.push(token, length + index, self.slot.response_row(index, prompt.slot, length));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;
    use crate::device::CpuDevice;
    use crate::policy::{ModelType, PolicyConfig};
    use crate::random::SampleKey;

    /// Bits of the logits before each token, by request.
    fn logits(
        policy: &Policy<CpuDevice>,
        requests: &[GenerateRequest<'_>],
        temperature: f32,
    ) -> Vec<Vec<Vec<u32>>> {
        let mut seen = vec![Vec::new(); requests.len()];
        let options = GenerateOptions { temperature, max_new_tokens: 20, stop_token: Some(5) };
        let mut watch =
            |index: usize, logits: &[f32]| seen[index].push(logits.iter().map(|z| z.to_bits()).collect());
        Generator::new(&CpuDevice::inline())
            .generate_watched(policy, requests, &options, &mut watch)
            .unwrap();
        seen
    }

    /// A sequence's logits do not depend on its neighbours. The sizes include none that a product
    /// could treat specially: vocabulary and widths are both multiples of a vector and not.
    #[test]
    fn logits_are_bitwise_the_same_in_batches_of_1_7_and_64_at_any_place() {
        let (qwen2, qwen3) = (ModelType::Qwen2, ModelType::Qwen3);
        for (model_type, vocab_size, hidden_size, intermediate_size) in
            [(qwen2, 300, 128, 344), (qwen2, 37, 24, 50), (qwen3, 37, 24, 50)]
        {
            let config = PolicyConfig {
                model_type,
                hidden_size,
                intermediate_size,
                initializer_range: 0.2,
                ..PolicyConfig::small(vocab_size)
            };
            let policy = Policy::initialise(&CpuDevice::inline(), &config, 11).unwrap();
            let prompts: Vec<Vec<u32>> = (0..64_u32)
                .map(|row| {
                    (0..3 + row / 2 % 29).map(|at| (row / 2 * 13 + at * 7) % vocab_size as u32).collect()
                })
                .collect();
            let request = |row: usize| GenerateRequest {
                prompt: &prompts[row],
                key: SampleKey { seed: 9, version: 1, sample: row as u64, attempt: 0 },
            };
            let all: Vec<GenerateRequest<'_>> = (0..64).map(request).collect();
            let expected = logits(&policy, &all, 1.0);
            assert!(expected.iter().any(|steps| steps.len() < 20), "some responses end early");
            for row in 0..64 {
                assert_eq!(logits(&policy, &all[row..=row], 1.0)[0], expected[row], "row {row} alone");
            }
            for (first, place) in [(0, 0), (5, 3), (20, 6), (57, 1)] {
                let mut seven = all[first..first + 7].to_vec();
                seven.swap(0, place);
                assert_eq!(
                    logits(&policy, &seven, 1.0)[place],
                    expected[first],
                    "rows from {first}, place {place}"
                );
            }
            let reversed: Vec<_> = all.iter().rev().copied().collect();
            let mut seen = logits(&policy, &reversed, 1.0);
            seen.reverse();
            assert_eq!(seen, expected, "64 in reverse");
        }
    }
}
