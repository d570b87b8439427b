//! Attention, of training and of decoding.

use forebay_trainer_adapter::Device;
use forebay_trainer_adapter::device::{
    AttentionHeads, Branch, CacheRow, Family, Matrix, MatrixMut, SharedAttention,
};

use super::{buffer, read};

/// Two families: one with a prompt longer than two tiles and branches of every kind, one of a prompt alone.
fn families(heads: AttentionHeads) -> SharedAttention {
    let branches = vec![
        Branch { first: 41, rows: 35 },
        Branch { first: 76, rows: 0 },
        Branch { first: 76, rows: 1 },
        Branch { first: 77, rows: 16 },
    ];
    let families = vec![
        Family { first: 0, prompt: 41, branches },
        Family { first: 93, prompt: 5, branches: Vec::new() },
    ];
    SharedAttention { heads, families }
}

pub(super) fn attention<D: Device>(device: &D, seed: u64) -> Vec<f32> {
    let mut all = Vec::new();
    for (queries, keys, dimension) in [(6, 3, 6), (2, 2, 40), (4, 1, 130)] {
        let heads = AttentionHeads { queries, keys, dimension };
        let shape = families(heads);
        let (rows, columns) = (98, heads.query_columns());
        let qkv = buffer(device, seed, rows * heads.columns());
        let memory = device.attention_memory(&shape);
        let (mut kept, mut scratch) = (device.allocate(memory.kept), device.allocate(memory.scratch));
        let mut output = device.allocate(rows * columns);
        let inputs = Matrix::new(&qkv, 0, rows, heads.columns());
        device.attention(&shape, inputs, &mut kept, MatrixMut::new(&mut output, 0, rows, columns));
        let outer = buffer(device, seed + 1, rows * columns);
        let mut gradient = buffer(device, seed + 2, rows * heads.columns());
        let (made, dy) = (Matrix::new(&output, 0, rows, columns), Matrix::new(&outer, 0, rows, columns));
        let into = MatrixMut::new(&mut gradient, 0, rows, heads.columns());
        device.attention_backward(&shape, inputs, &kept, made, dy, &mut scratch, into);
        all.extend([read(device, &output), read(device, &gradient)].concat());
    }
    all
}

pub(super) fn cache<D: Device>(device: &D, seed: u64) -> Vec<f32> {
    let mut all = Vec::new();
    for (queries, keys, dimension) in [(6, 3, 6), (2, 1, 40)] {
        let heads = AttentionHeads { queries, keys, dimension };
        let slot = 2 * heads.key_columns();
        // A prompt of 150 positions, and two responses behind it.
        let mut cache = device.allocate(slot * (160 + 2 * 32));
        let place = |row: usize| CacheRow {
            prompt_slot: 0,
            prompt_capacity: 160,
            prompt_length: if row < 150 { 0 } else { 150 },
            own_slot: [0, slot * 160, slot * 192][if row < 150 { 0 } else { 1 + row % 2 }],
            own_capacity: if row < 150 { 160 } else { 32 },
            own_index: if row < 150 { row } else { (row - 150) / 2 },
        };
        let rows: Vec<CacheRow> = (0..190).map(place).collect();
        let qkv = buffer(device, seed, 190 * heads.columns());
        let mut output = device.allocate(190 * heads.query_columns());
        let inputs = Matrix::new(&qkv, 0, 190, heads.columns());
        device.cache_store(heads, &rows, inputs, &mut cache);
        device.cache_attention(
            heads,
            &rows,
            inputs,
            &cache,
            MatrixMut::new(&mut output, 0, 190, heads.query_columns()),
        );
        all.extend(read(device, &output));
    }
    all
}
