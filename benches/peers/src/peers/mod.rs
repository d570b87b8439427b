//! The peers in this program, one file each. Those in Python lie in `python/`.

pub(crate) mod bare;
pub(crate) mod forebay;
pub(crate) mod lmdb;
pub(crate) mod redis;
pub(crate) mod sqlite;
