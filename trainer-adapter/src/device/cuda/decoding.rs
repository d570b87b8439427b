//! The key-value cache of decoding.
#![allow(
    unsafe_code,
    reason = "launches, each with the arguments of its kernel over views that were checked"
)]

use super::kernel::{Argument, Kernel, THREADS};
use super::view::{View, count};
use super::{CudaBuffer, CudaDevice};
use crate::device::{AttentionHeads, CacheRow};

/// Positions of a block of keys: `BLOCK` of the source. Capacities are multiples of it.
const BLOCK: usize = 16;

/// `Place` of the source, checked against the cache.
fn places(
    heads: AttentionHeads,
    rows: &[CacheRow],
    cache: &CudaBuffer,
    reads_prompts: bool,
) -> Vec<[u64; 6]> {
    let check = |slot: usize, capacity: usize, length: usize| {
        assert!(length <= capacity && capacity.is_multiple_of(BLOCK), "positions lie in their slot");
        assert!(slot + 2 * heads.key_columns() * capacity <= cache.length, "a slot lies in the cache");
    };
    let place = |row: &CacheRow| {
        check(row.own_slot, row.own_capacity, row.own_index + 1);
        if reads_prompts {
            check(row.prompt_slot, row.prompt_capacity, row.prompt_length);
        }
        let prompt = [row.prompt_slot, row.prompt_capacity, row.prompt_length];
        let own = [row.own_slot, row.own_capacity, row.own_index];
        let mut all = [0; 6];
        all.iter_mut().zip(prompt.into_iter().chain(own)).for_each(|(into, value)| *into = value as u64);
        all
    };
    rows.iter().map(place).collect()
}

fn check(heads: AttentionHeads, rows: &[CacheRow], qkv: View) {
    assert!(rows.len() <= qkv.rows && heads.columns() <= qkv.columns, "queries, keys and values of each row");
}

impl CudaDevice {
    pub(super) fn cache_store_on(
        &self,
        heads: AttentionHeads,
        rows: &[CacheRow],
        qkv: View,
        cache: &CudaBuffer,
    ) {
        check(heads, rows, qkv);
        let table = self.queue.table(&places(heads, rows, cache, false));
        let arguments = [
            Argument::Address(table.address()),
            qkv.place(),
            qkv.stride(),
            count(heads.queries),
            count(heads.keys),
            count(heads.dimension),
            Argument::Address(cache.memory.address()),
        ];
        // SAFETY: as said above; places lie in the cache.
        unsafe { self.queue.launch(Kernel::CacheStore, [rows.len(), heads.keys, 1], &arguments) };
    }

    pub(super) fn cache_attention_on(
        &self,
        heads: AttentionHeads,
        rows: &[CacheRow],
        qkv: View,
        cache: &CudaBuffer,
        output: View,
    ) {
        check(heads, rows, qkv);
        assert!(rows.len() <= output.rows && heads.query_columns() <= output.columns, "room for every head");
        let table = self.queue.table(&places(heads, rows, cache, true));
        let arguments = [
            Argument::Address(table.address()),
            qkv.place(),
            qkv.stride(),
            count(heads.queries),
            count(heads.keys),
            count(heads.dimension),
            Argument::Single(heads.scale()),
            Argument::Address(cache.memory.address()),
            output.place(),
            output.stride(),
        ];
        let grid = [rows.len(), heads.queries, heads.dimension.div_ceil(THREADS as usize)];
        // SAFETY: as said above; places lie in the cache.
        unsafe { self.queue.launch(Kernel::CacheAttention, grid, &arguments) };
    }
}
