//! Values that are held against their checksums as they are read: a damaged one is an error with its file and offset, whichever way
//! it is read, and all others are what they were.

use std::path::PathBuf;
use std::sync::Arc;

use forebay_store::*;

use crate::support::*;

const COLUMNS: [&str; 5] = ["prompt", "image", "response", "matrix", "system"];

/// Where a value lies in its extent, and in which column of which row.
#[derive(Clone, Copy)]
struct Place {
    column: &'static str,
    row: usize,
    extent: u32,
    offset: usize,
    length: usize,
}

impl Place {
    /// Its bytes and those of its trailer; what fills up between them belongs to nobody.
    fn bytes(&self) -> impl Iterator<Item = usize> + use<> {
        let end = self.offset + self.length;
        (self.offset..end).chain(end.next_multiple_of(8)..end.next_multiple_of(8) + 32)
    }
}

fn lived() -> World {
    let world = World::new();
    let store = world.open();
    let schema = Schema::new()
        .data("prompt", DataType::Utf8)
        .data("image", DataType::Binary)
        .data("response", DataType::list(Element::Int32))
        .data("matrix", DataType::tensor(Element::Float32, [2, 2]))
        .data_shared("system", DataType::Utf8)
        .data("log", DataType::Utf8);
    let table = store.create_table("solver", schema).unwrap();
    store.create_consumer("read", Consumer::task(["solver"]).ready(["prompt"])).unwrap();
    for i in 0..2_u8 {
        let cells = [
            ("prompt", format!("{i}: what is two and two?").into()),
            ("image", Value::Binary(vec![i; 19].into())),
            ("response", vec![i32::from(i), 1, 2].into()),
            ("matrix", vec![f32::from(i), 0.0, 0.5, 1.0].into()),
            ("system", format!("{i}: you are one who counts").into()),
        ];
        let row = table.insert(0, &format!("q{i}_0_0"), cells).unwrap();
        table.append(row, "log", "a first line that is long".into()).unwrap();
    }
    world
}

fn is_corrupt_at<T: std::fmt::Debug>(read: Result<T>, place: &Place, path: &PathBuf) {
    let error = read.unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt, "{error}");
    let Cause::Corrupt { path: named, offset, .. } = error.cause() else { panic!("{error:?}") };
    assert_eq!((named, *offset), (path, place.offset as u64), "{error}");
}

fn scanned(store: &Store, column: &str) -> Result<Vec<String>> {
    let snapshot = store.snapshot();
    let table = snapshot.table("solver")?;
    let position = table.arrow_schema().index_of(column).unwrap();
    let batches = table.scan(Some(&[position]), ScanOrder::SampleId, 8)?;
    batches.map(|batch| Ok(show_batch(&batch?))).collect::<Result<Vec<_>>>().map(|rows| rows.concat())
}

fn neighbours(world: &World, store: &Store) -> Hold {
    let reader = ValueReader::open_on(Arc::new(world.disk.clone()), ROOT.as_ref(), store.id()).unwrap();
    reader.knows(store.commits());
    reader.check_values(store.checks_values());
    reader.hold().unwrap()
}

fn places(store: &Store) -> Vec<Place> {
    let claim = store.consumer("read").unwrap().claim(MicroBatch::of(2), "me", Wait::No).unwrap().unwrap();
    let of = |column: &'static str| {
        let cells = claim.cells(column).unwrap();
        let place = move |(row, cell)| {
            let Cell::Bytes(bytes) = cell else { panic!("{cell:?}") };
            let said = ValueBytes::place(&bytes).unwrap().to_bytes();
            let word = |at: usize| u32::from_le_bytes(said[at..at + 4].try_into().unwrap());
            Place { column, row, extent: word(4), offset: word(12) as usize, length: word(0) as usize }
        };
        cells.into_iter().enumerate().map(place).collect::<Vec<_>>()
    };
    COLUMNS.into_iter().flat_map(of).collect()
}

/// Reads every column in every way: where `damaged` lies it fails, and everywhere else nothing is amiss.
fn check(world: &World, store: &Store, damaged: &Place, path: &PathBuf) {
    let read = store.consumer("read").unwrap();
    let claim = read.claim(MicroBatch::of(2), "me", Wait::No).unwrap().unwrap();
    let (table, hold) = (store.table("solver").unwrap(), neighbours(world, store));
    let neighbour = |column| hold.columns(&claim.places([column])?, Lists::Together);
    for column in COLUMNS {
        for (row, at) in claim.rows().iter().enumerate() {
            match (damaged.column, damaged.row) == (column, row) {
                true => is_corrupt_at(table.cell(*at, column), damaged, path),
                false => drop(table.cell(*at, column).unwrap()),
            }
        }
        if damaged.column == column {
            is_corrupt_at(claim.columns([column]), damaged, path);
            is_corrupt_at(claim.columns_in_place([column]), damaged, path);
            is_corrupt_at(claim.cells(column), damaged, path);
            is_corrupt_at(scanned(store, column), damaged, path);
            is_corrupt_at(neighbour(column), damaged, path);
        } else {
            assert_eq!(neighbour(column).unwrap(), claim.columns([column]).unwrap());
            assert_eq!((claim.cells(column).unwrap().len(), scanned(store, column).unwrap().len()), (2, 2));
        }
    }
    claim.release().unwrap();
}

/// A copy of a world for each byte that matters of ten values, with that byte flipped.
fn damaged_copies(world: &World) -> impl Iterator<Item = (World, Place, PathBuf)> {
    let image = image_of(&world.disk);
    let all = places(&World::on(disk_of(&image)).open());
    assert_eq!(all.len(), 10);
    let points = all.into_iter().flat_map(|place| place.bytes().map(move |at| (place, at)));
    points.map(move |(place, at)| {
        let path = files_with(&image, "extent")[place.extent as usize - 1].clone();
        let world = World::on(disk_of(&image));
        world.disk.flip_byte(&path, at);
        (world, place, path)
    })
}

#[test]
fn a_flipped_byte_of_a_value_or_of_its_trailer_is_found_by_whoever_reads_that_value() {
    let mut points = 0;
    for (world, place, path) in damaged_copies(&lived()) {
        let store = Store::open(ROOT, world.options().check_values(true)).unwrap();
        check(&world, &store, &place, &path);
        points += 1;
    }
    assert!(points > 10 * 32, "{points}");
}

#[test]
fn without_the_option_damage_is_found_by_verify_alone() {
    let (world, place, path) = damaged_copies(&lived()).next().unwrap();
    let store = world.open();
    assert!(!store.checks_values() && scanned(&store, place.column).is_ok());
    drop(store);
    let report = verify(ROOT, &world.options(), &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
    assert!(report.faults.iter().any(|fault| fault.path == path), "{report:?}");
}

#[test]
fn a_cell_that_grows_is_not_closed_over_a_damaged_fragment() {
    let world = lived();
    let path = files_with(&image_of(&world.disk), "extent").pop().unwrap();
    let bytes = image_of(&world.disk)[&path].clone();
    let at = bytes.windows(12).position(|window| window == b"a first line").unwrap();
    world.disk.flip_byte(&path, at);
    let store = Store::open(ROOT, world.options().check_values(true)).unwrap();
    let table = store.table("solver").unwrap();
    let row = table.find(0, &"q0_0_0".parse().unwrap()).unwrap();
    for read in [table.partial(row, "log").map(drop), table.finalize(row, "log")] {
        let error = read.unwrap_err();
        assert!(
            matches!(error.cause(), Cause::Corrupt { path: named, offset, .. } if *named == path && *offset == at as u64),
            "{error}"
        );
    }
    assert!(store.settings().contains(&("check_values", Some("true".to_owned()))));
}
