//! What threads of the store block on and race for: locks, atomics, wake-ups.
//!
//! Everything in the store takes them from here. Ordinarily locks and atomics are those of `parking_lot` and of the standard
//! library, at no cost. With the feature `shuttle` they are models whose every step is
//! a point at which another thread may go on, so that `tests/races` can try the orders in which the threads of a whole
//! store may run. The feature is for those tests alone: a model panics outside of an execution. Wake-ups are built of them
//! here, and are the same in both.
//!
//! Every lock has its place in the order in which locks are taken ([`Rank`]), and debug builds see to it that it is kept.
//!
//! What stays outside: the count of an `Arc`, and a `OnceLock` that is filled with what is at hand. Neither blocks, and
//! locks are taken on both sides of every place where one decides something. The word of [`process`](crate::process) lies
//! in a page of its own.
//!
//! # What a model cannot show
//! Every atomic is sequentially consistent there, whatever order the code asks for. So an order that is too weak is not
//! found by these tests; see `CONTRIBUTING.md` for what looks at those.

mod busy;
mod event;
mod held;
#[cfg(feature = "shuttle")]
mod lock;
mod parker;
mod rank;
mod ranked;
pub(crate) mod standard;

pub(crate) use self::busy::BusyMutex;
pub(crate) use self::event::Event;
pub use self::event::EventListener;
pub(crate) use self::rank::Rank;
pub(crate) use self::ranked::{Mutex, MutexGuard, RwLock};

/// Numbers that threads share.
pub(crate) mod atomic {
    #[cfg(feature = "shuttle")]
    pub(crate) use shuttle::sync::atomic::*;
    #[cfg(not(feature = "shuttle"))]
    pub(crate) use std::sync::atomic::*;
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

    /// What a file takes from the standard library's module of locks, in the order of the text.
    fn taken_of_std(text: &str) -> impl Iterator<Item = &str> {
        let named = text.split("std::sync::").skip(1).map(|rest| match rest.strip_prefix('{') {
            Some(group) => group.split_once('}').map_or(group, |(group, _)| group),
            None => {
                rest.split_once(|c: char| !(c.is_alphanumeric() || c == '_')).map_or(rest, |(name, _)| name)
            }
        });
        named.flat_map(|names| names.split(|c: char| !(c.is_alphanumeric() || c == '_')))
    }

    /// What is taken past this module is not seen by the tests of races, and has no place in the order of locks.
    #[test]
    fn every_lock_and_atomic_of_the_store_comes_from_here() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut files = Vec::new();
        sources(&root, &mut files);
        let outside = |path: &Path| path.starts_with(root.join("sync")) || path.ends_with("process.rs");
        let refused = ["atomic", "Mutex", "RwLock", "Condvar"];
        for path in files.iter().filter(|path| !outside(path)) {
            let text = std::fs::read_to_string(path).unwrap();
            let name = if text.contains("parking_lot::") { Some("parking_lot") } else { None };
            let name = name.or_else(|| taken_of_std(&text).find(|name| refused.contains(name)));
            assert!(name.is_none(), "{} takes {name:?}; take it from crate::sync", path.display());
        }
        assert!(files.len() > 100, "the sources are where they were looked for");
        let text = "use std::sync::Arc; use std::sync::{\n    OnceLock, Mutex as Lock,\n}; std::sync::atomic::fence();";
        let taken: Vec<&str> = taken_of_std(text).filter(|name| !name.is_empty()).collect();
        assert_eq!(taken, ["Arc", "OnceLock", "Mutex", "as", "Lock", "atomic"]);
    }
}
