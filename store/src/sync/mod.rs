//! What threads of the store block on and race for: locks, atomics, wake-ups.
//!
//! Everything in the store takes them from here. Ordinarily locks and atomics are those of `parking_lot` and of the standard
//! library, under their own names and at no cost. With the feature `shuttle` they are models whose every step is
//! a point at which another thread may go on, so that `tests/races` can try the orders in which the threads of a whole
//! store may run. The feature is for those tests alone: a model panics outside of an execution. Wake-ups are built of them
//! here, and are the same in both.
//!
//! What stays outside: the count of an `Arc`, and a `OnceLock` that is filled with what is at hand. Neither blocks, and
//! locks are taken on both sides of every place where one decides something. The word of [`process`](crate::process) lies
//! in a page of its own.
//!
//! # What a model cannot show
//! Every atomic is sequentially consistent there, whatever order the code asks for. So an order that is too weak is not
//! found by these tests; see `CONTRIBUTING.md` for what looks at those.

mod event;
#[cfg(feature = "shuttle")]
mod lock;
mod parker;

pub(crate) use self::event::Event;
pub use self::event::EventListener;
#[cfg(feature = "shuttle")]
pub(crate) use self::lock::{Mutex, MutexGuard, RwLock};
#[cfg(not(feature = "shuttle"))]
pub(crate) use parking_lot::{Mutex, MutexGuard, RwLock};

/// Numbers that threads share.
pub(crate) mod atomic {
    #[cfg(feature = "shuttle")]
    pub(crate) use shuttle::sync::atomic::*;
    #[cfg(not(feature = "shuttle"))]
    pub(crate) use std::sync::atomic::*;
}

/// The lock and the condition of the standard library.
pub(crate) mod standard {
    #[cfg(feature = "shuttle")]
    pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard};
    #[cfg(not(feature = "shuttle"))]
    pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.extension() {
                None => sources(&path, found),
                Some(_) => found.push(path),
            }
        }
    }

    /// What is taken past this module is not seen by the tests of races.
    #[test]
    fn every_lock_and_atomic_of_the_store_comes_from_here() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut files = Vec::new();
        sources(&root, &mut files);
        let outside = |path: &Path| path.starts_with(root.join("sync")) || path.ends_with("process.rs");
        let taken = ["parking_lot::", "std::sync::atomic", "std::sync::Mutex", "std::sync::RwLock"];
        for path in files.iter().filter(|path| !outside(path)) {
            let text = std::fs::read_to_string(path).unwrap();
            for name in taken {
                assert!(!text.contains(name), "{} names {name}; take it from crate::sync", path.display());
            }
        }
        assert!(files.len() > 100, "the sources are where they were looked for");
    }
}
