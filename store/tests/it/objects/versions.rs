//! Which version is which: commits by compare-and-set, numbers, retention.

use super::*;

#[test]
fn of_two_fillers_that_expect_the_same_exactly_one_commits() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, objects) = anonymous(dir.path(), |o| o);
    for round in 0..20 {
        let expected = if round == 0 { Expected::Absent } else { Expected::Version(round) };
        let fillings = [0; 4].map(|_| {
            let filling = objects.begin("solver", expected, &layout()).unwrap();
            fill(&filling, round + 1);
            filling
        });
        let outcomes: Vec<Result<u64>> = std::thread::scope(|scope| {
            let threads = fillings.each_ref().map(|filling| scope.spawn(|| filling.commit()));
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let won: Vec<u64> = outcomes.iter().filter_map(|outcome| outcome.as_ref().ok().copied()).collect();
        assert_eq!(won, [round + 1]);
        for lost in outcomes.iter().filter_map(|outcome| outcome.as_ref().err()) {
            assert_eq!(lost.kind(), Kind::State);
            let text = lost.to_string();
            assert!(text.contains(&format!("is at version {}", round + 1)), "{text}");
            assert!(text.contains(if round == 0 { "none was" } else { "was expected" }), "{text}");
        }
        check(&objects.get("solver", Which::Latest).unwrap());
    }
    assert_eq!(objects.stats().conflicts, 60);
}

#[test]
fn a_refused_commit_can_be_tried_again_with_what_was_filled() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, objects) = anonymous(dir.path(), |o| o);
    let filling = objects.begin("solver", Expected::Absent, &layout()).unwrap();
    fill(&filling, 2);
    set(&objects, "solver");
    assert!(matches!(filling.commit().unwrap_err().cause(), Cause::ObjectConflict { .. }));
    assert!(objects.begin("solver", Expected::Absent, &layout()).is_err(), "and so is a new one, at once");
    filling.expect(Expected::Version(1));
    assert_eq!(filling.commit().unwrap(), 2);
    check(&objects.get("solver", Which::Exact(2)).unwrap());
}

// FX-B22
#[test]
fn a_version_that_is_there_is_never_set_again() {
    let dir = tempfile::tempdir().unwrap();
    let (store, objects) = anonymous(dir.path(), |o| o.versions_kept(9));
    assert_eq!([set(&objects, "solver"), set_as(&objects, "solver", 5)], [1, 5]);
    let filling = objects.begin("solver", Expected::Any, &layout()).unwrap();
    fill(&filling, 6);
    let error = filling.commit_as(5).unwrap_err();
    assert!(matches!(error.cause(), Cause::Exists { .. }), "{error}");
    let error = filling.commit_as(3).unwrap_err();
    assert!(
        matches!(error.cause(), Cause::ObjectConflict { .. }),
        "passed over, and not to be had any more: {error}"
    );
    let error = store.put_object("solver", 5, b"other bytes").unwrap_err();
    assert!(matches!(error.cause(), Cause::Exists { .. }), "nor by the other door: {error}");
    store.put_object("solver", 6, b"as trainers write it").unwrap();
    assert!(filling.commit_as(6).is_err(), "nor what the other door has taken");
    assert_eq!(filling.commit_as(7).unwrap(), 7);
    drop(filling);
    assert_eq!(set_as(&objects, "solver", 8), 8);
    for version in [1, 5, 8] {
        check(&objects.get("solver", Which::Exact(version)).unwrap());
    }
    objects.delete("solver", 8).unwrap();
    assert_eq!(set_as(&objects, "solver", 9), 9);
    assert!(objects.begin("solver", Expected::Version(8), &layout()).is_err());
}

// FX-69
#[test]
fn what_is_not_there_is_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, objects) = anonymous(dir.path(), |o| o.versions_kept(1));
    (0..3).for_each(|_| _ = set(&objects, "solver"));
    let refused = |key, which| objects.get(key, which).unwrap_err();
    let cases = [
        (refused("slover", Which::Latest), Kind::Input, "did you mean \"solver\""),
        (refused("solver", Which::Exact(2)), Kind::State, "version 2 of object \"solver\" is gone"),
        (refused("solver", Which::Exact(4)), Kind::Retry, "the newest is version 3"),
        (refused("solver", Which::AtLeast(4, Wait::No)), Kind::Retry, "has not come"),
    ];
    for (error, kind, message) in cases {
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(message), "{error}");
    }
    objects.delete("solver", 3).unwrap();
    assert!(!objects.delete("solver", 3).unwrap());
    assert_eq!(refused("solver", Which::Latest).kind(), Kind::State);
}

#[test]
fn the_newest_versions_are_kept_and_those_that_somebody_holds() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, objects) = anonymous(dir.path(), |o| o.versions_kept(2));
    set(&objects, "solver");
    let held = objects.get("solver", Which::Latest).unwrap();
    let again = objects.get("solver", Which::Exact(1)).unwrap();
    (0..3).for_each(|_| _ = set(&objects, "solver"));
    assert_eq!(numbers(&objects, "solver"), [1, 3, 4]);
    check(&held);
    drop(held);
    assert_eq!(numbers(&objects, "solver"), [1, 3, 4], "somebody else holds it");
    drop(again);
    assert_eq!(numbers(&objects, "solver"), [3, 4]);

    let held = objects.get("solver", Which::Exact(4)).unwrap();
    assert!(objects.delete("solver", 4).unwrap());
    assert_eq!(numbers(&objects, "solver"), [3], "nobody finds what was deleted");
    let taken = objects.stats().host_bytes_taken;
    check(&held);
    drop(held);
    assert!(objects.stats().host_bytes_taken < taken, "and its memory is free with its last lease");
}

#[test]
fn from_the_second_swap_on_nothing_is_mapped() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, objects) = anonymous(dir.path(), |o| o.versions_kept(1));
    set(&objects, "solver");
    set(&objects, "solver"); // beside the first, until that goes
    let first = objects.stats();
    assert!(first.segments_mapped > 0 && first.segment_bytes_mapped == first.host_bytes);
    (0..30).for_each(|_| _ = set(&objects, "solver"));
    let last = objects.stats();
    assert_eq!(
        (last.segments_mapped, last.segment_bytes_mapped),
        (first.segments_mapped, first.segment_bytes_mapped)
    );
    assert_eq!((last.pageable_fallbacks, last.sets), (0, 32));
    check(&objects.get("solver", Which::Latest).unwrap());
}

#[test]
fn the_last_number_of_all_is_refused_and_none_follows_the_one_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, objects) = anonymous(dir.path(), |o| o);
    let filling = objects.begin("solver", Expected::Any, &layout()).unwrap();
    fill(&filling, 1);
    let error = filling.commit_as(u64::MAX).unwrap_err();
    assert!(error.kind() == Kind::Input && error.to_string().contains(&u64::MAX.to_string()), "{error}");
    assert_eq!(filling.commit_as(u64::MAX - 1).unwrap(), u64::MAX - 1);
    let next = objects.begin("solver", Expected::Any, &layout()).unwrap();
    fill(&next, 1);
    assert_eq!(next.commit().unwrap_err().kind(), Kind::Input);
}
