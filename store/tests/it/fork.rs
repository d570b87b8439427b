//! Handles in a forked child.
#![cfg(target_os = "linux")]

use std::cell::RefCell;

use forebay_store::*;

use crate::support::*;

/// Runs `inside` in a forked child and gives its answer.
fn in_child(inside: impl FnOnce() -> bool) -> bool {
    #[allow(unsafe_code, reason = "no other way to fork")]
    // SAFETY: the child calls nothing but `inside` and ends without running anything of the parent's; `inside` touches a
    // store that no other thread of the parent uses, so none of its locks is held.
    unsafe {
        match libc::fork() {
            0 => {
                let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(inside));
                libc::_exit(i32::from(!matches!(outcome, Ok(true))));
            }
            child => {
                let mut status = 0;
                assert_eq!(libc::waitpid(child, &mut status, 0), child);
                libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
            }
        }
    }
}

#[test]
fn a_forked_child_cannot_use_the_handles_of_its_parent_and_does_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let store = Store::open(&path, Options::default()).unwrap();
    let table = store.create_table("solver", solver_schema()).unwrap();
    let task = store.create_consumer("task", Consumer::task(["solver"]).ready(["prompt"])).unwrap();
    let row = finished(&table, 0, "q_0_0");
    let claim = RefCell::new(task.claim(MicroBatch::of(1), "me", Wait::No).unwrap());
    let answered = in_child(|| {
        let refused: [Result<()>; 7] = [
            table.insert(0, "q_0_1", []).map(drop),
            table.write(row, [("response", vec![1_i32; 40].into())]),
            table.cell(row, "prompt").map(drop),
            store.table("solver").map(drop),
            store.sync(),
            store.run_once().map(drop),
            claim.borrow().as_ref().unwrap().columns(["prompt"]).map(drop),
        ];
        drop(claim.take()); // in the parent this would give the row back
        refused
            .iter()
            .all(|result| matches!(result.as_ref().map_err(Error::cause), Err(Cause::Forked { .. })))
    });
    assert!(answered, "every call is refused with the reason");
    let elsewhere = folder.path().join("other");
    assert!(
        in_child(|| Store::open(&elsewhere, Options::default()).is_ok()),
        "a store of its own is no trouble"
    );
    claim.take().unwrap().release().unwrap();
    finished(&table, 0, "q_0_1");
    let before = scan(&store);
    drop((store, table, task));
    assert_eq!(scan(&Store::open(&path, Options::default()).unwrap()), before);
}

#[test]
fn a_forked_child_lets_go_of_nothing_that_its_parent_holds() {
    let folder = tempfile::tempdir().unwrap();
    let host = HostFolder::At(folder.path().join("host"));
    let options =
        || Options::default().objects(ObjectOptions::default().host_folder(host.clone()).versions_kept(1));
    let store = Store::open(folder.path().join("store"), options()).unwrap();
    let objects = store.objects().unwrap();
    let set = || {
        objects.set(
            "solver",
            &[TensorBytes { class: "weights", name: "w", dtype: Dtype::U8, shape: &[3], bytes: &[7; 3] }],
        )
    };
    set().unwrap();
    objects.spill("solver", Which::Latest).unwrap();
    let held = RefCell::new(Some(objects.get("solver", Which::Latest).unwrap()));
    let on_disk = objects.get_with("solver", Which::Latest, &Get::default().tier(Tier::Disk)).unwrap();
    set().unwrap(); // the first stays only because it is held
    assert!(in_child(|| {
        let read = on_disk.tensor("w").unwrap().to_vec(); // its file may go with the parent's lease
        assert!(matches!(read.unwrap_err().cause(), Cause::Forked { .. }));
        drop(held.take());
        matches!(objects.get("solver", Which::Latest).unwrap_err().cause(), Cause::Forked { .. })
    }));
    assert_eq!(objects.list().len(), 2);
    objects.get_with("solver", Which::Exact(1), &Get::default().tier(Tier::Disk)).unwrap().verify().unwrap();
    assert_eq!(held.take().unwrap().tensor("w").unwrap().to_vec().unwrap(), [7; 3]);
    assert_eq!(on_disk.tensor("w").unwrap().to_vec().unwrap(), [7; 3]);
    drop((held, on_disk, objects, store));
    let store = Store::open(folder.path().join("store"), options()).unwrap();
    assert_eq!(store.objects().unwrap().get("solver", Which::Latest).unwrap().version(), 2);
}

/// A child that is being made while its parent lets a store go has the lock's descriptor too.
#[test]
fn a_store_that_was_let_go_can_be_opened_though_a_child_lives_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let store = Store::open(&path, Options::default()).unwrap();
    let (mut byte, mut ends) = ([0_u8; 1], [0; 2]);
    #[allow(unsafe_code, reason = "no other way to fork")]
    // SAFETY: the pipe is made into an array of two descriptors; the child reads one byte and ends, and runs nothing else.
    let child = unsafe {
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        let child = libc::fork();
        if child == 0 {
            libc::close(ends[1]); // so that the parent's end alone keeps the child waiting
            libc::read(ends[0], byte.as_mut_ptr().cast(), 1);
            libc::_exit(0);
        }
        child
    };
    drop(store);
    let again = Store::open(&path, Options::default());
    #[allow(unsafe_code, reason = "no other way to end the child")]
    // SAFETY: the descriptors are those of the pipe above and the child is ours.
    unsafe {
        libc::close(ends[1]);
        libc::waitpid(child, std::ptr::null_mut(), 0);
        libc::close(ends[0]);
    }
    again.unwrap();
}

#[test]
fn a_forked_child_writes_nothing_into_what_its_parent_fills() {
    let folder = tempfile::tempdir().unwrap();
    let host = HostFolder::At(folder.path().join("host"));
    let options = Options::default().objects(ObjectOptions::default().host_folder(host));
    let store = Store::open(folder.path().join("store"), options).unwrap();
    let objects = store.objects().unwrap();
    let layout = Layout::builder().tensor("weights", "w", Dtype::U8, &[256]).build().unwrap();
    let filling = objects.begin("solver", Expected::Any, &layout).unwrap();
    filling.write("w", 0, &[7; 256]).unwrap();
    let filling = RefCell::new(Some(filling));
    let refused = in_child(|| {
        let filling = filling.take().unwrap();
        let refused = [
            filling.write("w", 0, &[8; 256]),
            filling.write_class("weights", 0, &[8; 256]),
            filling.filled_elsewhere("weights"),
        ];
        filling.fail("the child gives it up");
        refused
            .iter()
            .all(|result| matches!(result.as_ref().map_err(Error::cause), Err(Cause::Forked { .. })))
    });
    assert!(refused, "each with the reason");
    filling.take().unwrap().commit().unwrap();
    let held = objects.get("solver", Which::Latest).unwrap();
    held.verify().unwrap();
    assert_eq!(held.tensor("w").unwrap().to_vec().unwrap(), [7; 256]);
}
