//! Layouts against what they promise.

use super::*;
use crate::error::Kind;

type Named<'a> = (&'a str, &'a str, Dtype, &'a [u64]);

fn of(tensors: &[Named<'_>]) -> Result<Layout> {
    let builder = tensors.iter().fold(Layout::builder(), |b, (c, n, d, s)| b.tensor(c, n, *d, s));
    builder.build()
}

#[test]
fn tensors_begin_at_multiples_of_256_bytes_in_the_payload_of_their_class() {
    let layout = of(&[
        ("weights", "a", Dtype::Bf16, &[3, 5]),
        ("moments", "b", Dtype::F32, &[64]),
        ("weights", "empty", Dtype::F32, &[0, 7]),
        ("weights", "scalar", Dtype::F64, &[]),
    ])
    .unwrap();
    let places: Vec<_> = layout.tensors().iter().map(|t| (t.payload, t.offset, t.bytes)).collect();
    assert_eq!(places, [(0, 0, 30), (1, 0, 256), (0, 256, 0), (0, 256, 8)]);
    assert_eq!(layout.payloads().iter().map(|p| p.bytes).collect::<Vec<_>>(), [512, 256]);
    assert_eq!(layout.tensors_in(0, 0..256), ["a"]);
    assert_eq!(layout.tensor_that_ends_at(0, 264).unwrap().name, "scalar");
    assert!(layout.tensor_that_ends_at(0, 29).is_none());
}

// FX-69
#[test]
fn what_cannot_be_laid_out_is_refused_with_its_name() {
    let long = "x".repeat(300);
    let cases: [(&[Named<'_>], &str); 9] = [
        (&[], "0 tensors"),
        (&[("weights", "a", Dtype::U8, &[1]), ("moments", "a", Dtype::U8, &[1])], "\"a\" exists"),
        (&[("weights", "", Dtype::U8, &[1])], "empty"),
        (&[("weights", "__metadata__", Dtype::U8, &[1])], "__metadata__"),
        (&[("weights", "__pad_0", Dtype::U8, &[1])], "__pad_0"),
        (&[("weights", &long, Dtype::U8, &[1])], "256 bytes"),
        (&[("not a class", "a", Dtype::U8, &[1])], "memory class \"not a class\""),
        (&[("weights", "huge", Dtype::F64, &[1 << 40, 1 << 40])], "\"huge\""),
        (&[("weights", "none", Dtype::F64, &[0, 1 << 40, 1 << 40])], "\"none\""),
    ];
    for (tensors, message) in cases {
        let error = of(tensors).unwrap_err();
        assert_eq!(error.kind(), Kind::Input, "{error}");
        assert!(error.to_string().contains(message), "{error}");
    }
    let layout = of(&[("weights", "layers.0.query", Dtype::U8, &[1])]).unwrap();
    let error = layout.tensor("layers.0.qery").unwrap_err();
    assert!(error.to_string().contains("did you mean \"layers.0.query\""), "{error}");
}

#[test]
fn a_fingerprint_changes_with_all_that_gives_bytes_another_meaning() {
    let base: &[Named<'_>] = &[("weights", "a", Dtype::F32, &[2, 3]), ("weights", "b", Dtype::F32, &[1])];
    let print = |tensors: &[Named<'_>]| of(tensors).unwrap().fingerprint();
    assert_eq!(print(base), print(base));
    let others: [&[Named<'_>]; 6] = [
        &[("weights", "a", Dtype::F32, &[3, 2]), ("weights", "b", Dtype::F32, &[1])],
        &[("weights", "a", Dtype::I32, &[2, 3]), ("weights", "b", Dtype::F32, &[1])],
        &[("weights", "b", Dtype::F32, &[1]), ("weights", "a", Dtype::F32, &[2, 3])],
        &[("weights", "a", Dtype::F32, &[2, 3]), ("master", "b", Dtype::F32, &[1])],
        &[("weights", "a", Dtype::F32, &[2, 3]), ("weights", "c", Dtype::F32, &[1])],
        &[("weights", "a", Dtype::F32, &[2, 3])],
    ];
    for other in others {
        assert_ne!(print(other), print(base), "{other:?}");
    }
}
