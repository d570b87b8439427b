//! The life of extents against a plain model: random calls, crashes and readers that hold on.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow_array::cast::AsArray;

use super::ValueBytes;
use crate::*;

/// A small store on a disk in memory, and what it must hold.
struct Run {
    disk: SimulatedDisk,
    clock: Arc<SimulatedClock>,
    random: SeededRandomness,
    store: Store,
    table: Table,
    rows: Vec<(Row, Expected)>,
    recycled: u64,
    checkpoints: bool,
    bytes: Vec<(ValueBytes, Vec<u8>)>,
    snapshots: Vec<(Snapshot, BTreeMap<String, Vec<u8>>)>,
}

/// What a row's `response` and `prompt` must hold.
#[derive(Clone, Debug, Default)]
struct Expected {
    id: String,
    response: Vec<u8>,
    closed: bool,
    prompt: String,
}

fn options(disk: &SimulatedDisk, clock: &Arc<SimulatedClock>) -> Options {
    Options::default()
        .disk(Arc::new(disk.clone()))
        .clock(clock.clone())
        .randomness(Arc::new(SeededRandomness::new(7)))
        .extent_bytes(4096, 1 << 14)
        .free_extent_bytes_max(1 << 16)
}

impl Run {
    fn new(seed: u64) -> Self {
        let (disk, clock) = (SimulatedDisk::default(), Arc::new(SimulatedClock::new(Timestamp(1))));
        let store = Store::open("/store", options(&disk, &clock)).unwrap();
        let schema = Schema::new().data("response", DataType::Binary).data_shared("prompt", DataType::Utf8);
        let table = store.create_table("solver", schema).unwrap();
        let random = SeededRandomness::new(seed);
        Run {
            disk,
            clock,
            random,
            store,
            table,
            rows: vec![],
            recycled: 0,
            checkpoints: seed % 2 == 1,
            bytes: vec![],
            snapshots: vec![],
        }
    }

    fn below(&self, limit: usize) -> usize {
        (self.random.next_u64() % limit as u64) as usize
    }

    fn some_bytes(&self) -> Vec<u8> {
        let (length, first) = (20 + self.below(900), self.random.next_u64() as u8);
        (0..length).map(|i| first.wrapping_add(i as u8)).collect()
    }

    fn step(&mut self) {
        match self.below(100) {
            0..20 => self.insert(),
            20..60 => self.grow(),
            60..80 => self.close_one(),
            80..86 => drop(self.store.run_once().unwrap()),
            86..90 => self.hold_bytes(),
            90..93 => self.hold_snapshot(),
            93..96 => self.bytes.clear(),
            96 => self.snapshots.clear(),
            97 if self.checkpoints => drop(self.store.checkpoint().unwrap()),
            97 => {}
            98 => drop(self.store.batch().insert(
                &self.table,
                NewRow::new(9, "given_0_0").unwrap(),
                [("response", Value::Binary(self.some_bytes().into()))],
            )),
            _ => self.reopen(),
        }
    }

    fn insert(&mut self) {
        let id = format!("q{}_0_0", self.rows.len());
        let prompt =
            format!("prompt {} {}", self.below(3), "which is long enough to lie in an extent".repeat(3));
        let row = self.table.insert(0, &id, [("prompt", prompt.as_str().into())]).unwrap();
        self.rows.push((row, Expected { id, prompt, ..Expected::default() }));
    }

    fn open_row(&self) -> Option<usize> {
        let open: Vec<usize> = (0..self.rows.len()).filter(|&index| !self.rows[index].1.closed).collect();
        (!open.is_empty()).then(|| open[self.below(open.len())])
    }

    fn grow(&mut self) {
        let Some(index) = self.open_row() else { return };
        let bytes = self.some_bytes();
        self.table.append(self.rows[index].0, "response", Value::Binary((&bytes).into())).unwrap();
        self.rows[index].1.response.extend(bytes);
    }

    fn close_one(&mut self) {
        let Some(index) = self.open_row().filter(|&index| !self.rows[index].1.response.is_empty()) else {
            return;
        };
        self.table.finalize(self.rows[index].0, "response").unwrap();
        self.rows[index].1.closed = true;
    }

    fn hold_bytes(&mut self) {
        let closed: Vec<usize> = (0..self.rows.len()).filter(|&index| self.rows[index].1.closed).collect();
        if closed.is_empty() {
            return;
        }
        let (row, expected) = &self.rows[closed[self.below(closed.len())]];
        let Cell::Bytes(bytes) = self.table.cell(*row, "response").unwrap() else { panic!("not final") };
        self.bytes.push((bytes, expected.response.clone()));
    }

    fn hold_snapshot(&mut self) {
        let shown = self.rows.iter().filter(|(_, expected)| expected.closed);
        let shown = shown.map(|(_, expected)| (expected.id.clone(), expected.response.clone())).collect();
        self.snapshots.push((self.store.snapshot_for("model"), shown));
    }

    /// The process dies, and the next one opens what it left.
    fn reopen(&mut self) {
        self.bytes.clear();
        self.snapshots.clear();
        self.recycled += self.store.stats().extents_recycled;
        self.disk.restart();
        self.store = Store::open("/store", options(&self.disk, &self.clock)).unwrap();
        self.table = self.store.table("solver").unwrap();
    }

    fn check(&self) {
        for (row, expected) in &self.rows {
            let found = match self.table.cell(*row, "response").unwrap() {
                Cell::Empty => Vec::new(),
                Cell::Partial(bytes) => bytes,
                Cell::Bytes(bytes) => bytes.to_vec(),
                other => panic!("{other:?}"),
            };
            assert_eq!(found, expected.response, "{}", expected.id);
            let Cell::Bytes(prompt) = self.table.cell(*row, "prompt").unwrap() else { panic!("no prompt") };
            assert_eq!(*prompt, *expected.prompt.as_bytes());
        }
        assert!(self.bytes.iter().all(|(held, expected)| **held == **expected), "held bytes changed");
        self.snapshots.iter().for_each(|(snapshot, expected)| assert_eq!(shown(snapshot), *expected));
        self.check_liveness();
    }

    fn check_liveness(&self) {
        let state = self.store.0.state.lock();
        let live = state.liveness.live().map(|(place, life)| (place, (life.bytes, life.values))).collect();
        assert_eq!(
            state.counted_lives(),
            live,
            "what is live, counted through the tables and by the records"
        );
    }
}

fn shown(snapshot: &Snapshot) -> BTreeMap<String, Vec<u8>> {
    let table = &snapshot.tables()[0];
    let schema = table.arrow_schema();
    let columns = ["sample_id", "response"].map(|name| schema.index_of(name).unwrap());
    let mut rows = BTreeMap::new();
    for batch in table.scan(Some(&columns), ScanOrder::Arrival, 7).unwrap() {
        let batch = batch.unwrap();
        let (ids, responses) = (batch.column(0).as_string_view(), batch.column(1).as_binary_view());
        let pairs = ids.iter().zip(responses);
        rows.extend(pairs.filter_map(|(id, bytes)| Some((id?.to_owned(), bytes?.to_vec()))));
    }
    rows
}

// FX-B03, FX-B10: recycling never takes bytes from under a reader, and never loses any.
#[test]
fn whatever_is_written_held_and_recycled_every_byte_stays_what_it_was() {
    // Miri looks at every access and takes ten thousand times as long.
    let (seeds, steps, recycled_min) = if cfg!(miri) { (2, 150, 0) } else { (12, 1000, 60) };
    let mut recycled = 0;
    for seed in 0..seeds {
        println!("seed {seed}");
        let mut run = Run::new(seed);
        for step in 0..steps {
            run.step();
            if step % 20 == 0 {
                run.check();
            }
        }
        run.check();
        run.reopen();
        run.check();
        recycled += run.recycled;
        let Run { disk, clock, store, table, checkpoints, .. } = run;
        drop((store, table));
        if checkpoints {
            continue; // the whole log, which is what is checked, is there no more
        }
        let report = verify("/store", &options(&disk, &clock), &mut |_| ControlFlow::Continue(())).unwrap();
        assert!(report.is_sound(), "{:?}", report.faults);
    }
    assert!(recycled > recycled_min, "{recycled}");
}
