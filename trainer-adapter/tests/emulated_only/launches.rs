//! How often the GPU is called.

use forebay_trainer_adapter::device::cuda::{CudaBuffer, Piece, ProductType};
use forebay_trainer_adapter::{AdamW, CudaDevice, Device};

use crate::emulation::emulated;
use crate::operations::{buffer, random};

fn launches(device: &CudaDevice, work: impl FnOnce()) -> u64 {
    let before = device.launches();
    work();
    device.launches() - before
}

/// FX-70: taking as many values into the cache, the norm and the update costs the same launches however many tensors they
/// are; so does packing tensors that lie by themselves.
#[test]
fn launches_do_not_grow_with_the_number_of_tensors() {
    let device = emulated(ProductType::Float32);
    let mut counts = Vec::new();
    for tensors in [10, 10_000] {
        let lengths: Vec<usize> = (0..tensors).map(|index| 1 + index % 7).collect();
        let length = lengths.iter().sum();
        let own: Vec<CudaBuffer> = (0..10).map(|seed| buffer(&device, seed + 1, length)).collect();
        let mut pieces = Vec::new();
        let mut target_offset = 0;
        for (index, &length) in lengths.iter().enumerate() {
            pieces.push((&own[index % 10], Piece { source_offset: index % 3, target_offset, length }));
            target_offset += length;
        }
        let mut flat = device.allocate(length);
        let packing = launches(&device, || device.copy_pieces(&pieces, &mut flat));
        let mut packed = vec![0.0; length];
        device.download(&flat, 0, &mut packed);
        for (source, Piece { source_offset, target_offset, length: values }) in pieces {
            let seed = own.iter().position(|buffer| std::ptr::eq(buffer, source)).unwrap() as u64 + 1;
            let expected = &random(seed, length)[source_offset..][..values];
            assert_eq!(&packed[target_offset..][..values], expected);
        }
        let [mut cache, mut parameters, mut first, mut second] =
            [20, 21, 22, 23].map(|seed| buffer(&device, seed, length));
        let updating = launches(&device, || {
            device.accumulate(&flat, &mut cache);
            assert!(device.sum_of_squares(&cache) > 0.0);
            device.adamw(&AdamW::default().step(1, 1.0), &cache, &mut parameters, &mut first, &mut second);
        });
        counts.push((packing, updating));
    }
    assert_eq!(counts, [(1, 3), (1, 3)]);
}
