//! A trainer's state as one safetensors payload: weights, both moments, and its counters, exact to the bit.
//!
//! Tensors: `parameters`, `first_moments`, `second_moments`, each flat f32 in the order of the parameter layout, and
//! `counters`, two 64-bit numbers (version, updates) as four f32 of 16 bits each... see `pack`.
