//! What a version is made of: every byte follows from its seed.

use forebay_store::{Dtype, Layout, Manifest};

/// What is set and got.
pub(super) const KEY: &str = "solver";
/// What is published and received.
pub(super) const ONCE: &str = "news";
const SEED: &str = "seed";

/// Two classes of several chunks, of lengths that nothing divides.
pub(super) fn layout() -> Layout {
    Layout::builder()
        .tensor("weights", "embed", Dtype::Bf16, &[901, 777])
        .tensor("weights", "head", Dtype::F32, &[3])
        .tensor("moments", "first", Dtype::F32, &[5, 60_001])
        .build()
        .unwrap()
}

pub(super) fn metadata(seed: u64) -> (&'static str, String) {
    (SEED, seed.to_string())
}

pub(super) fn seed_of(manifest: &Manifest) -> Option<u64> {
    manifest.metadata.get(SEED)?.parse().ok()
}

/// The bytes of a tensor of that seed.
pub(super) fn bytes(tensor: &str, seed: u64, length: usize) -> Vec<u8> {
    let name: u64 = tensor.bytes().map(u64::from).sum();
    let mut bytes = Vec::with_capacity(length + 8);
    let mut at = seed ^ name << 32;
    while bytes.len() < length {
        at = at.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (at ^ at >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bytes.extend_from_slice(&(mixed ^ mixed >> 27).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Compares every byte of a version with what its seed says; `read` fills a buffer with a tensor's.
pub(super) fn check(seed: u64, mut read: impl FnMut(&str, &mut [u8])) {
    for tensor in layout().tensors() {
        let mut found = vec![0; tensor.bytes as usize];
        read(&tensor.name, &mut found);
        check_tensor(&tensor.name, seed, &found);
    }
}

pub(super) fn check_tensor(tensor: &str, seed: u64, found: &[u8]) {
    let meant = bytes(tensor, seed, found.len());
    let wrong = found.iter().zip(&meant).position(|(found, meant)| found != meant);
    assert!(wrong.is_none(), "byte {wrong:?} of {tensor} is not of seed {seed}: the version is mixed");
}
