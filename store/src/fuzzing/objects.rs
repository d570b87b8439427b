//! What the object layer reads: files of the disk tier, and the journal of the host tier.

use std::path::Path;

use super::{ROOT, put};
use crate::disk::SimulatedDisk;
use crate::object::{FoundFile, Manifest, look_at, replay_journal, verify_file};

/// A file of the disk tier at the place of version 3 of `solver`: nothing of it is believed that does not fit together.
pub fn object(bytes: &[u8]) {
    let disk = SimulatedDisk::default();
    let path = Path::new(ROOT).join("objects/solver/00000000000000000003.safetensors");
    put(&disk, &path, bytes);
    let found = look_at(&disk, &path);
    if let Ok(FoundFile::Ours { manifest, .. }) = &found {
        assert_eq!((&*manifest.key, manifest.version), ("solver", 3), "its name says what it is");
        check(manifest);
        assert!(manifest.bytes() <= bytes.len() as u64, "there are bytes behind its end");
    }
    if let Ok(Some(checked)) = verify_file(&disk, &path, &mut |_| Ok(())) {
        assert!(found.is_ok() && checked == bytes.len() as u64);
    }
}

/// A journal of the host tier: it says what its whole records say, and the rest says nothing.
pub fn journal(bytes: &[u8]) {
    let recovered = replay_journal(bytes);
    for (manifest, entry) in &recovered.objects {
        check(manifest);
        assert_eq!(entry.places.len(), manifest.layout.payloads().len());
        assert!(recovered.last[&manifest.key] >= manifest.version, "a number could come again");
    }
    for (key, version) in &recovered.deleted {
        assert!(recovered.last[key] >= *version);
    }
    for (number, loan) in &recovered.loans {
        assert_eq!(*number, loan.number);
    }
}

/// What is asked of every manifest that was read.
fn check(manifest: &Manifest) {
    let mut ends = vec![0; manifest.layout.payloads().len()];
    for tensor in manifest.layout.tensors() {
        assert!(tensor.offset >= ends[tensor.payload], "tensors overlap");
        ends[tensor.payload] = tensor.range().end;
        let rows = tensor.shape.first().copied().unwrap_or(1);
        assert_eq!(rows * tensor.row_bytes(), tensor.bytes);
    }
    let payloads = manifest.layout.payloads().iter().map(|payload| payload.bytes);
    assert!(payloads.zip(ends).all(|(bytes, end)| end <= bytes));
    for chunk in manifest.chunks() {
        _ = manifest.checksum(&chunk);
        _ = manifest.mismatch(&chunk);
    }
}
