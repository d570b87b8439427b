//! What a repaired copy takes along, and that it stands in another run of the machine.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use forebay_store::*;

use crate::hostile::victim;
use crate::support::*;

const COPY: &str = "/copy";

fn long(i: u64) -> String {
    format!("row {i}: {}", "a value that fills more than one view ".repeat(8))
}

fn at(inside: &str) -> PathBuf {
    Path::new(ROOT).join(inside)
}

fn repaired(world: &World) -> RepairReport {
    let trial = repair(ROOT, None, &world.options()).unwrap();
    let report = repair(ROOT, Some(Path::new(COPY)), &world.options()).unwrap();
    let verified = report.verified.as_ref().unwrap();
    assert!(verified.is_sound(), "{:?}\n{:?}", verified.faults, report.losses);
    let plan = RepairReport { to: None, verified: None, ..report.clone() };
    assert_eq!(trial, plan, "a trial says what the repair does");
    report
}

fn open_copy(world: &World) -> Store {
    Store::open(COPY, world.options()).unwrap()
}

/// The copy in another run of the machine: nothing of it is taken for lost.
fn open_elsewhere(world: &World) -> Store {
    world.disk.reboot();
    let store = open_copy(world);
    let found = store.recovery();
    assert_eq!((found.checked, found.records_lost, found.cut_at.as_ref()), (true, 0, None));
    store
}

/// A store whose first value is damaged, and others beside it are not.
fn damaged() -> World {
    let mut image = victim();
    image.get_mut(&at("extents/00000001.extent")).unwrap()[64] ^= 0x5A;
    World::on(disk_of(&image))
}

#[test]
fn a_copy_is_whole_in_another_run_of_the_machine_too() {
    let (here, elsewhere) = (damaged(), damaged());
    assert_eq!((repaired(&here).cells_emptied, repaired(&elsewhere).cells_emptied), (1, 1));
    let there = scan_content(&open_elsewhere(&elsewhere));
    assert_eq!(there, scan_content(&open_copy(&here)));
}

#[test]
fn a_cell_that_was_emptied_lets_go_of_its_value() {
    let live = |store: Store| -> u64 { store.extents().iter().map(|extent| extent.live_values).sum() };
    let before = live(World::on(disk_of(&victim())).open());
    let world = damaged();
    repaired(&world);
    assert_eq!(live(open_copy(&world)), before - 1);
}

fn tensor(bytes: &[u8; 4]) -> TensorBytes<'_> {
    TensorBytes { class: "weights", name: "w", dtype: Dtype::U8, shape: &[4], bytes }
}

fn options(world: &World) -> Options {
    world.options().objects(ObjectOptions::default().host_folder(HostFolder::Anonymous))
}

/// Two steps, each with the weights that it led to, the state of an agent that no step names, and a damaged value.
fn with_objects() -> Image {
    let world = World::new();
    let store = Store::open(ROOT, options(&world)).unwrap();
    let table = store.create_table("solver", solver_schema()).unwrap();
    let train = store.create_consumer("train", Consumer::trainer(["solver"]).ready(["reward"])).unwrap();
    for version in 0..2 {
        finished(&table, version, "q_0_0");
        let bytes = format!("weights {}", version + 1);
        let weights = store.put_object("solver", version + 1, bytes.as_bytes()).unwrap();
        let step = store.begin_step(StepPlan::new().rows(&train, 1)).unwrap();
        step.next(&train, MicroBatch::of(1), Wait::No).unwrap().unwrap().accumulated().unwrap();
        step.commit([("solver", vec![weights])]).unwrap();
    }
    table.insert(2, "q_0_0", [("prompt", (&*long(0)).into())]).unwrap();
    let objects = store.objects().unwrap();
    objects.set("judge", &[tensor(b"calm")]).unwrap();
    objects.spill("judge", Which::Latest).unwrap();
    drop((objects, train, table, store));
    let mut image = image_of(&world.disk);
    image.get_mut(&at("extents/00000001.extent")).unwrap()[70] ^= 1;
    image
}

const FIRST: &str = "objects/solver/00000000000000000001.safetensors";
const SET: &str = "objects/judge/00000000000000000001.safetensors";

#[test]
fn a_copy_has_the_objects_that_a_rewind_needs_and_those_that_are_set() {
    let world = World::on(disk_of(&with_objects()));
    let report = repaired(&world);
    assert_eq!((report.objects_lost, report.cells_emptied), (0, 1), "{:?}", report.losses);
    let store = Store::open(COPY, options(&world)).unwrap();
    store.rewind(1, Rewind::TrainAgain).unwrap();
    let policy = store.policy("solver").unwrap();
    assert_eq!(store.object(&policy.objects[0]).unwrap(), b"weights 1");
    let held = store.objects().unwrap().get("judge", Which::Latest).unwrap();
    assert_eq!(held.tensor("w").unwrap().to_vec().unwrap(), b"calm");
}

#[test]
fn an_object_that_a_rewind_needs_and_one_that_is_set_are_named_when_they_are_damaged() {
    type Damage = fn(&mut Image);
    let cases: [(&str, Damage, &str); 3] = [
        (FIRST, |image| image.get_mut(&at(FIRST)).unwrap()[3] ^= 1, "rewind"),
        (FIRST, |image| drop(image.remove(&at(FIRST))), "rewind"),
        (
            SET,
            |image| {
                let bytes = image.get_mut(&at(SET)).unwrap();
                let last = bytes.windows(4).rposition(|found| found == b"calm").unwrap();
                bytes[last] ^= 1;
            },
            "judge",
        ),
    ];
    for (name, damage, said) in cases {
        let mut image = with_objects();
        damage(&mut image);
        let world = World::on(disk_of(&image));
        let report = repaired(&world);
        assert_eq!(report.objects_lost, 1, "{:?}", report.losses);
        assert!(report.losses.iter().any(|loss| loss.contains(said)), "{:?}", report.losses);
        assert!(!world.disk.exists(&Path::new(COPY).join(name)).unwrap(), "{name}");
        let store = open_copy(&world);
        assert_eq!(store.policy("solver").unwrap().objects.len(), 1, "what the policy stands on is there");
        assert_eq!(store.rewind(1, Rewind::TrainAgain).is_err(), name == FIRST);
    }
}

/// What of an older step's object is gone because nothing goes back to it is no loss.
#[test]
fn an_object_that_no_rewind_needs_is_not_missed() {
    let world = World::new();
    let (store, table, train) = trained(&world, None);
    for version in 0..4 {
        finished(&table, version, "q_0_0");
        let weights = store.put_object("solver", version + 1, b"weights").unwrap();
        let step = store.begin_step(StepPlan::new().rows(&train, 1)).unwrap();
        step.next(&train, MicroBatch::of(1), Wait::No).unwrap().unwrap().accumulated().unwrap();
        step.commit([("solver", vec![weights])]).unwrap();
    }
    store.sync().unwrap();
    store.run_once().unwrap();
    drop((store, table, train));
    assert!(!world.disk.exists(&at(FIRST)).unwrap(), "it was retired");
    let report = repaired(&world);
    assert!(report.is_whole(), "{:?}", report.losses);
}

type Lose = fn(&mut Image);

fn lose_extent(lose: fn(&mut Vec<u8>), image: &mut Image) {
    lose(image.get_mut(&at("extents/00000001.extent")).unwrap());
}

#[test]
fn values_that_the_log_carries_are_no_loss() {
    let world = World::new();
    let store = Store::open(ROOT, world.options().durability(Durability::Synced)).unwrap();
    let table = store.create_table("solver", solver_schema()).unwrap();
    for i in 0..5 {
        table.insert(0, &format!("q_0_{i}"), [("prompt", (&*long(i)).into())]).unwrap();
    }
    let before = scan_content(&store);
    drop((table, store));
    let image = image_of(&world.disk);
    let cases: [(&str, Lose, u64); 6] = [
        ("nothing", |_| (), 0),
        ("its header", |image| lose_extent(|bytes| bytes[..64].fill(0), image), 5),
        ("every byte but its length", |image| lose_extent(|bytes| bytes.fill(0), image), 5),
        ("its length", |image| lose_extent(Vec::clear, image), 5),
        ("one byte of a value", |image| lose_extent(|bytes| bytes[70] ^= 1, image), 1),
        ("the file", |image| drop(image.remove(&at("extents/00000001.extent"))), 5),
    ];
    for (what, lose, put_back) in cases {
        let mut image = image.clone();
        lose(&mut image);
        let look =
            |world: &World| verify(ROOT, &world.options(), &mut |_| ControlFlow::Continue(())).unwrap();
        // In the same run of the machine opening puts nothing back, so there it is damage.
        let same = World::on(disk_of(&image));
        assert_eq!(look(&same).is_sound(), put_back == 0, "{what}");
        let disk = disk_of(&image);
        disk.reboot();
        let another = World::on(disk);
        let verified = look(&another);
        assert!(verified.is_sound(), "{what}: {:?}", verified.faults);
        assert_eq!(verified.checked.values_carried, put_back, "{what}");
        for world in [same, another] {
            let report = repaired(&world);
            assert!(report.is_whole(), "{what}: {:?}", report.losses);
            assert_eq!(report.verified.unwrap().checked.values_carried, 0, "{what}: they lie in their files");
            assert_eq!(scan_content(&open_elsewhere(&world)), before, "{what}");
        }
    }
}

/// A value that no record carries is damage beside those that are.
#[test]
fn a_value_that_no_record_carries_is_damage_beside_those_that_are() {
    let world = World::new();
    let store = Store::open(ROOT, world.options().durability(Durability::Synced)).unwrap();
    let table = store.create_table("solver", solver_schema()).unwrap();
    let insert = |i: u64, level: Durability| {
        let mut batch = store.batch();
        let row = NewRow::new(0, &format!("q_0_{i}")).unwrap();
        batch.durability(level).insert(&table, row, [("prompt", (&*long(i)).into())]).unwrap();
        batch.commit().unwrap();
    };
    insert(0, Durability::Synced);
    insert(1, Durability::Logged);
    insert(2, Durability::Synced);
    drop((table, store));
    let mut image = image_of(&world.disk);
    lose_extent(|bytes| bytes.fill(0), &mut image);
    let disk = disk_of(&image);
    disk.reboot();
    let world = World::on(disk);
    let verified = verify(ROOT, &world.options(), &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!((verified.fault_count(), verified.checked.values_carried), (1, 2), "{:?}", verified.faults);
    let report = repaired(&world);
    assert_eq!((report.cells_emptied, report.losses.len()), (1, 1), "{:?}", report.losses);
    let prompts = pick(&open_elsewhere(&world), "solver", &["prompt"]);
    assert_eq!(prompts, [[long(0)], ["null".to_owned()], [long(2)]]);
}

/// A repair that is cut off leaves no store, or the whole copy.
#[test]
fn a_repair_that_dies_anywhere_leaves_no_part_of_a_store() {
    let whole = {
        let world = damaged();
        repaired(&world);
        scan_content(&open_copy(&world))
    };
    let mut deaths = 0;
    loop {
        let world = damaged();
        world.disk.fail_at(world.disk.operations() + 1 + deaths);
        let done = repair(ROOT, Some(Path::new(COPY)), &world.options()).is_ok();
        world.disk.restart();
        match Store::open(COPY, world.options().create(false)) {
            Ok(store) => assert_eq!(scan_content(&store), whole, "death {deaths}"),
            Err(error) => assert!(!done && matches!(error.cause(), Cause::NotAStore { .. }), "{error}"),
        }
        if done {
            break;
        }
        deaths += 1;
    }
    assert!(deaths > 20, "{deaths} deaths");
}
