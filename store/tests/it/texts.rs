//! Texts that nobody names any more go, and no others.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use forebay_store::*;

use crate::probe::Probe;
use crate::support::*;

/// Rows of a version that comes and goes: each has an input and a parent of its own, so they fill two pages of texts.
const ROWS: usize = 4_200;

/// Writes a version with texts that nobody has seen, and deletes it.
fn come_and_go(store: &Store, version: u64) {
    come(store, version);
    go(store, version);
}

fn come(store: &Store, version: u64) {
    let table = store.table("solver").unwrap();
    for first in (0..ROWS).step_by(600) {
        let mut batch = store.batch();
        for number in first..first + 600 {
            let row = NewRow::new(version, &format!("{}_0_0", input(version, number))).unwrap();
            let row = row.parent(&format!("notes/before-{version}-{number}_0_0"));
            batch.insert(&table, row, [("reward", 1.0.into())]).unwrap();
        }
        batch.commit().unwrap();
    }
}

fn go(store: &Store, version: u64) {
    store.table("solver").unwrap().delete(&Delete::version(version).force()).unwrap();
}

fn input(version: u64, number: usize) -> String {
    format!("input-{version}-{number}")
}

/// `solver`, whose rows come and go, and `notes`, whose rows stay: with a trainer of groups of eight, and a task of groups of three.
fn store(options: Options) -> (Store, Table) {
    let store = Store::open(ROOT, options).unwrap();
    store.create_table("solver", solver_schema()).unwrap();
    let notes = store.create_table("notes", solver_schema()).unwrap();
    let group = |consumer: Consumer, members| consumer.ready(["reward"]).group(GroupBy::Input, members);
    store.create_consumer("train", group(Consumer::trainer(["notes"]), 8)).unwrap();
    store.create_consumer("score", group(Consumer::task(["notes"]), 3)).unwrap();
    store.create_consumer("look", Consumer::task(["notes"]).ready(["prompt"])).unwrap();
    (store, notes)
}

fn add(store: &Store, row: NewRow, cells: &[(&'static str, Value<'static>)]) -> Row {
    let mut batch = store.batch();
    batch.insert(&store.table("notes").unwrap(), row, cells.to_vec()).unwrap();
    batch.commit().unwrap()[0]
}

fn named(id: &str) -> NewRow {
    NewRow::new(0, id).unwrap()
}

/// Everything of the rows that stay, and who holds them.
fn shown(store: &Store) -> String {
    let owners: Vec<String> = store.claims().into_iter().map(|claim| claim.owner).collect();
    format!("{:?}{owners:?}{:?}", scan_content(store)["notes"], store.consumers())
}

fn check_whole(world: &World) {
    let report = verify(ROOT, &world.options(), &mut |_| ControlFlow::Continue(())).unwrap();
    assert!(report.is_sound(), "{report:?}");
}

#[test]
fn a_run_that_sees_new_texts_and_retires_old_ones_stays_as_large_as_it_is() {
    let world = World::new();
    let (store, _) = store(world.options());
    let size = || {
        store.checkpoint().unwrap();
        store.checkpoint().unwrap(); // what the first one has made needless in older files
        let pages = files_with(&image_of(&world.disk), "pages");
        let pages: usize = pages.iter().map(|path| image_of(&world.disk)[path].len()).sum();
        [store.stats().memory_bytes as usize, pages]
    };
    (1..6).for_each(|version| come_and_go(&store, version));
    let before = size();
    for version in 6..26 {
        come_and_go(&store, version);
        store.checkpoint().unwrap();
    }
    let after = size();
    // Twenty versions name 168,000 texts, some 8 MB with the index over them. The index may be three times what it is over.
    for (what, before, after) in [("memory", before[0], after[0]), ("pages", before[1], after[1])] {
        assert!(after < before + 2_000_000, "{what}: {before} bytes, {after} twenty versions later");
    }
}

/// Each kind of place that names a text is the only one that names any of a page.
#[test]
fn whatever_names_a_text_keeps_it() {
    for reopened in [false, true] {
        let world = World::new();
        let (mut store, notes) = store(world.options());
        let (score, look) = (store.consumer("score").unwrap(), store.consumer("look").unwrap());
        let mut versions = 1..;
        let mut next = || come_and_go(&store, versions.next().unwrap());
        next();
        add(&store, named("kept_0_0"), &[]);
        next();
        add(&store, named("kept_0_1").agent("an agent"), &[]);
        next();
        add(&store, named("kept_0_2").external(&Origin { peer: "peer".to_owned(), round: 3 }), &[]);
        next();
        add(&store, named("kept_0_3").parent("nobody/at_0_all"), &[]);
        next();
        add(&store, named("kept_0_4").weights("a fingerprint"), &[]);
        next();
        let left_out = add(&store, named("kept_0_5"), &[]);
        next();
        notes.exclude(left_out, "a reason of its own").unwrap();
        next();
        let seen = add(&store, named("kept_0_6"), &[("prompt", "short".into())]);
        next();
        let claim = look.claim(MicroBatch::of(1), "somebody", Wait::No).unwrap().unwrap();
        assert_eq!(claim.rows(), [seen]);
        next();
        score.expect_group(&notes, 0, "awaited", 1).unwrap();
        next();
        let deleted = add(&store, named("deleted_0_0"), &[]);
        notes.delete(&Delete::rows([deleted])).unwrap();
        next();
        next();
        let (before, bytes) = (shown(&store), store.stats().memory_bytes);
        store.checkpoint().unwrap();
        let less = bytes - store.stats().memory_bytes;
        assert!(less > 500_000, "{less} bytes went: fewer than a few pages of texts have");
        assert_eq!(shown(&store), before);
        if reopened {
            claim.release().unwrap();
            store = world.reopen(store);
        }
        let notes = store.table("notes").unwrap();
        let again = notes.insert(0, "deleted_0_0", []).unwrap_err();
        assert!(matches!(again.cause(), Cause::RowDeleted { .. }), "{again}");
        let row = add(&store, named("awaited_0_0"), &[("reward", 1.0.into())]);
        let score = store.consumer("score").unwrap();
        let claim = score.claim(MicroBatch::of(1), "me", Wait::No).unwrap().expect("a group of one");
        assert_eq!(claim.rows(), [row]);
        if reopened {
            drop((claim, store));
            check_whole(&world);
        }
    }
}

#[test]
fn a_step_keeps_what_it_plans() {
    let world = World::new();
    let (store, _) = store(world.options());
    let train = store.consumer("train").unwrap();
    come_and_go(&store, 1);
    let step = store.begin_step(StepPlan::new().groups(&train, ["planned"])).unwrap();
    (2..4).for_each(|version| come_and_go(&store, version));
    store.checkpoint().unwrap();
    let rows = [0, 1, 2, 3, 4, 5, 6, 7]
        .map(|n| add(&store, named(&format!("planned_0_{n}")), &[("reward", 1.0.into())]));
    let claim = step.next(&train, MicroBatch::of(8), Wait::No).unwrap().expect("the group that was planned");
    assert_eq!(claim.rows(), rows);
    claim.accumulated().unwrap();
    step.commit([("notes", vec![])]).unwrap();
}

/// A text of a page that is about to go is named while the checkpoint is written that leaves the page out.
#[test]
fn a_text_that_is_named_while_its_page_goes_is_one_text_still() {
    let world = World::new();
    let probe = Probe::new(&world.disk);
    let (store, notes) = store(world.options().disk(Arc::new(probe.clone())));
    come(&store, 1);
    store.checkpoint().unwrap(); // which stores the pages
    go(&store, 1);
    come_and_go(&store, 2);
    let (other, old) = (store.clone(), input(1, 4_000));
    let id = format!("{old}_0_0");
    probe.hook(move |verb, path| {
        if verb == "rename" && path.ends_with("MANIFEST") && notes.find(0, &id.parse().unwrap()).is_none() {
            let row = named(&id).parent(&format!("solver/{id}"));
            add(&other, row, &[("reward", 1.0.into())]);
        }
        Ok(())
    });
    store.checkpoint().unwrap();
    probe.hook(|_, _| Ok(()));
    add(&store, named(&format!("{old}_0_1")), &[("reward", 1.0.into())]);
    add(&store, named(&format!("{old}_0_2")), &[("reward", 1.0.into())]);
    let claim = |store: &Store| {
        let score = store.consumer("score").unwrap();
        score
            .claim(MicroBatch::of(3), "me", Wait::No)
            .unwrap()
            .expect("a group of one input")
            .release()
            .unwrap();
    };
    let before = scan_content(&store)["notes"].clone();
    claim(&store);
    let replayed = world.reopen(store);
    assert_eq!(scan_content(&replayed)["notes"], before);
    claim(&replayed);
    // The live one stored the page again, wherever it was.
    for round in 0..3 {
        come_and_go(&replayed, 3 + round);
        replayed.checkpoint().unwrap();
    }
    let restored = world.reopen(replayed);
    assert_eq!(scan_content(&restored)["notes"], before);
    claim(&restored);
    drop(restored);
    check_whole(&world);
}

/// What a checkpoint that failed would have let go is there.
#[test]
fn a_checkpoint_that_fails_lets_no_text_go() {
    let world = World::new();
    let probe = Probe::new(&world.disk);
    let (store, notes) = store(world.options().disk(Arc::new(probe.clone())));
    come(&store, 1);
    store.checkpoint().unwrap();
    go(&store, 1);
    come_and_go(&store, 2);
    let old = input(1, 4_000);
    probe.hook(|verb, path| match verb == "rename" && path == Path::new(ROOT).join("MANIFEST") {
        true => Err(std::io::ErrorKind::StorageFull.into()),
        false => Ok(()),
    });
    store.checkpoint().unwrap_err();
    probe.hook(|_, _| Ok(()));
    notes.insert(0, &format!("{old}_0_0"), []).unwrap();
    let before = shown(&store);
    for round in 0..3 {
        come_and_go(&store, 3 + round);
        store.checkpoint().unwrap();
        assert_eq!(shown(&store), before);
    }
    let store = world.reopen(store);
    assert_eq!(shown(&store), before);
}
