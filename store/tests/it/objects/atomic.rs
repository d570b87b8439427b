//! Shards of one state: committed together or not at all.

use super::*;

const SHARDS: [&str; 3] = ["actor.0", "actor.1", "actor.2"];

fn shards(objects: &Objects, version: u64) -> [Filling; 3] {
    SHARDS.map(|key| {
        let filling = objects.begin(key, Expected::Any, &layout()).unwrap();
        fill(&filling, version);
        filling
    })
}

#[test]
fn a_reader_never_sees_half_of_a_commit() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, objects) = anonymous(dir.path(), |o| o);
    assert!(objects.get_together(&SHARDS, &Get::default()).is_err());
    objects.commit_together(&shards(&objects, 1).each_ref()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for version in 2..30 {
                let together = shards(&objects, version);
                assert_eq!(objects.commit_together(&together.each_ref()).unwrap(), version);
            }
        });
        let mut seen = 0;
        while seen < 29 {
            let held = objects.get_together(&SHARDS, &Get::default()).unwrap();
            let versions: Vec<u64> = held.iter().map(Held::version).collect();
            assert!(versions.iter().all(|version| *version == versions[0]), "{versions:?}");
            assert!(versions[0] >= seen, "it went back");
            if versions[0] > seen {
                held.iter().for_each(check);
            }
            seen = versions[0];
        }
    });
}

#[test]
fn one_member_that_cannot_be_committed_holds_all_back() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, objects) = anonymous(dir.path(), |o| o);
    let ready = shards(&objects, 4);
    let unfilled = objects.begin("actor.3", Expected::Any, &layout()).unwrap();
    let outran = objects.begin("judge", Expected::Absent, &layout()).unwrap();
    fill(&outran, 4);
    set_as(&objects, "judge", 3);
    for culprit in [&unfilled, &outran] {
        let all: Vec<&Filling> = ready.iter().chain([culprit]).collect();
        assert_eq!(objects.commit_together(&all).unwrap_err().kind(), Kind::State);
        assert!(SHARDS.iter().all(|key| objects.get(key, Which::Latest).is_err()), "nothing is seen");
    }
    assert!(objects.commit_together(&[&ready[0], &ready[0]]).is_err(), "nor is one twice");
    outran.expect(Expected::Version(3));
    let all: Vec<&Filling> = ready.iter().chain([&outran]).collect();
    assert_eq!(objects.commit_together(&all).unwrap(), 4, "one number, above all of theirs");
    objects.get_together(&SHARDS, &Get::default()).unwrap().iter().for_each(check);
}

/// What is got together, by its numbers.
fn together(objects: &Objects, keys: &[&str]) -> Result<Vec<u64>> {
    let held = objects.get_together(keys, &Get::default())?;
    held.iter().for_each(check);
    Ok(held.iter().map(Held::version).collect())
}

// FX-69: what was set one by one shares a number, and nothing else.
#[test]
fn members_that_went_their_own_way_to_the_same_number_are_not_had_together() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, objects) = anonymous(dir.path(), |o| o.versions_kept(8));
    objects.commit_together(&shards(&objects, 1).each_ref()).unwrap();
    SHARDS.iter().for_each(|key| _ = set(&objects, key));
    assert_eq!(together(&objects, &SHARDS).unwrap(), [1, 1, 1]);
    assert_eq!(together(&objects, &SHARDS[1..]).unwrap(), [1, 1], "some of those of one commit");
    assert_eq!(together(&objects, &SHARDS[..1]).unwrap(), [2], "one is together with itself");
    assert_eq!(objects.commit_together(&shards(&objects, 3).each_ref()).unwrap(), 3);
    assert_eq!(together(&objects, &SHARDS).unwrap(), [3, 3, 3]);
    objects.delete("actor.2", 3).unwrap();
    assert_eq!(together(&objects, &SHARDS).unwrap(), [1, 1, 1]);
    assert_eq!(together(&objects, &SHARDS[..2]).unwrap(), [3, 3]);
    objects.delete("actor.0", 1).unwrap();
    let error = together(&objects, &SHARDS).unwrap_err();
    assert_eq!(error.kind(), Kind::State);
    assert!(error.to_string().contains("\"actor.0\", \"actor.1\", \"actor.2\""), "{error}");
}

#[test]
fn two_commits_of_other_members_are_not_mixed_whatever_their_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, objects) = anonymous(dir.path(), |o| o.versions_kept(8));
    let [first, second, third] = shards(&objects, 1);
    let fourth = objects.begin("actor.3", Expected::Any, &layout()).unwrap();
    fill(&fourth, 1);
    assert_eq!(objects.commit_together(&[&first, &second]).unwrap(), 1);
    assert_eq!(objects.commit_together(&[&third, &fourth]).unwrap(), 1);
    assert_eq!(together(&objects, &SHARDS).unwrap_err().kind(), Kind::State);
    assert_eq!(together(&objects, &["actor.3", "actor.2"]).unwrap(), [1, 1]);
}

#[test]
fn who_was_committed_with_whom_is_known_after_a_restart_and_on_the_disk() {
    for demoted in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (store, objects) = with_folder(dir.path());
        objects.commit_together(&shards(&objects, 1).each_ref()).unwrap();
        SHARDS.iter().for_each(|key| _ = set(&objects, key));
        if demoted {
            for key in SHARDS {
                (1..=2).for_each(|version| _ = objects.demote(key, Which::Exact(version)).unwrap());
            }
            objects.give_back_host().unwrap(); // what is known is what the files say
        }
        drop(objects);
        drop(store);
        let (_store, objects) = with_folder(dir.path());
        assert_eq!(together(&objects, &SHARDS).unwrap(), [1, 1, 1], "demoted: {demoted}");
        assert_eq!(set(&objects, "actor.0"), 3);
    }
}

#[test]
fn a_member_that_went_its_own_way_takes_readers_back_to_what_all_have() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, objects) = anonymous(dir.path(), |o| o);
    objects.commit_together(&shards(&objects, 1).each_ref()).unwrap();
    set(&objects, "actor.1");
    let held = objects.get_together(&SHARDS, &Get::default()).unwrap();
    assert!(held.iter().all(|held| held.version() == 1));
}
