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

#[test]
fn a_member_that_went_its_own_way_takes_readers_back_to_what_all_have() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, objects) = anonymous(dir.path(), |o| o);
    objects.commit_together(&shards(&objects, 1).each_ref()).unwrap();
    set(&objects, "actor.1");
    let held = objects.get_together(&SHARDS, &Get::default()).unwrap();
    assert!(held.iter().all(|held| held.version() == 1));
}
