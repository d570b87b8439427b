//! Ways into the decoders for whoever throws bytes at them: the targets in `fuzz/`, and the test that replays their
//! corpus. Not part of the interface.
//!
//! Each function takes any bytes and panics only where the store is wrong.

mod objects;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use objects::{journal, object};

use crate::checkpoint::Manifest;
use crate::directory::Directory;
use crate::disk::{Disk, SimulatedDisk};
use crate::extent::{ExtentHeader, TRAILER_BYTES, Trailer, View};
use crate::header::{self, HEADER_BYTES};
use crate::log::record::{ColumnRecord, Event, Record};
use crate::log::{self, Follower, Found};
use crate::numbered::Numbered;
use crate::options::Options;
use crate::sample_id::SampleId;
use crate::schema::{Schema, StorageClass};
use crate::state::State;
use crate::{SeededRandomness, SimulatedClock, Store, Timestamp, repair, verify};

const ROOT: &str = "/store";
const CLAIMS_KEPT: usize = 64;

/// A segment of the log: looked at place by place, and read as an opening reads it. Both agree on what is sound.
pub fn segment(bytes: &[u8]) {
    let disk = SimulatedDisk::default();
    let folder = Path::new(ROOT).join("log");
    let store_id =
        bytes.get(16..24).map_or(0, |id| id.iter().rfold(0, |id, &byte| id << 8 | u64::from(byte)));
    let Ok(directory) = Directory::create_as(Path::new(ROOT), &options(&disk), store_id) else { return };
    put(&disk, &directory.segment_path(1), bytes);
    let (mut records, mut faults, mut end) = (0_u64, 0_u64, 0);
    log::scan(&disk, &folder, None, |place, found| {
        assert!(place.offset <= bytes.len() as u64, "a place behind the end");
        assert!(place.offset >= end, "places go forward");
        end = place.offset;
        match found {
            Found::Record { .. } => records += 1,
            Found::Damaged { .. } | Found::Segment { .. } => faults += 1,
            Found::Begins { .. } | Found::Torn { .. } => {}
        }
    })
    .unwrap_or_default();
    assert!(records <= bytes.len() as u64 / 8 && faults <= 1 + bytes.len() as u64 / 8);
    let mut opened = 0;
    let read = log::segments(&directory).and_then(|segments| {
        log::read(&directory, &segments, 0, |_, _| {
            opened += 1;
            Ok(())
        })
    });
    let read = read.ok().filter(|end| end.damage.is_none());
    let followed = Follower::from_record(0).follow(&directory, usize::MAX, |_| Ok(()));
    if let (Some(_), Ok(followed)) = (read, followed) {
        assert_eq!((opened, followed), (records, records as usize), "what opens is sound");
    }
}

/// Payloads of records, each after its length in two bytes, applied one after the other.
pub fn records(bytes: &[u8]) {
    let mut state = State::new(CLAIMS_KEPT);
    let mut rest = bytes;
    while let Some((length, behind)) = rest.split_first_chunk::<2>() {
        let (payload, behind) = behind.split_at(behind.len().min(usize::from(u16::from_le_bytes(*length))));
        rest = behind;
        let Ok(record) = Record::decode(payload) else { continue };
        let mut again = Vec::new();
        let length = record.encode_to(&mut again).unwrap_or_default();
        assert_eq!(Record::decode(&again[..length]).as_ref(), Ok(&record), "what is read can be written");
        if state.apply(record).is_err() {
            return; // an opening stops here
        }
    }
    for table in &state.tables {
        assert!(table.counts.open() <= u64::from(table.row_count()));
    }
}

/// A file of values behind the sixteen bytes of a view.
pub fn extent(bytes: &[u8]) {
    let Some((view, file)) = bytes.split_first_chunk::<16>() else { return };
    let view = View(*view);
    for class in [StorageClass::View, StorageClass::Slice] {
        if view.is_inline(class) {
            assert!(view.inline_bytes().len() <= 12);
        }
    }
    if let Some(header) = file.first_chunk::<HEADER_BYTES>() {
        _ = ExtentHeader::decode(header);
    }
    for bytes in file.chunks_exact(TRAILER_BYTES).filter_map(|bytes| bytes.first_chunk::<TRAILER_BYTES>()) {
        if Trailer::decode(bytes, 1).is_some() {
            let mut changed = *bytes;
            changed[file.len() % TRAILER_BYTES] ^= 1;
            assert!(Trailer::decode(&changed, 1).is_none(), "a changed trailer is believed");
        }
    }
}

/// What a manifest holds, beside sound pages: a store opens from it, or says why not.
pub fn manifest(bytes: &[u8]) {
    let mut aligned = rkyv::util::AlignedVec::<16>::with_capacity(bytes.len());
    aligned.extend_from_slice(bytes);
    let Ok(manifest) = rkyv::from_bytes::<Manifest, rkyv::rancor::Error>(&aligned) else { return };
    let disk = SimulatedDisk::default();
    let path = Path::new(ROOT).join("MANIFEST");
    let files = small_store();
    files.iter().filter(|(known, _)| *known != path).for_each(|(path, bytes)| put(&disk, path, bytes));
    let store_id = files.iter().find(|(known, _)| *known == path).map(|(_, bytes)| header::u64_at(bytes, 16));
    if manifest.write_to(&disk, &path, store_id.unwrap_or_default()).is_ok() {
        _ = verify(ROOT, &options(&disk), &mut |_| ControlFlow::Continue(()));
        _ = Store::open(ROOT, options(&disk).read_only(true)).map(|store| store.snapshot());
    }
}

/// The text of a sample id: what is accepted is given back as it was read.
pub fn identifier(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(id) = text.parse::<SampleId>() else { return };
    let again: Result<SampleId, _> = id.to_string().parse();
    assert!(again.is_ok_and(|again| again == id), "{text:?} is read as {id}");
}

/// The stored form of columns: name, kind, element and shape of each, with lengths before them.
pub fn schema(bytes: &[u8]) {
    let mut rest = bytes;
    let mut columns = Vec::new();
    while let [kind, element, name, sides, behind @ ..] = rest {
        let (name, behind) = behind.split_at(behind.len().min(usize::from(*name)));
        let (shape, behind) = behind.split_at(behind.len().min(usize::from(*sides % 8) * 4));
        rest = behind;
        let name = String::from_utf8_lossy(name).into_owned();
        let shape =
            shape.chunks_exact(4).map(|side| u32::from_le_bytes([side[0], side[1], side[2], side[3]]));
        columns.push(ColumnRecord {
            name,
            kind: *kind,
            element: *element,
            shape: shape.collect(),
            role: 0,
            lazy: false,
            retired: false,
            shared: false,
        });
    }
    let policy =
        Event::PolicyCreated { name: "p".into(), version: 0, objects: Vec::new(), state_keys: Vec::new() };
    let table = Event::TableCreated { name: "t".into(), policy: 0, columns };
    let mut state = State::new(CLAIMS_KEPT);
    for event in [policy, table] {
        if state.apply(Record { time: 0, event, carried: Vec::new() }).is_err() {
            return;
        }
    }
    let declared: &Schema = &state.tables[0].schema;
    assert!(declared.validate().is_ok(), "what a log declares could have been declared");
}

/// Changes to the files of a small store: five bytes each for which file, where (two), what, and how. Then it is checked,
/// opened, read and repaired; the repaired copy is sound.
pub fn directory(bytes: &[u8]) {
    let disk = SimulatedDisk::default();
    let mut files = small_store();
    for change in bytes.chunks_exact(5) {
        alter(&mut files, change);
    }
    files.iter().for_each(|(path, bytes)| put(&disk, path, bytes));
    let options = options(&disk);
    if let Ok(report) = verify(ROOT, &options, &mut |_| ControlFlow::Continue(())) {
        for fault in &report.faults {
            let length =
                files.iter().find(|(path, _)| *path == fault.path).map(|(_, bytes)| bytes.len() as u64);
            let inside =
                length.is_none_or(|length| fault.offset <= length) || fault.offset <= u64::from(u32::MAX);
            assert!(inside, "{fault}");
        }
        let opened = Store::open(ROOT, options.clone().read_only(true));
        assert!(opened.is_ok() || !report.is_sound(), "a sound store does not open: {:?}", opened.err());
    }
    if let Ok(report) = repair(ROOT, Some(Path::new("/copy")), &options) {
        let verified = report.verified.map(|report| report.faults).unwrap_or_default();
        assert!(verified.is_empty(), "the copy has {verified:?}");
    }
}

/// One change of the files of a store.
fn alter(files: &mut [(PathBuf, Vec<u8>)], change: &[u8]) {
    let [file, low, high, what, how] = *change else { return };
    let count = files.len();
    let Some((path, bytes)) = files.get_mut(usize::from(file) % count.max(1)) else { return };
    let at = usize::from(u16::from_le_bytes([low, high])) % bytes.len().max(1);
    match how % 4 {
        0 => bytes.truncate(at),
        1 => bytes.extend(std::iter::repeat_n(what, at % 256)),
        _ => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = what),
    }
    if how % 4 == 3 && Numbered::Segment.is(path) {
        log::make_checksums_right(bytes);
    }
}

fn put(disk: &dyn Disk, path: &Path, bytes: &[u8]) {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let done =
        disk.create_directory(folder).and_then(|()| disk.create(path)).and_then(|file| file.append(bytes));
    assert!(done.is_ok(), "a simulated disk takes every file: {done:?}");
}

fn options(disk: &SimulatedDisk) -> Options {
    Options::default()
        .disk(Arc::new(disk.clone()))
        .clock(Arc::new(SimulatedClock::new(Timestamp(1_000_000))))
        .randomness(Arc::new(SeededRandomness::new(7)))
        .extent_bytes(4096, 1 << 16)
}

/// The files of a store with something of most things in it.
fn small_store() -> Vec<(PathBuf, Vec<u8>)> {
    static FILES: std::sync::OnceLock<Vec<(PathBuf, Vec<u8>)>> = std::sync::OnceLock::new();
    let made =
        || make_small_store().unwrap_or_else(|error| panic!("the small store cannot be made: {error}"));
    FILES.get_or_init(made).clone()
}

fn make_small_store() -> crate::Result<Vec<(PathBuf, Vec<u8>)>> {
    use crate::{Consumer, DataType, Element, GroupBy, MicroBatch, StepPlan, Wait};
    let disk = SimulatedDisk::default();
    let store = Store::open(ROOT, options(&disk))?;
    let columns =
        Schema::new().data("prompt", DataType::Utf8).data("response", DataType::list(Element::Int32));
    let table = store.create_table("solver", columns.data("reward", DataType::Float32))?;
    let trainer = Consumer::trainer(["solver"]).ready(["reward"]).group(GroupBy::Input, 2);
    let train = store.create_consumer("train", trainer)?;
    for (at, id) in ["q0_0_0", "q0_0_1", "q1_0_0"].into_iter().enumerate() {
        let row = table.insert(0, id, [("prompt", "a prompt of some length".into())])?;
        table.append(row, "response", vec![at as i32; 20].into())?;
        if at < 2 {
            table.finalize(row, "response")?;
            table.write(row, [("reward", 1.0.into())])?;
        }
    }
    store.checkpoint()?;
    let weights = store.put_object("solver", 1, b"weights")?;
    let step = store.begin_step(StepPlan::new().groups(&train, ["q0"]))?;
    if let Some(claim) = step.next(&train, MicroBatch::of(2), Wait::No)? {
        claim.accumulated()?;
    }
    step.commit([("solver", vec![weights])])?;
    drop((store, table, train));
    let mut files = Vec::new();
    let mut folders = vec![PathBuf::from(ROOT)];
    while let Some(folder) = folders.pop() {
        for path in disk.list(&folder).unwrap_or_default() {
            match (&disk as &dyn Disk).read(&path) {
                Ok(bytes) => files.push((path, bytes)),
                Err(_) => folders.push(path),
            }
        }
    }
    files.sort();
    Ok(files)
}
