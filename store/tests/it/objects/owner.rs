//! Memory that another process may still use.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};

use super::*;

fn child(segment: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "objects::owner::neighbour", "--ignored", "--nocapture"])
        .env("FOREBAY_SEGMENT", segment)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The other process: fills what it is told through a file of its own, and says so.
#[test]
#[ignore = "the process that the other tests here start"]
fn neighbour() {
    let Ok(segment) = std::env::var("FOREBAY_SEGMENT") else { return };
    let file = std::fs::OpenOptions::new().write(true).open(segment).unwrap();
    for line in std::io::stdin().lines().map_while(std::result::Result::ok) {
        let offset: u64 = line.parse().unwrap();
        let mut at = offset;
        let layout = layout();
        for payload in layout.payloads() {
            for tensor in payload.tensors.iter().map(|&tensor| &layout.tensors()[tensor]) {
                file.write_all_at(&content("solver", 1, tensor), at + tensor.offset).unwrap();
            }
            at = offset + payload.bytes.next_multiple_of(2 << 20);
        }
        println!("\nfilled");
        std::io::stdout().flush().unwrap();
    }
    loop {
        std::thread::park(); // until it is killed
    }
}

fn told(child: &mut Child, offset: u64) {
    writeln!(child.stdin.as_mut().unwrap(), "{offset}").unwrap();
    let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(lines.map_while(std::result::Result::ok).any(|line| line == "filled"));
}

#[test]
fn a_version_that_another_process_filled_is_whole_and_is_lent_out_as_copies() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, objects) = with_folder(dir.path());
    set(&objects, "warm"); // so that there is a segment
    objects.delete("warm", 1).unwrap();
    let segments = objects.segments().unwrap();
    let mut child = child(segments[0].path.as_ref().unwrap());
    let process = ProcessHandle::of(child.id()).unwrap();
    let filling =
        objects.begin_for("solver", Expected::Any, &layout(), Owner::Process(process.clone())).unwrap();
    let places: Vec<(u32, u64)> = filling.places().into_iter().map(Option::unwrap).collect();
    assert_eq!((places[0], places[1].1 - places[0].1), ((1, 0), 2 << 20));
    told(&mut child, places[0].1);
    filling.filled_elsewhere("weights").unwrap();
    filling.filled_elsewhere("moments").unwrap();
    filling.commit().unwrap();
    let held = objects.get("solver", Which::Latest).unwrap();
    check(&held);
    held.verify().unwrap();
    assert!(held.tensor("head").unwrap().as_bytes().is_none(), "that process may still write there");
    drop((held, filling, objects, _store));
    let (_store, objects) = with_folder(dir.path());
    let held = objects.get("solver", Which::Latest).unwrap();
    check(&held);
    assert!(held.tensor("head").unwrap().as_bytes().is_none(), "nor does that end with the store's process");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(process.has_ended());
}

/// A version that this process fills as a neighbour would: in memory that it was lent, through a mapping of its own.
fn neighbourly(objects: &Objects, write: impl Fn(&NeighbourFilling)) -> (Filling, Vec<Vec<u32>>) {
    let me = Owner::Process(ProcessHandle::of(std::process::id()).unwrap());
    let filling = objects.begin_for("solver", Expected::Any, &layout(), me).unwrap();
    let places: Vec<(u32, u64)> = filling.places().into_iter().map(Option::unwrap).collect();
    let segments = NeighbourSegments::of(objects.segment_folder().unwrap());
    let neighbour = segments.filling("solver", &layout(), &places).unwrap();
    write(&neighbour);
    let sums = neighbour.checksums().unwrap();
    (filling, sums)
}

fn take_over(filling: &Filling, sums: &[Vec<u32>]) -> Result<()> {
    let mut each = filling.layout().payloads().iter().zip(sums);
    each.try_for_each(|(payload, sums)| filling.filled_elsewhere_as(&payload.class, sums))
}

// FX-68: the checksums that a neighbour takes as it writes are those of what lies there, in whatever order it writes.
#[test]
fn checksums_that_a_neighbour_took_stand_for_its_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, objects) = with_folder(dir.path());
    let in_order = |neighbour: &NeighbourFilling| {
        for tensor in layout().tensors() {
            neighbour.write(tensor.payload, tensor.offset, &content("solver", 1, tensor)).unwrap();
        }
    };
    let in_pieces = |neighbour: &NeighbourFilling| {
        for tensor in layout().tensors().iter().rev() {
            let bytes = content("solver", 2, tensor);
            for (at, piece) in bytes.chunks(77_777).enumerate().collect::<Vec<_>>().into_iter().rev() {
                neighbour.write(tensor.payload, tensor.offset + at as u64 * 77_777, piece).unwrap();
            }
        }
    };
    for (version, write) in [(1, &in_order as &dyn Fn(&NeighbourFilling)), (2, &in_pieces)] {
        let (filling, sums) = neighbourly(&objects, write);
        take_over(&filling, &sums).unwrap();
        assert_eq!(filling.commit().unwrap(), version);
        let held = objects.get("solver", Which::Latest).unwrap();
        assert_eq!(held.manifest().checksums, sums);
        held.verify().unwrap();
        check(&held);
    }
}

#[test]
fn checksums_of_other_bytes_are_found_and_those_of_other_chunks_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, objects) = with_folder(dir.path());
    let write = |neighbour: &NeighbourFilling| {
        for tensor in layout().tensors() {
            neighbour.write(tensor.payload, tensor.offset, &content("solver", 1, tensor)).unwrap();
        }
    };
    let (filling, mut sums) = neighbourly(&objects, write);
    for wrong in [&sums[0][1..], &[], &[1, 2, 3, 4, 5]] {
        let error = filling.filled_elsewhere_as("weights", wrong).unwrap_err();
        assert_eq!(error.kind(), Kind::Input, "{error}");
    }
    sums[0][1] ^= 1;
    take_over(&filling, &sums).unwrap();
    filling.commit().unwrap();
    let held = objects.get("solver", Which::Latest).unwrap();
    let error = held.verify().unwrap_err();
    assert!(error.kind() == Kind::Corrupt && error.to_string().contains("chunk 1 of \"weights\""), "{error}");
    assert_eq!(objects.demote("solver", Which::Latest).unwrap_err().kind(), Kind::Corrupt);
}

#[test]
fn memory_of_a_filler_or_holder_is_not_used_again_before_its_process_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let (store, objects) = with_folder(dir.path());
    set(&objects, "solver");
    let mut child = child(objects.segments().unwrap()[0].path.as_ref().unwrap());
    let process = Owner::Process(ProcessHandle::of(child.id()).unwrap());
    let begin = || objects.begin_for("judge", Expected::Any, &layout(), process.clone()).unwrap();
    let get = || objects.get_with("solver", Which::Latest, &Get::default().owner(process.clone())).unwrap();

    begin().abort();
    get().release();
    assert_eq!(objects.stats().quarantine_bytes, 0, "it said that it let go");

    drop(begin());
    drop(get());
    objects.delete("solver", 1).unwrap();
    let bytes = layout().bytes();
    let taken = objects.stats().host_bytes_taken;
    assert_eq!((objects.stats().quarantine_bytes, objects.stats().leases), (2 * bytes, 0));
    store.run_once().unwrap();
    assert_eq!(
        (objects.stats().quarantine_bytes, objects.stats().host_bytes_taken),
        (2 * bytes, taken),
        "it lives"
    );
    assert!(objects.give_back_host().is_err());
    child.kill().unwrap();
    child.wait().unwrap();
    store.run_once().unwrap();
    assert_eq!((objects.stats().quarantine_bytes, objects.stats().host_bytes_taken), (0, 0));
}
