//! A store on a disk in memory, and ways to look at all of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType as ArrowType, TimeUnit};
use forebay_store::*;

pub(crate) const ROOT: &str = "/store";
pub(crate) const LEASE: Duration = Duration::from_secs(100);

/// A disk and a clock that outlive the stores opened on them.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) disk: SimulatedDisk,
    pub(crate) clock: Arc<SimulatedClock>,
    pub(crate) segment_bytes: u64,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::on(SimulatedDisk::default())
    }

    pub(crate) fn on(disk: SimulatedDisk) -> Self {
        let clock = Arc::new(SimulatedClock::new(Timestamp(1_000_000)));
        World { disk, clock, segment_bytes: 1 << 20 }
    }

    pub(crate) fn options(&self) -> Options {
        Options::default()
            .disk(Arc::new(self.disk.clone()))
            .clock(self.clock.clone())
            .randomness(Arc::new(SeededRandomness::new(7)))
            .extent_bytes(4096, 1 << 16)
            .segment_bytes_max(self.segment_bytes)
            .lease(LEASE)
            .sync_interval(Duration::MAX)
    }

    pub(crate) fn try_open(&self) -> Result<Store> {
        Store::open(ROOT, self.options())
    }

    /// A store in real time, for threads that wait: waiting moves a simulated clock to the end of the nearest lease.
    pub(crate) fn open_in_real_time(&self) -> Store {
        Store::open(ROOT, self.options().clock(Arc::new(SystemClock))).unwrap()
    }

    pub(crate) fn open(&self) -> Store {
        self.try_open().unwrap()
    }

    /// The next process opens what this one left; handles of this one live on but can do no harm.
    pub(crate) fn reopen(&self, store: Store) -> Store {
        std::mem::forget(store);
        self.disk.restart();
        self.open()
    }
}

/// The schema that most tests use.
pub(crate) fn solver_schema() -> Schema {
    Schema::new()
        .data("prompt", DataType::Utf8)
        .data("response", DataType::list(Element::Int32))
        .data("logprobs", DataType::list(Element::Float32))
        .data("reward", DataType::Float32)
}

/// A store with one table, `solver`.
pub(crate) fn solver(world: &World) -> (Store, Table) {
    let store = world.open();
    let table = store.create_table("solver", solver_schema()).unwrap();
    (store, table)
}

/// `solver`, with a trainer that takes rows, or groups of an input.
pub(crate) fn trained(world: &World, group: Option<u32>) -> (Store, Table, ConsumerHandle) {
    let (store, table) = solver(world);
    let declared = Consumer::trainer(["solver"]).ready(["reward"]);
    let declared = match group {
        Some(members) => declared.group(GroupBy::Input, members),
        None => declared,
    };
    let train = store.create_consumer("train", declared).unwrap();
    (store, table, train)
}

/// A row that a trainer is ready for.
pub(crate) fn finished(table: &Table, version: u64, id: &str) -> Row {
    table.insert(version, id, [("prompt", id.into()), ("reward", 1.0.into())]).unwrap()
}

pub(crate) fn ids(claim: &Claim) -> Vec<String> {
    claim.sample_ids().iter().map(ToString::to_string).collect()
}

/// Takes everything that is planned, in one step, and commits it.
pub(crate) fn train_once(store: &Store, train: &ConsumerHandle, plan: StepPlan, policy: &str) -> u64 {
    let step = store.begin_step(plan).unwrap();
    while let Some(claim) = step.next(train, MicroBatch::up_to(4), Wait::No).unwrap() {
        claim.accumulated().unwrap();
    }
    step.commit([(policy, vec![])]).unwrap().rows
}

/// One value as text.
pub(crate) fn show(array: &dyn Array, at: usize) -> String {
    if array.is_null(at) {
        return "null".to_owned();
    }
    macro_rules! numbers {
        ($($arrow:pat => $t:ty),*) => {
            match array.data_type() {
                $($arrow => format!("{:?}", array.as_primitive::<$t>().value(at)),)*
                ArrowType::Boolean => array.as_boolean().value(at).to_string(),
                ArrowType::Utf8 => array.as_string::<i32>().value(at).to_owned(),
                ArrowType::Utf8View => array.as_string_view().value(at).to_owned(),
                ArrowType::BinaryView => format!("{:?}", array.as_binary_view().value(at)),
                ArrowType::List(_) => show_all(&array.as_list::<i32>().value(at)),
                ArrowType::Struct(_) => {
                    let fields: Vec<String> = array.as_struct().columns().iter().map(|field| show(field, at)).collect();
                    format!("{{{}}}", fields.join(" "))
                }
                ArrowType::FixedSizeList(..) => show_all(&array.as_fixed_size_list().value(at)),
                other => panic!("no column has the type {other}"),
            }
        };
    }
    numbers!(
        ArrowType::Int8 => Int8Type, ArrowType::Int16 => Int16Type, ArrowType::Int32 => Int32Type,
        ArrowType::Int64 => Int64Type, ArrowType::UInt8 => UInt8Type, ArrowType::UInt16 => UInt16Type,
        ArrowType::UInt32 => UInt32Type, ArrowType::UInt64 => UInt64Type, ArrowType::Float16 => Float16Type,
        ArrowType::Float32 => Float32Type, ArrowType::Float64 => Float64Type,
        ArrowType::Timestamp(TimeUnit::Microsecond, _) => TimestampMicrosecondType
    )
}

fn show_all(array: &dyn Array) -> String {
    (0..array.len()).map(|at| show(array, at)).collect::<Vec<_>>().join(" ")
}

/// A batch as text: for each row its columns, as `name=value`.
pub(crate) fn show_batch(batch: &RecordBatch) -> Vec<String> {
    let schema = batch.schema();
    let row = |at: usize| {
        let cells = schema.fields().iter().zip(batch.columns());
        cells
            .map(|(field, array)| format!("{}={}", field.name(), show(array, at)))
            .collect::<Vec<_>>()
            .join(" | ")
    };
    (0..batch.num_rows()).map(row).collect()
}

/// Some columns of a table in sample order, as text.
pub(crate) fn scan_of(table: &TableSnapshot, wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let schema = table.arrow_schema();
    let positions: Vec<usize> =
        (0..schema.fields().len()).filter(|&at| wanted(schema.field(at).name())).collect();
    let batches = table.scan(Some(&positions), ScanOrder::SampleId, 1 << 20).unwrap();
    batches.flat_map(|batch| show_batch(&batch.unwrap())).collect()
}

/// Named columns of a table, a row a vector.
pub(crate) fn pick(store: &Store, table: &str, names: &[&str]) -> Vec<Vec<String>> {
    let snapshot = store.snapshot();
    let table = snapshot.table(table).unwrap();
    let schema = table.arrow_schema();
    let positions: Vec<usize> = names.iter().map(|name| schema.index_of(name).unwrap()).collect();
    let batches = table.scan(Some(&positions), ScanOrder::SampleId, 1 << 20).unwrap();
    let rows = |batch: RecordBatch| {
        (0..batch.num_rows())
            .map(|at| batch.columns().iter().map(|array| show(array, at)).collect())
            .collect::<Vec<_>>()
    };
    batches.flat_map(|batch| rows(batch.unwrap())).collect()
}

/// Everything that a store shows of its tables.
pub(crate) fn scan(store: &Store) -> BTreeMap<String, Vec<String>> {
    scan_without(store, &[])
}

/// As [`scan`], leaving out what depends on who holds a row just now.
pub(crate) fn scan_content(store: &Store) -> BTreeMap<String, Vec<String>> {
    scan_without(store, &["claim", "is_processing", "state"])
}

fn scan_without(store: &Store, left_out: &[&str]) -> BTreeMap<String, Vec<String>> {
    let snapshot = store.snapshot();
    let rows = |table: &TableSnapshot| scan_of(table, |name| !left_out.contains(&name));
    snapshot.tables().iter().map(|table| (table.name().to_owned(), rows(table))).collect()
}

/// `written = consumed + excluded + open`, in the counts and in what a scan shows.
pub(crate) fn check_counts(store: &Store) {
    for name in store.tables() {
        let counts = store.table(&name).unwrap().counts();
        let excluded: u64 = counts.excluded.values().sum();
        assert_eq!(counts.written, counts.consumed + excluded + counts.open(), "{name}");
        let (mut consumed, mut left_out) = (0, BTreeMap::new());
        for row in pick(store, &name, &["purpose", "step", "excluded_reason"]) {
            if row[0] == "train" {
                consumed += u64::from(row[1] != "null");
                if row[2] != "null" {
                    *left_out.entry(row[2].clone()).or_default() += 1;
                }
            }
        }
        assert_eq!((counts.consumed, &counts.excluded), (consumed, &left_out), "{name}");
    }
}

/// Every file of a disk, with its bytes.
pub(crate) type Image = BTreeMap<PathBuf, Vec<u8>>;

pub(crate) fn image_of(disk: &SimulatedDisk) -> Image {
    let mut image = Image::new();
    let mut folders = vec![PathBuf::from(ROOT)];
    while let Some(folder) = folders.pop() {
        for path in disk.list(&folder).unwrap() {
            match (disk as &dyn Disk).read(&path) {
                Ok(bytes) => {
                    image.insert(path, bytes);
                }
                Err(_) => folders.push(path),
            }
        }
    }
    image
}

/// A new disk that holds an image.
pub(crate) fn disk_of(image: &Image) -> SimulatedDisk {
    let disk = SimulatedDisk::default();
    for folder in ["", "log", "extents", "objects", "pages"] {
        disk.create_directory(&Path::new(ROOT).join(folder)).unwrap();
    }
    for (path, bytes) in image {
        disk.create_directory(path.parent().unwrap()).unwrap();
        disk.create(path).unwrap().append(bytes).unwrap();
    }
    disk
}

pub(crate) fn files_with(image: &Image, extension: &str) -> Vec<PathBuf> {
    image.keys().filter(|path| path.extension().is_some_and(|e| e == extension)).cloned().collect()
}
