//! When the host tier is nearly full, or full.

use super::*;

const MIB: u64 = 1 << 20;

fn put(objects: &Objects, key: &str, class: &str, bytes: u64) -> Result<u64> {
    let layout = Layout::builder().tensor(class, "t", Dtype::U8, &[bytes]).build()?;
    let filling = objects.begin(key, Expected::Any, &layout)?;
    fill(&filling, 1);
    filling.commit()
}

#[test]
fn a_host_tier_that_is_full_says_so_or_uses_heap_memory() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, objects) =
        anonymous(&dir.path().join("strict"), |o| o.host_bytes_max(8 * MIB).pageable_bytes_max(0));
    put(&objects, "a", "weights", 8 * MIB).unwrap();
    let error = put(&objects, "b", "weights", MIB).unwrap_err();
    assert_eq!(error.kind(), Kind::Capacity);
    assert!(error.to_string().contains("8388608 of 8388608 bytes are taken"), "{error}");
    objects.demote("a", Which::Latest).unwrap();
    put(&objects, "b", "weights", MIB).unwrap();
    assert_eq!(
        objects.get("a", Which::Latest).unwrap_err().kind(),
        Kind::Capacity,
        "there is no room for all of it"
    );
    check(&objects.get_with("a", Which::Latest, &Get::default().tier(Tier::Disk)).unwrap());

    let (_store, objects) =
        anonymous(&dir.path().join("pageable"), |o| o.host_bytes_max(8 * MIB).pageable_bytes_max(MIB));
    put(&objects, "a", "weights", 8 * MIB).unwrap();
    put(&objects, "b", "weights", MIB).unwrap();
    assert_eq!((objects.stats().pageable_fallbacks, objects.stats().pageable_bytes), (1, MIB));
    assert_eq!(put(&objects, "c", "weights", 1).unwrap_err().kind(), Kind::Capacity, "heap is bounded, too");
    check(&objects.get("b", Which::Latest).unwrap());
    objects.demote("b", Which::Latest).unwrap();
    assert_eq!(objects.stats().pageable_bytes, 0);
}

#[test]
fn above_the_high_water_mark_idle_versions_go_to_the_disk_until_it_is_at_the_low_one() {
    let dir = tempfile::tempdir().unwrap();
    let (store, objects) = anonymous(dir.path(), |o| o.host_bytes_max(100 * MIB).water_marks_percent(90, 60));
    for (key, class) in
        [("w1", "weights"), ("w2", "weights"), ("m1", "moments"), ("held", "master"), ("m2", "moments")]
    {
        put(&objects, key, class, 16 * MIB).unwrap();
    }
    let held = objects.get("held", Which::Latest).unwrap();
    objects.get("m1", Which::Latest).unwrap(); // m2 is colder now
    store.run_once().unwrap();
    assert_eq!(objects.stats().spills, 0, "80 of 100 are not above 90");
    put(&objects, "last", "weights", 16 * MIB).unwrap();
    store.run_once().unwrap();
    let in_memory = |key| tiers(&objects, key, 1).contains(&Tier::Host);
    let shown = ["w1", "w2", "m1", "m2", "held", "last"].map(in_memory);
    assert_eq!(
        shown,
        [false, true, false, false, true, true],
        "moments first, then the coldest weights; who is held stays"
    );
    assert!(objects.stats().host_bytes_taken <= 60 * MIB);
    for key in ["w1", "m1", "m2"] {
        check(&objects.get_with(key, Which::Latest, &Get::default().tier(Tier::Disk)).unwrap());
    }
    check(&held);
}

#[test]
fn settings_that_do_not_fit_together_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let wrong =
        [ObjectOptions::default().water_marks_percent(70, 80), ObjectOptions::default().segment_bytes(5)];
    for (at, options) in wrong.into_iter().enumerate() {
        let store =
            Store::open(dir.path().join(at.to_string()), Options::default().objects(options)).unwrap();
        assert_eq!(store.objects().unwrap_err().kind(), Kind::Input);
    }
    let path = dir.path().join("0");
    let store = Store::open_read_only(&path).unwrap();
    assert!(matches!(store.objects().unwrap_err().cause(), Cause::ReadOnly { .. }));
}
