//! Memory that another process was given by a store's process that is killed: the next one gives it to nobody while that
//! other process lives.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};

use super::*;

/// A process that lives until it is told to end, and does nothing.
fn borrower() -> Child {
    Command::new("cat").stdin(Stdio::piped()).spawn().unwrap()
}

fn end(mut borrower: Child) {
    drop(borrower.stdin.take());
    borrower.wait().unwrap();
}

// Memory of the dead is not what a set fails for, though the duty that would find it has not come round.
#[test]
fn the_host_tier_is_not_full_of_what_processes_had_that_have_ended() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, objects) =
        anonymous(dir.path(), |o| o.host_bytes_max(8 << 20).pageable_bytes_max(0).versions_kept(1));
    let borrower = borrower();
    let owner = Owner::Process(ProcessHandle::of(borrower.id()).unwrap());
    let large = Layout::builder().tensor("weights", "w", Dtype::U8, &[6 << 20]).build().unwrap();
    drop(objects.begin_for("solver", Expected::Any, &large, owner).unwrap()); // without its word
    let error = objects.begin("judge", Expected::Any, &large).unwrap_err();
    assert_eq!((error.kind(), objects.stats().quarantine_bytes), (Kind::Capacity, 6 << 20));
    end(borrower);
    let filling = objects.begin("judge", Expected::Any, &large).unwrap();
    filling.write("w", 0, &vec![7; 6 << 20]).unwrap();
    assert_eq!((filling.commit().unwrap(), objects.stats().quarantine_bytes), (1, 0));
}

/// The store's process: gives memory to the borrower, to fill and to read, says where, and lives until it is killed.
#[test]
#[ignore = "the process that the other tests here kill"]
fn lender() {
    let (Ok(path), Ok(borrower)) = (std::env::var("FOREBAY_LENT"), std::env::var("FOREBAY_BORROWER")) else {
        return;
    };
    let (_store, objects) = with_folder(Path::new(&path));
    let owner = Owner::Process(ProcessHandle::of(borrower.parse().unwrap()).unwrap());
    set(&objects, "solver");
    let get = Get::default().owner(owner.clone());
    let _held = [(); 2].map(|()| objects.get_with("solver", Which::Latest, &get).unwrap());
    let _filling = objects.begin_for("judge", Expected::Any, &layout(), owner.clone()).unwrap();
    objects.begin_for("aborted", Expected::Any, &layout(), owner.clone()).unwrap().abort();
    objects.get_with("solver", Which::Latest, &get).unwrap().release();
    for (segment, offset) in _held[0].places().into_iter().chain(_filling.places()).map(Option::unwrap) {
        println!("\nlent {segment} {offset}");
    }
    println!("\nready");
    std::io::stdout().flush().unwrap();
    loop {
        std::thread::park();
    }
}

/// Where the memory lies that a process had lent when it was killed: the version's, and the filling's.
fn lend_and_die(path: &Path, borrower: &Child) -> Vec<(u32, u64)> {
    let mut lender = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "objects::lent::lender", "--ignored", "--nocapture"])
        .env("FOREBAY_LENT", path)
        .env("FOREBAY_BORROWER", borrower.id().to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut places = Vec::new();
    for line in BufReader::new(lender.stdout.take().unwrap()).lines().map(std::result::Result::unwrap) {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["lent", segment, offset] => places.push((segment.parse().unwrap(), offset.parse().unwrap())),
            ["ready"] => lender.kill().unwrap(),
            _ => {}
        }
    }
    lender.wait().unwrap();
    assert_eq!(places.len(), 4, "both payloads of both");
    places
}

fn segment(dir: &Path, number: u32) -> fs::File {
    let folder = fs::read_dir(dir.join("host")).unwrap().next().unwrap().unwrap().path();
    fs::OpenOptions::new().read(true).write(true).open(folder.join(format!("{number:08}.segment"))).unwrap()
}

#[test]
fn memory_of_a_process_that_lives_is_given_to_nobody_when_the_store_is_opened_anew() {
    let dir = tempfile::tempdir().unwrap();
    let borrower = borrower();
    let lent = lend_and_die(dir.path(), &borrower);
    for round in 0..3 {
        let (store, objects) = with_folder(dir.path());
        let bytes = layout().bytes();
        // Two held the one version: that is the same memory.
        assert_eq!(objects.stats().quarantine_bytes, 3 * bytes, "round {round}");
        store.run_once().unwrap();
        let _ = objects.delete("solver", 1).unwrap();
        let fillings: Vec<Filling> = (0..5)
            .map(|at| {
                let filling = objects.begin(&format!("other{at}"), Expected::Any, &layout()).unwrap();
                fill(&filling, 1);
                filling
            })
            .collect();
        let places = fillings.iter().flat_map(Filling::places).map(Option::unwrap);
        let again: Vec<(u32, u64)> = places.filter(|place| lent.contains(place)).collect();
        assert!(again.is_empty(), "round {round}: {again:?} were given to somebody else");
        assert!(objects.give_back_host().is_err(), "round {round}");
    }
    // What the process reads is what it was given.
    let head = content("solver", 1, &layout().tensors()[1]);
    let mut seen = vec![0; head.len()];
    let at = lent[0].1 + layout().tensors()[1].offset;
    segment(dir.path(), lent[0].0).read_exact_at(&mut seen, at).unwrap();
    assert!(seen == head);

    let (store, objects) = with_folder(dir.path());
    end(borrower);
    store.run_once().unwrap();
    assert_eq!((objects.stats().quarantine_bytes, objects.stats().host_bytes_taken), (0, 0));
    drop((store, objects));
    let (_store, objects) = with_folder(dir.path());
    assert_eq!(
        (objects.stats().quarantine_bytes, objects.stats().host_bytes_taken),
        (0, 0),
        "nor the next time"
    );
}

#[test]
fn memory_of_a_process_that_has_ended_meanwhile_is_free() {
    let dir = tempfile::tempdir().unwrap();
    let borrower = borrower();
    let lent = lend_and_die(dir.path(), &borrower);
    end(borrower);
    let (_store, objects) = with_folder(dir.path());
    assert_eq!(objects.stats().quarantine_bytes, 0);
    check(&objects.get("solver", Which::Latest).unwrap());
    let filling = objects.begin("judge", Expected::Any, &layout()).unwrap();
    assert!(filling.places().into_iter().all(|place| lent[2..].contains(&place.unwrap())));
}

/// A filler that goes on writing writes over nothing: not over what is set, nor over what comes from the disk.
#[test]
fn a_filler_that_outlives_the_store_damages_no_version() {
    let dir = tempfile::tempdir().unwrap();
    let borrower = borrower();
    let lent = lend_and_die(dir.path(), &borrower);
    let (_store, objects) = with_folder(dir.path());
    (0..6).for_each(|at| _ = set(&objects, &format!("key{at}")));
    objects.demote("key0", Which::Latest).unwrap();
    for (number, offset) in &lent[2..] {
        segment(dir.path(), *number).write_all_at(&[0xEE; 4096], *offset).unwrap();
    }
    check(&objects.get("solver", Which::Latest).unwrap());
    for at in 0..6 {
        let held = objects.get(&format!("key{at}"), Which::Latest).unwrap();
        held.verify().unwrap();
        check(&held);
    }
    end(borrower);
}
