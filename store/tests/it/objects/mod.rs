//! Objects that are set and got: versions, leases, tiers, and what is left of them after a crash.

mod atomic;
mod beside;
mod crash;
mod damaged;
mod deleted;
mod disk;
mod fill;
mod held;
mod killed;
mod lent;
mod message;
mod owner;
mod restart;
mod shortage;
mod torture;
mod versions;
mod wait;

use std::path::Path;

use forebay_store::*;

/// Two memory classes, lengths that are no multiples of anything, a chunk and more of weights.
pub(super) fn layout() -> Layout {
    Layout::builder()
        .tensor("weights", "embed", Dtype::Bf16, &[1000, 700])
        .tensor("weights", "head", Dtype::Bf16, &[7, 33])
        .tensor("moments", "embed.first", Dtype::F32, &[1000, 3])
        .tensor("moments", "scale", Dtype::F64, &[])
        .build()
        .unwrap()
}

/// What a tensor of a version holds: bytes that follow from both names and the number.
pub(super) fn content(key: &str, version: u64, tensor: &Tensor) -> Vec<u8> {
    let seed = format!("{key} {version} {}", tensor.name).bytes().fold(7_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23)
    });
    (0..tensor.bytes)
        .map(|at| (seed.wrapping_add(at.wrapping_mul(0xD134_2543_DE82_EF95)) >> 56) as u8)
        .collect()
}

pub(super) fn fill(filling: &Filling, version: u64) {
    for tensor in filling.layout().tensors() {
        filling.write(&tensor.name, 0, &content(filling.key(), version, tensor)).unwrap();
    }
}

/// Sets the next version, with the content of its number.
pub(super) fn set(objects: &Objects, key: &str) -> u64 {
    let next = objects.list().iter().filter(|o| o.manifest.key == key).map(|o| o.manifest.version).max();
    set_as(objects, key, next.unwrap_or(0) + 1)
}

pub(super) fn set_as(objects: &Objects, key: &str, version: u64) -> u64 {
    let filling = objects.begin(key, Expected::Any, &layout()).unwrap();
    fill(&filling, version);
    filling.commit_as(version).unwrap()
}

/// Every byte of every tensor is what its version says.
pub(super) fn check(held: &Held) {
    let manifest = held.manifest();
    for tensor in manifest.layout.tensors() {
        let found = held.tensor(&tensor.name).unwrap().to_vec().unwrap();
        let meant = content(&manifest.key, manifest.version, tensor);
        assert!(found == meant, "{held:?}: {}", tensor.name);
    }
}

pub(super) fn options(host: HostFolder) -> Options {
    Options::default().objects(ObjectOptions::default().host_folder(host))
}

/// A store whose host tier ends with it.
pub(super) fn anonymous(path: &Path, with: impl FnOnce(ObjectOptions) -> ObjectOptions) -> (Store, Objects) {
    let objects = with(ObjectOptions::default().host_folder(HostFolder::Anonymous));
    let store = Store::open(path.join("store"), Options::default().objects(objects)).unwrap();
    let objects = store.objects().unwrap();
    (store, objects)
}

/// A store whose host tier lies in a folder of the test.
pub(super) fn with_folder(path: &Path) -> (Store, Objects) {
    let store = Store::open(path.join("store"), options(HostFolder::At(path.join("host")))).unwrap();
    let objects = store.objects().unwrap();
    (store, objects)
}

pub(super) fn tiers(objects: &Objects, key: &str, version: u64) -> Vec<Tier> {
    let found = objects.list().into_iter().find(|o| o.manifest.key == key && o.manifest.version == version);
    found.map(|object| object.tiers).unwrap_or_default()
}

pub(super) fn numbers(objects: &Objects, key: &str) -> Vec<u64> {
    objects.list().iter().filter(|o| o.manifest.key == key).map(|o| o.manifest.version).collect()
}
