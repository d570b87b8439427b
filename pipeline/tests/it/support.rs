//! A store with one agent's table and its trainer.

use forebay_store::{Consumer, ConsumerHandle, DataType, GroupBy, Options, Schema, Store, Table};
use tempfile::TempDir;

pub(crate) struct Fixture {
    pub(crate) store: Store,
    pub(crate) solver: Table,
    pub(crate) train: ConsumerHandle,
    _directory: TempDir,
}

/// A table `solver` whose trainer takes single rows, or groups of `group` by input.
pub(crate) fn fixture(group: Option<u32>) -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path().join("store"), Options::default()).unwrap();
    let schema = Schema::new().data("response", DataType::Utf8).data("reward", DataType::Float32);
    let solver = store.create_table("solver", schema).unwrap();
    let train = Consumer::trainer(["solver"]).ready(["response", "reward"]);
    let train = match group {
        Some(members) => train.group(GroupBy::Input, members),
        None => train,
    };
    let train = store.create_consumer("train", train).unwrap();
    Fixture { store, solver, train, _directory: directory }
}

impl Fixture {
    /// Inserts a row with both its cells.
    pub(crate) fn finished_row(&self, version: u64, sample: &str) {
        let cells = [("response", "a".into()), ("reward", 1.0.into())];
        self.solver.insert(version, sample, cells).unwrap();
    }
}
