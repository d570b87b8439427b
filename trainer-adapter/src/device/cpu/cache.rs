//! Attention of decoding: one row at a time over a key-value cache.
//!
//! A slot holds, for each key head, its keys and then its values, `capacity` positions each (whole lane groups). Keys lie
//! in blocks of [`LANES`] positions, `[dimension][positions]` inside a block, so that the scores of a block are built by
//! vectors without a sum across lanes; values lie position by position. A row's result is built from its own query and
//! its own slots in one order, so its neighbours in the batch cannot change a bit of it.

use super::buffer::{Rows, RowsMut};
use super::simd::{LANES, exp_in_place, max_of, vectorised};
use crate::device::{AttentionHeads, CacheRow};

vectorised! {
    pub(super) fn store<'a>(heads: AttentionHeads, rows: &'a [CacheRow], qkv: Rows<'a>, cache: &'a mut [f32]) {
        let dimension = heads.dimension;
        for (index, place) in rows.iter().enumerate() {
            let (keys, values) = qkv.row(index)[heads.query_columns()..].split_at(heads.key_columns());
            let size = place.own_capacity * dimension;
            for head in 0..heads.keys {
                let slot = &mut cache[place.own_slot + head * 2 * size..][..2 * size];
                let (block, lane) = (place.own_index / LANES, place.own_index % LANES);
                for (d, &key) in keys[head * dimension..][..dimension].iter().enumerate() {
                    slot[(block * dimension + d) * LANES + lane] = key;
                }
                slot[size + place.own_index * dimension..][..dimension]
                    .copy_from_slice(&values[head * dimension..][..dimension]);
            }
        }
    }
}

vectorised! {
    pub(super) fn attention<'a>(
        heads: AttentionHeads,
        rows: &'a [CacheRow],
        qkv: Rows<'a>,
        cache: &'a [f32],
        scores: &'a mut Vec<f32>,
        output: RowsMut<'a>,
    ) {
        for (index, place) in rows.iter().enumerate() {
            let own = place.own_index + 1;
            let prompt_room = place.prompt_length.next_multiple_of(LANES);
            scores.resize(prompt_room + own.next_multiple_of(LANES), 0.0);
            for head in 0..heads.queries {
                let query = &qkv.row(index)[head * heads.dimension..][..heads.dimension];
                let prompt = slot(cache, heads, head, place.prompt_slot, place.prompt_capacity);
                let own_slot = slot(cache, heads, head, place.own_slot, place.own_capacity);
                let (prompt_scores, own_scores) = scores.split_at_mut(prompt_room);
                score(query, prompt.0, heads.scale(), prompt_scores);
                score(query, own_slot.0, heads.scale(), own_scores);
                let (prompt_scores, own_scores) = (&mut prompt_scores[..place.prompt_length], &mut own_scores[..own]);
                let max = max_of(prompt_scores).max(max_of(own_scores));
                let sum = exp_in_place(prompt_scores, max) + exp_in_place(own_scores, max);
                let into = &mut output.row(index)[head * heads.dimension..][..heads.dimension];
                into.fill(0.0);
                weigh(prompt_scores, prompt.1, into);
                weigh(own_scores, own_slot.1, into);
                for value in into {
                    *value *= 1.0 / sum;
                }
            }
        }
    }
}

/// Keys and values of the key head that serves a query head. A slot of no capacity is empty.
#[inline(always)]
fn slot(cache: &[f32], heads: AttentionHeads, head: usize, slot: usize, capacity: usize) -> (&[f32], &[f32]) {
    let size = capacity * heads.dimension;
    cache[slot + heads.key_head(head) * 2 * size..][..2 * size].split_at(size)
}

/// Scores of whole blocks of positions.
#[inline(always)]
fn score(query: &[f32], keys: &[f32], scale: f32, scores: &mut [f32]) {
    let (blocks, _) = scores.as_chunks_mut::<LANES>();
    for (block, keys) in blocks.iter_mut().zip(keys.chunks_exact(LANES * query.len())) {
        let mut sums = [0.0; LANES];
        let (keys, _) = keys.as_chunks::<LANES>();
        for (&q, keys) in query.iter().zip(keys) {
            for lane in 0..LANES {
                sums[lane] += q * keys[lane];
            }
        }
        *block = sums.map(|sum| sum * scale);
    }
}

/// `into += sum of weights[position] * values[position]`, by position.
#[inline(always)]
fn weigh(weights: &[f32], values: &[f32], into: &mut [f32]) {
    for (&weight, values) in weights.iter().zip(values.chunks_exact(into.len())) {
        for (sum, &value) in into.iter_mut().zip(values) {
            *sum += weight * value;
        }
    }
}
