//! Filling a version: what is accepted, and what is refused.

use super::*;

// FX-62
#[test]
fn what_was_set_is_got_by_name_by_rows_and_by_class() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, objects) = anonymous(dir.path(), |o| o);
    assert_eq!(set(&objects, "solver"), 1);
    for tier in [Tier::Host, Tier::Disk] {
        let held = objects.get_with("solver", Which::Latest, &Get::default().tier(tier)).unwrap();
        assert_eq!((held.tier(), held.version()), (tier, 1));
        check(&held);
        held.verify().unwrap();
        let embed = content("solver", 1, layout().tensor("embed").unwrap());
        for rows in [0..1, 3..500, 999..1000, 0..1000, 5..5] {
            let part = held.tensor("embed").unwrap().rows(rows.clone()).unwrap().to_vec().unwrap();
            assert!(part == embed[rows.start as usize * 1400..rows.end as usize * 1400], "{rows:?}");
        }
        let mut both = vec![0; 1_400_000 + 64];
        held.read_class("weights", 0, &mut both).unwrap();
        assert!(both[..1_400_000] == embed && both[1_400_000..].iter().all(|byte| *byte == 0), "and padding");
        let borrowed = held.tensor("head").unwrap().as_bytes().map(<[u8]>::to_vec);
        let head = content("solver", 1, layout().tensor("head").unwrap());
        assert_eq!(borrowed, (tier == Tier::Host).then_some(head));
    }
}

#[test]
fn threads_fill_ranges_of_their_own_in_any_order() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, objects) = anonymous(dir.path(), |o| o);
    let layout = layout();
    let filling = objects.begin("solver", Expected::Any, &layout).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_usize {
            let (filling, layout) = (&filling, &layout);
            scope.spawn(move || {
                for tensor in layout.tensors() {
                    let bytes = content("solver", 1, tensor);
                    let pieces: Vec<&[u8]> = bytes.chunks(10_001).collect();
                    for at in (0..pieces.len()).rev().filter(|at| at % 4 == thread) {
                        filling.write(&tensor.name, at as u64 * 10_001, pieces[at]).unwrap();
                    }
                }
            });
        }
    });
    filling.metadata("step", "12").unwrap();
    assert_eq!(filling.commit().unwrap(), 1);
    let held = objects.get("solver", Which::Latest).unwrap();
    check(&held);
    held.verify().unwrap();
    assert_eq!(held.manifest().metadata["step"], "12");
}

// FX-69
#[test]
fn what_does_not_fit_is_refused_and_nothing_of_it_is_seen() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, objects) = anonymous(dir.path(), |o| o);
    let filling = objects.begin("solver", Expected::Any, &layout()).unwrap();
    let cases: [(Result<()>, Kind, &str); 10] = [
        (filling.write("haed", 0, &[]), Kind::Input, "did you mean \"head\""),
        (
            filling.write("head", 400, &[0; 63]),
            Kind::Input,
            "63 bytes at 400 do not fit \"head\", which has 462 bytes",
        ),
        (filling.write("head", u64::MAX, &[0]), Kind::Input, "462 bytes"),
        (
            filling.put("head", Dtype::F32, &[7, 33], &[0; 924]),
            Kind::Input,
            "\"head\" is BF16 [7, 33], F32 [7, 33]",
        ),
        (filling.put("head", Dtype::Bf16, &[33, 7], &[0; 462]), Kind::Input, "BF16 [33, 7]"),
        (filling.put("head", Dtype::Bf16, &[7, 33], &[0; 461]), Kind::Input, "461 bytes do not fit"),
        (filling.write_class("wieghts", 0, &[]), Kind::Input, "did you mean \"weights\""),
        (filling.write_class("moments", 12_288, &[0; 600]), Kind::Input, "do not fit \"moments\""),
        (filling.metadata("forebay", ""), Kind::Input, "taken by the engine"),
        (filling.commit().map(drop), Kind::State, "\"embed\""),
    ];
    for (result, kind, message) in cases {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(message), "{error}");
    }
    assert_eq!(objects.get("solver", Which::Latest).unwrap_err().kind(), Kind::Input);
    fill(&filling, 1);
    filling.commit().unwrap();
    for late in [filling.write("head", 0, &[1]), filling.commit().map(drop), filling.metadata("a", "b")] {
        assert!(late.unwrap_err().to_string().contains("committed"));
    }
    drop(filling);
    check(&objects.get("solver", Which::Latest).unwrap());
    assert_eq!(objects.begin("../up", Expected::Any, &layout()).unwrap_err().kind(), Kind::Input);
}

#[test]
fn a_hole_is_named_by_its_tensor() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, objects) = anonymous(dir.path(), |o| o);
    let layout = layout();
    for skipped in layout.tensors() {
        let filling = objects.begin("solver", Expected::Any, &layout).unwrap();
        for tensor in layout.tensors().iter().filter(|tensor| tensor.name != skipped.name) {
            filling.write(&tensor.name, 0, &content("solver", 1, tensor)).unwrap();
        }
        filling.write(&skipped.name, 1, &vec![0; skipped.bytes as usize - 1]).unwrap();
        let error = filling.commit().unwrap_err();
        assert!(error.to_string().contains(&format!("{:?} first", skipped.name)), "{error}");
    }
    assert_eq!(objects.stats().host_bytes_taken, 0, "what was dropped is free again");
}

// FX-69
#[test]
fn a_reader_that_means_another_layout_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, objects) = anonymous(dir.path(), |o| o);
    set(&objects, "solver");
    let get = |layout: &Layout| objects.get_with("solver", Which::Latest, &Get::default().layout(layout));
    check(&get(&layout()).unwrap());
    let other = Layout::builder().tensor("weights", "embed", Dtype::Bf16, &[700, 1000]).build().unwrap();
    let error = get(&other).unwrap_err();
    assert_eq!(error.kind(), Kind::Input);
    assert!(error.to_string().contains(&format!("{:016x}", other.fingerprint())), "{error}");
    assert_eq!(objects.stats().layout_mismatches, 1);
}
