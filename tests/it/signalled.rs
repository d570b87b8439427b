//! `forebay serve` that is asked to end while clients work.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use forebay::client::{Client, ConnectOptions};
use forebay::store::{Cell, DataType, Kind, NewRow, Options, Schema, Store};

use crate::support::{Scratch, Served};

const WRITERS: usize = 4;

/// A text too long for a record to carry.
fn prompt(id: &str) -> String {
    format!("{id} ").repeat(3_000)
}

#[test]
fn what_was_acknowledged_before_the_end_is_there_and_what_was_under_way_is_whole_or_absent() {
    let scratch = Scratch::new();
    let (dir, socket) = (scratch.path("store"), scratch.path("fb.sock"));
    let mut served = Served::new(&dir, &["--socket", &socket], None);
    let options = ConnectOptions::default().outage_time_max(Duration::ZERO);
    let connect = || Client::connect(&format!("unix://{socket}"), &options).unwrap();
    connect().create_table("solver", Schema::new().data("prompt", DataType::Utf8)).unwrap();
    let (count, acknowledged) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (count, acknowledged) = (&count, &acknowledged);
            let client = connect();
            scope.spawn(move || {
                let table = client.table("solver").unwrap();
                for at in 0.. {
                    let id = format!("w{writer}-{at}_0_0");
                    let text = prompt(&id);
                    match table.insert(NewRow::new(0, &id).unwrap(), [("prompt", text.as_str().into())]) {
                        Ok(_) => acknowledged.lock().unwrap().push(id),
                        Err(error) => {
                            assert!([Kind::Retry, Kind::Closed].contains(&error.kind()), "{error}");
                            return;
                        }
                    }
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        while count.load(Ordering::Relaxed) < 100 {
            std::thread::yield_now();
        }
        assert!(served.end().success(), "it ends in order");
    });
    let store = Store::open(&dir, Options::default()).unwrap();
    let table = store.table("solver").unwrap();
    let acknowledged = acknowledged.into_inner().unwrap();
    for id in &acknowledged {
        let row = table.get(0, &id.parse().unwrap()).unwrap_or_else(|| panic!("{id} was acknowledged"));
        assert!(
            matches!(row.cell("prompt").unwrap(), Cell::Bytes(text) if *text == *prompt(id).as_bytes()),
            "{id}"
        );
    }
    let written = table.counts().written as usize;
    assert!((acknowledged.len()..=acknowledged.len() + WRITERS).contains(&written), "{written}");
}
