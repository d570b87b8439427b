//! A mapped file that is cut short while it is read: the process ends, and says where.
#![cfg(target_os = "linux")]

use std::fs::{self, OpenOptions};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use forebay_store::*;

use crate::support::*;

/// How a process ends that had a handler for the signal itself.
const OWN_HANDLER: i32 = 42;

extern "C" fn own_handler(_signal: libc::c_int) {
    #[allow(unsafe_code, reason = "the only way out of a fault's handler")]
    // SAFETY: `_exit` may be called in a handler, and runs nothing.
    unsafe {
        libc::_exit(OWN_HANDLER)
    }
}

/// Run by the tests below, in a process of its own: reads a value of a file that has been cut short.
#[test]
#[ignore = "a part of the tests below"]
fn child() {
    let Some(directory) = std::env::var_os("FOREBAY_CHILD") else { return };
    if std::env::var_os("FOREBAY_OWN_HANDLER").is_some() {
        let handler: extern "C" fn(libc::c_int) = own_handler;
        #[allow(unsafe_code, reason = "no other way to have a handler")]
        // SAFETY: the handler has the signature that is asked for, and does what a handler may.
        unsafe {
            libc::signal(libc::SIGBUS, handler as libc::sighandler_t);
        }
    }
    let store = Store::open(Path::new(&directory).join("store"), Options::default()).unwrap();
    let table = store.create_table("solver", solver_schema()).unwrap();
    let row = table.insert(0, "q_0_0", [("response", vec![7_i32; 1 << 16].into())]).unwrap();
    for extent in extents(Path::new(&directory)) {
        OpenOptions::new().write(true).open(extent).unwrap().set_len(4096).unwrap();
    }
    let Cell::Bytes(bytes) = table.cell(row, "response").unwrap() else { unreachable!("a list has bytes") };
    let sum: u64 = bytes.iter().map(|byte| u64::from(*byte)).sum();
    unreachable!("{} bytes were read of a file that has 4096, their sum {sum}", bytes.len());
}

fn extents(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory.join("store/extents")).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

fn fault(directory: &Path, own_handler: bool) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "faults::child", "--ignored", "--nocapture"]).env("FOREBAY_CHILD", directory);
    if own_handler {
        command.env("FOREBAY_OWN_HANDLER", "1");
    }
    command.output().unwrap()
}

/// What a process said of the fault: the file and the offset.
fn named(output: &Output) -> (PathBuf, u64) {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let line =
        said.lines().find_map(|line| line.strip_prefix("forebay: ")).unwrap_or_else(|| panic!("{said}"));
    let (path, rest) = line.split_once(" is mapped, and cannot be had at offset ").unwrap();
    (path.into(), rest.split(':').next().unwrap().parse().unwrap())
}

#[test]
fn a_process_that_reads_what_a_mapped_file_has_lost_ends_and_names_file_and_offset() {
    let folder = tempfile::tempdir().unwrap();
    let output = fault(folder.path(), false);
    assert_eq!(output.status.signal(), Some(libc::SIGBUS), "{output:?}");
    let (path, offset) = named(&output);
    assert!(extents(folder.path()).contains(&path.canonicalize().unwrap()), "{path:?}");
    assert!((4096..1 << 20).contains(&offset), "{offset}");
}

#[test]
fn whoever_had_the_signal_before_has_it_after_the_file_was_named() {
    let folder = tempfile::tempdir().unwrap();
    let output = fault(folder.path(), true);
    assert_eq!(output.status.code(), Some(OWN_HANDLER), "{output:?}");
    let (path, _) = named(&output);
    assert!(extents(folder.path()).contains(&path.canonicalize().unwrap()), "{path:?}");
}
